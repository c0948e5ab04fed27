"""Progress of queues and groups: 202, 208, 300, 303, 315, 317, 321, 343. All run in the pool `query`.

Most of them read the log. A queue that never had a message spans 0 to 0.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor`; texts as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from ...clock import Clock
from ...errors import RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, optional_int, optional_long, require_int, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import unpack_entries
from ...store.time_search import TimeSearch
from ..clients import ClientManager
from ..day_moves import Moved
from ..heartbeat import subscription_as_dict
from ..queue_json import queue_key, queue_table
from ..tables import Tables
from ..topic_config import TopicConfig
from .query import check_length

POOL = "query"
#: Entries that one 321 returns at most.
MAX_ENTRIES = 10_000
#: Bytes of a row of 208 and 317 without its topic, at least.
_ROW_BYTES = 100
#: Seconds of `statsMinute` in 315, and of `consumeTps` and `topicPutTps`.
MINUTE_S = 60
_STATISTICS = ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "SNDBCK_PUT_NUMS")


class Movements(Protocol):
    """Counts of messages that moved lately; None where nothing is counted."""

    def put_into(self, topic: str, seconds: int) -> int | None:
        """Return the number of messages stored in a topic in the last `seconds`."""

    def consumed_from(self, topic: str, group: str, seconds: int) -> int | None:
        """Return by how many offsets a group advanced in a topic in the last `seconds`."""

    def sent_back(self, topic: str, group: str) -> int | None:
        """Return the number of messages of a topic that a group sent back in the last minute."""

    def longer(self, topic: str, group: str = "", sent_back: bool = False) -> tuple[Moved, Moved]:
        """Return the same counts for the last hour and the last day."""


class Progress(NamedTuple):
    """A group's progress in one queue. pull_offset: behind the last message that was delivered to the group, at least
    consumer_offset. The messages between the two are in flight."""

    topic: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int


class AdminProgressProcessor:
    """Owned by the pool's thread."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientManager,
        broker_name: str,
        address: str,
        clock: Clock,
        movements: Movements,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._broker_name = broker_name
        self._address = address
        self._clock = clock
        self._search = TimeSearch(store.queues, store.records)
        self._movements = movements

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.GET_TOPIC_STATS_INFO, self.handle_topic, POOL)
        dispatcher.add(RequestCode.GET_CONSUME_STATS, self.handle_group, POOL)
        dispatcher.add(RequestCode.GET_BROKER_CONSUME_STATS, self.handle_all_groups, POOL)
        dispatcher.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.handle_groups_of, POOL)
        dispatcher.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, self.handle_topics_of, POOL)
        dispatcher.add(RequestCode.QUERY_CONSUME_TIME_SPAN, self.handle_time_span, POOL)
        dispatcher.add(RequestCode.QUERY_CONSUME_QUEUE, self.handle_entries, POOL)
        dispatcher.add(RequestCode.VIEW_BROKER_STATS_DATA, self.handle_statistics, POOL)

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _key(self, topic: str, queue_id: int) -> bytes:
        return queue_key(self._broker_name, topic, queue_id)

    def _time_before(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of the message before `offset`; 0 if it is gone or there is none."""
        low, _ = self._store.offset_range(topic, queue_id)
        return max(0, self._search.time_of(topic, queue_id, offset - 1)) if offset > low else 0

    # --- topics

    def handle_topic(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """202: every queue's first and next offset, and the store time of its last message."""
        topic = require_str(request, "topic")
        config = self._topic(topic)
        entries = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = self._store.offset_range(topic, queue_id)
            last_ms = self._time_before(topic, queue_id, high)
            value = b'{"lastUpdateTimestamp":%d,"maxOffset":%d,"minOffset":%d}' % (last_ms, high, low)
            entries.append((self._key(topic, queue_id), value))
        body = b'{"offsetTable":' + queue_table(entries)
        body += b',"topicPutTps":%b}' % msgspec.json.encode(_rate(self._movements.put_into(topic, MINUTE_S)))
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_groups_of(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """300: the groups that subscribe a topic or have offsets in it."""
        topic = require_str(request, "topic")
        found = dict.fromkeys(
            info.group_name for info in self._clients.consumer_groups() if topic in list(info.subscriptions)
        )
        found.update(dict.fromkeys(self._offsets.groups_of(topic)))
        return _json({"groupList": list(found)})

    def handle_entries(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """321: entries of a consume queue as stored, and a group's subscription to the topic."""
        topic, queue_id = require_str(request, "topic"), require_int(request, "queueId")
        index, count = optional_long(request, "index", 0), optional_int(request, "count", 0)
        group = request.ext_fields.get("consumerGroup") or ""
        queue = self._store.find_queue(topic, queue_id)
        data = b""
        if queue is not None and queue.min_offset <= index < queue.max_offset and count > 0:
            data = self._search.entries(queue, index, min(count, MAX_ENTRIES))
        if queue is None or not data:
            return RemotingCommand.response(ResponseCode.SUCCESS, f"Index {index} of {queue_id}@{topic} is not exist!")
        found: dict[str, Any] = {
            "maxQueueIndex": queue.max_offset,
            "minQueueIndex": queue.min_offset,
            "queueData": [
                {"eval": False, "physicOffset": physical, "physicSize": size, "tagsCode": code}
                for physical, size, code in unpack_entries(data)
            ],
        }
        if group:
            info = self._clients.consumer_group(group)
            subscription = None if info is None else info.subscriptions.get(topic)
            if subscription is None:
                found["filterData"] = f"{group}@{topic} is not online!"
            else:
                found["filterData"] = "null"
                found["subscriptionData"] = subscription_as_dict(subscription)
        return _json(found)

    # --- groups

    def handle_group(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """208: a group's progress, in the named topics or in all that it has offsets in."""
        group = require_str(request, "consumerGroup")
        named = request.ext_fields.get("topicList") or request.ext_fields.get("topic") or ""
        # Each topic once: a short name may stand there 100,000 times.
        topics = list(dict.fromkeys(topic for topic in named.split(";") if topic)) or self._topics_of(group)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=self._group_body(group, topics))

    def _group_body(self, group: str, topics: list[str]) -> bytes:
        """Refuses with 1 an answer that is longer than clients read."""
        rows: list[Progress] = []
        moved = size = 0
        for topic in topics:
            moved += self._movements.consumed_from(topic, group, MINUTE_S) or 0
            for row in self._progress(group, topic):
                rows.append(row)
                size += _ROW_BYTES + len(topic)
                check_length(size, "one topic at a time")
        return self._body_of(rows, moved)

    def _body_of(self, rows: list[Progress], moved: int) -> bytes:
        """Return the answer to 208. moved: messages that the group consumed in the last minute."""
        entries = []
        for row in rows:
            value = b'{"brokerOffset":%d,"consumerOffset":%d,"lastTimestamp":%d,"pullOffset":%d}' % (
                row.broker_offset,
                row.consumer_offset,
                row.last_ms,
                row.pull_offset,
            )
            entries.append((self._key(row.topic, row.queue_id), value))
        tps = msgspec.json.encode(_rate(moved))
        return b'{"consumeTps":%b,"offsetTable":%b}' % (tps, queue_table(entries))

    def _topics_of(self, group: str) -> list[str]:
        return [entry.topic for entry in self._offsets.all() if entry.group == group]

    def _progress(self, group: str, topic: str) -> Iterator[Progress]:
        """Yield the group's progress in each queue of a topic that it can read; nothing if the group is online and
        subscribes other topics only."""
        config = self._topics.get(topic)
        info = self._clients.consumer_group(group)
        if config is None or (info is not None and topic not in info.subscriptions and info.subscriptions):
            return
        for queue_id in range(config.read_queue_nums):
            _, high = self._store.offset_range(topic, queue_id)
            offset = max(0, self._offsets.get(group, topic, queue_id))
            pulled = max(offset, self._offsets.pulled.get(group, self._store.find_queue(topic, queue_id)))
            yield Progress(topic, queue_id, high, offset, pulled, self._time_before(topic, queue_id, offset))

    def handle_all_groups(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """317: every group's progress, one document for each topic. Refused with 1 if the answer is longer than clients
        read: other requests wait for the pool meanwhile."""
        orderly = optional_bool(request, "isOrder", False)
        total = in_flight = size = 0
        topics_of: dict[str, list[str]] = {}
        for entry in self._offsets.all():
            topics_of.setdefault(entry.group, []).append(entry.topic)
        groups = []
        for config in self._groups.all():
            group = config.group_name
            documents = []
            for topic in topics_of.get(group, ()):
                found = self._topics.get(topic)
                if found is None or (orderly and not found.order):
                    continue
                rows = list(self._progress(group, topic))
                if not rows:
                    continue
                total += sum(row.broker_offset - row.consumer_offset for row in rows)
                in_flight += sum(row.pull_offset - row.consumer_offset for row in rows)
                moved = self._movements.consumed_from(topic, group, MINUTE_S) or 0
                documents.append(self._body_of(rows, moved))
                size += len(documents[-1])
                check_length(size, "one group at a time, by 208")
            groups.append(b"{" + msgspec.json.encode(group) + b":[" + b",".join(documents) + b"]}")
            size += len(group)
            check_length(size, "one group at a time, by 208")
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d}' % (
            msgspec.json.encode(self._address),
            b",".join(groups),
            total,
            in_flight,
        )
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_topics_of(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """343: the topics that a group has offsets in."""
        group = require_str(request, "group")
        return _json({"brokerAddr": self._address, "topicList": self._topics_of(group)})

    def handle_time_span(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """303: store times of each queue's first and last message, and of the last one that a group consumed."""
        topic, group = require_str(request, "topic"), require_str(request, "group")
        config = self._topic(topic)
        found = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = self._store.offset_range(topic, queue_id)
            earliest = self._search.time_of(topic, queue_id, low) if low < high else -1
            latest = self._time_before(topic, queue_id, high)
            offset = self._offsets.get(group, topic, queue_id)
            consumed = self._time_before(topic, queue_id, offset) or max(0, earliest)
            # Store time of the first message that is still to be consumed; -1 if there is none.
            waiting = self._search.time_of(topic, queue_id, max(offset, low)) if max(offset, low) < high else -1
            found.append(
                {
                    "consumeTimeStamp": consumed,
                    "delayTime": max(0, self._clock.wall_ms() - waiting) if waiting > 0 else 0,
                    "maxTimeStamp": latest,
                    "messageQueue": {"brokerName": self._broker_name, "queueId": queue_id, "topic": topic},
                    "minTimeStamp": max(0, earliest),
                }
            )
        return _json({"consumeTimeSpanSet": found})

    # --- statistics

    def handle_statistics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """315: messages of the last minute, hour and day. Counting begins when the broker starts."""
        name, key = require_str(request, "statsName"), require_str(request, "statsKey")
        topic, group = key, ""  # the key of TOPIC_PUT_NUMS is a topic alone
        if name != _STATISTICS[0]:
            topic, _, group = key.partition("@")
        moved = None
        if name == _STATISTICS[0] and self._topics.get(topic) is not None:
            moved = self._movements.put_into(topic, MINUTE_S)
        elif name == _STATISTICS[1] and group:
            moved = self._movements.consumed_from(topic, group, MINUTE_S)
        elif name == _STATISTICS[2] and group:
            moved = self._movements.sent_back(topic, group)
        if moved is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        hour, day = self._movements.longer(topic, group, name == _STATISTICS[2])
        return _json(
            {
                "statsDay": _shown(day.moved, day.seconds),
                "statsHour": _shown(hour.moved, hour.seconds),
                "statsMinute": _shown(moved, MINUTE_S),
            }
        )


def _shown(moved: int, seconds: int) -> dict[str, float]:
    return {"avgpt": 1.0 if moved else 0.0, "sum": moved, "tps": round(moved / seconds, 4)}


def _rate(moved: int | None) -> float:
    return round((moved or 0) / MINUTE_S, 4)


def _json(value: object) -> RemotingCommand:
    return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(value))
