"""A leader's rules for who follows it: members of its set, bound to its epoch by a preamble, and observers.

A bound link belongs to one epoch for its life, carries its member's uuid, and its reports count (`InSyncPosition`). Who
sends no preamble, a slave of Apache's or one of ours without the set, is an observer: served, and never waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..failover.set_state import EpochStart
from ..protocol.ha_preamble import Answer, Hello, Reason, Refusal, set_hash
from ..protocol.ha_stream import CHANGES, CONFIRM, pack_header
from .in_sync_position import BoundStream, InSyncPosition

#: A member is told that its leader lives.
HEARTBEAT_S = 0.25
#: How far the log is confirmed is said at most so often.
CONFIRM_S = 0.05
#: Bound links at a time, observers at a time, and connections that have not said yet what they are.
MAX_MEMBERS, MAX_OBSERVERS, MAX_SILENT = 8, 16, 8
#: Observers' hosts that are remembered.
_MAX_HOSTS = 256


class Leading(NamedTuple):
    """A leader in its epoch, which ends with the Broker that was built for it.

    epochs: its list, the last one its own. alive: whether its I/O thread and its disk work; while it is False members
    hear nothing but what they are sent of the log. confirm: up to where it shows the log. on_higher_epoch: a member has
    seen a higher epoch than this one; on the thread of a link. on_bound: a member follows from now on; there, too.
    changes: of topics, by administrators, so far.
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
        """Why a member is not let in; None when it is."""
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
    """What a bound link says beside the log: heartbeats, and how far the log is confirmed. Belongs to its thread."""

    def __init__(self, leading: Leading) -> None:
        # Constant after construction.
        self._alive = leading.alive
        self._confirm = leading.confirm
        self._changes = leading.changes
        # When it was last looked whether a heartbeat can be sent; what was said of the confirm offset, and when.
        self._looked_at = 0.0
        self._confirmed = -1
        self._confirmed_at = 0.0
        self._told = 0

    def due(self, now: float, wrote_at: float, sent: int, taken: int) -> bytes:
        """What has to be said before anything else; b"" for nothing. wrote_at: when anything was last sent. taken: so
        many changes of topics the member has; -1: it has not said so, and may not understand."""
        changes = self._changes()
        if self._told < changes > taken >= 0:
            self._told = changes
            return pack_header(changes, CHANGES)
        beat = now - max(wrote_at, self._looked_at) >= HEARTBEAT_S
        confirm = self._confirm()
        moved = confirm > self._confirmed and now - self._confirmed_at >= CONFIRM_S
        if not beat and not moved:
            return b""
        if not self._alive():
            self._looked_at = self._confirmed_at = now
            return b""
        self._confirmed, self._confirmed_at = max(confirm, self._confirmed), now
        control = pack_header(self._confirmed, CONFIRM)
        return pack_header(sent, 0) + control if beat else control

    def next_at(self, wrote_at: float, sent: int) -> float:
        """When `due` has to be asked again at the latest."""
        beat = max(wrote_at, self._looked_at) + HEARTBEAT_S
        return min(beat, self._confirmed_at + CONFIRM_S) if self._confirmed < sent else beat


class Link(BoundStream, Protocol):
    """What the door knows of a connection. member: its uuid once it is bound. observes: it has asked for the log, and
    sent no preamble."""

    member: str
    observes: bool

    @property
    def host(self) -> str: ...

    def request_stop(self) -> None: ...


class Door:
    """Lets links in. Every call but `observed` on the thread of the link in question, under one lock."""

    def __init__(self, leading: Leading, links: Callable[[], tuple[Link, ...]], file_bytes: int) -> None:
        """links: those that are served now."""
        # Constant after construction.
        self.leading = leading
        self._links = links
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        # Written under _lock. Host -> so far this leader has sent observers there the log.
        self._fed: dict[str, int] = {}

    def member(self, link: Link, hello: Hello) -> Refusal | None:
        """A preamble came. Why it is refused, or None: it is bound, and an older link of the same member is not any
        more."""
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
        """A slave without a preamble asks for the log from an offset on. Why it is refused, or "".

        What lies behind the start of this epoch it can only have, byte for byte, from this leader in this epoch.
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
            if sum(one.observes for one in links) >= MAX_OBSERVERS:
                return f"{MAX_OBSERVERS} observers are connected already"
            link.observes = True
        return ""

    def gone(self, link: Link) -> None:
        """It is not served any more."""
        if link.member:
            self.leading.position.unbind(link.member, link)
        elif link.observes:
            with self._lock:
                known = self._fed.pop(link.host, 0)
                if len(self._fed) >= _MAX_HOSTS:
                    del self._fed[next(iter(self._fed))]
                self._fed[link.host] = max(known, link.sent)

    def make_room(self) -> str:
        """Before one more connection is taken, on the thread that takes them. Why it is not, or "": the oldest of too
        many that say nothing goes, so that a member always finds a place."""
        silent = [one for one in self._links() if not one.member and not one.observes]
        for one in silent[: len(silent) - MAX_SILENT + 1]:
            one.request_stop()
        limit = 4 * MAX_SILENT  # those that were told to go end soon
        return f"{limit} are connected already that say nothing" if len(silent) >= limit else ""
