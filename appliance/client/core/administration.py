"""Questions and acts of an administrator, at all brokers of the name servers' table. PURE.

Source of the requests: RocketMQ 5.3.3 `DefaultMQAdminExtImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ..errors import AdminError, BadAnswer, BrokerAway, ClientError, NoRoute
from ..message import MessageQueue, ReceivedMessage
from ..wire import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    RemotingCommand,
    ResponseCode,
    decode_offset_id,
    join_host_port,
    parse_host_port,
    read_json,
)
from . import requests
from .answers import failure, refusal
from .directory import Directory, first_error
from .pulling import ask_offset
from .records import records_of
from .routes import MASTER
from .steps import Call, CallFailed, Clock, Steps, Together

#: Own limits of values in an answer: a queue of 208 has some 10, a topic of 206 one, a group of 201 some 20.
_MOST_VALUES = 1_000_000
#: Groups of RocketMQ's own. Source: `MixAll.PREDEFINE_GROUP_SET`, `SubscriptionGroupManager.init`.
_OWN_GROUPS = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
    )
)
_OWN_GROUPS_BEGIN = "CID_RMQ_SYS_"
END_OF_TIME_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as name servers know it. addresses: number of the member -> "host:port"; 0 is the master."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER)


@dataclass(frozen=True, slots=True, order=True)
class QueueLag:
    """A group's position in a queue. committed: the offset of its next message; 0 also without any. end: the offset
    that the queue's next message will have. handled_until: store time of the message before `committed`, if it is
    kept."""

    queue: MessageQueue
    committed: int
    end: int
    handled_until: datetime | None = None

    @property
    def behind(self) -> int:
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Lag:
    """A group's positions in all its queues, also in those of its retry topic. total: messages behind, the Diff Total
    of `mqadmin consumerProgress`."""

    group: str
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        return sum(one.behind for one in self.queues)


class Administration:
    """Guarded by the client's lock."""

    def __init__(self, directory: Directory, clock: Clock, timeout: float) -> None:
        """timeout: seconds for one request."""
        self._directory = directory
        self._clock = clock
        self._timeout = timeout

    # --- the cluster

    def brokers(self) -> Steps[list[Broker]]:
        """Raises NoNameServer."""
        found = yield from self._directory.ask(requests.cluster_info, read_brokers, self._deadline())
        return found or []

    def topics(self, internal: bool) -> Steps[list[str]]:
        """Return all topics; without `internal` none of RocketMQ's own. Raises NoNameServer, and as `brokers_own`."""
        found = yield from self._directory.ask(requests.all_topics, read_topics, self._deadline())
        topics = set(found or ())
        if not internal:
            brokers = yield from self.brokers()
            own = yield from self._at_all(brokers, requests.brokers_own_topics, "the question for its own topics")
            topics -= {name for one in brokers for name in (one.name, one.cluster)}
            topics -= {topic for _, answer in own for topic in read_topics(answer.body)}
            topics = {topic for topic in topics if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))}
        return sorted(topics)

    def groups(self) -> Steps[list[str]]:
        """Return the groups of consumers that are configured at any broker, but for RocketMQ's own."""
        brokers = yield from self.brokers()
        answers = yield from self._at_all(brokers, requests.all_groups, "the question for its groups")
        groups = {group for _, answer in answers for group in read_groups(answer.body)}
        return sorted(one for one in groups if one not in _OWN_GROUPS and not one.startswith(_OWN_GROUPS_BEGIN))

    # --- topics

    def create_topic(self, topic: str, queues: int, cluster: str | None) -> Steps[bool]:
        """Make a topic at each master, or those of a cluster, that does not have it; True if one did not.

        Raises AdminError for an unknown cluster; BrokerAway, RequestTimeout, RequestRefused, with a note which brokers
        have it now.
        """
        brokers = [one for one in (yield from self.brokers()) if cluster in (None, one.cluster)]
        if not brokers:
            raise AdminError(f"Name servers know no broker of {f'the cluster {cluster}' if cluster else 'a cluster'}.")
        route = yield from self._directory.look_up(topic, self._deadline())
        have = {data.broker_name for data in route.queues} if route else set()
        missing = [one for one in brokers if one.name not in have]
        make = partial(requests.create_topic, topic, queues)
        yield from self._at_all(missing, make, f"the new topic {topic}", masters_only=True)
        self._directory.forget(topic)
        return bool(missing)

    def delete_topic(self, topic: str) -> Steps[None]:
        """Delete a topic and its messages at all masters, then its routes. Raises as `create_topic`, and NoRoute."""
        if (yield from self._directory.look_up(topic, self._deadline())) is None:
            raise NoRoute(f"There is no topic {topic}: name servers have no route of it.")
        brokers = yield from self.brokers()
        make = partial(requests.delete_topic, topic)
        yield from self._at_all(brokers, make, f"the deletion of {topic}", masters_only=True)
        self._directory.forget(topic)
        what = f"the deletion of the route of {topic}"
        servers = self._directory.servers
        outcomes = yield Together(
            [self._ask(one, f"name server {one}", requests.delete_route(topic), what) for one in servers]
        )
        _raise_first(outcomes, servers)

    # --- groups

    def lag(self, group: str) -> Steps[Lag]:
        """Raises AdminError for a group that is unknown to all brokers."""
        brokers = yield from self.brokers()
        make = partial(requests.consume_stats, group)
        answers = yield from self._at_all(brokers, make, f"the question for the progress of {group}")
        queues = sorted(queue for _, answer in answers for queue in read_lags(answer.body))
        if not queues:
            answers = yield from self._at_all(brokers, requests.all_groups, "the question for its groups")
            if not any(group in read_groups(answer.body) for _, answer in answers):
                raise AdminError(f"No broker knows the group {group}.")
        return Lag(group, tuple(queues))

    def reset(self, group: str, topic: str, to: str | int) -> Steps[dict[MessageQueue, int]]:
        """Move a group in all queues of a topic to "min", "max", or the first message stored at or after a wall time in
        ms; return its new offsets. Raises NoRoute, BrokerAway, RequestTimeout, RequestRefused, with a note which
        brokers moved it."""
        queues = yield from self._directory.read_queues(topic, self._deadline())
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        outcomes = yield Together([self._reset_at(group, some, to) for some in by_broker.values()])
        _raise_first(outcomes, list(by_broker))
        return {queue: offset for moved in outcomes for queue, offset in moved.items()}

    def _reset_at(self, group: str, queues: list[MessageQueue], to: str | int) -> Steps[dict[MessageQueue, int]]:
        address, who = self._master_of(queues[0])
        wall_ms = to if isinstance(to, int) else {"min": 0, "max": -1}[to]
        what = f"the reset of {group} in {queues[0].topic}"
        request = requests.reset_offsets(group, queues[0].topic, wall_ms)
        answer = yield from self._ask(address, who, request, what, ResponseCode.CONSUMER_NOT_ONLINE)
        if answer.code == ResponseCode.SUCCESS:
            return read_offsets(answer.body)
        # A broker of 4.9 has no member to move: only this client commits.
        moved = {}
        for queue in queues:
            offset = yield from ask_offset(self._directory, self._clock, self._timeout, queue, to)
            yield from self._ask(address, who, requests.commit(group, queue, offset), what)
            moved[queue] = offset
        return moved

    # --- messages

    def message(self, message_id: str, topic: str | None) -> Steps[ReceivedMessage]:
        """Return the message with an offset id; with a topic, also that with a unique key, the first that was stored.
        Raises AdminError if there is none."""
        found = None
        if topic is not None:
            same = yield from self._find(topic, message_id, 32, 0, END_OF_TIME_MS, is_unique=True)
            found = next((one for one in same if one.message_id == message_id), None)
        if found is None:
            found = yield from self._at_offset_id(message_id, topic or "")
        if found is None:
            how = "" if topic is not None else " An id that its producer made is only found with topic=."
            raise AdminError(f"No broker has a message {message_id}.{how}")
        return found

    def _at_offset_id(self, message_id: str, topic: str) -> Steps[ReceivedMessage | None]:
        try:
            host, port, physical_offset = decode_offset_id(message_id)
        except ValueError:
            return None
        address = join_host_port(host, port)
        # A unique key has the form of an offset id, of an address that may be any machine's.
        names = {one: broker.name for broker in (yield from self.brokers()) for one in broker.addresses.values()}
        if address not in names:
            return None
        who = f"broker {names[address]} at {address}"
        what = f"the question for the message {message_id}"
        request = requests.message_at(topic, physical_offset)
        answer = yield from self._ask(address, who, request, what, ResponseCode.SYSTEM_ERROR)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return next(iter(_messages(answer.body, names[address])), None)

    def by_key(self, topic: str, key: str, most: int, begin_ms: int, end_ms: int) -> Steps[list[ReceivedMessage]]:
        """Return the newest messages with a key, by their store times. Apache's brokers find all whose key has the same
        hash, by times that are up to a second early."""
        found = yield from self._find(topic, key, most, max(0, begin_ms - 1000), end_ms, is_unique=False)
        return [one for one in found if key in one.keys and begin_ms <= one.record.store_time_ms <= end_ms][-most:]

    def _find(
        self, topic: str, key: str, most: int, begin_ms: int, end_ms: int, *, is_unique: bool
    ) -> Steps[list[ReceivedMessage]]:
        queues = yield from self._directory.read_queues(topic, self._deadline())
        places = {queue.broker_name: queue for queue in queues}
        asking = []
        for queue in places.values():
            request = requests.messages_of(topic, key, most, begin_ms, end_ms, is_unique=is_unique)
            asking.append(self._ask_reader(queue, request, f"the search for {key} in {topic}"))
        answers = yield Together(asking)
        _raise_first(answers, list(places))
        found = [one for name, answer in zip(places, answers, strict=True) for one in _messages(answer.body, name)]
        return sorted((one for one in found if one.record.topic == topic), key=lambda one: one.record.store_time_ms)

    def _ask_reader(self, queue: MessageQueue, request: RemotingCommand, what: str) -> Steps[RemotingCommand]:
        address = self._directory.readable(queue)
        who = f"broker {queue.broker_name}"
        if address is None:
            raise BrokerAway(f"{who} is in no route of {queue.topic} any more.")
        return (yield from self._ask(address, f"{who} at {address}", request, what, ResponseCode.QUERY_NOT_FOUND))

    # --- asking

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._timeout

    def _master_of(self, queue: MessageQueue) -> tuple[str, str]:
        """Return the address, and words for errors."""
        address = self._directory.master(queue)
        if address is None:
            raise BrokerAway(f"broker {queue.broker_name} has no master in the route of {queue.topic}.")
        return address, f"broker {queue.broker_name} at {address}"

    def _at_all(
        self, brokers: Iterable[Broker], make: Callable[[], RemotingCommand], what: str, *, masters_only: bool = False
    ) -> Steps[list[tuple[str, RemotingCommand]]]:
        """Ask each broker, its master if it has one; return (name, answer). Raises the first error."""
        brokers = list(brokers)
        outcomes = yield Together([self._at(one, make(), what, masters_only) for one in brokers])
        names = [one.name for one in brokers]
        _raise_first(outcomes, names)
        return list(zip(names, outcomes, strict=True))

    def _at(self, broker: Broker, request: RemotingCommand, what: str, masters_only: bool) -> Steps[RemotingCommand]:
        address = broker.master
        if address is None and not masters_only:
            address = next(iter(broker.addresses.values()), None)
        if address is None:
            raise BrokerAway(f"broker {broker.name} has no master now, which is needed for {what}.")
        return (yield from self._ask(address, f"broker {broker.name} at {address}", request, what))

    def _ask(self, address: str, who: str, request: RemotingCommand, what: str, *also: int) -> Steps[RemotingCommand]:
        """Return an answer with code 0, or one of `also`."""
        answer = yield Call(address, request, self._deadline())
        if isinstance(answer, CallFailed):
            raise failure(answer, who, what)
        if answer.code != ResponseCode.SUCCESS and answer.code not in also:
            raise refusal(answer, who, what)
        return answer


