"""The part of the window for users of the wire and their entries. It works without a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import Conflict
from . import snapshots as s
from .process_window import ProcessWindow
from .sentences import say

if TYPE_CHECKING:
    from .access.snapshots import Decision, WireUser, WireUserChange
    from .access.users import WireUsers


class AccessWindow(ProcessWindow):
    """Any thread but remoting-io. All but `access_mode` raise Conflict while access control is off.

    A change is durable when it is returned. by: the user, for the log. dry_run: the same checks, nothing changes.
    revision: of the user when it was read; Conflict if it is another one by now. Unavailable: it cannot be saved.
    """

    #: None while access control is off.
    _users: WireUsers | None = None

    def take_users(self, users: WireUsers | None) -> None:
        """Take the users of the wire. Called by the engine, before anybody asks, if access control is on."""
        self._users = users

    def access_mode(self) -> str:
        """Return "off", "report" or "enforce"."""
        return "off" if self._users is None else self._users.mode

    def _controlled(self) -> WireUsers:
        if self._users is None:
            raise Conflict(say("access_off"))
        return self._users

    def wire_users(self, q: str = "", sort: str = "name", page: int = 1, page_size: int = 50) -> s.Page:
        """Return a page of WireUser. q: part of the name, upper and lower case alike. sort: name, type, state, entries;
        "-" before it for the largest first. page_size: 1 to 500. InvalidInput for anything else."""
        return self._controlled().page(q, sort, page, page_size)

    def who_may(self, resource: str, sort: str = "user", page: int = 1, page_size: int = 50) -> s.Page:
        """Return a page of AccessRow: the users who may do something on one topic, group or cluster, as "Topic:orders".
        sort: user, type. InvalidInput (resource)."""
        return self._controlled().who_may(resource, sort, page, page_size)

    def wire_refusals(self, q: str = "", sort: str = "-last", page: int = 1, page_size: int = 50) -> s.Page:
        """Return a page of RefusalRow: what was refused since the start, or in report mode would be, without what the
        entries allow by now. q: part of user or resource. sort: user, resource, count, last."""
        return self._controlled().refusals(q, sort, page, page_size)

    def wire_user(self, name: str) -> WireUser:
        """Return one user. NotFound."""
        return self._controlled().one(name)

    def create_wire_user(
        self, name: str, *, user_type: str = "Normal", dry_run: bool = False, by: str = ""
    ) -> WireUserChange:
        """Make a user, with a new secret. InvalidInput (name, user_type); Conflict if it exists."""
        return self._controlled().create(name, user_type, dry_run, by)

    def act_on_wire_user(
        self, name: str, act: str, *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> WireUserChange:
        """Do one of `access.acts.USER_ACTS`. NotFound, InvalidInput (act); Conflict if it cannot be done now."""
        return self._controlled().act(name, act, revision, dry_run, by)

    def delete_wire_user(
        self, name: str, *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> WireUserChange:
        """Delete a user and its entries. NotFound; Conflict for the last Super user who is enabled."""
        return self._controlled().delete(name, revision, dry_run, by)

    def put_entry(
        self,
        name: str,
        resource: str,
        actions: Iterable[str],
        sources: Iterable[str] = (),
        decision: str = "Allow",
        policy: str = "Custom",
        *,
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> WireUserChange:
        """Give a user an entry; it takes the place of the one of the same policy and resource. NotFound, InvalidInput
        (resource, actions, sources, decision, policy); Conflict if there are too many."""
        return self._controlled().put_entry(
            name, policy, (resource, tuple(actions), tuple(sources), decision), revision, dry_run, by
        )

    def remove_entry(
        self,
        name: str,
        resource: str,
        policy: str = "Custom",
        *,
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> WireUserChange:
        """Take an entry from a user. NotFound, InvalidInput (resource, policy)."""
        return self._controlled().remove_entry(name, policy, resource, revision, dry_run, by)

    def decide(self, name: str, action: str, resource: str, address: str) -> Decision:
        """Return whether a user may do something, and which entry decides. action: as "Pub". resource: one topic, group
        or cluster, as "Topic:orders". address: the client's. NotFound, InvalidInput (action, resource, address)."""
        return self._controlled().decide(name, action, resource, address)
