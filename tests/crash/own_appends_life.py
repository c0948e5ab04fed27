"""A life that stores messages of the broker's own: each copy is marked "put", and who waits for it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.engine.broker.delays.levels import DelayLevels
from appliance.engine.broker.sending.outcome import ReplyTo, store_unavailable
from appliance.engine.broker.sending.own_appends import OwnAppends, OwnMessage
from appliance.engine.broker.topic_config import TopicConfig
from tests.crash.life import Life


class OwnAppendsLife(Life):
    """What is handed over is staged at once, in a tick of its own."""

    def begin_appends(
        self,
        find_topic: Callable[[str], TopicConfig | None],
        wall_ms: Callable[[], int] = lambda: 0,
        delays_ms: tuple[int, ...] = (1000,),
    ) -> None:
        """On the open store."""
        store = self.store
        levels = DelayLevels(list(delays_ms))
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


class LateAppendsLife(OwnAppendsLife):
    """What is handed over is staged with the next tick of the driver."""

    def begin_appends(self, *arguments: Any, **more: Any) -> None:
        self.calls: list[Callable[[], None]] = []
        super().begin_appends(*arguments, **more)

    def _call(self, job: Callable[[], None]) -> None:
        self.calls.append(job)

    def _tick(self) -> None:
        self.store.scheduler.wall_ms = self.clock.wall_ms()
        calls = self.calls.copy()
        self.calls.clear()
        for call in calls:
            call()
        super()._tick()

    def _stop(self) -> None:
        self._tick()
        super()._stop()
