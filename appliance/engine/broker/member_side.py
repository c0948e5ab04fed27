"""A follower's tables are its leader's: the same requests as a slave's, more often."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode
from ..remoting.event_loop import EventLoop
from .broker import Broker
from .slave_sync import SlaveSync

#: At a change of leader so much of consumption may be repeated.
PERIOD_S = 1.0
#: An election may have to wait for a connection to a leader that has gone.
ASK_MS = 1000


class LeadersTables(SlaveSync):
    """The thread `sync-from-master`, of a follower."""

    def __init__(self, broker: Broker, leader: Callable[[], str], loop: EventLoop, clock: Clock) -> None:
        """leader: its address, "" while its log is not known to be this one's."""
        super().__init__(
            leader,
            lambda: None,
            (
                (RequestCode.GET_ALL_TOPIC_CONFIG, broker.topics),
                (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, broker.groups),
            ),
            broker.offsets,
            lambda job: run_on_loop(loop.call_soon, job, lambda: self.stopped),
            broker.store.paths.root,
            broker.store.disk,
            clock,
            PERIOD_S,
            ASK_MS,
        )
        self._log = broker.store.log
        #: So far the log had come when the tables were last asked for that are here now; -1 before.
        self.whole_to = -1

    def work(self, address: str) -> None:
        end = self._log.written
        super().work(address)
        if self.failure is None and not self.stopped:
            self.whole_to = end
