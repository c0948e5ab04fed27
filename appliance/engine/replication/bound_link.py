"""A leader's rules for who follows it: members of its set, bound to its epoch by a preamble, and observers.

A bound link belongs to one epoch for its life, carries its member's uuid, and its reports count (`InSyncPosition`). A
slave that sends no preamble (Apache's, or RocketBox outside the set) is an observer: it is served, and acknowledgements
never wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..failover.set_state import EpochStart
from ..protocol.ha_preamble import Answer, Hello, Reason, Refusal, set_hash
from ..protocol.ha_stream import CHANGES, CONFIRM, pack_header
from . import places
from .in_sync_position import BoundStream, InSyncPosition

#: Time between the heartbeats to a member.
HEARTBEAT_S = 0.25
#: Shortest time between two confirm offsets.
CONFIRM_S = 0.05
#: Most bound links at a time, and most observers.
MAX_MEMBERS, MAX_OBSERVERS = 8, 16
#: Most observers' hosts that are remembered.
_MAX_HOSTS = 256


class Leading(NamedTuple):
    """A leader in its epoch, which ends with the Broker that was built for it.

    epochs: its list, the last one its own. alive: True while its I/O thread and its disk work; otherwise members are
    sent nothing but the log. confirm: offset up to which it shows the log. on_higher_epoch: called with a higher epoch
    that a member has seen, on the thread of a link. on_bound: called there, too, when a member follows from now on.
    changes: number of changes of topics by administrators so far.
    """

    set_name: str
    uuid: str
    epochs: tuple[EpochStart, ...]
    position: InSyncPosition
    alive: Callable[[], bool]
    confirm: Callable[[], int]
    on_higher_epoch: Callable[[int], None]
    on_bound: Callable[[], None] = lambda: None
    changes: Callable[[], int] = lambda: 0

    @property
    def epoch(self) -> int:
        return self.epochs[-1].epoch

    def answer(self, start: int, end: int) -> Answer:
        return Answer(self.uuid, self.epoch, start, end, tuple((one.epoch, one.start) for one in self.epochs))

    def refusal(self, hello: Hello, file_bytes: int) -> Refusal | None:
        """Return why a member is not let in, None if it is."""
        if hello.set_hash != set_hash(self.set_name):
            return self._refuse(Reason.OTHER_SET, "this is another broker set")
        if hello.uuid == self.uuid:
            return self._refuse(Reason.SAME_UUID, "both stores have the same uuid: one is a copy of the other")
        if hello.seen > self.epoch:
            self.on_higher_epoch(hello.seen)
            return self._refuse(Reason.HIGHER_EPOCH, f"it leads epoch {self.epoch}, and there is {hello.seen}")
        if hello.epoch != self.epoch:
            return self._refuse(Reason.OTHER_EPOCH, f"it leads epoch {self.epoch}, not {hello.epoch}")
        if hello.file_bytes != file_bytes:
            return self._refuse(
                Reason.OTHER_FILE_SIZE, f"its log's files have {file_bytes} bytes, not {hello.file_bytes}"
            )
        if self.position.frozen:
            return self._refuse(Reason.NOT_LEADING, "it is fenced")
        if not self.alive():
            return self._refuse(Reason.STALLED, "its disk does not answer")
        return None

    def _refuse(self, reason: Reason, text: str) -> Refusal:
        return Refusal(reason, self.epoch, text)

    def full(self) -> Refusal:
        return self._refuse(Reason.FULL, f"{MAX_MEMBERS} members are connected already")


class Pulse:
    """The headers that a bound link sends beside the log: heartbeats, confirm offsets, numbers of changes of topics.
    Belongs to its thread."""

    def __init__(self, leading: Leading) -> None:
        # Constant after construction.
        self._alive = leading.alive
        self._confirm = leading.confirm
        self._changes = leading.changes
        # When a heartbeat was last withheld since the leader was not alive; when the confirm offset was looked at in
        # vain; the last confirm offset sent, and when.
        self._looked_at = 0.0
        self._same_at = 0.0
        self._confirmed = -1
        self._confirmed_at = 0.0
        self._told = 0

    def due(self, now: float, wrote_at: float, sent: int, taken: int) -> bytes:
        """Return the headers that have to be sent before anything else, b"" for none. wrote_at: when anything was last
        sent. taken: number of changes of topics that the member has; -1: it has not reported it, and may not understand
        CHANGES."""
        changes = self._changes()
        if self._told < changes > taken >= 0:
            self._told = changes
            return pack_header(changes, CHANGES)
        beat = now - max(wrote_at, self._looked_at) >= HEARTBEAT_S
        confirm = self._confirm()
        moved = confirm > self._confirmed and now - self._confirmed_at >= CONFIRM_S
        if confirm <= self._confirmed:
            self._same_at = now
        if not beat and not moved:
            return b""
        if not self._alive():
            self._looked_at = self._confirmed_at = now
            return b""
        self._confirmed, self._confirmed_at = max(confirm, self._confirmed), now
        control = pack_header(self._confirmed, CONFIRM)
        return pack_header(sent, 0) + control if beat else control

    def next_at(self, wrote_at: float, sent: int) -> float:
        """Return the time when `due` has to be called again at the latest."""
        beat = max(wrote_at, self._looked_at) + HEARTBEAT_S
        look = max(self._confirmed_at, self._same_at) + CONFIRM_S
        return min(beat, look) if self._confirmed < sent else beat


class Link(BoundStream, places.Link, Protocol):
    """A connection as the door sees it. member: its uuid once it is bound. observes: it has asked for the log without a
    preamble."""

    member: str
    observes: bool


class Door:
    """Lets links in. Called on the thread of the link in question; `_lock` guards shared state."""

    def __init__(self, leading: Leading, links: Callable[[], tuple[Link, ...]], file_bytes: int) -> None:
        """links: returns those that are served now."""
        # Constant after construction.
        self.leading = leading
        self._links = links
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        # Written under _lock. Host -> offset up to which this leader has sent the log to observers there.
        self._fed: dict[str, int] = {}

    def member(self, link: Link, hello: Hello) -> Refusal | None:
        """Bind the link of a member that sent a preamble, and stop an older link of it; return None, or why the member
        is refused."""
        refusal = self.leading.refusal(hello, self._file_bytes)
        if refusal is not None:
            return refusal
        with self._lock:
            bound = [one for one in self._links() if one.member and one is not link]
            older = [one for one in bound if one.member == hello.uuid]
            if len(bound) - len(older) >= MAX_MEMBERS:
                return self.leading.full()
            for one in older:
                one.request_stop()
            link.member = hello.uuid
            self.leading.position.bind(hello.uuid, link)
        self.leading.on_bound()
        return None

    def observer(self, link: Link, asked: int) -> str:
        """Let a slave in that requests the log from an offset on without a preamble; return "", or why it is refused.

        Bytes behind the start of this epoch it can only have, byte for byte, from this leader in this epoch.
        """
        start = self.leading.epochs[-1].start
        with self._lock:
            links = self._links()
            fed = max([one.sent for one in links if one.observes and one.host == link.host], default=0)
            if asked > max(start, fed, self._fed.get(link.host, 0)):
                return (
                    f"it has the log up to {asked}, and not from this leader: what lies behind {start}, where this "
                    "epoch began, may differ; empty its store to have it follow again"
                )
            if not places.take_place(link, [one for one in links if one.observes], MAX_OBSERVERS):
                return f"{MAX_OBSERVERS} observers are connected already"
            link.observes = True
        return ""

    def gone(self, link: Link) -> None:
        """Forget a link that is no longer served."""
        if link.member:
            self.leading.position.unbind(link.member, link)
        elif link.observes:
            with self._lock:
                known = self._fed.pop(link.host, 0)
                if len(self._fed) >= _MAX_HOSTS:
                    del self._fed[next(iter(self._fed))]
                self._fed[link.host] = max(known, link.sent)
