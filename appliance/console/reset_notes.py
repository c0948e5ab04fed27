"""The audit log's line about offsets that were moved; pages and API write the same one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from .audit import audit

#: Queues that a line names.
MOST_NOTED = 200


def note_reset(request: HttpRequest, action: str, done: Any) -> None:
    """A line in the audit log, with what each queue had; of very many the journal has the rest."""
    some = done.moves[:MOST_NOTED]
    before = {f"{move.topic}/{move.queue_id}": move.before for move in some}
    after: dict[str, object] = {f"{move.topic}/{move.queue_id}": move.to for move in some}
    after |= {"reset": done.id, "to": done.asked, "queues": len(done.moves)}
    audit(request, action, done.group, before, after | {"replays": done.replays, "skips": done.skips})
