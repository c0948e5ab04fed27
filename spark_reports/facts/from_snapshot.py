"""Tables that need no counting: from the snapshot, and LAG and INCIDENTS from `lag.jsonl` and `incidents.jsonl` in the
run's directory.

These hold a JSON object a line, with the table's columns as names. Without the file nothing was measured.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..run import plan as files
from ..snapshot import Snapshot
from .hours import stretches
from .tables import DELETED_UNREAD, DISK, GROUPS, INCIDENTS, LAG, QUEUES, DayFacts, Row, Table


def rows_from_snapshot(snapshot: Snapshot, run_dir: Path) -> DayFacts:
    """Return LAG, INCIDENTS, QUEUES, GROUPS, DISK and DELETED_UNREAD. Raises OSError, ValueError if a file of
    measurements cannot be read."""
    return {
        LAG.name: _measured(run_dir / files.LAG, LAG),
        INCIDENTS.name: _measured(run_dir / files.INCIDENTS, INCIDENTS),
        QUEUES.name: sorted((one.topic, one.queue_id, one.min_offset, one.max_offset) for one in snapshot.queues),
        GROUPS.name: sorted(
            (one.name, len(one.clients), _known(one.lag), _known(one.oldest_unread_ms), one.limit_ms)
            for one in snapshot.groups
        ),
        DELETED_UNREAD.name: _unread_rows(snapshot),
        DISK.name: [
            (
                snapshot.disk_total,
                snapshot.disk_free,
                snapshot.store_bytes,
                snapshot.log_end - snapshot.log_min,
                snapshot.retention_ms,
                snapshot.t0_ms,
            )
        ],
    }


def _unread_rows(snapshot: Snapshot) -> list[Row]:
    """Return the rows by the hour of the clock; one hour of the broker may lie in two of these."""
    cuts = stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone)
    found: dict[tuple[str, str, int, int], list[int]] = {}
    for one in snapshot.deleted_unread:
        if snapshot.from_ms <= one.at_ms < snapshot.to_ms:
            stretch = max((cut for cut in cuts if cut.from_ms <= one.at_ms), default=cuts[0])
            key = one.group, one.topic, one.queue_id, stretch.hour(one.at_ms)
            known = found.setdefault(key, [0, one.begin, one.end, one.at_ms])
            known[:] = [
                known[0] + one.messages, min(known[1], one.begin), max(known[2], one.end), max(known[3], one.at_ms)
            ]  # fmt: skip
    return [(*key, *values) for key, values in sorted(found.items())]


def _measured(path: Path, table: Table) -> list[Row]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    try:
        found = [json.loads(line) for line in lines]
        return sorted(tuple(one[name] for name, _ in table.columns) for one in found)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error!r}") from None


def _known(value: int | None) -> int:
    return -1 if value is None else value
