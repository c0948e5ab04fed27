"""A life with transactions: halves, their ends, what is set aside and put back, and the offsets of CID_RMQ_SYS_TRANS.

What was acknowledged of a transaction outlives any crash: a half is open or decided, a committed one is there once, one
that was rolled back never. The wall clock stands still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from appliance.engine.broker.clients import ClientManager
from appliance.engine.broker.delays.levels import DelayLevels, Place
from appliance.engine.broker.sending.outcome import PutOutcome
from appliance.engine.broker.timers.waiting import TimerRules, WaitingPlaces
from appliance.engine.broker.transactions.check import CheckSettings, CheckTransactions
from appliance.engine.broker.transactions.decisions import Decisions
from appliance.engine.broker.transactions.half import DISCARDED_TOPIC, Half, half_of, make_half
from appliance.engine.broker.transactions.open_halves import OpenHalves
from appliance.engine.broker.transactions.rebuild import Rebuild
from appliance.engine.errors import RefusedRequest, StoreBroken
from appliance.engine.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.store.queues.consume_queue import unpack_entries
from appliance.engine.store.record_reader import StoredRecord
from tests.crash.broker_life import BrokerLife
from tests.crash.life import GONE, Recovered, Violation, properties_of, unique_key
from tests.crash.own_appends_life import OwnAppendsLife
from tests.support.clock import FakeClock
from tests.support.store import BORN

TARGET = "T"


class _Reply:
    """Reply to a producer that ended a transaction; marks what was acknowledged."""

    def __init__(self, life: TransactionLife, key: str) -> None:
        self.life = life
        self.key = key

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.is_stored:
            self.life.acknowledged.append(self.key)


class TransactionLife(OwnAppendsLife, BrokerLife):
    """The driver plays `check-transactions` and producers that name any half, open or not, by any of its places."""

    def begin(self) -> None:
        super().begin()
        store = self.store
        self.acknowledged: list[str] = []
        self._undurable: list[tuple[int, str]] = []
        if self.tables.topics.get(TARGET) is None:
            self.tables.make_topic(TARGET)
        clock = FakeClock()
        self.begin_appends(self.tables.topics.get)
        self.halves = OpenHalves()
        places = WaitingPlaces(DelayLevels(self.settings.delay_levels_ms), TimerRules(), clock.wall_ms)
        self.decisions = Decisions(store, self.appends, self.halves, self.tables.topics, places, clock.wall_ms)
        loop = EventLoop.__new__(EventLoop)
        loop.clock = clock
        self.checks = CheckTransactions(
            store, self.decisions, ClientManager.__new__(ClientManager), self.tables.offsets,
            loop, lambda: CheckSettings(1, 1, 3, 1 << 40, "broker-a"),
            lambda physical, due_ms, delay_ms: due_ms - clock.wall_ms(),
        )  # fmt: skip
        end_tick = store.end_tick
        store.end_tick = lambda: (self.decisions.end_tick(), end_tick())[1]  # type: ignore[method-assign]
        put_op = self.decisions._put_op

        def marked(offset: int) -> bool:
            done = put_op(offset)
            if done:
                self.disk.mark(("put", OP_HALF_TOPIC, 0, b"%d" % offset, store.tick.last_offset))
            return done

        self.decisions._put_op = marked  # type: ignore[method-assign]
        self.closing.append(self.checks._files.close)

    def load(self) -> None:
        checks = self.checks
        found = self.rebuild().find(checks._half_begin, checks._half_end, checks._op_begin, checks._op_end)
        assert found is not None
        self.halves.adopt(found.open, 0)
        self.checks._begin_work(found)

    def rebuild(self) -> Rebuild:
        return Rebuild(self.store, self.checks._files, lambda: False)

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(False), (10, self._send_halves), (10, self._end), (3, self._aside), (3, self._move),
                (4, self._save_progress)]  # fmt: skip

    # --- remoting-io

    def _published(self, tick: Any) -> None:
        super()._published(tick)
        keys, self.acknowledged = self.acknowledged, []
        for key in keys:
            if self.settings.synchronous:
                self.disk.mark(("kept", f"transaction {key}"))
            else:
                self._undurable.append((tick.end, key))

    def _mark_durable(self) -> None:
        super()._mark_durable()
        while self._undurable and self._undurable[0][0] <= self.store.log.durable:
            self.disk.mark(("kept", f"transaction {self._undurable.pop(0)[1]}"))

    # --- steps

    def _send_halves(self) -> None:
        field = bytes((len(HALF_TOPIC),)) + HALF_TOPIC.encode()
        queue = self.store.queues.get_or_create(HALF_TOPIC, 0)
        for _ in range(self.chance.choice((1, 1, 3))):
            body = self._body()
            found = decode_properties(properties_of(body).decode()) | {"PGROUP": "P", "TRAN_MSG": "true"}
            make_half(found, Place(TARGET, 0))
            text, offset = encode_properties(found), queue.next_offset
            try:
                place = self.store.put(queue, field, body, text.encode(), 0, 0, 0, 1, BORN, 0)
            except StoreBroken:
                break
            self.disk.mark(("put", HALF_TOPIC, 0, body, place))
            self.checks.stored(offset, text)
        self.store.end_tick()

    def _any(self, open_one: bool = False) -> Half | None:
        """A half by one of its places."""
        queue = self.store.find_queue(HALF_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset:
            return None
        offset = self.chance.randrange(queue.min_offset, queue.max_offset)
        if open_one:
            among = self.halves.all(0, 1 << 20)
            if not among:
                return None
            offset = self.chance.choice(among)
        return self._at(offset)

    def _at(self, offset: int) -> Half | None:
        queue = self.store.find_queue(HALF_TOPIC, 0)
        assert queue is not None
        for physical, size, _ in unpack_entries(self.store.queues.read_entries(queue, offset, 1)):
            found = self.store.records.find(physical, size)
            if isinstance(found, StoredRecord):
                return half_of(found)
        return None

    def _end(self) -> None:
        half = self._any()
        if half is not None:
            self._decide(half, self.chance.choice(("committed", "rolled back")))
        self.store.end_tick()

    def _decide(self, half: Half, how: str) -> None:
        half = self.decisions.place_of(half)
        key = unique_key(half.record.body)
        if self.halves.checks(half.record.queue_offset) is not None:
            self.disk.mark(("changed", f"transaction {key}", "", how))
        reply = _Reply(self, key)
        try:
            (self.decisions.commit if how == "committed" else self.decisions.roll_back)(half, reply)
        except RefusedRequest:
            pass

    def _aside(self) -> None:
        half = self._any(open_one=True)
        if half is not None:
            key = unique_key(half.record.body)
            self.disk.mark(("changed", f"transaction {key}", "", "set aside"))
            self.decisions.discard(half, 3, _Reply(self, key))
        self.store.end_tick()

    def _move(self) -> None:
        half = self._any(open_one=True)
        if half is not None:
            self.decisions.put_back(half, self.chance.choice((0, 2)), self.chance.choice((0, 5000)))
        self.store.end_tick()

    def _save_progress(self) -> None:
        self.checks._save()
        try:
            self.tables.offsets.persist()
        except OSError:
            return

    # --- judging

    def recovered(self) -> Recovered:
        found = super().recovered()
        committed = Counter(found.get((TARGET, 0), ()))
        aside = set(found.get((DISCARDED_TOPIC, 0), ()))
        halves = found.get((HALF_TOPIC, 0), [])
        opened = Counter(halves[offset] for offset in self.halves.all(0, 1 << 20))
        for body in set(halves) - {GONE}:
            if committed[body] > 1 or opened[body] > 1:
                raise Violation(f"{body[:20]!r} is {committed[body]} times committed, {opened[body]} times open")
            states = [how for how, so in (("committed", committed[body]), ("set aside", body in aside)) if so]
            if opened[body] and states:
                raise Violation(f"{body[:20]!r} is {states[0]} and open")
            state = states[0] if states else None if opened[body] else "rolled back"
            found.configs[f"transaction {unique_key(body)}", ""] = state
        return found

    def go_on(self) -> None:
        """All that is open can be ended, once; by a start that finds it in the store."""
        for offset in self.halves.all(0, 1 << 20):
            half = self._at(offset)
            if half is None:
                raise Violation(f"the open half {offset} cannot be read")
            self._decide(half, "committed")
        self.store.end_tick()
        self._sync()
        queue = self.store.find_queue(OP_HALF_TOPIC, 0)
        checks = self.checks
        if self.store.log.broken is None and queue is not None:
            found = self.rebuild().find(checks._half_begin, checks._half_end, checks._op_begin, queue.next_offset)
            assert found is not None
            if len(found.open):
                raise Violation(f"{list(found.open)} are open, and were committed")
        for _ in range(2):  # queue files that the crash cut are repaired
            self._flush_queues()
        if self.store.log.broken is None:
            self.recovered()
