"""The audit log, for reading; nothing changes it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from ...console.audit import wire_entries
from ...console.audit.log import named
from ...console.models import AuditEntry
from ..paging import Cursor, From, Limit, To, decode_position, encode_position
from ..schemas import AuditFilter, AuditPage

router = Router(tags=["audit"])


@router.get("/audit", response=AuditPage)
def list_audit(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    from_ms: From,
    to_ms: To,
    asked: Query[AuditFilter],
) -> Any:
    """Recorded acts, newest first, including those over RocketMQ's ports (actor_kind `wire`).

    `after` of such an entry: `more`, how many acts it stands for; `counted_from_here`, later ones of its minute are.
    """
    wire_entries.take_over_if_possible()
    wanted = {"actor_kind" if name == "kind" else name: value for name, value in asked}
    wanted |= {"at_ms__gte": from_ms, "at_ms__lte": to_ms}
    filters = {name: value for name, value in wanted.items() if value is not None}
    exact = {name: value for name, value in filters.items() if name != "q"}
    rows = AuditEntry.objects.filter(**exact).order_by("-id")
    if asked.q:
        rows = rows.filter(named(asked.q))
    if cursor is not None:
        rows = rows.filter(id__lt=decode_position(cursor, filters))
    found = list(rows[: limit + 1])
    more = len(found) > limit
    return {"items": found[:limit], "next_cursor": encode_position(found[limit - 1].pk, filters) if more else None}
