"""Timers over a store, one round at a time, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from appliance.engine.broker.delays.levels import DelayLevels, Place
from appliance.engine.broker.durability import Durability
from appliance.engine.broker.sending.own_appends import OwnAppends, OwnMessage
from appliance.engine.broker.timers.delivery import DeliverTimers
from appliance.engine.broker.timers.rolling import RollTimers
from appliance.engine.broker.timers.saving import SaveTimers
from appliance.engine.broker.timers.schedule import TimerIndex
from appliance.engine.broker.timers.waiting import TimerRules, WaitingPlaces
from appliance.engine.broker.topic_config import TopicConfig, new_topic
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import decode_properties, encode_properties
from tests.support.clock import FakeClock
from tests.support.fakes import InlineLoop
from tests.support.store import BORN, StoreUnderTest

TARGET = "Orders"
WAITING = Place(TIMER_TOPIC, 0)
RESERVED_MS = 72 * 3_600_000


class Timers:
    """Over a StoreUnderTest that is open. topics: what there is; changed by tests."""

    def __init__(
        self,
        under_test: StoreUnderTest,
        clock: FakeClock,
        max_delay_s: int = 10**8,
        levels_ms: tuple[int, ...] = (1000,),
    ) -> None:
        self.under_test = under_test
        self.store = store = under_test.store
        self.clock = clock
        self.topics: dict[str, TopicConfig] = {name: new_topic(name, 4, 6) for name in (TARGET, TIMER_TOPIC)}
        under_test.scheduler.wall_ms = clock.wall_ms()
        under_test.stamp_ticks_by(clock)
        Durability(store, InlineLoop(), lambda: 5000, lambda queues: None)
        self.calls: list[Callable[[], None]] = []
        #: True if the batches handed over wait for `run_calls`.
        self.hold = False
        levels = DelayLevels(levels_ms)
        self.places = WaitingPlaces(levels, TimerRules(True, max_delay_s), clock.wall_ms)
        self.appends = OwnAppends(store, self.topics.get, levels, self._call_soon, lambda: True, clock.wall_ms)
        self.durable: Callable[[], int] = lambda: store.log.durable
        store.disk.make_directory(store.paths.config)
        self.directory = Path(under_test.directory) / "rocketbox" / "timers"
        self.index = TimerIndex(self.directory, store.disk, lambda: self.durable(), lambda physical: True)
        self.delivery = DeliverTimers(store, self.appends, self.index, self.topics.get, lambda: 1000, clock=clock)
        self.saver = SaveTimers(store, self.delivery)
        self.roll = RollTimers(store, self.appends, self.delivery, lambda: RESERVED_MS)
        self.saver.roll = self.roll

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

    def send(self, body: bytes, properties: str, topic: str = TARGET, queue_id: int = 0) -> int:
        """A message in a tick of its own; when it is due, 0 when it went to its topic at once."""
        found = decode_properties(properties)
        found.setdefault("UNIQ_KEY", body.decode())
        waits = self.places.place_of(found, Place(topic, queue_id))
        self.put(body, encode_properties(found), Place(topic, queue_id) if waits is None else waits.place)
        return 0 if waits is None else waits.due_ms

    def put(self, body: bytes, properties: str, place: Place = WAITING) -> None:
        (hold, self.hold), (held, self.calls) = (self.hold, False), (self.calls, [])
        future = self.appends.submit([OwnMessage(*place, body, properties, "", self.clock.wall_ms(), BORN)])
        self.hold, self.calls = hold, held
        assert future.result(60)[0].code == 0

    def wait(self, body: bytes, delay_ms: int, **properties: str) -> int:
        return self.send(body, encode_properties(properties | {"TIMER_DELAY_MS": str(delay_ms)}))

    def rounds(self, count: int = 3) -> float:
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

    def save(self) -> None:
        """Save as the thread does, with a log that is durable to its end."""
        self.store.log.sync()
        self.saver.save_now()
        assert self.saver.failure is None

    def roll_on(self, steps: int = 400) -> None:
        """Rolling goes on, with all that it needs of other threads."""
        for _ in range(steps):
            self.roll.look_again()
            self.roll.chore()
            self.save()
            self.rounds(1)

    def arrived(self, queue_id: int = 0, topic: str = TARGET) -> list[bytes]:
        return self.under_test.bodies(topic, queue_id)

    def close(self) -> None:
        self.index.close()