def _raise_first(outcomes: list[Any], names: Iterable[str]) -> None:
    error = first_error(outcomes)
    if error is not None:
        done = [name for name, one in zip(names, outcomes, strict=True) if not isinstance(one, ClientError)]
        if done:
            error.add_note(f"It is done at {', '.join(done)}.")
        raise error


def _messages(body: bytes, broker: str) -> list[ReceivedMessage]:
    return [
        ReceivedMessage(record, MessageQueue(record.topic, broker, record.queue_id))
        for record in records_of(body, f"broker {broker}")
    ]


# --- answers


def read_brokers(body: bytes) -> list[Broker]:
    """Decode the answer to 106. Raises BadAnswer."""
    found = _read(body, "the table of brokers")
    try:
        return [
            Broker(
                _text(one["brokerName"]),
                _text(one["cluster"]),
                {int(number): parse_host_port(address) for number, address in sorted(one["brokerAddrs"].items())},
            )
            for _, one in sorted((found["brokerAddrTable"] or {}).items())
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"the table of brokers cannot be read: {error!r}") from None


def read_topics(body: bytes) -> list[str]:
    """Decode a list of topics. Raises BadAnswer."""
    return _names(_read(body, "a list of topics").get("topicList"), "a list of topics")


def read_groups(body: bytes) -> list[str]:
    """Decode the names in the answer to 201. Raises BadAnswer."""
    return _names(_read(body, "a list of groups").get("subscriptionGroupTable"), "a list of groups")


