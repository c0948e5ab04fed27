"""Sends through the broker's own send path into a store under test, without sockets; and hostile ones to send."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from appliance.engine.broker.delays.levels import DelayLevels
from appliance.engine.broker.groups import SubscriptionGroupManager
from appliance.engine.broker.processors.cold_records import ColdRecords
from appliance.engine.broker.processors.send import SendAnswers, SendProcessor
from appliance.engine.broker.processors.send_back import SendBackProcessor
from appliance.engine.broker.queue_locks import RebalanceLockManager
from appliance.engine.broker.sending.admission import SendAdmission
from appliance.engine.broker.sending.own_appends import OwnAppends
from appliance.engine.broker.sending.properties import SendProperties
from appliance.engine.broker.sending.retry_policy import RetryPolicy
from appliance.engine.broker.sending.send_back import SendBackPath
from appliance.engine.broker.sending.send_back_counts import SendBackCounts
from appliance.engine.broker.sending.send_path import SendPath
from appliance.engine.broker.timers.waiting import TimerRules, WaitingPlaces
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.config import BrokerConfig
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.protocol.message_id import UniqueKeys, key_prefix
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.store.message_store import MessageStore
from appliance.engine.store.queues.consume_queue import ENTRY, ConsumeQueue
from tests.support.batches import encode_member
from tests.support.clock import FakeClock
from tests.support.fakes import InlineLoop, InlinePool

#: Long names of a send's letters, for code 10.
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip


@dataclass
class HostileSend:
    """One send: a message, or with more than one member, or `batch`, a batch. code: 10, 310 or 320."""

    topic: str
    queue_id: int
    members: list[tuple[bytes, str]]
    properties: str = ""
    sys_flag: int = 0
    code: int = 310
    codec: int = 0
    batch: bool = False
    flag: int = 0
    reconsume_times: int = 0

    def frame(self) -> bytes:
        fields = {
            "a": "PG", "b": self.topic, "c": "TBW102", "d": "4", "e": str(self.queue_id), "f": str(self.sys_flag),
            "g": "1700000000000", "h": str(self.flag), "i": self.properties, "j": str(self.reconsume_times),
            "k": "false", "m": "true" if self.batch else "false",
        }  # fmt: skip
        body = self.members[0][0]
        if self.batch:
            body = b"".join(encode_member(body, text.encode("utf-8", "surrogatepass")) for body, text in self.members)
        if self.code == 10:
            fields = {LONG[letter]: value for letter, value in fields.items()}
        return encode_command(RemotingCommand(self.code, opaque=5, ext_fields=fields, body=body), self.codec)


_NAMES = (
    "TAGS", "TAGS", "KEYS", "UNIQ_KEY", "UNIQ_KEY", "WAIT", "DELAY", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK",
    "INNER_NUM", "__RMQ.TRANSIENT.X", "XTAGS", "XUNIQ_KEY", "a", "", "ä", "PGROUP", "TRAN_MSG", "REAL_TOPIC", "\0",
)  # fmt: skip
_VALUES = (
    "", "0", "a", "TagA", "TagB", "ü", "😀", "true", "false", "x\x01TAGS\x01y", "\x02TAGS\x01TagC", "-1", "\0",
    "\0" * 300, "\0" * 512, "\0" * 600, "\0" * 1200, "x" * 700, "0A0000011234ABCD0001",
)  # fmt: skip


def hostile_properties(chance: random.Random) -> str:
    """A text of properties as no official client writes it."""
    text = ""
    for _ in range(chance.choice((0, 1, 2, 3, 6))):
        text += chance.choice(_NAMES) + chance.choice(("\x01",) * 9 + ("",)) + chance.choice(_VALUES)
        text += chance.choice(("\x02",) * 9 + ("", "\x02\x02"))
    return text


def hostile_send(chance: random.Random, topic: str, queue_id: int, bodies: list[bytes]) -> HostileSend:
    """A send of these bodies in which anything else may be wrong."""
    batch = len(bodies) > 1 or chance.random() < 0.2
    flag = chance.choice((0, 0, 0, 1, 1 << chance.randrange(32), chance.getrandbits(32)))
    members = [
        (body, hostile_properties(chance) if chance.random() < 0.7 else good_properties(body)) for body in bodies
    ]
    common = hostile_properties(chance) if chance.random() < 0.7 else good_properties(bodies[0])
    return HostileSend(
        topic,
        queue_id,
        members,
        common,
        struct.unpack(">i", struct.pack(">I", flag))[0],
        chance.choice((10, 310)) if not batch else chance.choice((310, 320)),
        chance.choice((0, 1)),
        batch,
        chance.choice((0, 1, -1, 2**31 - 1)),
        chance.choice((0, 3, -1)),
    )


def good_properties(body: bytes) -> str:
    return f"UNIQ_KEY\x017F0000016AB14E0E2F2A69{body.hex()[-10:].upper():0>10}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


class NoPeer:
    """A connection as the send path sees it. `answers`: refusals only; the others wait in the store's tick."""

    remote_host = "10.0.0.1:5000"
    closed = False

    def __init__(self, born_host: bytes) -> None:
        self.born_host = born_host
        self.answers: list[RemotingCommand] = []

    def answer(self, opaque: int, response: RemotingCommand) -> None:
        self.answers.append(response)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        self.answers.append(response)


