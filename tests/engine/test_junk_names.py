"""Junk in every field of every request: no table, file or answer keeps any of it.

A request with good fields comes first, so that the junk reaches the place where a value would be kept.
"""

from __future__ import annotations

import gc
import json
import logging
import struct
import time
import types
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from appliance.engine.broker.offsets import QueueOffsets
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.names import CHECK_GROUP, HALF_TOPIC, OP_HALF_TOPIC
from appliance.engine.protocol.recall_handle import encode_recall_handle
from appliance.engine.wire_audit import STEM
from tests.support.engine import Peer, pull_fields, send_fields, start_engine

MARK = "JuNk"
JUNK = {
    "long": MARK * 15_000,
    "path": f"../../{MARK}/etc",
    "control": f"{MARK}\n\x00\x1b[2J\r",
    "empty": "",
    "other script": f"{MARK}日本é",
}
#: Free text, kept if it is printable: (code, field) -> kinds of junk that are fine there.
FREE = {
    (100, "namespace"): {"path", "other script"},
    (100, "key"): {"path", "other script"},
    (100, "value"): {"path", "other script"},
    (11, "subscription"): {"path", "other script"},
    (361, "subscription"): {"path", "other script"},
    (34, "clientID"): {"path", "other script"},
    (34, "subString"): {"path", "other script"},
    (34, "tagsSet"): {"path", "other script"},
    (41, "clientId"): {"path", "other script"},
    (200, "expression"): {"path", "other script"},
    (225, "expression"): {"path", "other script"},
}
#: Records of requests and their senders, refused requests included: short, and printable.
RECORDS = ("LogLine", "WireAct")
MOST_TOLD = 5000
#: Content of messages, which belongs to their senders.
OWN = {(10, "properties"), (310, "i"), (320, "i")}

