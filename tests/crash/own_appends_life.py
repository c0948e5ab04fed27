"""Lives that store the broker's own messages: each copy is marked "put", and the part that waits for it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from appliance.engine.broker.delays.early_batch import Chosen, Ended, Fate
from appliance.engine.broker.delays.levels import DelayLevels
from appliance.engine.broker.delays.settled import How
from appliance.engine.broker.sending.outcome import ReplyTo, store_unavailable
from appliance.engine.broker.sending.own_appends import OwnAppends, OwnMessage
from appliance.engine.broker.timers.delivery import DeliverTimers
from appliance.engine.broker.timers.schedule import DIRECTORY, TimerIndex
from appliance.engine.broker.timers.waiting import TimerRules, WaitingPlaces
from appliance.engine.broker.topic_config import TopicConfig
from tests.crash.life import Life, Recovered, Violation
from tests.support.clock import FakeClock

FindTopic = Callable[[str], TopicConfig | None]


class OwnAppendsLife(Life):
    """A life that stages each message of the broker's own at once, in a tick of its own."""

    sabotages_parts = True

    def begin_appends(self, find_topic: FindTopic, wall_ms: Callable[[], int] = lambda: 0) -> None:
        """On the open store."""
        store = self.store
        levels = DelayLevels(self.settings.delay_levels_ms)
        self.appends = OwnAppends(store, find_topic, levels, self._call, lambda: True, wall_ms)
        self._stage, self.appends.put = self.appends.put, self._put  # type: ignore[method-assign]
        store.on_failed = self._refuse

    def _call(self, job: Callable[[], None]) -> None:
        job()
        self.store.end_tick()

    def _put(self, message: OwnMessage, reply_to: ReplyTo) -> None:
        staged = len(self.store.tick.acks)
        self._stage(message, reply_to)
        for _, outcome in self.store.tick.acks[staged:]:
            self.disk.mark(("put", message.topic, message.queue_id, message.body, outcome.physical_offsets[0]))
            self._staged(message)

    def _staged(self, message: OwnMessage) -> None:
        """A copy is in the tick. Raises Violation where it must not be."""

    def _published(self, tick: Any) -> None:
        for reply_to, outcome in tick.acks:
            reply_to.put_ended(outcome)
        super()._published(tick)

    def _refuse(self, tick: Any, reason: str) -> None:
        for reply_to, _ in tick.acks:
            reply_to.put_ended(store_unavailable(reason))

    def _sync_while(self, work: Callable[[], Any]) -> Any:
        """Work that waits for what it hands over, while the thread of the log's sync works."""
        during, self.disk.during_sync = self.disk.during_sync, lambda path: None
        call = self.appends._call_soon

        def call_and_sync(job: Callable[[], None]) -> None:
            call(job)
            if self.settings.synchronous:
                self._sync()

        self.appends._call_soon = call_and_sync
        try:
            return work()
        finally:
            self.appends._call_soon = call
            self.disk.during_sync = during


class LateAppendsLife(OwnAppendsLife):
    """A life that stages the broker's own messages with the driver's next tick. `delivery` delivers what is due."""

    #: Time in ms that may pass between two looks.
    PASSES_MS: ClassVar[tuple[int, ...]]

    def begin(self) -> None:
        super().begin()
        self.clock = FakeClock()
        self.calls: list[Callable[[], None]] = []

    def _call(self, job: Callable[[], None]) -> None:
        self.calls.append(job)

    def _tick(self) -> None:
        self.store.scheduler.wall_ms = self.clock.wall_ms()
        calls = self.calls.copy()
        self.calls.clear()
        for call in calls:
            call()
        super()._tick()

    def _deliver(self) -> None:
        """Time passes, and what is due is handed over; or what was handed over is looked after."""
        for _ in range(self.chance.choice((1, 2, 3))):
            self.clock.advance(self.chance.choice(self.PASSES_MS))
            self.delivery.round()
        if sum(self.delivery.given_up.values()):
            raise Violation(f"given up: {self.delivery.given_up}")

    def _stop(self) -> None:
        self._tick()
        super()._stop()


class TimedLife(OwnAppendsLife):
    """The driver plays `deliver-timers`, which keeps the index of what waits for a time of its own."""

    def begin_timers(self, find_topic: FindTopic, wall_ms: Callable[[], int], **more: Any) -> None:
        """On the open store, with `appends`. more: as DeliverTimers takes it."""
        store, disk = self.store, self.disk
        self.places = WaitingPlaces(DelayLevels(self.settings.delay_levels_ms), TimerRules(), wall_ms)
        self.index = TimerIndex(
            Path("/rocketbox") / DIRECTORY,
            disk,
            lambda: store.log.durable,
            lambda physical: store.log.durable > physical,
        )
        self.delivery = DeliverTimers(store, self.appends, self.index, find_topic, lambda: 1000, **more)
        self.closing += [self.delivery._files.close, self.index.close]


class Waiting(FakeClock):
    """A clock whose `sleep` syncs the log."""

    def __init__(self, sync: Callable[[], None]) -> None:
        super().__init__()
        self._sync = sync

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._sync()


class ActsLife(OwnAppendsLife):
    """Administrators deliver what waits early, or drop it. Marks "changed" before an act and "kept" when it is
    acknowledged."""

    #: Topic that waiting messages go to. It gets no other messages.
    TARGET = "C"
    #: Module that delivers them: `act` as EarlyActs has it.
    acts: Any
    #: Unique key -> what was tried with it, over all lives of a kind.
    tried: ClassVar[dict[str, set[How | str]]]

    def _try(self, key: str, how: How | str) -> None:
        self.tried.setdefault(key, set()).add(how)
        self.disk.mark(("changed", f"settled {key}", "", True))

    def _act_on(self, how: How, chosen: Sequence[Chosen], keys: Sequence[str]) -> None:
        """The sync of sync flush comes while they are waited for."""
        ended: list[Ended] = self._sync_while(lambda: self.acts.act(how, chosen))
        for one, key in zip(ended, keys, strict=True):
            if one.fate is Fate.DONE:
                self.disk.mark(("kept", f"settled {key}"))

    def judge_settled(self, found: Recovered, key: str, settled: bool, has_come: bool) -> None:
        """Judge one message that waits, or waited."""
        found.configs[f"settled {key}", ""] = settled or None
        if settled and not has_come and self.tried.get(key, set()) <= {How.DELIVERED}:
            raise Violation(f"{key} will not be delivered, and was not")
