"""What fail-over is built of, seen from its thread: a member's files, its log, its stream, and the Broker it runs.

All seconds are CLOCK_BOOTTIME; all ends and points are physical offsets of the commit log, in bytes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .set_state import EpochStart, Leader


class Known(NamedTuple):
    """What a member has seen of the set's key, and has on its disk. beat: of that state. may: uuids that may be in sync
    by the key, itself among them; all of them if it led that epoch (led), else those of that state."""

    epoch: int = 0
    beat: int = 0
    may: frozenset[str] = frozenset()
    led: bool = False


class MemberFiles(Protocol):
    """What a member knows of itself and of epochs, in DATA/rocketbox/ha/. Thread: `failover` writes."""

    uuid: str
    #: 0 until one was assigned.
    slot: int
    #: Of the set that this store belongs to; "" before it met one.
    set_id: str
    #: The highest epoch known to exist.
    seen: int
    epochs: tuple[EpochStart, ...]
    known: Known

    def note(self, known: Known) -> None:
        """Fsynced before this returns."""

    def see(self, epoch: int) -> None:
        """`seen` grows to epoch and is fsynced before this returns; a smaller one changes nothing."""

    def take_slot(self, slot: int) -> None:
        """Fsynced before this returns."""

    def join(self, set_id: str) -> None:
        """Fsynced before this returns."""

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Append to `epochs`, fsynced before this returns."""


class MemberReport(NamedTuple):
    """A leader's view of one follower that is bound to this epoch.

    durable, sent: offsets. moved_at: when durable last grew, or nothing was missing. connected_at: seconds. taken: so
    many changes of topics it has. took_s: how long it took to acknowledge the last time. late_s: for how long that has
    been too long.
    """

    uuid: str
    peer: str
    durable: int
    sent: int
    moved_at: float
    connected_at: float
    taken: int = 0
    took_s: float = 0.0
    late_s: float = 0.0


class StreamStatus(NamedTuple):
    """A follower's view of its stream.

    leader, epoch: those whose bound stream runs now; "" and 0: none. heard_at: of the last bytes of it; 0.0 never.
    refused: the leader's main and HA port refused three times within 200 ms since the stream closed.
    cut_at: the handshake found that this log has to be cut there; -1: it has not. stranger: no common epoch, so this
    log is not the set's. confirm: the leader's confirm offset, as last heard. why: why no stream runs. fuller: its log
    is a stranger's and holds more than the leader's. unplaced: what of the leader's log this store cannot take; ""
    when it takes all. copied: nor could a new copy of it.
    """

    leader: str
    epoch: int
    heard_at: float
    refused: bool
    cut_at: int
    stranger: bool
    confirm: int
    why: str
    fuller: bool = False
    unplaced: str = ""
    copied: bool = False


class LogHealth(NamedTuple):
    """electable: recovered without damage, not broken, and in async flush stopped cleanly or under the same boot id.

    alive: the I/O thread's ticks moved within a second, and no sync is older than haDiskStall. changes: of topics, by
    administrators, since this Broker was built. begin: of the log; what lay before has been deleted here.
    """

    end: int
    kept: int
    published: int
    electable: bool
    why_not: str
    alive: bool
    changes: int = 0
    begin: int = 0


class Brokers(Protocol):
    """The one Broker that runs, and its changes of role. Every call may block; thread: `failover`."""

    #: "fenced" | "follower" | "leader"
    role: str

    def health(self) -> LogHealth: ...

    def follow(self, leader: Leader, epoch: int) -> None:
        """A follower, rebuilt if it is none yet, its stream bound to the epoch. Returns at once: see stream()."""

    def cut(self, point: int, leader: Leader, epoch: int) -> None:
        """Close, truncate (what is cut goes to quarantine first), come up as a follower."""

    def set_aside(self, why: str) -> None:
        """This log is a stranger's: its directory is moved aside; comes up as an empty follower."""

    def close_stream(self) -> int:
        """Closed; frames not yet written are dropped; the log is synced. The log's end, final for older epochs."""

    def lead(self, epoch: int, awaited: frozenset[str]) -> None:
        """Come up as leader. The epoch list has the epoch already. awaited: as in await_members."""

    def await_members(self, awaited: frozenset[str]) -> None:
        """From now on nothing is published before these uuids (never the own) hold it durably."""

    def fence(self, why: str) -> None:
        """At once: nothing is published or answered 0 any more, sends get 14, unregistered, clients' connections
        closed."""

    def drain(self, deadline_s: float) -> bool:
        """Refuse new sends with 14 and wait until all that are awaited hold all. False: not in time (seconds)."""

    def relay_to(self, leader: Leader, seconds: float) -> None:
        """While fenced or follower: sends that still come here are passed on."""

    def members(self) -> list[MemberReport]: ...

    def stream(self) -> StreamStatus: ...
