"""The access table: the rule of each view and of each operation of the API. A view without a rule is refused.

The table is made of the rows in `acts`; the middleware (`middleware.Access`) asks it before every view.

    "topic_create": OPERATOR,                       the role, or a higher one
    "message_raw": VIEWER.with_grants("may_read_bodies"),  and a right that no role includes
    "POST api/v1/topics": OPERATOR,                 an operation of the API: method and route, as `resolve().route`

A view that changes something and also shows the form for it has one name, with the rule of the change. Templates use
`{% if can.topic_create %}`, code uses `allows(user, "topic_create")`. Destructive views are also decorated with
`recent_login.recent_login_required`.
"""

from __future__ import annotations

from typing import Any

from ..acts import ACTS, CALLS
from .roles import Rule

#: View name, or method and route of an operation -> rule. An operation has the rule of its page.
ACCESS: dict[str, Rule] = {act.name: act.rule for act in ACTS}
ACCESS |= {call.key: ACCESS[page] for page, call in CALLS}

#: Views that do not work on a slave: its pages have no links to them, and the engine refuses their acts.
MASTERS_WORK = frozenset(act.name for act in ACTS if act.master)


def rule_for(name: str, method: str = "", route: str = "") -> Rule | None:
    """Return the rule of a view, or of one operation of the API; None if it has none, and so is refused to all."""
    return ACCESS.get(f"{method} {route}") or ACCESS.get(name)


def methods_of(route: str) -> list[str]:
    """Return the methods of the API's operations at a route; empty for a page."""
    return [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if f"{method} {route}" in ACCESS]


def allows(user: Any, name: str) -> bool:
    """True if the user may open this view; for menus and buttons."""
    rule = ACCESS.get(name)
    return rule is not None and rule.admits(user)
