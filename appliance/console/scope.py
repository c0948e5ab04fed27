"""The pages that users with patterns may see. Tokens and the API have their own checks (`api.auth`).

A page is open to them if it is listed here; all others are about the whole broker and are refused. Pages with a topic
or a group in their address are open for names that match the patterns; lists leave out the other names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .identity import names_for

if TYPE_CHECKING:
    from django.http import HttpRequest

Fetch = Callable[[int, int], Any]

# Pages about the users themselves, and pages that show nothing of the broker.
OWN = frozenset(
    (
        *("healthz", "readyz", "static_file", "login", "login_code", "login_oidc", "login_oidc_back", "logout"),
        *("set_language", "set_time_zone", "set_password", "confirm_password", "account", "api_docs", "openapi"),
        *("second_factor", "second_factor_codes", "second_factor_off", "session_end"),
        *("tokens", "token_create", "token_created", "token_revoke"),
    )
)
# Pages with a topic's name in their address, and those with a group's.
OF_A_TOPIC = frozenset(("topic", "topic_edit", "topic_delete"))
OF_A_GROUP = frozenset(
    (
        *("group", "group_edit", "group_delete", "dead_letters", "replay_create"),
        *("group_retries", "group_retries_act", "group_retries_done"),
        *("group_now", "group_diagnosis", "group_pause", "group_resets", "group_reset_done", "group_reset_progress"),
        # These check the topics, too.
        *("group_reset", "group_reset_undo"),
    )
)
# These views check for themselves: the replay in their address determines the group.
OF_A_REPLAY = frozenset(("replay", "replay_progress", "replay_results_file", "replay_act"))
# Lists from which `cut` leaves out names.
LISTS = frozenset(("topics", "groups", "dead_letter_groups"))


def opens(user: Any, view: str) -> bool:
    """True if a user's patterns allow them to see a page at all, be it for some names only."""
    return names_for(user).is_every or view in OWN | LISTS | OF_A_REPLAY | OF_A_TOPIC | OF_A_GROUP


def admits(user: Any, view: str, name: str | None) -> bool:
    """True if a user's patterns allow them to see a page. name: the topic or group in its address."""
    names = names_for(user)
    if names.is_every or view in OWN or view in LISTS or view in OF_A_REPLAY:
        return True
    if view in OF_A_TOPIC:
        return name is not None and names.has_topic(name)
    return view in OF_A_GROUP and name is not None and names.has_group(name)


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
