"""The values of a fail-over decision: what a member sees, what it remembers and which acts it may take.

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
    """Constant while the process runs; times are seconds. synchronous: nothing is acknowledged before all members in
    sync hold it.

    elect_after: how long a leader must be silent before an election. slave_silence: a member that makes no progress
    for longer is removed. max_lag: bytes that a candidate or a joiner of an asynchronous set may lack. retry: pause
    between attempts of one swap. slow_after: a member whose acknowledgements were late for this long is left out, as
    long as min_in_sync members remain, the leader counted. slow_wait: it returns after they were in time for this long;
    each further time the wait is twice as long.
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
    """An answer about the key. state: None if there is no key or it cannot be understood. at: when it arrived."""

    state: SetState | None
    revision: Revision
    at: float
    absent: bool = False


class Swapped(NamedTuple):
    """Outcome of the last swap. revision: the key's, after it. state: in a conflict, the one that is there (None: see
    Read). sent_at: a time before it was sent."""

    how: Literal["done", "conflict", "unknown"]
    sent_at: float
    revision: Revision = Revision("")
    state: SetState | None = None
    absent: bool = False


class Wish(NamedTuple):
    """A wish of the operator, or of a stop. switch: uuid shall lead. resign: this process ends. adopt: begin anew after
    the store was wiped or restored. force: lead without having been in sync, with a loss."""

    kind: Literal["switch", "resign", "adopt", "force"]
    uuid: str = ""


class Other(NamedTuple):
    """Another member's announcement of itself; some seconds old. end, begin: of its log."""

    seen: int
    end: int
    begin: int = 0


class Sight(NamedTuple):
    """Everything a member sees in one turn.

    read: the key, read in this turn; None: not tried, or failed (unread). closed_at: the log's end when the stream was
    closed; -1: never, or it was opened since, or the Broker led since. following: uuid and epoch of the leader that
    was followed last. awaited: uuids that the Broker awaits. drained: result of the drain in this reign, None before it
    was tried. cluster: the store's. replaced: another cluster answers, or an older state of it. set_id: of the set that
    this member belongs to; "" before it met one. others: by uuid, this one included. known: what the disk holds about
    the key; None: this is not checked. nonce: a fresh one. random: 0 to 1.
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
    """A change of the key. forced: the operator takes responsibility for what an election's rules would refuse."""

    purpose: Literal["elect", "keep", "resign"]
    state: SetState
    expected: Revision | None
    forced: bool = False


class Pending(NamedTuple):
    """A swap whose outcome is not known yet. first: time of its first sending; 0.0: not yet. again: when to repeat."""

    swap: Swap
    first: float = 0.0
    again: float = 0.0


class Reign(NamedTuple):
    """An epoch that this process won. state, revision: of the last swap known to be done. sent_at: a time before that
    swap was sent. led: the Broker has led in it. orphaned: the key is gone, or older than this."""

    state: SetState
    revision: Revision
    sent_at: float
    led: bool = False
    orphaned: bool = False


class Slow(NamedTuple):
    """A member whose acknowledgements come late. until: it is left out until then. wait: for how long they have to be
    in time (seconds). took: the longest that one took, in seconds."""

    until: float
    wait: float
    took: float


class Memory(NamedTuple):
    """A member's memory from turn to turn; a new process begins with none of it.

    key: the last one read; None before the first. since, reads: first sight of its revision, and good reads of it
    without a failed one between. run_at: when to be a candidate. joining: members that are awaited, and not proposed
    yet. relay: pass sends on to the next leader. down_since: since when the disk or the I/O thread has stood still.
    slow: by uuid, the members that are or were left out in this reign. role, why: for people.
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
    """Answer to the wish. done: it is fulfilled; otherwise it will not be, and `why` gives the reason."""

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
