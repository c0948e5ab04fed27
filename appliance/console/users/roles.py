"""Roles, grants, and the rule that says which of them a caller needs."""

from __future__ import annotations

from typing import Any

from ...engine.named_tuple import NamedTuple

GRANTS = ("may_read_bodies", "may_export")
RANKS = {"": 0, "viewer": 1, "operator": 2, "admin": 3}


class Rule(NamedTuple):
    """The role and grants that a caller needs. role: "" admits all callers.

    door: "setup" for pages that exist only while the set-up wizard is open; "local" for pages that callers on this
    machine may read without signing in; else "".
    """

    role: str
    grants: tuple[str, ...] = ()
    door: str = ""

    def with_grants(self, *names: str) -> Rule:
        """Return this rule with these grants added."""
        assert set(names) <= set(GRANTS), names
        return self._replace(grants=(*self.grants, *names))

    def admits(self, user: Any) -> bool:
        """True if a user, a token's bearer or `identity.AnonymousUser` has the role and the grants."""
        return RANKS[user.role] >= RANKS[self.role] and all(getattr(user, grant) for grant in self.grants)


EVERYONE = Rule("")
VIEWER = Rule("viewer")
OPERATOR = Rule("operator")
ADMIN = Rule("admin")
# No role needed: whoever has the link may set up.
SETUP = Rule("", door="setup")
SETUP_ADMIN = Rule("admin", door="setup")
LOCAL_OR_VIEWER = Rule("viewer", door="local")
