"""A life in which messages wait for times of their own, are cancelled, rolled and delivered, and the index is saved."""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.broker.delays.levels import Place
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.timers.rolling import RollTimers
from appliance.engine.broker.timers.saving import SaveTimers
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import decode_properties, encode_properties, find_property
from tests.crash.life import GONE, Recovered, Violation, properties_of, unique_key
from tests.crash.own_appends_life import LateAppendsLife, TimedLife

#: Topic that timed messages go to. It gets no other messages.
TARGET = "T"


class TimerLife(LateAppendsLife, TimedLife):
    """The driver plays `save-timers`, too, and the part of `remoting-io` that stages their batches."""

    PASSES_MS = (50, 600, 1500)

    def begin(self) -> None:
        super().begin()
        store = self.store
        #: Bodies that came, and bodies whose cancelling was published, in this life.
        self.delivered: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        topics = {name: new_topic(name, 2, 6) for name in (TIMER_TOPIC, TARGET)}
        self.begin_appends(topics.get, self.clock.wall_ms)
        self.begin_timers(topics.get, self.clock.wall_ms, clock=self.clock)
        self.saver = SaveTimers(store, self.delivery)
        self.roll = RollTimers(store, self.appends, self.delivery, lambda: 1 << 50)
        self.saver.roll = self.roll
        store.services += [self.delivery, self.saver]

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [
            *super().actions(deletions),
            (8, self._send_timed),
            (8, self._deliver),
            (3, self._cancel),
            (2, lambda: self.saver.save_now()),
            (1, self._want_roll),
        ]

    def _staged(self, message: OwnMessage) -> None:
        """No message comes twice in a life."""
        if message.topic == TARGET:
            if message.body in self.delivered:
                raise Violation(f"{message.body[:20]!r} comes twice in a life")
            if message.body in self.cancelled:
                raise Violation(f"{message.body[:20]!r} was cancelled and comes")
            self.delivered.add(message.body)

    def _send_timed(self) -> None:
        messages = []
        for _ in range(self.chance.choice((1, 1, 4))):
            body = self._body()
            found = decode_properties(properties_of(body).decode())
            found["TIMER_DELAY_MS"] = str(self.chance.choice((1, 300, 2000, 9000)))
            waits = self.places.place_of(found, Place(TARGET, self.chance.randrange(2)))
            assert waits is not None
            messages.append(OwnMessage(*waits.place, body, encode_properties(found), "", 1))
        self.appends.submit(messages)
        self._tick()

    def _cancel(self) -> None:
        """One of those that wait, if it may still be: it was published, and is not about to come."""
        queue = self.store.find_queue(TIMER_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset:
            return
        offset = self.chance.randrange(queue.min_offset, queue.max_offset)
        found = self.record_at(TIMER_TOPIC, offset)
        if found is None or found[2].body == b"0":
            return
        physical, _, record = found
        out = int(find_property(record.properties, "TIMER_OUT_MS") or "0")
        if out < self.clock.wall_ms() + 100:
            return
        key = f"{TARGET}+{find_property(record.properties, 'UNIQ_KEY')}"
        mark = f"TIMER_OUT_MS\x01{out}\x02TIMER_DEL_UNIQKEY\x01{key}\x02UNIQ_KEY\x01m\x02"
        self.appends.submit([OwnMessage(TIMER_TOPIC, 0, b"0", mark, "", 1)])
        self._tick()
        if self.store.published > physical and queue.max_offset == queue.next_offset:
            self.cancelled.add(record.body)

    def _want_roll(self) -> None:
        self.roll.keep(self.store.log.written)
        for _ in range(8):
            self.roll.look_again()
            self.roll.chore()
            self._tick()
            self.saver._try(self.roll.scan)

    # --- judging

    def recovered(self) -> Recovered:
        """Every message that waits is known to the index, or will be; or it has come, or is cancelled."""
        found = super().recovered()
        known = self._known()
        copies = {body for queue in range(2) for body in found.get((TARGET, queue), [])}
        waiting = found.get((TIMER_TOPIC, 0), [])
        bodies: dict[bytes, set[int]] = {}
        cancelled: set[str] = set()
        for offset, body in enumerate(waiting):
            if body == b"0":
                stored = self.record_at(TIMER_TOPIC, offset)
                assert stored is not None
                cancelled.add(find_property(stored[2].properties, "TIMER_DEL_UNIQKEY") or "")
            elif body != GONE:
                bodies.setdefault(body, set()).add(offset)
        for body, offsets in bodies.items():
            if body in copies or f"{TARGET}+{unique_key(body)}" in cancelled:
                continue
            if max(offsets) not in known:
                raise Violation(f"{body[:20]!r}, at {sorted(offsets)} of those that wait, is not there and not known")
        return found

    def _known(self) -> set[int]:
        """Queue offsets that the index has, or will take in."""
        queue = self.store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return set()
        for _ in range(queue.max_offset // 100 + 5):
            self.delivery._load() if not self.delivery._loaded else None
            if not self.delivery._take_in():
                break
        bits = self.index.pending_in(0, queue.max_offset, lambda: True)
        return {offset for offset in range(queue.max_offset) if bits[offset >> 3] >> (offset & 7) & 1}
