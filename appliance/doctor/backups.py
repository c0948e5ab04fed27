"""Looks at the backups that the console made: how old the last one is, and whether its manifest can be read."""

from __future__ import annotations

import time
from pathlib import Path

from ..engine.backup import BackupError, read_manifest
from ..engine.window.health import limits
from .diagnosis import Diagnosis, size_text


def look_at_backups(found: Diagnosis, own: Path) -> None:
    """The newest one's manifest only: `rocketbox backup --check` reads all of it."""
    paths = sorted((own / "backups").glob("rocketbox-*.tar"), key=lambda path: path.stat().st_mtime)
    if not paths:
        found.ok("backups", "No backup was made in the data directory; rocketbox backup makes one anywhere.")
        return
    newest = paths[-1]
    try:
        manifest = read_manifest(newest)
    except BackupError as error:
        found.fail("backups", str(error), "make another one; rocketbox backup --check reads the older ones")
        return
    days = max(0.0, time.time() - manifest.made_at_ms / 1000) / 86_400
    text = (
        f"The newest of {len(paths)} backups is {days:.1f} days old: {newest.name}, {size_text(manifest.total_bytes)}."
    )
    if days > limits.BACKUP_DAYS:
        found.warn("backups", text, "make one at System, Backups, where they can also be scheduled")
    else:
        found.ok("backups", text)
