"""A life in which messages are sent with a delay, become due, are delivered, and the progress of that is saved."""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.broker.delays.delivery import DeliverDelayed
from appliance.engine.broker.delays.progress import FILE_NAME, DelayProgress, SaveDelays
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.errors import StoreBroken
from appliance.engine.store.dispatch import SCHEDULE_TOPIC, waiting_tag_code
from tests.crash.life import Recovered, Violation, properties_of
from tests.crash.own_appends_life import LateAppendsLife
from tests.crash.tables import CONFIG_DIR
from tests.support.store import BORN

#: Topic that delayed messages go to.
TARGET = "D"
LEVEL = 1


class DelayLife(LateAppendsLife):
    """The driver plays `deliver-delayed`, `save-delays`, and the part of `remoting-io` that stages their batches."""

    PASSES_MS = (100, 600, 1200)

    def begin(self) -> None:
        super().begin()
        store, disk = self.store, self.disk
        topics = {name: new_topic(name, 2, 6) for name in (SCHEDULE_TOPIC, TARGET)}
        self.begin_appends(topics.get)
        disk.make_directory(CONFIG_DIR)
        self.progress = DelayProgress(CONFIG_DIR / FILE_NAME, lambda: store.log.durable, self.clock, disk)
        self.delivery = DeliverDelayed(
            store, self.appends, tuple(self.settings.delay_levels_ms), self.progress, topics.get, clock=self.clock
        )
        self.closing.append(self.delivery._files.close)
        self.saver = SaveDelays(self.progress, self.clock)
        store.services += [self.delivery, self.saver]
        self._wrap_saves()
        #: Progress of the level as the file has it.
        self.resumed_at = self._saved()
        #: Bodies by their offset in the level's queue.
        self.sent = super().recovered().get((SCHEDULE_TOPIC, LEVEL - 1), [])
        self.last_delivered = -1

    def _saved(self) -> int | None:
        return self.progress._saved.get(LEVEL)

    def _wrap_saves(self) -> None:
        """Mark the progress that a save may leave before it, and the progress that it left for sure after it."""
        save = self.saver.save_now

        def marked() -> None:
            reached = self.progress.of(LEVEL)
            for offset in range((self._saved() or 0) + 1, reached + 1):
                self.disk.mark(("changed", "offsets", "delays", offset))
            save()
            if self.saver.failure is None and self._saved() is not None:
                self.disk.mark(("changed", "offsets", "delays", self._saved()))
                self.disk.mark(("kept", "offsets"))

        self.saver.save_now = marked  # type: ignore[method-assign]

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [
            *super().actions(deletions),
            (6, self._send_delayed),
            (8, self._deliver),
            (3, lambda: self.saver.save_now()),
        ]

    def _staged(self, message: OwnMessage) -> None:
        """None comes twice in a life, nor before an earlier one."""
        at = self.sent.index(message.body)
        if at <= self.last_delivered:
            raise Violation(f"{message.body[:20]!r}, number {at}, comes behind number {self.last_delivered}")
        self.last_delivered = at

    def _send_delayed(self) -> None:
        self.store.scheduler.wall_ms = self.clock.wall_ms()
        queue = self.store.queues.get_or_create(SCHEDULE_TOPIC, LEVEL - 1)
        field = bytes((len(SCHEDULE_TOPIC),)) + SCHEDULE_TOPIC.encode()
        for _ in range(self.chance.choice((1, 1, 3))):
            body = self._body()
            target = f"DELAY\x01{LEVEL}\x02REAL_TOPIC\x01{TARGET}\x02REAL_QID\x01{self.chance.randrange(2)}\x02"
            properties = target.encode() + properties_of(body)
            code = waiting_tag_code(properties.decode(), self.store.next_store_ms(), self.settings.delay_levels_ms)
            try:
                place = self.store.put(queue, field, body, properties, code, 0, 0, 1, BORN, 0)
            except StoreBroken:
                break
            self.disk.mark(("put", SCHEDULE_TOPIC, LEVEL - 1, body, place))
            self.sent.append(body)
        self.store.end_tick()

    # --- judging

    def recovered(self) -> Recovered:
        found = super().recovered()
        resumed_at = self.resumed_at
        found.configs = {("offsets", "delays"): resumed_at}
        waiting = found.get((SCHEDULE_TOPIC, LEVEL - 1), [])
        if (resumed_at or 0) > len(waiting):
            raise Violation(f"{resumed_at} are delivered of {len(waiting)}")
        copies = {body for queue in range(2) for body in found.get((TARGET, queue), [])}
        for offset, body in enumerate(waiting[: resumed_at or 0]):
            if body not in copies:
                raise Violation(
                    f"{body[:20]!r}, number {offset} of those delayed, counts as delivered and is not there"
                )
        return found
