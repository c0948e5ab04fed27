"""The child process that makes the reports of one day: `python -m spark_reports.run DIRECTORY`."""
