"""How far the log has come to all members that a leader waits for: a watermark of its publication.

Nothing is published before every awaited member keeps it, as it said on its connection of this epoch. A member without
a connection holds the position where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from ..clock import Clock
from ..failover.parts import MemberReport
from .ack_pace import AckPace


class BoundStream(Protocol):
    """A member's connection. acknowledged: so far it keeps the log, -1 before it said so. moved_at, connected_at: by
    the steady clock; moved_at: when it last grew, or nothing was missing. taken: so many changes of topics it has.
    pace: how late it acknowledges, by that clock."""

    peer: str
    acknowledged: int
    sent: int
    moved_at: float
    connected_at: float
    taken: int
    pace: AckPace


class InSyncPosition:
    """Asked on remoting-io for each tick; moved by the threads of links and of fail-over."""

    def __init__(
        self,
        kept: Callable[[], int],
        published: Callable[[], int],
        on_progress: Callable[[], None],
        clock: Clock,
    ) -> None:
        """kept, published: so far this leader keeps the log, and shows it. on_progress: it may be shown further; on
        the thread that moved it."""
        # Constant after construction.
        self._kept = kept
        self._published = published
        self._on_progress = on_progress
        self._clock = clock
        self._lock = threading.Lock()
        # Written under _lock. _alone: nobody is awaited, so that `kept` is the position.
        self._awaited: frozenset[str] = frozenset()
        self._alone = True
        self._streams: dict[str, BoundStream] = {}
        self._position = 0
        self.frozen = False

    def __call__(self) -> int:
        return self._kept() if self._alone else self._position

    def begin(self, end: int) -> None:
        """The log was opened, and ends there: what it held is published, as it was before."""
        self._position = end

    @property
    def awaited(self) -> frozenset[str]:
        return self._awaited

    def set_awaited(self, awaited: frozenset[str]) -> None:
        """Wait for these, the leader's own uuid not among them. On remoting-io, or before it runs: there no tick is
        about to be published for what the members before had.

        What is published stays; the rest is judged by the new members.
        """
        with self._lock:
            if self.frozen or awaited == self._awaited:
                return
            self._awaited = awaited
            self._position = self._published()
            self._alone = not awaited
            self._look()
        self._on_progress()

    def freeze(self) -> None:
        """Stay where it is, for ever: this broker does not lead any more. Any thread; a tick that is just being
        published may still be."""
        with self._lock:
            self.frozen = True
            self._position = self._published() if self._alone else self._position
            self._alone = False

    # --- on the threads of links

    def bind(self, uuid: str, stream: BoundStream) -> None:
        """From now on a member's reports come on this connection, and on no other."""
        with self._lock:
            self._streams[uuid] = stream

    def unbind(self, uuid: str, stream: BoundStream) -> None:
        with self._lock:
            if self._streams.get(uuid) is stream:
                del self._streams[uuid]

    def moved(self) -> None:
        """A connection's `acknowledged` has grown."""
        with self._lock:
            grows = self._look()
        if grows:
            self._on_progress()

    def _look(self) -> bool:
        """Under _lock: whether the position could grow."""
        if self._alone or self.frozen:
            return False
        reached = None
        for uuid in self._awaited:
            stream = self._streams.get(uuid)
            if stream is None:
                return False
            if reached is None or stream.acknowledged < reached:
                reached = stream.acknowledged
        if reached is None or reached <= self._position:
            return False
        self._position = reached
        return True

    # --- any thread

    def all_have(self, changes: int) -> bool:
        """Whether all that are awaited have so many changes of topics, or nobody waits any more."""
        with self._lock:
            if self.frozen:
                return False
            streams = [self._streams.get(uuid) for uuid in self._awaited]
        return all(one is not None and one.taken >= changes for one in streams)

    def members(self) -> list[MemberReport]:
        """Those that are bound, awaited or not."""
        with self._lock:
            streams = list(self._streams.items())
        kept, now = self._kept(), self._clock.steady()
        return [
            MemberReport(
                uuid,
                one.peer,
                one.acknowledged,
                one.sent,
                now if one.acknowledged >= kept else one.moved_at,
                one.connected_at,
                one.taken,
                one.pace.took_s(now),
                one.pace.late_s(now),
            )
            for uuid, one in streams
        ]
