"""What the decisions of fail-over are made of: what a member sees, what it remembers, what it may do.

    Sight, Memory, Rules -> machine.decide -> Memory, acts

Seconds are CLOCK_BOOTTIME of this machine; offsets are physical, of the commit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from .leader_store import Revision
from .parts import Known, LogHealth, MemberReport, StreamStatus
from .set_state import Leader, SetState


class Rules(NamedTuple):
    """Constant while the process runs. synchronous: nothing is acknowledged before all in sync hold it.

    elect_after: for so long must a leader be silent. slave_silence: a member that missed bytes so long is removed.
    max_lag: bytes that a candidate of an asynchronous set may lack, and a joiner. retry: between attempts of one swap.
    slow_after: a member whose acknowledgements came late for so long is left out while min_in_sync members, the leader
    counted, are left. slow_wait: it comes back when they were in time for so long; twice as long each time.
    """

    set: str
    uuid: str
    synchronous: bool = True
    elect_after: float = 2.0
    beat_interval: float = 0.5
    slave_silence: float = 2.0
    max_lag: int = 1 << 20
    bootstrap: bool = False
    drain: float = 2.0
    relay: float = 60.0
    retry: float = 0.1
    min_in_sync: int = 1
    slow_after: float = 10.0
    slow_wait: float = 30.0


class Read(NamedTuple):
    """state: None where there is no key, and where it is not to be understood. at: when the answer was here."""

    state: SetState | None
    revision: Revision
    at: float
    absent: bool = False


class Swapped(NamedTuple):
    """How the swap that was asked for last ended. revision: after it. state: of a conflict, what is there (None: see
    Read). sent_at: before it was sent."""

    how: Literal["done", "conflict", "unknown"]
    sent_at: float
    revision: Revision = Revision("")
    state: SetState | None = None
    absent: bool = False


class Wish(NamedTuple):
    """Of the operator, or of a stop. switch: uuid shall lead. resign: this process ends. adopt: begin anew after the
    store was wiped or restored. force: lead without having been in sync, with a loss."""

    kind: Literal["switch", "resign", "adopt", "force"]
    uuid: str = ""


class Other(NamedTuple):
    """What another member says of itself; some seconds old."""

    seen: int
    end: int
    begin: int = 0


class Sight(NamedTuple):
    """What a member sees in one turn.

    read: of the key, in this turn; None: not tried, or failed (unread). closed_at: the log's end when the stream was
    closed; -1: never, or it was opened since, or the Broker led since. following: uuid and epoch of the leader that
    was asked for last. awaited: uuids that the Broker awaits. drained: of this reign, None before it was tried.
    cluster: of the store. replaced: another cluster answers, or an older state of it. set_id: of the set that this
    member belongs to; "" before it met one. others: by uuid, also this one. known: of the key, as it is on the disk;
    None: nobody looks at that. nonce: a fresh one. random: 0 to 1.
    """

    me: Leader
    seen: int
    epoch: int  # the last one of the own list, and where it began; 0, 0: none
    epoch_start: int
    health: LogHealth
    stream: StreamStatus
    members: list[MemberReport]
    role: str
    nonce: str
    random: float
    wall_ms: int = 0
    read: Read | None = None
    unread: bool = False
    swapped: Swapped | None = None
    closed_at: int = -1
    following: tuple[str, int] = ("", 0)
    awaited: frozenset[str] = frozenset()
    drained: bool | None = None
    wish: Wish | None = None
    cluster: str = ""
    replaced: bool = False
    set_id: str = ""
    others: Mapping[str, Other] = {}
    known: Known | None = None


class Swap(NamedTuple):
    """forced: the operator answers for what the rules of an election would refuse."""

    purpose: Literal["elect", "keep", "resign"]
    state: SetState
    expected: Revision | None
    forced: bool = False


class Pending(NamedTuple):
    """A swap whose outcome is not known yet. first: when it was sent first; 0.0: not yet. again: when to repeat it."""

    swap: Swap
    first: float = 0.0
    again: float = 0.0


class Reign(NamedTuple):
    """An epoch that this process won. state, revision: of the last swap known to be done. sent_at: before that one was
    sent. led: the Broker has led in it. orphaned: the key is gone, or older than this."""

    state: SetState
    revision: Revision
    sent_at: float
    led: bool = False
    orphaned: bool = False


class Slow(NamedTuple):
    """A member whose acknowledgements come late. until: it is left out before. wait: so long they have to be in time.
    took: the longest that one took, in seconds."""

    until: float
    wait: float
    took: float


class Memory(NamedTuple):
    """What a member remembers from turn to turn; a new process begins with none of it.

    key: the last one read; None before the first. since, reads: first sight of its revision, and good reads without a
    failed one between. run_at: when to be a candidate. joining: awaited, and not proposed yet. relay: to the next
    leader. down_since: since when the disk or the I/O thread stand still. slow: by uuid, of this reign, those that are
    or were left out. role, why: for people.
    """

    key: Read | None = None
    since: float = 0.0
    reads: int = 0
    pending: Pending | None = None
    reign: Reign | None = None
    run_at: float | None = None
    joining: frozenset[str] = frozenset()
    relay: bool = False
    down_since: float | None = None
    slow: Mapping[str, Slow] = {}
    cluster: str = ""
    role: str = "fenced"
    why: str = "the key was not read yet"


class See(NamedTuple):
    epoch: int


class Join(NamedTuple):
    set_id: str


class Note(NamedTuple):
    known: Known


class BeginEpoch(NamedTuple):
    epoch: int
    start: int


class Lead(NamedTuple):
    epoch: int
    awaited: frozenset[str]


class Await(NamedTuple):
    awaited: frozenset[str]


class Fence(NamedTuple):
    why: str


class Follow(NamedTuple):
    leader: Leader
    epoch: int


class Cut(NamedTuple):
    point: int
    leader: Leader
    epoch: int


class SetAside(NamedTuple):
    why: str


class CloseStream(NamedTuple):
    pass


class Drain(NamedTuple):
    seconds: float


class Relay(NamedTuple):
    leader: Leader
    seconds: float


class Answer(NamedTuple):
    """To the wish. done: it is fulfilled; otherwise it will not be, and why says the reason."""

    done: bool
    why: str


Act = (
    See
    | Join
    | Note
    | BeginEpoch
    | Lead
    | Await
    | Fence
    | Follow
    | Cut
    | SetAside
    | CloseStream
    | Drain
    | Relay
    | Answer
    | Swap
)
