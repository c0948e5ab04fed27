"""The settings database, step by step."""
