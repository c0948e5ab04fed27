"""The pages that users with patterns may see. Tokens and the API have their own checks (`api.auth`).

A page is open to them if its row in `acts` says `names`; all others are about the whole broker and are refused. Pages
with a topic or a group in their address are open for names that match the patterns; lists leave out the other names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..acts import ACTS
from ..acts.row import GROUP, LIST, OWN, REPLAY, TOPIC
from ..sign_in.identity import names_for

if TYPE_CHECKING:
    from django.http import HttpRequest

Fetch = Callable[[int, int], Any]

#: Page -> "own", "list", "topic", "group" or "replay"; see `acts.row`.
NAMES = {act.name: act.names for act in ACTS if act.names}


def opens(user: Any, view: str) -> bool:
    """True if a user's patterns allow them to see a page at all, be it for some names only."""
    return view in NAMES or names_for(user).is_every


def admits(user: Any, view: str, name: str | None) -> bool:
    """True if a user's patterns allow them to see a page. name: the topic or group in its address."""
    names = names_for(user)
    kind = NAMES.get(view)
    if names.is_every or kind in (OWN, LIST, REPLAY):
        return True
    if kind == TOPIC:
        return name is not None and names.has_topic(name)
    return kind == GROUP and name is not None and names.has_group(name)


def may_move(user: Any, reset: Any) -> bool:
    """True if a user's patterns allow them all topics whose queues an offset reset moves."""
    names = names_for(user)
    return all(names.has_topic(topic) for topic in {move.topic for move in reset.moves})


def cut(request: HttpRequest, kind: str, fetch: Fetch) -> Fetch:
    """Return a fetch of the same table without the rows that do not match the user's patterns.

    fetch: (page, page size) -> Page. kind: "topic" or "group"; the name is the row's `name`, or else its `group`.
    """
    names = names_for(request.user)
    if names.is_every:
        return fetch
    may = names.has_topic if kind == "topic" else names.has_group

    def fetch_cut(number: int, size: int) -> Any:
        from ...engine.cursors import whole

        table = whole(fetch)
        rows = [row for row in table.rows if may(row.name if hasattr(row, "name") else row.group)]
        pages = max(1, -(-len(rows) // size))
        number = min(max(1, number), pages)
        shown = tuple(rows[(number - 1) * size : number * size])
        return replace(table, rows=shown, total=len(rows), page=number, pages=pages, page_size=size)

    return fetch_cut
