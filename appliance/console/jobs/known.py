"""Every module with kinds of jobs; importing it registers them."""

from . import audit_check, backup, dead_letter_archive, message_export, message_import, quarantine_send

__all__ = ["audit_check", "backup", "dead_letter_archive", "message_export", "message_import", "quarantine_send"]
