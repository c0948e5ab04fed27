"""The job that checks whether every entry of the audit log is present and unaltered."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext_lazy as _

from ..audit import log as audit
from ..audit.seal import Row
from ..models import AuditEntry
from ..users.roles import ADMIN
from .registry import kind
from .work import JobFailed, Work

NAME = "audit-check"


class _Counted(audit.DatabaseTable):
    """The table of entries; reading it reports the job's progress."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        self._total = AuditEntry.objects.count()

    def rows(self, behind: int) -> Iterator[Row]:
        for number, row in enumerate(super().rows(behind), 1):
            yield row
            self._work.progress(number, max(self._total, number), "entries")


@kind(NAME, title=_("Verify the audit log"), start=ADMIN, words={"entries": _("entries")}, alone=True)
def check(work: Work) -> None:
    """Read every entry and compare it with its digest and with the one before."""
    found = audit.check_table(_Counted(work))
    work.result({"intact": found.is_well, "found": str(found)})
    if not found.is_well:
        raise JobFailed(found.template, **found.args)
