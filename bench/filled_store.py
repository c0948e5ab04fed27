"""A broker with many topics and groups: their configuration is written before the start, their messages and clients
come over the wire, by the bench's own frames."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TOPICS, GROUPS, QUEUES = 2_000, 500, 8
# Topics each group consumes, and groups each connected client belongs to.
TOPICS_EACH, GROUPS_EACH = 4, 5
_SEND_V2, _HEARTBEAT = 310, 34
_WINDOW = 400


def topic_name(number: int) -> str:
    """As `orders-0007-created`."""
    return f"orders-{number:04d}-created"


def group_name(number: int) -> str:
    return f"billing-{number:04d}-workers"


def topics_of(group: int, topics: int = TOPICS) -> list[str]:
    """What a group consumes; neighbours share topics."""
    return [topic_name((group * 3 + step) % topics) for step in range(TOPICS_EACH)]


def write_configuration(store_dir: Path, topics: int = TOPICS, groups: int = GROUPS) -> None:
    """Apache's three JSON files in `store_dir`/config, for a broker that has not started yet; offsets stand at 0."""
    config = store_dir / "config"
    config.mkdir(parents=True)
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1700000000000}
    topic_table = {
        name: {
            "attributes": {}, "order": False, "perm": 6, "readQueueNums": QUEUES, "topicFilterType": "SINGLE_TAG",
            "topicName": name, "topicSysFlag": 0, "writeQueueNums": QUEUES,
        }
        for name in map(topic_name, range(topics))
    }  # fmt: skip
    group_table = {
        name: {
            "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
            "consumeFromMinEnable": True, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15, "groupName": name,
            "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0, "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 16, "retryQueueNums": 1, "whichBrokerWhenConsumeSlowly": 1,
        }
        for name in map(group_name, range(groups))
    }  # fmt: skip
    offsets = {
        f"{topic}@{group_name(number)}": {str(queue): 0 for queue in range(QUEUES)}
        for number in range(groups)
        for topic in topics_of(number, topics)
    }
    files: dict[str, dict[str, Any]] = {
        "topics.json": {"dataVersion": version, "topicConfigTable": topic_table},
        "subscriptionGroup.json": {
            "dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": group_table,
        },
        "consumerOffset.json": {"dataVersion": version, "offsetTable": offsets},
    }  # fmt: skip
    for name, content in files.items():
        (config / name).write_text(json.dumps(content), encoding="utf-8")


class Wire:
    """One connection that pipelines requests and only looks at the codes of the answers."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._buffer = b""

    def ask_all(self, requests: Iterable[tuple[int, dict[str, str], bytes]]) -> None:
        """Send them, at most a window outstanding. Raises RuntimeError when an answer is not code 0."""
        outstanding = 0
        for number, (code, fields, body) in enumerate(requests):
            self._socket.sendall(_frame(code, number, fields, body))
            outstanding += 1
            while outstanding >= _WINDOW:
                outstanding -= self._answers()
        while outstanding:
            outstanding -= self._answers()

    def _answers(self) -> int:
        """Answers that came; waits for one."""
        while True:
            count = at = 0
            buffer = self._buffer
            while len(buffer) - at >= 4 and len(buffer) - at >= 4 + (size := struct.unpack_from(">i", buffer, at)[0]):
                length = struct.unpack_from(">i", buffer, at + 4)[0] & 0xFFFFFF
                header = json.loads(buffer[at + 8 : at + 8 + length])
                at += 4 + size
                if header["flag"] & 1 == 0:
                    continue  # a notice from the broker
                if header["code"] != 0:
                    raise RuntimeError(f"refused: {header}")
                count += 1
            self._buffer = buffer[at:]
            if count:
                return count
            data = self._socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the broker closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._socket.close()


def _frame(code: int, opaque: int, fields: dict[str, str], body: bytes) -> bytes:
    header = {"code": code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": 0, "extFields": fields}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def send_messages(broker: str, topics: int = TOPICS) -> None:
    """One message of 256 bytes to each queue of each topic."""
    wire = Wire(broker)
    wire.ask_all(
        (
            _SEND_V2,
            {
                "a": "BenchGroup", "b": topic_name(number), "c": "TBW102", "d": str(QUEUES), "e": str(queue), "f": "0",
                "g": "1700000000000", "h": "0", "i": f"KEYS\x01k{number}\x02WAIT\x01true\x02", "j": "0", "k": "false",
                "m": "false", "n": "broker-a",
            },
            b"%d " % number * 40,
        )
        for number in range(topics)
        for queue in range(QUEUES)
    )  # fmt: skip
    wire.close()


def send_dead_letters(broker: str, group: str, count: int = 200) -> None:
    """To the group's dead letter topic, as a consumer's client gives up: with where each came from."""
    wire = Wire(broker)
    origin = topics_of(0)[0]
    wire.ask_all(
        (
            _SEND_V2,
            {
                "a": "BenchGroup", "b": f"%DLQ%{group}", "c": "TBW102", "d": "1", "e": "0", "f": "0",
                "g": "1700000000000", "h": "0", "j": "16", "k": "false", "m": "false", "n": "broker-a",
                "i": f"KEYS\x01k{number}\x02RETRY_TOPIC\x01{origin}\x02ORIGIN_MESSAGE_ID\x01{number:032X}\x02",
            },
            b"%d " % number * 40,
        )
        for number in range(count)
    )  # fmt: skip
    wire.close()


def connect_clients(broker: str, topics: int = TOPICS, groups: int = GROUPS) -> list[Wire]:
    """Consumers of all groups, several groups a client; they stay connected until they are closed."""
    wires = []
    for first in range(0, groups, GROUPS_EACH):
        consumers = [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
                "groupName": group_name(number), "messageModel": "CLUSTERING", "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
                        "subVersion": 1700000000000, "tagsSet": [], "topic": topic,
                    }
                    for topic in topics_of(number, topics)
                ],
            }
            for number in range(first, min(first + GROUPS_EACH, groups))
        ]  # fmt: skip
        body = {
            "clientID": f"127.0.0.1@{first}", "consumerDataSet": consumers, "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": "BenchGroup"}], "withoutSub": False,
        }  # fmt: skip
        wire = Wire(broker)
        wire.ask_all([(_HEARTBEAT, {}, json.dumps(body).encode())])
        wires.append(wire)
    return wires
