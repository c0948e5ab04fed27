"""The role of a broker in its set, and its ties to the others. A broker is built for one role; at a change of role
another one is built."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..config import EngineConfig
from ..named_tuple import NamedTuple
from ..protocol.command import RemotingCommand
from ..replication.roles import NO_GUARD, Guard

if TYPE_CHECKING:
    from ..replication.shared_secret import Greeting


class Kind(enum.Enum):
    """MASTER, SLAVE: by the settings, for the broker's life. The others: of a member of a set that fails over."""

    MASTER = "master"
    SLAVE = "slave"
    FENCED = "fenced"
    FOLLOWER = "follower"
    LEADER = "leader"


#: Time in which a new leader registers at all name servers again and again: the old one may register in between.
HURRY_S = 30.0


class RegisteredAs(NamedTuple):
    """How a broker of some role registers at name servers.

    broker_id: instead of the settings'. epoch: the state version of the table, by which name servers distinguish
    leaders of a set. hurry_s: time from the start on in which the whole table is sent each second. says_good_bye:
    unregister at the end. False if another broker may have this broker's id meanwhile: 104 makes name servers of 4.9
    forget the broker that has it, while a closed connection makes them forget this address only.
    """

    broker_id: int | None = None
    epoch: int = 0
    hurry_s: float = 0.0
    says_good_bye: bool = True


class Role(NamedTuple):
    """broker_id: the one that is registered. epoch: of a leader or of the one that is followed; 0 without fail-over.

    why: reason why a broker is fenced. position: returns up to where the log may be published: on a leader, where all
    members that it waits for have it; on a follower, where its leader has confirmed it. None if nothing else limits
    publication.
    """

    kind: Kind
    broker_id: int
    epoch: int = 0
    why: str = ""
    position: Callable[[], int] | None = None

    @property
    def appends(self) -> bool:
        """True if the broker takes messages, and stores messages of its own."""
        return self.kind in (Kind.MASTER, Kind.LEADER)

    @property
    def is_member(self) -> bool:
        return self.kind in (Kind.FENCED, Kind.FOLLOWER, Kind.LEADER)

    @property
    def is_told(self) -> bool:
        """True if the broker registers at name servers."""
        return self.kind is not Kind.FENCED

    @property
    def registered_as(self) -> RegisteredAs:
        leads = self.kind is Kind.LEADER
        return RegisteredAs(self.broker_id, self.epoch, HURRY_S if leads else 0.0, not leads)

    @property
    def no_sends(self) -> str:
        """The reason why it takes no sends, to follow "service not available now"; "" if it takes them."""
        if self.kind is Kind.SLAVE:
            return "messages are put to the slave"  # the text of Apache's slaves
        if self.kind is Kind.FOLLOWER:
            return "another broker of the set leads"
        return f"this broker is fenced: {self.why}" if self.kind is Kind.FENCED else ""


def role_of(config: EngineConfig) -> Role:
    """Return the role by the settings, for a broker that keeps its role."""
    kind = Kind.SLAVE if config.store.broker_role == "SLAVE" else Kind.MASTER
    return Role(kind, config.broker.broker_id)


class UserCopies(Protocol):
    """The follower's side of the copying of users; `access/copies.py`."""

    def take(
        self, ask: Callable[[RemotingCommand], RemotingCommand], session: Callable[[], bytes], wait_ms: int = 0
    ) -> bool:
        """Take over what the broker that is asked has changed since the last call, durably; True if there was
        something. session: key of the connection. wait_ms: that broker may wait for a change so long. Raises
        ValueError, OSError, and what `ask` raises."""


class Ties(NamedTuple):
    """The secret and the users that a broker shares with the others of its name.

    new_greeting: makes the proof for a client; None without a secret. copy_users: makes the copying of users from
    one broker; None without access control. guard: of connections for the log."""

    new_greeting: Callable[[], Greeting] | None = None
    copy_users: Callable[[], UserCopies] | None = None
    guard: Guard = NO_GUARD

    def greeting(self) -> Greeting | None:
        """Return the proof for a new client."""
        return None if self.new_greeting is None else self.new_greeting()


#: The ties of a broker without a secret.
NO_TIES = Ties()
