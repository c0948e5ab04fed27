"""The way of a message into the log, from clients and from the broker itself: its parts, in one place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...config import BrokerConfig, EngineConfig
from ...protocol.message_id import UniqueKeys, key_prefix
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ..delays.levels import DelayLevels
from ..processors.send import SendAnswers, SendProcessor
from ..queue_locks import RebalanceLockManager
from ..replication import NoAdmission
from ..timers.waiting import WaitingPlaces, timer_rules
from .admission import SendAdmission
from .own_appends import OwnAppends
from .properties import SendProperties
from .retry_policy import RetryPolicy
from .send_back import SendBackPath
from .send_back_counts import SendBackCounts
from .send_path import SendPath

if TYPE_CHECKING:
    from ..registration import Network
    from ..role import Role
    from ..tables import Tables


class Sending:
    """Owned by remoting-io. Every part of the broker that stores messages of its own does so by `appends`."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        locks: RebalanceLockManager,
        loop: EventLoop,
        network: Network,
        options: Callable[[], EngineConfig],
        role: Role,
    ) -> None:
        config, clock, topics = options(), loop.clock, tables.topics
        broker, host = config.broker, network.store_host
        assert role.appends == (not role.no_sends), "a broker that takes no sends gives the reason"
        # Constant after construction.
        self._permission = lambda: options().broker.broker_permission
        self.levels = levels = DelayLevels(store.settings.delay_levels_ms)
        self.places = WaitingPlaces(levels, timer_rules(config.store), clock.wall_ms)
        prefix = key_prefix(host[:4], os.getpid(), hash(network.address))
        keys = UniqueKeys(prefix, _month_start_ms(clock.wall_ms()))
        self.properties = SendProperties(broker.region_id, broker.cluster_name, broker.trace_on, keys, self.places)
        self.retries = RetryPolicy(topics, tables.groups, locks, store.log.not_taking)
        self.send_backs = SendBackCounts(clock)
        admitted_by = (topics, store.queues, self.retries, self._permission)
        self.path = SendPath(
            store,
            NoAdmission(role.no_sends, *admitted_by) if role.no_sends else SendAdmission(*admitted_by),
            self.properties,
            levels,
            config.store.max_message_size,
            clock.wall_ms,
            broker.broker_name,
        )
        self._no_halves = f"the broker[{network.host}] sending transaction message is forbidden"
        self.path.no_halves = self._no_halves if broker.reject_transaction_message else None
        self.answers = SendAnswers(host, broker.region_id, broker.trace_on)
        self.processor = SendProcessor(self.path, self.answers, self.path.runs(loop, topics, self.answers))
        self.appends = OwnAppends(store, topics.get, levels, loop.call_soon, lambda: loop.alive, clock.wall_ms)

    def send_back(self, refusing: Callable[[], str | None]) -> SendBackPath:
        """Return the path of messages that consumers send back. refusing: as `SendBackPath.no_waiting`."""
        path = SendBackPath(self.appends, self.retries, self.levels, self._permission, self.send_backs)
        path.no_waiting = refusing
        return path

    def take_options(self, broker: BrokerConfig, max_message_size: int) -> None:
        """Use these options from now on. On remoting-io."""
        self.path.no_halves = self._no_halves if broker.reject_transaction_message else None
        self.path.max_message_size = max_message_size
        self.properties.take_trace(broker.trace_on)
        self.answers.take_trace(broker.trace_on)
        self.processor.take_options()


def _month_start_ms(now_ms: int) -> int:
    now = time.localtime(now_ms / 1000)
    return int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1)) * 1000)
