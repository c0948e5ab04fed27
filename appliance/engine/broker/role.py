"""What a broker is in its set, and what follows from it. It is built for one role; for another, another is built."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ..config import EngineConfig
from ..named_tuple import NamedTuple


class Kind(enum.Enum):
    """MASTER, SLAVE: as the settings say, for the broker's life. The others: of a member of a set that fails over."""

    MASTER = "master"
    SLAVE = "slave"
    FENCED = "fenced"
    FOLLOWER = "follower"
    LEADER = "leader"


#: A new leader says at all name servers that it is there, again and again: they may hear the old one in between.
HURRY_S = 30.0


class Role(NamedTuple):
    """broker_id: as name servers are told. epoch: of a leader or of the one that is followed; 0 without fail-over.

    why: of a fenced one. position: of a leader, up to where all that it waits for have the log; of a follower, up to
    where its leader has confirmed it. None where nothing else limits what is published.
    """

    kind: Kind
    broker_id: int
    epoch: int = 0
    why: str = ""
    position: Callable[[], int] | None = None

    @property
    def appends(self) -> bool:
        """Whether it takes messages, and stores any of its own."""
        return self.kind in (Kind.MASTER, Kind.LEADER)

    @property
    def is_member(self) -> bool:
        return self.kind in (Kind.FENCED, Kind.FOLLOWER, Kind.LEADER)

    @property
    def is_told(self) -> bool:
        """Whether name servers hear of it."""
        return self.kind is not Kind.FENCED

    @property
    def no_sends(self) -> str:
        """Why it takes none, behind "service not available now"."""
        if self.kind is Kind.SLAVE:
            return "messages are put to the slave"  # as Apache's slaves say it, to whoever sends to them
        if self.kind is Kind.FOLLOWER:
            return "another broker of the set leads"
        return f"this broker is fenced: {self.why}" if self.kind is Kind.FENCED else ""


def role_of(config: EngineConfig) -> Role:
    """What the settings say, of a broker that keeps its role."""
    kind = Kind.SLAVE if config.store.broker_role == "SLAVE" else Kind.MASTER
    return Role(kind, config.broker.broker_id)
