"""Delivery of delayed messages over a store, one round at a time, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from appliance.engine.broker.delays.delivery import DeliverDelayed, SettledEntries
from appliance.engine.broker.delays.levels import DelayLevels, Place, make_wait
from appliance.engine.broker.delays.progress import DelayProgress, SaveDelays
from appliance.engine.broker.durability import Durability
from appliance.engine.broker.sending.own_appends import OwnAppends, OwnMessage
from appliance.engine.broker.topic_config import TopicConfig, new_topic
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from tests.support.clock import FakeClock
from tests.support.fakes import InlineLoop
from tests.support.store import BORN, StoreUnderTest

TARGET = "Orders"
LEVELS_MS = (1000, 5000)


class Delays:
    """Over a StoreUnderTest that is open. topics: what there is; changed by tests."""

    def __init__(
        self,
        under_test: StoreUnderTest,
        clock: FakeClock,
        settled: SettledEntries | None = None,
        levels_ms: tuple[int, ...] = LEVELS_MS,
    ) -> None:
        self.under_test = under_test
        self.store = store = under_test.store
        self.clock = clock
        self.levels = DelayLevels(levels_ms)
        self.topics: dict[str, TopicConfig] = {
            name: new_topic(name, 4, 6) for name in (TARGET, SCHEDULE_TOPIC, "%RETRY%CG")
        }
        under_test.scheduler.wall_ms = clock.wall_ms()
        under_test.stamp_ticks_by(clock)
        Durability(store, InlineLoop(), lambda: 5000, lambda queues: None)
        self.calls: list[Callable[[], None]] = []
        #: True if the batches handed over wait for `run_calls`.
        self.hold = False
        self.appends = OwnAppends(store, self.topics.get, self.levels, self._call_soon, lambda: True, lambda: 0)
        self.path = Path(under_test.directory) / "store" / "config" / "delayOffset.json"
        self.path.parent.mkdir(exist_ok=True)
        self.durable: Callable[[], int] = lambda: store.log.durable
        self.progress = DelayProgress(self.path, lambda: self.durable(), clock)
        self.delivery = DeliverDelayed(store, self.appends, levels_ms, self.progress, self.topics.get, settled, clock)
        self.saver = SaveDelays(self.progress, clock)

    def _call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)
        if not self.hold:
            self.run_calls()

    def run_calls(self) -> None:
        """Do what remoting-io does in a tick."""
        self.under_test.scheduler.wall_ms = self.clock.wall_ms()
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        self.store.end_tick()

    def delay(self, level: int, body: bytes, topic: str = TARGET, queue_id: int = 0, properties: str = "") -> None:
        """A message that is sent with a delay, in a tick of its own."""
        found = decode_properties(properties)
        make_wait(found, level, Place(topic, queue_id))
        self.put_waiting(level, body, encode_properties(found))

    def put_waiting(self, level: int, body: bytes, properties: str) -> None:
        (hold, self.hold), (held, self.calls) = (self.hold, False), (self.calls, [])
        message = OwnMessage(SCHEDULE_TOPIC, level - 1, body, properties, "", self.clock.wall_ms(), BORN)
        future = self.appends.submit([message])
        self.hold, self.calls = hold, held
        assert future.result(60)[0].code == 0

    def rounds(self, count: int = 3) -> float:
        """Rounds of delivery, and what remoting-io does between them; returns the last one's pause."""
        pause = 0.0
        for _ in range(count):
            pause = self.delivery.round()
        return pause

    def pass_time(self, ms: int, step_ms: int = 100) -> None:
        """Time passes, as the thread sees it: a round at each step."""
        while ms > 0:
            self.clock.advance(min(ms, step_ms))
            ms -= step_ms
            self.rounds(2)

    def arrived_so_far(self, queue_id: int = 0, topic: str = TARGET) -> int:
        """Return how many messages have come, without reading them."""
        return self.store.max_offset(topic, queue_id)

    def arrived(self, queue_id: int = 0, topic: str = TARGET) -> list[bytes]:
        return self.under_test.bodies(topic, queue_id)
