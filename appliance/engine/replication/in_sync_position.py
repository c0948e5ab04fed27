"""Watermark of a leader's publication: the offset up to which all members that it waits for keep the log.

Nothing is published before every awaited member has reported, on its connection of this epoch, that it keeps it. An
awaited member without a connection holds the position where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from ..clock import Clock
from ..failover.parts import MemberReport
from .ack_pace import AckPace


class BoundStream(Protocol):
    """A member's connection. acknowledged: offset up to which it keeps the log, -1 before its first report. moved_at,
    connected_at: by the steady clock; moved_at: when `acknowledged` last grew, or nothing was missing. taken: number of
    changes of topics that it has. pace: lateness of its acknowledgements, by that clock. silent_s: seconds since
    something came from it."""

    peer: str
    acknowledged: int
    sent: int
    moved_at: float
    connected_at: float
    taken: int
    pace: AckPace

    @property
    def silent_s(self) -> float: ...


class InSyncPosition:
    """Read on remoting-io for each tick; moved by the threads of links and of fail-over."""

    def __init__(
        self,
        kept: Callable[[], int],
        published: Callable[[], int],
        on_progress: Callable[[], None],
        clock: Clock,
    ) -> None:
        """kept, published: offsets up to which this leader keeps the log, and shows it. on_progress: called when more
        may be shown, on the thread that moved it."""
        # Constant after construction.
        self._kept = kept
        self._published = published
        self._on_progress = on_progress
        self._clock = clock
        self._lock = threading.Lock()
        # Written under _lock. _alone: no member is awaited, so that `kept` is the position.
        self._awaited: frozenset[str] = frozenset()
        self._alone = True
        self._streams: dict[str, BoundStream] = {}
        self._position = 0
        self.frozen = False

    def __call__(self) -> int:
        return self._kept() if self._alone else self._position

    def begin(self, end: int) -> None:
        """Start at the end of the log that was opened: what it held is published, as it was before."""
        self._position = end

    @property
    def awaited(self) -> frozenset[str]:
        return self._awaited

    def set_awaited(self, awaited: frozenset[str]) -> None:
        """Wait for these members, the leader's own uuid not among them. Called on remoting-io, or before it runs: there
        no tick is just being published by the acknowledgements of the members before.

        Bytes that are published stay published; the others wait for the new members.
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
        """Keep the position for ever, since this broker no longer leads. Any thread; a tick that is just being
        published may still become visible."""
        with self._lock:
            self.frozen = True
            self._position = self._published() if self._alone else self._position
            self._alone = False

    # --- on the threads of links

    def bind(self, uuid: str, stream: BoundStream) -> None:
        """Take a member's reports from this connection from now on, and from no other."""
        with self._lock:
            self._streams[uuid] = stream

    def unbind(self, uuid: str, stream: BoundStream) -> None:
        with self._lock:
            if self._streams.get(uuid) is stream:
                del self._streams[uuid]

    def moved(self) -> None:
        """Move the position after a connection's `acknowledged` has grown."""
        with self._lock:
            grows = self._look()
        if grows:
            self._on_progress()

    def _look(self) -> bool:
        """Move the position as far as all awaited members allow; True if it grew. Under _lock."""
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
        """True if all awaited members have at least `changes` changes of topics; always False once frozen."""
        with self._lock:
            if self.frozen:
                return False
            streams = [self._streams.get(uuid) for uuid in self._awaited]
        return all(one is not None and one.taken >= changes for one in streams)

    def members(self) -> list[MemberReport]:
        """Return a report of each bound member, awaited or not."""
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
                now - one.silent_s,
            )
            for uuid, one in streams
        ]