T, G = "WalkTopic", "WalkGroup"
SUBSCRIPTION = {
    "topic": T, "subString": "*", "subVersion": 1, "tagsSet": ["a"], "codeSet": ["97"], "expressionType": "TAG",
    "classFilterMode": False,
}  # fmt: skip
HEARTBEAT = {
    "clientID": "walker",
    "producerDataSet": [{"groupName": "WalkProducer"}],
    "consumerDataSet": [
        {"groupName": G, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
         "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [SUBSCRIPTION]}
    ],
    "heartbeatFingerprint": 0,
    "withoutSub": False,
}  # fmt: skip
LOCK = {"clientId": "walker", "consumerGroup": G, "mqSet": [{"topic": T, "brokerName": "broker-a", "queueId": 0}]}
GROUP = {
    "groupName": "WalkMade", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
    "groupSysFlag": 0, "consumeTimeoutMinute": 15, "whichBrokerWhenConsumeSlowly": 1, "attributes": {},
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    "subscriptionDataSet": [{"topic": T, "expression": "*", "expressionType": "TAG", "version": 1}],
}  # fmt: skip
TOPIC = {
    "topicName": "WalkMade", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False, "attributes": {"+message.type": "NORMAL"},
}  # fmt: skip
QUEUE = {"topic": T, "queueId": "0"}
LONG_SEND = {
    "producerGroup": "P", "topic": T, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
    "maxReconsumeTimes": "16", "batch": "false",
}  # fmt: skip
BATCH = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
BETWEEN = {"beginTimestamp": "0", "endTimestamp": str(1 << 40)}

RECALL = encode_recall_handle(
    T, "broker-a", time.time_ns() // 1_000_000 + 3_600_000, "7F00000100000000000000000000000A"
)
#: code -> (fields, body: None, bytes, JSON, or an option text as a dict with the key "options").
BROKER: dict[int, tuple[dict[str, str], Any]] = {
    10: (LONG_SEND, b"x"),
    11: (pull_fields(T, 0, 0, consumerGroup=G, sysFlag=5), None),
    12: ({"topic": T, "key": "k", "maxNum": "1", **BETWEEN}, None),
    14: ({"consumerGroup": G, **QUEUE, "setZeroIfNotFound": "true"}, None),
    15: ({"consumerGroup": G, **QUEUE, "commitOffset": "1"}, None),
    17: ({"topic": "WalkMade", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
          "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "+message.type=NORMAL"},
         None),
    18: ({}, {"topicConfigList": [TOPIC]}),
    21: ({}, None),
    25: ({}, {"options": {"fileReservedTime": "72", "deleteWhen": "04", "longPollingEnable": "true"}}),
    26: ({}, None),
    28: ({}, None),
    29: (QUEUE | {"timestamp": "0", "boundaryType": "lower"}, None),
    30: (QUEUE, None),
    31: (QUEUE, None),
    32: (QUEUE, None),
    33: ({"offset": "0"}, None),
    34: ({}, HEARTBEAT),
    35: ({"clientID": "walker", "producerGroup": "WalkGone", "consumerGroup": "WalkGone"}, None),
    36: ({"offset": "0", "group": G, "delayLevel": "0", "originMsgId": "x", "originTopic": T,
          "maxReconsumeTimes": "16"}, None),
    37: ({"producerGroup": G, "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
          "fromTransactionCheck": "false", "msgId": "x", "transactionId": "x"}, None),
    38: ({"consumerGroup": G}, None),
    41: ({}, LOCK),
    42: ({}, LOCK),
    43: ({}, None),
    45: ({}, None),
    60: ({}, None),
    402: ({}, None),
    710001: ({"seen": "-1"}, [T]),
    46: ({}, {"clientId": "walker", "group": G, "subscriptionData": SUBSCRIPTION}),
    200: ({}, GROUP),
    201: ({}, None),
    202: ({"topic": T}, None),
    203: ({"consumerGroup": G}, None),
    204: ({"producerGroup": "WalkProducer"}, None),
    207: ({"groupName": "WalkGone", "cleanOffset": "true", "removeOffset": "true"}, None),
    208: ({"consumerGroup": G, "topic": T, "topicList": T}, None),
    215: ({"topic": "WalkGone"}, None),
    222: ({"topic": T, "group": G, "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "0"}, None),
    223: ({"topic": T, "group": "WalkGone", "clientAddr": "walker"}, None),
    225: ({}, {"groupConfigList": [GROUP]}),
    300: ({"topic": T}, None),
    303: ({"topic": T, "group": G}, None),
    305: ({}, None),
    306: ({}, None),
    307: ({"consumerGroup": "WalkGone", "clientId": "walker", "jstackEnable": "false"}, None),
    309: ({"consumerGroup": "WalkGone", "clientId": "walker", "msgId": "0" * 32, "brokerName": "b", "topic": T}, None),
    310: (send_fields(T), b"x"),
    314: ({"srcGroup": G, "destGroup": "WalkMade", "topic": T, "offline": "true"}, None),
    315: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": T}, None),
    316: ({}, None),
    317: ({"isOrder": "false"}, None),
    320: (send_fields(T, m="true"), BATCH),
    324: ({"producerGroup": "WalkProducer", "topic": T, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
           "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "REPLY_TO_CLIENT\x01gone"},
          b"x"),
    325: (send_fields(T, properties="REPLY_TO_CLIENT\x01gone"), b"x"),
    323: ({"msgId": "0" * 32}, None),
    321: (QUEUE | {"index": "0", "count": "1", "consumerGroup": G}, None),
    328: ({}, None),
    329: ({}, None),
    343: ({"group": G}, None),
    345: ({"group": G, "topic": T}, None),
    351: ({"topic": T}, None),
    352: ({"group": "WalkMade"}, None),
    361: (pull_fields(T, 0, 0, consumerGroup=G, sysFlag=5), None),
    370: ({"topic": T, "recallHandle": RECALL, "producerGroup": "P"}, None),
    907: ({}, None),
}  # fmt: skip
REGISTRATION = {
    "brokerName": "walk-broker", "brokerAddr": "10.0.0.9:10911", "clusterName": "WalkCluster", "brokerId": "0",
    "haServerAddr": "10.0.0.9:10912", "compressed": "false", "bodyCrc32": "0", "heartbeatTimeoutMillis": "120000",
    "enableActingMaster": "false", "__ZONE_NAME": "z", "__ZONE_MODE": "true",
}  # fmt: skip
TABLE = {
    "filterServerList": ["10.0.0.9:1"],
    "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {"WalkRouted": TOPIC | {"topicName": "WalkRouted"}, "WalkAlso": {"topicName": "WalkAlso"}},
        "topicQueueMappingInfoMap": {"WalkRouted": {"topic": "WalkRouted", "bname": "walk-broker"}},
    },
}
SHAPE = {"brokerName": "walk-broker", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
BROKER_KEY = {"clusterName": "WalkCluster", "brokerAddr": "10.0.0.9:10911", "brokerName": "walk-broker"}
NAMESRV: dict[int, tuple[dict[str, str], Any]] = {
    100: ({"namespace": "WalkSpace", "key": "k", "value": "v"}, None),
    101: ({"namespace": "WalkSpace", "key": "k"}, None),
    102: ({"namespace": "WalkSpace", "key": "gone"}, None),
    103: (REGISTRATION, TABLE),
    104: (BROKER_KEY | {"brokerAddr": "10.0.0.8:1", "brokerName": "gone", "brokerId": "0"}, None),
    105: ({"topic": "WalkRouted", "__ZONE_NAME": "z", "__ZONE_MODE": "true"}, None),
    106: ({}, None),
    205: ({"brokerName": "gone"}, None),
    206: ({}, None),
    216: ({"topic": "WalkNowhere", "clusterName": "WalkCluster"}, None),
    217: ({"topic": "WalkAlso"}, {"queueDatas": [SHAPE]}),
    219: ({"namespace": "WalkSpace"}, None),
    224: ({"cluster": "WalkCluster"}, None),
    304: ({}, None),
    311: ({}, None),
    312: ({}, None),
    313: ({}, None),
    318: ({}, {"options": {"orderMessageEnable": "true"}}),
    319: ({}, None),
    322: (BROKER_KEY | {"brokerId": "0"}, {"counter": 1, "timestamp": 1}),
    327: ({"brokerName": "gone"}, None),
    901: ({"clusterName": "WalkCluster", "brokerName": "walk-broker"}, None),
    904: (BROKER_KEY, None),
}  # fmt: skip


def encoded(body: Any) -> bytes:
    if body is None or isinstance(body, bytes):
        return body or b""
    if "options" in body:
        return "".join(f"{name}={value}\n" for name, value in body["options"].items()).encode()
    return json.dumps(body).encode()


def with_junk(value: Any, junk: str, field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (field, the value with junk in that one place) for each leaf, each item of a list and each key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            for where, changed in with_junk(inner, junk, name):
                yield where, value | {name: changed}
        yield field, {**value, junk: next(iter(value.values()), "")}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for where, changed in with_junk(inner, junk, field):
                yield where, [*value[:at], changed, *value[at + 1 :]]
    elif not isinstance(value, bytes) and value is not None:
        yield field, junk


def requests(code: int, ext: dict[str, str], body: Any) -> Iterator[tuple[dict[str, str], bytes]]:
    for kind, junk in JUNK.items():
        for field in ext:
            if (code, field) not in OWN and kind not in FREE.get((code, field), ()):
                yield ext | {field: junk}, encoded(body)
        if body is not None:
            for field, changed in with_junk(body, junk):
                if kind not in FREE.get((code, field), ()):
                    yield ext, encoded(changed)


_NOT_DATA = (
    types.ModuleType, type, types.FunctionType, types.CodeType, types.FrameType, bytearray, memoryview, logging.Logger,
)  # fmt: skip


def kept_texts(*roots: object) -> Iterator[tuple[str, object]]:
    """Yield (path, text or bytes) of everything that can be reached."""
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [(type(root).__name__, root) for root in roots]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, (str, bytes)):
            yield path, item
            continue
        if id(item) in seen or isinstance(item, _NOT_DATA):
            continue
        seen.add(id(item))
        if isinstance(item, msgspec.Struct):
            inner: list[object] = [getattr(item, name) for name in item.__struct_fields__]
        elif isinstance(item, dict):
            inner = [*item.keys(), *item.values()]
        else:
            inner = gc.get_referents(item)
        waiting += [(f"{path}.{type(item).__name__}"[-200:], other) for other in inner]


def is_own(entry: QueueOffsets) -> bool:
    return entry.group == CHECK_GROUP and entry.topic in (HALF_TOPIC, OP_HALF_TOPIC) and entry.queues.keys() == {0}


def sizes(engine) -> dict[str, int]:
    broker, namesrv = engine.broker, engine.namesrv
    return {
        "topics": len(broker.topics.all()),
        "groups": len(broker.groups.all()),
        # Without the broker's own offsets, which appear with its first look at half messages.
        "offsets": sum(len(entry.queues) for entry in broker.offsets.all() if not is_own(entry)),
        "resets": len(broker.offsets.resets),
        "pulled": len(broker.offsets.pulled),
        "consumers": len(broker.clients.consumer_groups()),
        "producers": len(broker.clients.producer_groups()),
        "leases": broker.locks._count,
        "queues": len(broker.store.queues.all()),
        "held pulls": broker.pull.long_polling.count,
        "brokers": namesrv.routes.broker_count,
        "routes": namesrv.routes.topic_count,
        "key-values": sum(map(len, namesrv.kv._table.values())),
    }


def take_resets(client: Peer) -> None:
    """Pull every queue, so that no reset by a 222 is left to be answered."""
    for queue_id in range(4):
        client.ask(11, pull_fields(T, queue_id, 0, consumerGroup=G))


def come_back(client: Peer, member: Peer) -> None:
    """Bring a consumer online and register a broker again, whatever earlier requests have removed."""
    assert client.ask(34, {}, encoded(HEARTBEAT)).code == 0
    assert member.ask(103, REGISTRATION, encoded(TABLE)).code == 0


class Walker:
    """Sends requests, over a new connection when the old one was closed."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._peer: Peer | None = None

    def ask(self, code: int, ext: dict[str, str], body: bytes) -> RemotingCommand | None:
        """Return the answer; None if the server closed the connection."""
        if self._peer is None:
            self._peer = Peer(self._address)
        try:
            return self._peer.ask(code, ext, body)
        except ConnectionError:
            self.close()
            return None

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None


@pytest.fixture
def engine(tmp_path):
    running = start_engine(tmp_path / "data")
    yield running
    running.stop()


def test_the_walk_knows_every_request(engine):
    broker, namesrv = (listener.dispatcher.codes for listener in engine.server._listeners[:2])
    both = {frozenset(BROKER), frozenset(NAMESRV)}
    found = {frozenset(listener.dispatcher.codes) for listener in engine.server._listeners}
    assert both <= found, (broker ^ set(BROKER), namesrv ^ set(NAMESRV))


def test_nothing_of_what_cannot_be_a_name_is_kept(engine):
    data_dir = engine.config.data_dir
    tables = ((engine.broker_address, BROKER), (engine.namesrv_address, NAMESRV))
    # Clients that stay online during the walk.
    client, member = Peer(engine.broker_address), Peer(engine.namesrv_address)
    assert client.ask(310, send_fields(T), b"x").code == 0
    come_back(client, member)
    assert client.ask(222, {"topic": T, "group": G, "timestamp": 0}).code == 0, "offsets of all its queues"
    for _ in range(2):
        for address, table in tables:
            walker = Walker(address)
            for code, (ext, body) in table.items():
                answer = walker.ask(code, ext, encoded(body))
                assert answer is not None, code
                fine = {
                    12: 22,
                    36: 1,
                    37: 1,
                    223: 1,
                    307: 1,
                    309: 1,
                    315: 1,
                    323: 1,
                    324: 1,
                    325: 1,
                    11: 21,
                    361: 21,
                }.get(code, 0)
                assert answer.code in (0, fine), (code, answer)
            walker.close()
    # Its queue is there already when what was sent back comes again, 10 s later.
    assert client.ask(310, send_fields(f"%RETRY%{G}"), b"x").code == 0
    come_back(client, member)
    take_resets(client)
    before = sizes(engine)
    asked = 0
    for address, table in tables:
        walker = Walker(address)
        for code, (ext, body) in table.items():
            for changed, raw in requests(code, ext, body):
                if asked % 10 == 0:
                    come_back(client, member)
                asked += 1
                walker.ask(code, changed, raw)
            assert walker.ask(106 if table is NAMESRV else 30, QUEUE, b"") is not None, f"no answer after {code}"
        walker.close()
    assert asked > 1000
    come_back(client, member)
    take_resets(client)
    after = sizes(engine)
    assert {name: (before[name], n) for name, n in after.items() if n > before[name]} == {}
    roots = (engine.broker, engine.namesrv, engine.window)
    found = [(path, text) for path, text in kept_texts(*roots) if (MARK if type(text) is str else b"JuNk") in text]
    told = [text for path, text in found if any(record in path for record in RECORDS)]
    kept = [(path, text[:80]) for path, text in found if text not in told]
    assert not kept, "\n".join(map(repr, kept))
    long = [text[:200] for text in told if type(text) is not str or not text.isprintable() or len(text) > MOST_TOLD]
    assert not long, "\n".join(map(repr, long))
    for peer, codes in ((client, (21, 26, 28, 43, 201, 305, 317, 328)), (member, (106, 206, 304, 311, 319))):
        for code in codes:
            ext = {"isOrder": "false"} if code == 317 else {}
            answer = peer.ask(code, ext)
            assert (answer.code, MARK.encode() in answer.body) == (0, False), code
    for code, ext in ((203, {"consumerGroup": G}), (351, {"topic": T}), (38, {"consumerGroup": G})):
        assert MARK.encode() not in client.ask(code, ext).body
    for table in (engine.broker.offsets, engine.broker.topics, engine.broker.groups):
        table.persist()
    for path in data_dir.rglob("*"):
        if path.is_file():
            assert MARK.encode() not in path.read_bytes() or path.name.startswith(STEM), path
            assert MARK not in path.name
    client.close()
    member.close()


def test_the_walk_finds_what_is_kept(engine):
    """Text is planted in each place that the walk examines."""
    for plant, where in (
        (lambda: engine.broker.offsets.commit(MARK, "T", 0, 0), "broker"),
        (lambda: engine.broker.locks._groups.update({MARK: {}}), "broker"),
        (lambda: engine.namesrv.kv._table.update({"n": {"k": MARK}}), "namesrv"),
        (lambda: engine.broker.clients._producers.update({MARK: {}}), "broker"),
        (lambda: engine.broker.groups.update(msgspec.convert({"groupName": f"{MARK}1"}, _group())), "broker"),
    ):
        root = getattr(engine, where)
        count = sum(MARK in text for _, text in kept_texts(root) if type(text) is str)
        plant()
        assert sum(MARK in text for _, text in kept_texts(root) if type(text) is str) > count


def _group() -> type:
    from appliance.engine.broker.group_config import SubscriptionGroupConfig

    return SubscriptionGroupConfig
