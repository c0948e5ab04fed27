"""Accounts of Apache's ACL 1.0 as users of the wire, for page and API: one text at a time, with a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpRequest

from ... import runtime
from ...engine.errors import Conflict
from ..audit.log import audit
from ..pages.changes import failure_audited
from ..system.plain_yaml import load

if TYPE_CHECKING:
    from ...engine.window.access.snapshots import ImportReport

IMPORTED = "wire-user.import"


def take(request: HttpRequest, text: str, *, dry_run: bool) -> ImportReport:
    """Make users of a text's accounts, and write those that were made to the audit log. Raises InvalidInput (text), and
    Conflict where users cannot be made."""
    content = load(text, as_written=True)  # a secret of 0x1234abcd is one of ten letters
    if dry_run:
        return runtime.window().users.import_accounts(content, dry_run=True)
    try:
        with failure_audited(request, IMPORTED, ""):
            report = runtime.window().users.import_accounts(content, by=request.user.label)
    except Conflict as error:
        audit(request, IMPORTED, "", None, {"reason": str(error)}, "refused")
        raise
    for user in report.users:
        if user.outcome == "made":
            entries = {
                f"Default {entry.resource}" if entry.policy == "Default" else entry.resource: " ".join(
                    (entry.decision, ", ".join(entry.actions))
                )
                for entry in user.entries
            }
            audit(request, IMPORTED, user.name, None, {"userType": user.user_type} | entries)
    return report
