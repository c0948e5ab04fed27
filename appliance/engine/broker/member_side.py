"""Copying of a leader's tables to a follower, by the same requests as a slave's, but more often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ..protocol.command import RemotingCommand
from ..remoting.event_loop import EventLoop
from ..replication.leader_clock import LeaderClock
from .broker import Broker
from .processors.slave_tables import CLOCK_MS
from .slave_sync import Pace, SlaveSync

#: Period of the copies; after a change of leader, this much consumption may be repeated.
PERIOD_S = 1.0
#: Time-out of a request: an election may have to wait for a connection to a leader that has gone.
ASK_MS = 1000


class _FromLeader(SlaveSync):
    def __init__(
        self, thread: str, broker: Broker, leader: Callable[[], str], loop: EventLoop, copying: threading.Lock
    ) -> None:
        """leader: returns its address; "" while no stream is bound to it. copying: of the two threads, which both copy
        groups and offsets: an older answer must not come after a newer one."""
        super().__init__(
            leader,
            lambda: None,
            broker.tables,
            loop,
            broker.store,
            broker.delays.settled,
            Pace(thread, PERIOD_S, ASK_MS),
            broker.ties,
        )
        self._log = broker.store.log
        self._copying = copying

    def _take_tables(self, address: str) -> None:
        with self._copying:
            super()._take_tables(address)

    def _take_offsets(self, address: str) -> None:
        with self._copying:
            super()._take_offsets(address)


class LeadersTopics(_FromLeader):
    """The thread `sync-topics`, of a follower. Changes of topics at the leader wait for it, so it does nothing else but
    copy groups and offsets once after each change, which may be one of these."""

    def __init__(
        self,
        broker: Broker,
        leader: Callable[[], str],
        loop: EventLoop,
        copying: threading.Lock,
        on_taken: Callable[[int], None],
        on_not_deleted: Callable[[Mapping[str, Mapping[int, int]]], None],
    ) -> None:
        """on_taken: called with the number of topic changes that are durable here. on_not_deleted: called with topics
        that were deleted or purged here, but not at the leader, and its notes on their queues that were purged there.
        Both on this thread."""
        super().__init__("sync-topics", broker, leader, loop, copying)
        self._on_taken = on_taken
        self._on_not_deleted = on_not_deleted
        #: End of this log when the topics that are here now were asked for; -1 before the first copy.
        self.whole_to = -1
        #: Number of the leader's changes that groups and offsets here contain.
        self._counted = -1

    def steps(self) -> tuple[Callable[[str], None], ...]:
        return (self._take_topics,)

    def work(self, address: str) -> None:
        end = self._log.written
        super().work(address)
        if self.failure is None and not self.stopped:
            assert end >= self.whole_to, "the log grows while its leader is followed"
            self.whole_to = end

    def take_counted(self, address: str, changes: int) -> None:
        if changes != self._counted:
            self._take_tables(address)
            self._groups.make_durable()
            self._take_offsets(address)
            self._offsets.persist()
            self._counted = changes

    def _is_ripe(self, address: str) -> bool:
        """The other thread copies the broker's own progress."""
        return False

    def on_taken(self, changes: int) -> None:
        self._on_taken(changes)

    def on_not_deleted(self, topics: Mapping[str, Mapping[int, int]]) -> None:
        super().on_not_deleted(topics)
        self._on_not_deleted(topics)


class LeadersTables(_FromLeader):
    """The thread `sync-from-master`, of a follower: copies all tables but topics, and follows the leader's clock."""

    def __init__(
        self,
        broker: Broker,
        leader: Callable[[], str],
        loop: EventLoop,
        copying: threading.Lock,
        synchronous: bool,
        epoch_start: Callable[[], int],
    ) -> None:
        """synchronous: True if the set is. epoch_start: returns the physical offset from which on the leader stamps the
        log."""
        super().__init__("sync-from-master", broker, leader, loop, copying)
        self._synchronous = synchronous
        self._epoch_start = epoch_start
        log = self._log
        self._leader_clock = LeaderClock(
            loop.clock, broker.store.clock_steps, lambda: log.written, lambda: log.min_offset
        )

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread. A step of the clock since its last question is noted."""
        ended = super().stop(deadline)
        if ended:
            self._leader_clock.look()
        return ended

    def steps(self) -> tuple[Callable[[str], None], ...]:
        return tuple(step for step in super().steps() if step != self._take_topics)

    def _is_ripe(self, address: str) -> bool:
        """A synchronous leader counts only what all members in sync hold."""
        return self._synchronous or super()._is_ripe(address)

    def _end_of(self, address: str) -> int:
        """Return the end of the leader's log."""
        self._look_at_log(address)
        return self.master_end or 0

    def _ask_timers(self, address: str) -> RemotingCommand:
        """Read the leader's clock, too."""
        asked = self._leader_clock.moment()
        answer = super()._ask_timers(address)
        leader_ms = (answer.ext_fields or {}).get(CLOCK_MS, "")
        if leader_ms.isdigit():  # an older version does not send it
            self._leader_clock.said(asked, int(leader_ms), self._epoch_start(), lambda: self._end_of(address))
        return answer
