"""Scheduled backups, and their pages."""
