"""Jobs that back up the whole data directory, and that check a backup."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from ..backups import settings as backups
from ..users.roles import ADMIN
from .registry import kind
from .work import JobFailed, Work

_WORDS = {"bytes": _("bytes")}


@kind(backups.KIND, title=_("Make a backup"), start=ADMIN, words=_WORDS, alone=True)
def back_up(work: Work) -> None:
    """Copy the data directory into a backup file, then delete the oldest backups beyond the number to keep."""
    from ...engine.backup import BackupError
    from ...engine.backup.archive import remove_partials

    try:
        directory = backups.made_directory()
        remove_partials(directory)
        name = backups.new_name()
        made = work.window.backups.make(
            directory / name, lambda done, total: work.progress(done, max(done, total), "bytes")
        )
    except (BackupError, OSError) as error:
        raise JobFailed(gettext_noop("The backup was not made: %(why)s"), why=str(error)) from None
    gone = backups.prune(backups.schedule().keep, name)
    manifest = made.manifest
    work.result(
        {
            "backup": name,
            "files": len(manifest.files),
            "bytes": manifest.total_bytes,
            "log_from": manifest.begin_offset,
            "log_to": manifest.end_offset,
            "deleted": gone[:20],
        }
    )


@kind(backups.CHECK_KIND, title=_("Check a backup"), start=ADMIN, words=_WORDS)
def check(work: Work) -> None:
    """Read a backup and compare every file with its manifest."""
    from ...engine.backup import BackupError, check_backup

    path = backups.path_of(str(work.parameters["backup"]))
    try:
        manifest = check_backup(path, lambda done, total: work.progress(done, max(done, total), "bytes"))
    except BackupError as error:
        raise JobFailed(gettext_noop("This backup cannot be restored: %(why)s"), why=str(error)) from None
    work.result({"backup": path.name, "whole": True, "files": len(manifest.files), "log_to": manifest.end_offset})