def read_lags(body: bytes) -> list[QueueLag]:
    """Decode the answer to 208. Raises BadAnswer."""
    return [
        QueueLag(
            queue, _offset(one.get("consumerOffset")), _offset(one.get("brokerOffset")), _time(one.get("lastTimestamp"))
        )
        for queue, one in _by_queue(body, "a group's progress", dict)
    ]


def read_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Decode the answer to 222. Raises BadAnswer."""
    return {queue: _offset(offset) for queue, offset in _by_queue(body, "a group's offsets", int)}


def _read(body: bytes, what: str) -> dict[str, Any]:
    try:
        found = read_json(body, max_values=_MOST_VALUES)
        if not isinstance(found, dict):
            raise TypeError("it is no object")
    except (ValueError, TypeError) as error:
        raise BadAnswer(f"{what} cannot be read: {error}") from None
    return found


def _names(found: Any, what: str) -> list[str]:
    if not isinstance(found, list | dict) or not all(isinstance(one, str) for one in found):
        raise BadAnswer(f"{what} cannot be read: it has no names.")
    return list(found)


def _by_queue(body: bytes, what: str, kind: type) -> list[tuple[MessageQueue, Any]]:
    """Decode `offsetTable`, whose keys are queues."""
    found = _read(body, what).get("offsetTable") or {}
    try:
        pairs = []
        for key, value in found.items():
            one = read_json(key, max_values=10)
            queue = MessageQueue(_text(one["topic"]), _text(one["brokerName"]), int(one["queueId"]))
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} of {queue}")
            pairs.append((queue, value))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"{what} cannot be read: {error!r}") from None
    return pairs


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _offset(value: Any) -> int:
    if not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise BadAnswer(f"an offset is a number, not {value!r}.")
    return max(0, value)


def _time(wall_ms: Any) -> datetime | None:
    if not isinstance(wall_ms, int) or not 0 < wall_ms < 1 << 47:
        return None
    return datetime.fromtimestamp(wall_ms / 1000, UTC)