class Sender:
    """The broker's send path over a store and its tables."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> None:
        self._store = store
        self._dispatcher = Dispatcher({})
        config = BrokerConfig()
        keys = UniqueKeys(key_prefix(bytes(4), 1, 1), 0)
        levels = DelayLevels(store.settings.delay_levels_ms)
        retry_policy = RetryPolicy(topics, groups, RebalanceLockManager(FakeClock()))
        path = SendPath(
            store,
            SendAdmission(topics, store.queues, retry_policy, lambda: config.broker_permission),
            SendProperties(
                config.region_id,
                config.cluster_name,
                config.trace_on,
                keys,
                WaitingPlaces(levels, TimerRules(), lambda: 0),
            ),
            levels,
            4 << 20,
            lambda: 0,
            config.broker_name,
        )
        self.processor = SendProcessor(path, SendAnswers(store.store_host, config.region_id, config.trace_on))
        self.processor.register(self._dispatcher)
        appends = OwnAppends(store, topics.get, levels, store.scheduler.call_soon, lambda: True, lambda: 0)
        self.counts = SendBackCounts(FakeClock())
        back = SendBackPath(appends, retry_policy, levels, lambda: config.broker_permission, self.counts)
        records = ColdRecords(store.records, InlinePool(), InlineLoop())  # type: ignore[arg-type]
        SendBackProcessor(back, records, FakeClock()).register(self._dispatcher)

    def send_back(self, fields: dict[str, str], version: int = 479) -> tuple[int, list[int]]:
        """36: (code, physical offset of the copy), as `send`."""
        peer: Any = NoPeer(bytes(8))
        request = RemotingCommand(36, opaque=6, version=version, ext_fields=fields)
        staged = len(self._store.tick.acks)
        self._dispatcher.dispatch_request(peer, request)
        if peer.answers:
            assert len(peer.answers) == 1
            assert len(self._store.tick.acks) == staged
            return peer.answers[0].code, []
        reply_to, outcome = self._store.tick.acks[-1]
        assert len(self._store.tick.acks) == staged + 1
        reply_to.put_ended(outcome)
        assert [answer.code for answer in peer.answers] == [0]
        return outcome.code, list(outcome.physical_offsets)

    def last_touched(self) -> tuple[ConsumeQueue, int]:
        """The queue of what was staged last, and its physical offset."""
        tick = self._store.tick
        place = tick.last_offset
        (queue,) = (one for one in tick.touched if ENTRY.unpack_from(one.tail, len(one.tail) - ENTRY.size)[0] == place)
        return queue, place

    def send(self, send: HostileSend, born_host: bytes) -> tuple[int, list[int]]:
        """(code, physical offsets): staged in the current tick and code 0, or refused with a code."""
        peer: Any = NoPeer(born_host)
        frame = memoryview(send.frame())
        length, meta = struct.unpack_from(">iI", frame)
        staged = len(self._store.tick.acks) + len(self._store.tick.early)
        self._dispatcher.dispatch(peer, frame, 8, length + 4, meta)
        if peer.answers:
            assert len(peer.answers) == 1
            return peer.answers[0].code, []
        tick = self._store.tick
        assert len(tick.acks) + len(tick.early) == staged + 1
        _, outcome = next(ack for ack in [*tick.acks[-1:], *tick.early[-1:]] if getattr(ack[0], "conn", None) is peer)
        return outcome.code, list(outcome.physical_offsets)
