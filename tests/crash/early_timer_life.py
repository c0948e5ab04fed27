"""A life whose messages wait for a time of their own, and are taken back, delivered early or dropped: what was
acknowledged of that outlives any crash, and no message is lost by it.

The wall clock stands still, so that nothing comes by itself: what is due is `timer_life.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from appliance.engine.broker.delays.early_batch import Chosen, Fate
from appliance.engine.broker.delays.levels import DelayLevels, Place
from appliance.engine.broker.delays.settled import How
from appliance.engine.broker.sending.outcome import PutOutcome
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.timers.apache_files import read_checkpoint
from appliance.engine.broker.timers.claims import Claims
from appliance.engine.broker.timers.delivery import DeliverTimers
from appliance.engine.broker.timers.early import EarlyTimerActs
from appliance.engine.broker.timers.look import ScheduleLook
from appliance.engine.broker.timers.recall import Asked, RecallPath
from appliance.engine.broker.timers.schedule import DIRECTORY, TimerIndex
from appliance.engine.broker.timers.waiting import TimerRules, WaitingPlaces
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.config import BrokerConfig
from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import (
    TIMER_DEL_UNIQKEY,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
    find_property,
)
from appliance.engine.protocol.recall_handle import encode_recall_handle
from appliance.engine.protocol.record import Record
from appliance.engine.store.queues.consume_queue import unpack_entries
from tests.crash.life import Recovered, Violation, properties_of, unique_key
from tests.crash.own_appends_life import OwnAppendsLife
from tests.crash.settled_life import Waiting

#: Where what waits is to go; nobody else sends there.
TARGET = "C"
RECALLED = "recalled"
HOUR_MS = 3_600_000
#: What the timer topic holds, by queue offset: its record, and where that lies.
Records = dict[int, tuple[int, int, Record]]


class _Recall:
    """A producer that asked for a recall, marked when it is answered."""

    def __init__(self, life: EarlyTimerLife, key: str) -> None:
        self._life = life
        self._key = key

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.code == 0:
            self._life.answered.append((self._life.store.publication.published, self._key))


class EarlyTimerLife(OwnAppendsLife):
    """Marks "changed" before an act and "kept" when it is acknowledged."""

    #: unique key -> what was tried with it, over all lives.
    tried: ClassVar[dict[str, set[How | str]]] = {}

    def open(self) -> None:
        super().open()
        store, disk = self.store, self.disk
        topics = {name: new_topic(name, 1, 6) for name in (TARGET, TIMER_TOPIC)}
        self.clock = Waiting(self._while_waiting)
        self.places = WaitingPlaces(DelayLevels([1000]), TimerRules(), lambda: 1_700_000_000_000)
        self.begin_appends(topics.get)
        self.claims = Claims()
        self.index = TimerIndex(Path("/rocketbox") / DIRECTORY, disk, lambda: store.log.durable)
        self.delivery = DeliverTimers(
            store,
            self.appends,
            self.index,
            topics.get,
            lambda: 1000,
            lambda: read_checkpoint(disk, store.paths.root),
            self.claims,
        )
        self.acts = EarlyTimerActs(
            store,
            self.appends,
            self.claims,
            self._look,
            lambda: self.index.indexed.queue_offset,
            topics.get,
            lambda: 1000,
            self.clock,
        )
        self.recalls = RecallPath(
            self.appends, self.claims, topics.get, BrokerConfig, lambda: 10 * HOUR_MS, lambda: 1_700_000_000_000
        )
        #: (published end, unique key) of recalls that were answered, until the log is durable to there.
        self.answered: list[tuple[int, str]] = []
        self._prepare(self)  # once more, now that these are there
        self.opened_at = len(self.disk.record)

    def _look(self) -> ScheduleLook:
        return ScheduleLook(self.index, self.disk, self.store.log, lambda: 1000)

    def leave(self) -> None:
        self._close()
        super().leave()

    def _stop(self) -> None:
        super()._stop()
        self._close()

    def _close(self) -> None:
        if hasattr(self, "delivery"):
            self.delivery._files.close()
            self.index.close()

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(deletions), (6, self._wait), (5, self._act), (5, self._recall), (3, self._save)]

    # --- remoting-io

    def _published(self, tick) -> None:
        super()._published(tick)
        self._keep_answered()

    def _keep_answered(self) -> None:
        """A producer's recall holds as its message does: in async flush when the log is durable."""
        log = self.store.log
        while self.answered and (self.settings.synchronous or self.answered[0][0] <= log.durable):
            self.disk.mark(("kept", f"settled {self.answered.pop(0)[1]}"))

    # --- the other threads

    def _sync(self) -> None:
        super()._sync()
        self._keep_answered()

    def _index(self) -> None:
        """What `deliver-timers` does, but for delivering: nothing is due."""
        try:
            if not self.delivery._loaded:
                self.delivery._load()
            while self.delivery._take_in():
                if self.index.is_full:
                    self.index.save()
        except (OSError, CorruptFile):
            self.delivery._loaded = False
            self.index.clear()

    def _save(self) -> None:
        self._index()
        try:
            self.index.save()
        except OSError:
            self._mend()

    def _while_waiting(self) -> None:
        self._sync()
        self._index()

    # --- steps

    def _wait(self) -> None:
        messages = []
        for _ in range(self.chance.choice((1, 1, 3))):
            body = self._body()
            found = decode_properties(properties_of(body).decode())
            found["TIMER_DELAY_MS"] = str(HOUR_MS + self.chance.randrange(3) * 500)
            waits = self.places.place_of(found, Place(TARGET, 0))
            assert waits is not None
            messages.append(OwnMessage(*waits.place, body, encode_properties(found), unique_key(body), 1))
        self.appends.submit(messages)

    def _records(self) -> Records:
        queue = self.store.find_queue(TIMER_TOPIC, 0)
        found: Records = {}
        for offset in range(0 if queue is None else queue.min_offset, 0 if queue is None else queue.max_offset):
            assert queue is not None
            for physical, size, _ in unpack_entries(self.store.queues.read_entries(queue, offset, 1)):
                record = self.store.records.get(physical, size)
                if record is not None:
                    found[offset] = physical, size, record.record
        return found

    def _some(self) -> list[tuple[Chosen, str, Record]]:
        """One or two messages, marked or not, with their unique keys."""
        records = self._records()
        offsets = [at for at, (_, _, one) in records.items() if not find_property(one.properties, TIMER_DEL_UNIQKEY)]
        wanted = sorted(self.chance.sample(offsets, min(len(offsets), self.chance.choice((1, 1, 2)))))
        return [
            (Chosen(0, at, records[at][0], records[at][1]), key_in(records[at][2]), records[at][2]) for at in wanted
        ]

    def _act(self) -> None:
        """On some that wait; the sync of sync flush comes while they are waited for."""
        self._index()
        how = self.chance.choice((How.DELIVERED, How.DROPPED))
        some = self._some()
        for _, key, _ in some:
            self._try(key, how)
        during, self.disk.during_sync = self.disk.during_sync, lambda path: None
        call, self.appends._call_soon = self.appends._call_soon, self._call_and_sync
        try:
            for ended, (_, key, _) in zip(self.acts.act(how, [one for one, _, _ in some]), some, strict=True):
                if ended.fate is Fate.DONE:
                    self.disk.mark(("kept", f"settled {key}"))
        finally:
            self.appends._call_soon = call
            self.disk.during_sync = during

    def _call_and_sync(self, job: Callable[[], None]) -> None:
        self._call(job)
        if self.settings.synchronous:
            self._sync()

    def _recall(self) -> None:
        for _, key, record in self._some():
            self._try(key, RECALLED)
            out_ms = int(find_property(record.properties, "TIMER_OUT_MS") or 0)
            handle = encode_recall_handle(TARGET, BrokerConfig().broker_name, out_ms, key)
            self.recalls.recall(Asked(TARGET, handle, "P", b""), _Recall(self, key))
            self.store.end_tick()

    def _try(self, key: str, how: How | str) -> None:
        self.tried.setdefault(key, set()).add(how)
        self.disk.mark(("changed", f"settled {key}", "", True))

    # --- judging

    def recovered(self) -> Recovered:
        found = super().recovered()
        arrived = {unique_key(body) for body in found.get((TARGET, 0), ())}
        records = self._records()
        marks = {
            find_property(one.properties, TIMER_DEL_UNIQKEY) for _, _, one in records.values()
        }  # the time is always the message's
        waiting = set()
        for _, _, one in records.values():
            if find_property(one.properties, TIMER_DEL_UNIQKEY):
                continue
            key = key_in(one)
            marked = f"{TARGET}+{key}" in marks
            found.configs[f"settled {key}", ""] = marked or None
            if marked and self.tried.get(key, set()) <= {How.DELIVERED} and key not in arrived:
                raise Violation(f"{key} will not be delivered, and was not")
            if not marked:
                waiting.add(one.queue_offset)
        self._index()
        with self._look() as look:
            scheduled = {entry.queue_offset for entry in look.walk(0)}
        if scheduled != waiting:
            raise Violation(f"the schedule has {sorted(scheduled)}, and {sorted(waiting)} wait")
        return found


def key_in(record: Record) -> str:
    return find_property(record.properties, UNIQUE_KEY) or ""
