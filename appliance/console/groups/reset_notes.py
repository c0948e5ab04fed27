"""The audit log's entry about moved offsets; pages and the API write the same one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest

from ..audit.log import audit

#: Most queues that an entry names.
MOST_NOTED = 200


def note_reset(request: HttpRequest, action: str, done: Any) -> None:
    """Write an entry to the audit log with the old and new offsets of up to MOST_NOTED queues; the journal of resets
    has all of them."""
    some = done.moves[:MOST_NOTED]
    before = {f"{move.topic}/{move.queue_id}": move.before for move in some}
    after: dict[str, object] = {f"{move.topic}/{move.queue_id}": move.to for move in some}
    after |= {"reset": done.id, "to": _target(done.asked), "queues": len(done.moves)}
    audit(request, action, done.group, before, after | {"replays": done.replays, "skips": done.skips})


def _target(asked: str) -> str:
    """Return a reset's target with a time as people read it."""
    kind, _, at_ms = asked.partition(" ")
    try:
        return f"time {datetime.fromtimestamp(int(at_ms) / 1000, UTC).isoformat()}" if kind == "time" else asked
    except (OverflowError, ValueError, OSError):
        return asked
