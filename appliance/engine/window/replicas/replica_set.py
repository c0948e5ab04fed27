"""A set of brokers with fail-over, as the window asks a member of it."""

from __future__ import annotations

from typing import Protocol

from ...errors import Unavailable
from ..snapshots import Change
from .snapshots import SetView


def seen(replica_set: ReplicaSet | None) -> SetView | None:
    """Return the present view of the set; None without a set, and before the first view was made."""
    if replica_set is None:
        return None
    try:
        return replica_set.view()
    except Unavailable:
        return None


def leader_of(replica_set: ReplicaSet) -> str | None:
    """Return the clients' address of the set's leader; None if this member leads, and while it is not known."""
    view = seen(replica_set)
    return None if view is None or view.leader in ("", view.uuid) else view.leader_addr


class ReplicaSet(Protocol):
    """A member's set, as the window needs it; any thread."""

    def view(self) -> SetView: ...

    def switch(self, to: str = "", *, dry_run: bool = False, by: str = "") -> Change:
        """Have another member lead: no acknowledged message is lost, sends meanwhile are passed on. On the leader only.

        to: uuid or slot of a member in sync; "": the most suitable one. Returns when the other member leads, or when
        leadership was given up and no member has taken it within 10 s. NotFound (member), Conflict (this member does
        not lead; the other is not in sync; there is no other; no set), Unavailable (the store does not answer; not
        drained in time: this member stays the leader).
        """

    def adopt(self, uuid: str, confirm: str, *, dry_run: bool = False, by: str = "") -> Change:
        """Have a member lead although its log may be incomplete: after the store was wiped or restored, or if the only
        members in sync are gone for good. Messages that others acknowledged and this member does not have are lost;
        `warnings` give the amount. confirm: the set's name.

        On the member itself. NotFound (member), InvalidInput (confirm), Conflict (a leader lives; no set), Unavailable.
        """
