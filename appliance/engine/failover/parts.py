"""The parts of fail-over, as its thread sees them: a member's files, its log, its stream, and the Broker it runs.

All seconds are CLOCK_BOOTTIME; all ends and points are physical offsets of the commit log, in bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from .set_state import EpochStart, Leader


class Known(NamedTuple):
    """The set's key as a member has seen it last and noted it on its disk. beat: of that state. may: uuids that may be
    in sync by the key: if the member led that epoch (led) all of them, itself included; else those of that state."""

    epoch: int = 0
    beat: int = 0
    may: frozenset[str] = frozenset()
    led: bool = False


class MemberFiles(Protocol):
    """A member's files about itself and the epochs, in DATA/rocketbox/ha/. Written by the thread `failover`."""

    uuid: str
    #: 0 until one was assigned.
    slot: int
    #: Id of the set that this store belongs to; "" before it met one.
    set_id: str
    #: The highest epoch known to exist.
    seen: int
    epochs: tuple[EpochStart, ...]
    known: Known
    #: Counts up every few seconds while the member runs. Each number is announced after it is on the disk, so a
    #: directory that has a smaller one than was announced is an old copy.
    turn: int

    def advance(self) -> None:
        """Count `turn` up, fsynced before this returns."""

    def is_older_than(self, turn: int) -> bool:
        """True if these files are an old copy of the ones whose turn was announced."""

    def renew(self) -> None:
        """Make the store a new member: another uuid, no slot, no epochs."""

    def note(self, known: Known) -> None:
        """Replace `known`, fsynced before this returns."""

    def see(self, epoch: int) -> None:
        """Raise `seen` to epoch, fsynced before this returns; a smaller one changes nothing."""

    def take_slot(self, slot: int) -> None:
        """Set `slot`, fsynced before this returns."""

    def join(self, set_id: str) -> None:
        """Set `set_id`, fsynced before this returns."""

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Append to `epochs`, fsynced before this returns."""


class MemberReport(NamedTuple):
    """A leader's view of one follower that is bound to this epoch.

    durable, sent: offsets. moved_at: when durable last grew, or nothing was missing. connected_at: seconds. taken:
    number of changes of topics that it has taken over. took_s: seconds that its last acknowledgement took. late_s: for
    how long its acknowledgements have been late. heard_at: when something came from it last.
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
    heard_at: float = math.inf


class StreamStatus(NamedTuple):
    """A follower's view of its stream.

    leader, epoch: those whose bound stream runs now; "" and 0: none. heard_at: time of its last bytes; 0.0: never.
    refused: the leader's main and HA port refused three times within 200 ms since the stream closed.
    cut_at: offset at which this log has to be cut, as the handshake found; -1: nowhere. stranger: no common epoch, so
    this log is not the set's. confirm: the leader's confirm offset, as last received. why: why no stream runs. fuller:
    its log is a stranger's and holds more than the leader's. unplaced: which record of the leader's log this store
    cannot take; "" when it takes all. copied: a new copy of the store could not take it either.
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

    alive: the I/O thread's ticks moved within a second, and no sync is older than haDiskStall. changes: number of
    changes of topics by administrators since this Broker was built. begin: of the log; older bytes were deleted here.
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
        """Follow the leader: the Broker is rebuilt unless it is a follower, and its stream bound to the epoch. Returns
        at once: see stream()."""

    def cut(self, point: int, leader: Leader, epoch: int) -> None:
        """Close, truncate (the bytes that are cut off go to quarantine first), come up as a follower."""

    def set_aside(self, why: str) -> None:
        """Move the store's directory aside, since its log is a stranger's; come up as an empty follower."""

    def close_stream(self) -> int:
        """Close the stream, drop frames not yet written, wait until the log is synced; return the log's end, final for
        older epochs."""

    def lead(self, epoch: int, awaited: frozenset[str]) -> None:
        """Come up as leader. The epoch list has the epoch already. awaited: as in await_members."""

    def await_members(self, awaited: frozenset[str]) -> None:
        """Publish nothing from now on before these uuids (never the own) hold it durably."""

    def fence(self, why: str) -> None:
        """Fence the Broker at once: it publishes nothing and answers nothing with 0, sends get 14, it is unregistered,
        and clients' connections are closed."""

    def drain(self, deadline_s: float) -> bool:
        """Refuse new sends with 14 and wait until all awaited members hold all. False if not in time (seconds)."""

    def relay_to(self, leader: Leader, seconds: float) -> None:
        """Pass sends that still come here on to the leader, while fenced or a follower."""

    def members(self) -> list[MemberReport]: ...

    def stream(self) -> StreamStatus: ...
