"""Connected clients."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from ... import runtime
from .. import auth
from ..paging import Cursor, Limit, table
from ..schemas import Text
from ..topic_schemas import ClientPage

router = Router(tags=["clients"])

Sort = Literal[
    "client_id", "address", "language", "version", "heartbeat",
    "-client_id", "-address", "-language", "-version", "-heartbeat",
]  # fmt: skip


@router.get("/clients", response=ClientPage)
def list_clients(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: Text = Query("", max_length=255, description="Part of a client id, an address or a group."),
    role: Literal["producer", "consumer"] | None = None,
    group: Text | None = Query(None, max_length=1024),
    sort: Sort = "client_id",
) -> Any:
    """Connections that have sent heartbeats. A token with a pattern must name a group that matches it."""
    if group is None:
        auth.require_all_names(request)
    else:
        auth.require_groups(request, group)
    admin = runtime.window()
    page = lambda number, size: admin.clients(q, role, group, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("clients", q, role, group, sort), named=False)
