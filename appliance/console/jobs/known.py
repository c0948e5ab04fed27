"""Every module with kinds of jobs; importing it registers them."""

from . import audit_check

__all__ = ["audit_check"]
