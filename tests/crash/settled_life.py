"""A life whose messages wait, and are delivered early or dropped: what was acknowledged of that outlives any crash, and
no message is lost by it.

The wall clock stands still, so that nothing but its place tells a message from another one that has it after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from appliance.engine.broker.delays.early import EarlyActs
from appliance.engine.broker.delays.early_batch import Chosen, Fate
from appliance.engine.broker.delays.levels import Place, make_wait
from appliance.engine.broker.delays.settled import NAME, How, SettledDelays, is_in_log
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.clock import FakeClock
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from appliance.engine.store.queues.consume_queue import unpack_entries
from tests.crash.life import GONE, Recovered, Violation, properties_of, unique_key
from tests.crash.own_appends_life import OwnAppendsLife

#: Where what waits is to go; nobody else sends there.
TARGET = "C"


class Waiting(FakeClock):
    """While somebody waits, the log is synced."""

    def __init__(self, sync: Callable[[], None]) -> None:
        super().__init__()
        self._sync = sync

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._sync()


class SettledLife(OwnAppendsLife):
    """Marks "changed" before an act and "kept" when it is acknowledged."""

    #: body -> what was tried with it, over all lives; bodies are unique.
    tried: ClassVar[dict[bytes, set[How]]] = {}

    def open(self) -> None:
        super().open()
        store = self.store
        topics = {name: new_topic(name, 1, 6) for name in (TARGET, SCHEDULE_TOPIC)}
        self.begin_appends(topics.get)
        self.settled = SettledDelays(Path("/rocketbox") / NAME, self.disk, lambda reason: None)
        self.settled.load(lambda one: is_in_log(one, store.records))
        self.acts = EarlyActs(
            store, self.appends, self.settled, lambda level: 0, topics.get, topics.__getitem__, Waiting(self._sync)
        )
        self._prepare(self)  # once more, now that these are there
        self.opened_at = len(self.disk.record)

    def leave(self) -> None:
        self._close()
        super().leave()

    def _stop(self) -> None:
        super()._stop()
        self._close()

    def _close(self) -> None:
        if hasattr(self, "settled"):
            self.settled.close()

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(deletions), (6, self._wait), (6, self._act)]

    # --- steps

    def _wait(self) -> None:
        messages = []
        for _ in range(self.chance.choice((1, 1, 3))):
            body = self._body()
            properties = decode_properties(properties_of(body).decode())
            make_wait(properties, 1, Place(TARGET, 0))
            messages.append(OwnMessage(SCHEDULE_TOPIC, 0, body, encode_properties(properties), "", 1))
        self.appends.submit(messages)

    def _act(self) -> None:
        """On some that wait; the sync of sync flush comes while they are waited for."""
        queue = self.store.find_queue(SCHEDULE_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset:
            return
        offsets = range(queue.min_offset, queue.max_offset)
        wanted = sorted(self.chance.sample(offsets, min(len(offsets), self.chance.choice((1, 1, 2)))))
        how = self.chance.choice((How.DELIVERED, How.DROPPED))
        chosen, bodies = self._choose(wanted)
        for one, body in zip(chosen, bodies, strict=True):
            if not self.settled.holds(1, one.queue_offset):
                self.tried.setdefault(body, set()).add(how)
                self.disk.mark(("changed", f"settled {unique_key(body)}", "", True))
        during, self.disk.during_sync = self.disk.during_sync, lambda path: None
        for ended, body in zip(self._do(how, chosen), bodies, strict=True):
            if ended.fate is Fate.DONE:
                self.disk.mark(("kept", f"settled {unique_key(body)}"))
        self.disk.during_sync = during

    def _do(self, how: How, chosen: Sequence[Chosen]):
        """Act, while the thread of the log's sync works."""
        call = self.appends._call_soon

        def call_and_sync(job: Callable[[], None]) -> None:
            call(job)
            if self.settings.synchronous:
                self._sync()

        self.appends._call_soon = call_and_sync
        try:
            return self.acts.act(how, chosen)
        finally:
            self.appends._call_soon = call

    def _choose(self, offsets: Sequence[int]) -> tuple[list[Chosen], list[bytes]]:
        chosen, bodies = [], []
        queue = self.store.find_queue(SCHEDULE_TOPIC, 0)
        assert queue is not None
        for offset in offsets:
            for physical, size, _ in unpack_entries(self.store.queues.read_entries(queue, offset, 1)):
                found = self.store.records.get(physical, size)
                if found is not None:
                    chosen.append(Chosen(1, offset, physical, size))
                    bodies.append(found.record.body)
        return chosen, bodies

    # --- judging

    def recovered(self) -> Recovered:
        self.finish_repairs()
        found = super().recovered()
        arrived = set(found.get((TARGET, 0), ()))
        for offset, body in enumerate(found.get((SCHEDULE_TOPIC, 0), ())):
            if body == GONE:
                continue
            held = self.settled.holds(1, offset)
            found.configs[f"settled {unique_key(body)}", ""] = held or None
            if held and self.tried.get(body, set()) <= {How.DELIVERED} and body not in arrived:
                raise Violation(f"{body[:20]!r} at {offset} will not be delivered, and was not")
        return found
