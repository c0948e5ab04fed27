"""This process: system, options, log lines, retention, backups, inputs of the reports."""
