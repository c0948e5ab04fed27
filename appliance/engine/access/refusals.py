"""What the gate refused, or would have in report mode: one row for each user, resource and reason. PURE.

Bounded: a user has room for 50 rows and crowds out its own only; there are rows of 100 users. Names that no user has
are one user, "". Rows are gone with the process.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

MOST_USERS, MOST_EACH = 100, 50

#: Reasons: no AccessKey; unknown or disabled user, or another secret; a user who has to come over TLS came in clear;
#: for Super users only; no entry fits; one denies.
NO_USER, NOT_PROVED, NO_TLS, NOT_SUPER = "no_user", "not_proved", "no_tls", "not_super"
NO_ENTRY, DENIED = "no_entry", "denied"


class Refusal(msgspec.Struct, gc=False):
    """Refusals of one kind. resource: as "Topic:orders"; "" when the reason is none of an entry. actions: any one of
    them would do, sorted. code, address: of the last one. first_ms, last_ms: wall clock."""

    user: str
    resource: str
    actions: tuple[str, ...]
    reason: str
    first_ms: int
    last_ms: int = 0
    code: int = 0
    address: str = ""
    count: int = 0


class Refusals:
    """Not safe for threads."""

    def __init__(self) -> None:
        # User -> (resource, actions, reason) -> row; users and rows in the order of their last refusal.
        self._users: OrderedDict[str, OrderedDict[tuple[str, tuple[str, ...], str], Refusal]] = OrderedDict()

    def add(
        self, user: str, resource: str, actions: tuple[str, ...], reason: str, *, code: int, address: str, now_ms: int
    ) -> None:
        """Count a refusal."""
        rows = self._users.setdefault(user, OrderedDict())
        self._users.move_to_end(user)
        if len(self._users) > MOST_USERS:
            self._users.popitem(last=False)
        key = resource, actions, reason
        row = rows.setdefault(key, Refusal(user, resource, actions, reason, first_ms=now_ms))
        rows.move_to_end(key)
        if len(rows) > MOST_EACH:
            rows.popitem(last=False)
        row.last_ms, row.code, row.address = now_ms, code, address
        row.count += 1

    def rows(self) -> list[Refusal]:
        """Return a copy of all rows."""
        return [msgspec.structs.replace(row) for rows in self._users.values() for row in rows.values()]
