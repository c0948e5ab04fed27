"""Imports every module that defines kinds of jobs, which registers them."""

from . import audit_check, backup, dead_letter_archive, message_copy, message_export, message_import, quarantine_send

__all__ = [
    "audit_check",
    "backup",
    "dead_letter_archive",
    "message_copy",
    "message_export",
    "message_import",
    "quarantine_send",
]
