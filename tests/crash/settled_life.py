"""A life whose messages wait, and are delivered early or dropped: what was acknowledged of that outlives any crash, and
no message is lost by it.

The wall clock stands still, so that nothing but its place tells a message from another one that has it after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from appliance.engine.broker.delays.early import EarlyActs
from appliance.engine.broker.delays.early_batch import Chosen
from appliance.engine.broker.delays.levels import Place, make_wait
from appliance.engine.broker.delays.settled import NAME, How, SettledDelays, is_in_log
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from tests.crash.life import GONE, Recovered, properties_of, unique_key
from tests.crash.own_appends_life import ActsLife, Waiting


class SettledLife(ActsLife):
    tried: ClassVar[dict[str, set[How | str]]] = {}

    def begin(self) -> None:
        super().begin()
        store = self.store
        topics = {name: new_topic(name, 1, 6) for name in (self.TARGET, SCHEDULE_TOPIC)}
        self.begin_appends(topics.get)
        self.settled = SettledDelays(Path("/rocketbox") / NAME, self.disk, lambda reason: None)
        self.closing.append(self.settled.close)
        self.settled.load(lambda one: is_in_log(one, store.records))
        self.acts = EarlyActs(
            store, self.appends, self.settled, lambda level: 0, topics.get, topics.__getitem__, Waiting(self._sync)
        )

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(deletions), (6, self._wait), (6, self._act)]

    # --- steps

    def _wait(self) -> None:
        messages = []
        for _ in range(self.chance.choice((1, 1, 3))):
            body = self._body()
            properties = decode_properties(properties_of(body).decode())
            make_wait(properties, 1, Place(self.TARGET, 0))
            messages.append(OwnMessage(SCHEDULE_TOPIC, 0, body, encode_properties(properties), "", 1))
        self.appends.submit(messages)

    def _act(self) -> None:
        """On some that wait."""
        queue = self.store.find_queue(SCHEDULE_TOPIC, 0)
        if queue is None or queue.max_offset <= queue.min_offset:
            return
        offsets = range(queue.min_offset, queue.max_offset)
        wanted = sorted(self.chance.sample(offsets, min(len(offsets), self.chance.choice((1, 1, 2)))))
        how = self.chance.choice((How.DELIVERED, How.DROPPED))
        chosen, keys = [], []
        for offset in wanted:
            one = self.record_at(SCHEDULE_TOPIC, offset)
            if one is not None:
                physical, size, record = one
                chosen.append(Chosen(1, offset, physical, size))
                keys.append(unique_key(record.body))
                if not self.settled.holds(1, offset):
                    self._try(keys[-1], how)
        self._act_on(how, chosen, keys)

    # --- judging

    def recovered(self) -> Recovered:
        self.finish_repairs()
        found = super().recovered()
        arrived = set(found.get((self.TARGET, 0), ()))
        for offset, body in enumerate(found.get((SCHEDULE_TOPIC, 0), ())):
            if body != GONE:
                self.judge_settled(found, unique_key(body), self.settled.holds(1, offset), body in arrived)
        return found
