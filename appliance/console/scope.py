"""Users with patterns: which pages they see. Tokens and the API have their own checks (`api.auth`).

A page is open to them when it is listed here; every other one is about the whole broker, and refused. Pages that name a
topic or a group in their address are open for names that the patterns let through; lists leave the others out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .identity import names_for

if TYPE_CHECKING:
    from django.http import HttpRequest

Fetch = Callable[[int, int], Any]

# Their own affairs, and what shows nothing of the broker.
OWN = frozenset(
    (
        *("healthz", "readyz", "static_file", "login", "login_code", "login_oidc", "login_oidc_back", "logout"),
        *("set_language", "set_time_zone", "set_password", "confirm_password", "account", "api_docs", "openapi"),
        *("second_factor", "second_factor_codes", "second_factor_off", "session_end"),
        *("tokens", "token_create", "token_created", "token_revoke"),
    )
)
# The address's `name` is a topic's, or a group's.
OF_A_TOPIC = frozenset(("topic", "topic_edit", "topic_delete"))
OF_A_GROUP = frozenset(
    (
        *("group", "group_edit", "group_delete", "dead_letters", "replay_create"),
        *("group_retries", "group_retries_act", "group_retries_done"),
        *("group_now", "group_diagnosis", "group_pause", "group_resets", "group_reset_done", "group_reset_progress"),
        # These look at the topics, too.
        *("group_reset", "group_reset_undo"),
    )
)
# They ask for themselves: what their address names tells which group it is about.
OF_A_REPLAY = frozenset(("replay", "replay_progress", "replay_results_file", "replay_act"))
# Lists that `cut` cuts.
LISTS = frozenset(("topics", "groups", "dead_letter_groups"))


def admits(user: Any, view: str, name: str | None) -> bool:
    """Whether a user's patterns let them see a page. name: the topic or group in its address."""
    names = names_for(user)
    if names.is_every or view in OWN or view in LISTS or view in OF_A_REPLAY:
        return True
    if view in OF_A_TOPIC:
        return name is not None and names.has_topic(name)
    return view in OF_A_GROUP and name is not None and names.has_group(name)


def cut(request: HttpRequest, kind: str, fetch: Fetch) -> Fetch:
    """The same table without what the user's patterns keep back.

    fetch: (page, page size) -> Page. kind: "topic" or "group", the name being the row's `name`, or its `group`.
    """
    names = names_for(request.user)
    if names.is_every:
        return fetch
    may = names.has_topic if kind == "topic" else names.has_group

    def fetch_cut(number: int, size: int) -> Any:
        part = fetch(1, 500)
        found = list(part.rows)
        for at in range(2, part.pages + 1):
            found += fetch(at, 500).rows
        rows = [row for row in found if may(row.name if hasattr(row, "name") else row.group)]
        pages = max(1, -(-len(rows) // size))
        number = min(max(1, number), pages)
        shown = tuple(rows[(number - 1) * size : number * size])
        return replace(part, rows=shown, total=len(rows), page=number, pages=pages, page_size=size)

    return fetch_cut
