"""Connected clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from ... import runtime
from ...engine.errors import NotFound
from ...engine.window.clients.asking_snapshots import RunningInfo
from .. import auth
from ..changes import audited, by
from ..paging import Cursor, Limit, table
from ..schemas import Text
from ..topic_schemas import ClientConnections, ClientPage

router = Router(tags=["clients"])

Sort = Literal[
    "client_id", "address", "language", "version", "heartbeat", "connected",
    "-client_id", "-address", "-language", "-version", "-heartbeat", "-connected",
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
    """Connections that have sent heartbeats. A token with a pattern must name a group that matches it; other groups are
    left out."""
    if group is None:
        auth.require_all_names(request)
    else:
        auth.require_groups(request, group)
    admin = runtime.window()
    sees = _sees(request)
    page = lambda number, size: admin.clients.page(q, role, group, sort, number, size, sees)  # noqa: E731
    return table(request, page, cursor, limit, ("clients", q, role, group, sort))


@router.get("/clients/{path:client_id}", response=ClientConnections)
def client(request: HttpRequest, client_id: str) -> Any:
    """The connections of one client. A token with a pattern must be able to access a group that it names; other groups
    are left out."""
    rows = runtime.window().clients.named(client_id, _sees(request))
    if not rows:
        raise NotFound("client", client_id)
    return {"items": rows}


def _sees(request: HttpRequest) -> Callable[[str], bool] | None:
    names = auth.names(request)
    return None if names.is_every else names.has_group


@router.post("/groups/{group}/clients/{path:client_id}/running-info", response=RunningInfo)
def running_info(
    request: HttpRequest,
    group: str,
    client_id: str,
    stack: bool = Query(False, description="Its threads, too. A client stops all of them for a moment to list them."),
) -> Any:
    """Ask a connected consumer what it does; it has 10 s for the answer. 409 while it is being asked, 503 when it does
    not answer."""
    ask = lambda: runtime.window().asking.running_info(group, client_id, stack=stack, by=by(request))  # noqa: E731
    found = audited(request, "client.ask", client_id, ask, lambda done: {"group": group, "stack": stack})
    return found
