"""A follower's tables are its leader's: the same requests as a slave's, more often."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode
from ..remoting.event_loop import EventLoop
from ..replication.leader_clock import LeaderClock
from .broker import Broker
from .processors.slave_tables import CLOCK_MS, TIMERS_DONE
from .slave_sync import LOOK_S, RIPE_S, TIMER_BYTES, SlaveSync
from .timers.apache_files import Done, checkpoint_path, leaders_checkpoint

#: At a change of leader so much of consumption may be repeated.
PERIOD_S = 1.0
#: An election may have to wait for a connection to a leader that has gone.
ASK_MS = 1000


class _FromLeader(SlaveSync):
    def __init__(self, name: str, broker: Broker, leader: Callable[[], str], loop: EventLoop, clock: Clock) -> None:
        """leader: its address, "" while its log is not known to be this one's."""
        super().__init__(
            leader,
            lambda: None,
            broker.topics,
            broker.groups,
            broker.offsets,
            lambda job: run_on_loop(loop.call_soon, job, lambda: self.stopped),
            broker.store,
            clock,
            PERIOD_S,
            ASK_MS,
            name,
        )
        self._log = broker.store.log


class LeadersTopics(_FromLeader):
    """The thread `sync-topics`, of a follower: who changes topics waits for it, and so it waits for nothing else."""

    def __init__(
        self,
        broker: Broker,
        leader: Callable[[], str],
        loop: EventLoop,
        clock: Clock,
        on_taken: Callable[[int], None],
        on_not_deleted: Callable[[list[str]], None],
    ) -> None:
        """on_taken: told how many changes of topics are here, durably. on_not_deleted: of topics that were deleted
        here, and at the leader not. Both on this thread."""
        super().__init__("sync-topics", broker, leader, loop, clock)
        self._on_taken = on_taken
        self._on_not_deleted = on_not_deleted
        #: So far the log had come when the topics were last asked for that are here now; -1 before.
        self.whole_to = -1

    def steps(self) -> tuple[Callable[[str], None], ...]:
        return (self._take_topics,)

    def work(self, address: str) -> None:
        end = self._log.written
        super().work(address)
        if self.failure is None and not self.stopped:
            self.whole_to = end

    def on_taken(self, changes: int) -> None:
        self._on_taken(changes)

    def on_not_deleted(self, topics: list[str]) -> None:
        super().on_not_deleted(topics)
        self._on_not_deleted(topics)


class LeadersTables(_FromLeader):
    """The thread `sync-from-master`, of a follower: all but topics, and what the leader's clock shows."""

    def __init__(
        self,
        broker: Broker,
        leader: Callable[[], str],
        loop: EventLoop,
        clock: Clock,
        synchronous: bool,
        epoch_start: Callable[[], int],
    ) -> None:
        """synchronous: as the set is. epoch_start: from there on the leader stamps what is in the log."""
        super().__init__("sync-from-master", broker, leader, loop, clock)
        self._synchronous = synchronous
        self._epoch_start = epoch_start
        log = self._log
        self._leader_clock = LeaderClock(clock, broker.store.clock_steps, lambda: log.written, lambda: log.min_offset)

    def steps(self) -> tuple[Callable[[str], None], ...]:
        return tuple(step for step in super().steps() if step != self._take_topics)

    def _is_ripe(self, address: str) -> bool:
        """An asynchronous leader counts as done what may not have come here yet: whoever leads next would believe that,
        and have no copy. A synchronous one counts what all in sync hold."""
        if self._synchronous:
            return True
        master_end = self._end_of(address)
        end = self.clock.monotonic() + RIPE_S
        while self._log.written < master_end:
            if self.stopped or self.clock.monotonic() >= end:
                return False
            self.wait(LOOK_S)
        return True

    def _end_of(self, address: str) -> int:
        """Where the leader's log ends now."""
        self._look_at_log(address)
        return self.master_end or 0

    def _take_timers(self, address: str) -> None:
        """Nothing while the leader has not read all of the topic: it delivers nothing before that, and what is here
        stays true."""
        asked = self._leader_clock.moment()
        answer = self._ask_whole(address, RequestCode.GET_TIMER_CHECK_POINT)
        leader_ms = (answer.ext_fields or {}).get(CLOCK_MS, "")
        if leader_ms.isdigit():  # an older version does not say
            self._leader_clock.said(asked, int(leader_ms), self._epoch_start(), lambda: self._end_of(address))
        out_ms, _, offset = (answer.ext_fields or {}).get(TIMERS_DONE, "").partition(":")
        if not offset or len(answer.body) != TIMER_BYTES:
            return
        done = Done(int(out_ms), int(offset))
        path = checkpoint_path(self._store_dir)
        news = bytes(answer.body[:40]) + b"%d:%d" % done
        if self._saved.get(path) != news and self._is_ripe(address):
            self._disk.replace(path, leaders_checkpoint(bytes(answer.body), done))
            self._saved[path] = news
