"""A life whose messages wait for a time of their own, and are taken back, delivered early or dropped: what was
acknowledged of that outlives any crash, and no message is lost by it.

The wall clock stands still, so that nothing comes by itself: what is due is `timer_life.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from appliance.engine.broker.delays.early_batch import Chosen
from appliance.engine.broker.delays.levels import Place
from appliance.engine.broker.delays.settled import How
from appliance.engine.broker.sending.outcome import PutOutcome
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.timers.claims import Claims
from appliance.engine.broker.timers.early import EarlyTimerActs
from appliance.engine.broker.timers.look import ScheduleLook
from appliance.engine.broker.timers.recall import Asked, RecallPath
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
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
from tests.crash.life import Recovered, Violation, properties_of, unique_key
from tests.crash.own_appends_life import ActsLife, TimedLife, Waiting

RECALLED = "recalled"
HOUR_MS = 3_600_000


class _Recall:
    """A producer that asked for a recall, marked when it is answered."""

    def __init__(self, life: EarlyTimerLife, key: str) -> None:
        self._life = life
        self._key = key

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.code == 0:
            self._life.answered.append((self._life.store.publication.published, self._key))


class EarlyTimerLife(TimedLife, ActsLife):
    """Producers take some back besides."""

    tried: ClassVar[dict[str, set[How | str]]] = {}

    def begin(self) -> None:
        super().begin()
        topics = {name: new_topic(name, 1, 6) for name in (self.TARGET, TIMER_TOPIC)}
        self.begin_appends(topics.get)
        self.claims = Claims()
        self.begin_timers(topics.get, lambda: 1_700_000_000_000, claims=self.claims)
        self.acts = EarlyTimerActs(
            self.store, self.appends, self.delivery, topics.get, Waiting(self._while_waiting), lambda: None
        )
        config = EngineConfig(Path("/data"), store=StoreConfig(timer_max_delay_sec=10 * HOUR_MS // 1000))
        self.recalls = RecallPath(self.appends, self.claims, topics.get, lambda: config, lambda: 1_700_000_000_000)
        #: (published end, unique key) of recalls that were answered, until the log is durable to there.
        self.answered: list[tuple[int, str]] = []

    def _look(self) -> ScheduleLook:
        return ScheduleLook(self.index, self.disk, self.store.log, lambda: 1000)

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
        """Do what the `deliver-timers` thread does, without delivering: nothing is due."""
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
            waits = self.places.place_of(found, Place(self.TARGET, 0))
            assert waits is not None
            messages.append(OwnMessage(*waits.place, body, encode_properties(found), unique_key(body), 1))
        self.appends.submit(messages)

    def _some(self) -> list[tuple[Chosen, str, Record]]:
        """One or two messages, marked or not, with their unique keys."""
        records = self.records_of(TIMER_TOPIC)
        offsets = [at for at, (_, _, one) in records.items() if not find_property(one.properties, TIMER_DEL_UNIQKEY)]
        wanted = sorted(self.chance.sample(offsets, min(len(offsets), self.chance.choice((1, 1, 2)))))
        return [
            (Chosen(0, at, records[at][0], records[at][1]), key_in(records[at][2]), records[at][2]) for at in wanted
        ]

    def _act(self) -> None:
        """On some that wait."""
        self._index()
        how = self.chance.choice((How.DELIVERED, How.DROPPED))
        some = self._some()
        for _, key, _ in some:
            self._try(key, how)
        self._act_on(how, [one for one, _, _ in some], [key for _, key, _ in some])

    def _recall(self) -> None:
        for _, key, record in self._some():
            self._try(key, RECALLED)
            out_ms = int(find_property(record.properties, "TIMER_OUT_MS") or 0)
            handle = encode_recall_handle(self.TARGET, BrokerConfig().broker_name, out_ms, key)
            self.recalls.recall(Asked(self.TARGET, handle, "P", b""), _Recall(self, key))
            self.store.end_tick()

    # --- judging

    def recovered(self) -> Recovered:
        found = super().recovered()
        arrived = {unique_key(body) for body in found.get((self.TARGET, 0), ())}
        records = self.records_of(TIMER_TOPIC)
        marks = {
            find_property(one.properties, TIMER_DEL_UNIQKEY) for _, _, one in records.values()
        }  # the time is always the message's
        waiting = set()
        for _, _, one in records.values():
            if find_property(one.properties, TIMER_DEL_UNIQKEY):
                continue
            key = key_in(one)
            marked = f"{self.TARGET}+{key}" in marks
            self.judge_settled(found, key, marked, key in arrived)
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
