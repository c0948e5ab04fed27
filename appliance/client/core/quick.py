"""Sends in their usual form, with little work for each: frames by a template, answers by a pattern. PURE.

What is not usual takes the long way of `send_plan`, before anything was sent; and what becomes of a quick attempt other
than a plain "stored" is handed over to it, as the first attempt of that send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from ..message import MessageQueue, SendResult
from ..wire import NO_SEND_TOPICS, UNIQUE_KEY, WAIT_STORE, RemotingCommand, encode_command
from . import requests
from .routes import Route
from .selection import SLOW_S, RoundRobin, queue_of_shard
from .send_plan import Envelope, Sending
from .steps import CallFailed

#: The header of an answer with code 0 as brokers write it, without remark.
_ANSWER = re.compile(
    rb'\{"code":0,"extFields":\{((?:"\w{1,40}":"[^"\\]{0,1000}",?){3,12})\},"flag":1,"language":"([A-Z]{1,20})",'
    rb'"opaque":\d{1,10},"serializeTypeCurrentRPC":"JSON","version":(\d{1,9})\}'
)
_FIELDS = re.compile(rb'"(\w+)":"([^"]*)"')
#: The fields that differ from answer to answer; a form of answers has the others as they are. Ids are of ASCII.
_OWN = {
    b"queueId": rb"(?P<queueId>\d{1,9})",
    b"queueOffset": rb"(?P<queueOffset>\d{1,18})",
    b"msgId": rb"(?P<msgId>[!#-\[\]-~]{1,1000})",
    b"transactionId": rb"(?P<transactionId>[!#-\[\]-~]{1,1000})",
}

#: The fields that differ in the headers of a queue's sends. In a value its quotes would be escaped.
_DIFFERS = '"f":"0","g":"0","h":"0","i":"","j":"0"'
_OPAQUE = '},"flag":0,"language":"PYTHON","opaque":0,'
#: Own limit of topics whose templates are kept; further ones take the long way.
_MOST_TOPICS = 1000


#: An answer: its form, queue id, queue offset, offset id, transaction id.
Answered: TypeAlias = "tuple[Form, bytes, bytes, bytes, bytes]"


class Stop:
    """A queue with its broker's address, and the template of headers of sends to it: for born time, properties,
    and opaque."""

    __slots__ = ("address", "has_others", "header", "queue")

    def __init__(self, group: str, queue: MessageQueue, address: str, has_others: bool) -> None:
        """has_others: True if another broker has the topic, too."""
        self.queue = queue
        self.address = address
        self.has_others = has_others
        whole = encode_command(requests.send(group, queue, b"", "", 0, 0))[8:].decode()
        head, _, rest = whole.partition(_DIFFERS)
        between, _, tail = rest.partition(_OPAQUE)
        differs = '"f":"0","g":"%d","h":"0","i":%s,"j":"0"'
        opaque = _OPAQUE.replace('"opaque":0', '"opaque":%d')
        head, between, tail = (part.replace("%", "%%") for part in (head, between, tail))
        self.header = head + differs + between + opaque + tail


class Lane:
    """A topic's queues in a route of it."""

    __slots__ = ("queues", "route", "stops", "turn")

    def __init__(self, route: Route, queues: Sequence[MessageQueue], stops: list[Stop], turn: RoundRobin) -> None:
        self.route = route
        self.queues = queues
        self.stops = stops
        self.turn = turn


@dataclass(slots=True, eq=False)
class Flight:
    """A message whose first attempt is on its way. The waiter of its connection: called with what becomes of it, unless
    it has landed. deadline: of this attempt; until: of the send. complete: takes its result or its error."""

    fleet: Fleet
    queue: MessageQueue
    key: str
    text: str
    body: bytes
    shard: str | int | None
    began: float
    deadline: float
    until: float
    complete: Callable[[Any, BaseException | None], None]

    def __call__(self, outcome: CallFailed | RemotingCommand) -> None:
        self.fleet.diverted(self, outcome)

    def envelope(self, group: str) -> Envelope:
        return Envelope(group, self.queue.topic, self.body, self.text, 0, self.key, self.shard)


class Fleet:
    """The quick sends of a producer. Its lanes are guarded by the client's lock."""

    def __init__(
        self,
        group: str,
        sending: Sending,
        landed: Callable[[list[Flight], list[SendResult]], None],
        diverted: Callable[[Flight, CallFailed | RemotingCommand], None],
        slow: Callable[[str, float, float], None],
    ) -> None:
        """landed: takes messages that are stored, and their places. diverted: takes another outcome of a first
        attempt. slow: takes (broker, latency, now) of a slow one. All are called without locks."""
        # Constant after construction.
        self._group = group
        self._sending = sending
        self._landed = landed
        self._slow = slow
        self.diverted = diverted
        # Guarded by the client's lock.
        self._lanes: dict[str, Lane] = {}

    def stop(self, topic: str, shard: str | int | None, now: float) -> Stop | None:
        """Return where the next message of a topic goes; None if its route is not known, or a broker is avoided. Raises
        InvalidMessage for a shard that no queue can be chosen by."""
        sending = self._sending
        route = sending.directory.route_to_publish(topic)
        lane = self._lanes.get(topic)
        if lane is None or lane.route is not route:
            if route is None:
                return None
            lane = self._open(topic, route)
            if lane is None:
                return None
        if shard is not None:
            return lane.stops[lane.queues.index(queue_of_shard(shard, lane.queues))]
        if not sending.faults.are_none(now):
            return None
        return lane.stops[lane.turn.take(len(lane.stops))]

    def _open(self, topic: str, route: Route) -> Lane | None:
        if topic in NO_SEND_TOPICS or (topic not in self._lanes and len(self._lanes) >= _MOST_TOPICS):
            return None
        queues = route.publish_queues(topic)
        stops = []
        for queue in queues:
            address = self._sending.directory.master(queue)
            if address is None:
                break
            has_others = any(one.broker_name != queue.broker_name for one in queues)
            stops.append(Stop(self._group, queue, address, has_others))
        if not stops or len(stops) < len(queues):
            self._lanes.pop(topic, None)
            return None
        lane = self._lanes[topic] = Lane(route, queues, stops, self._sending.turn_of(topic))
        return lane

    def landing(self, found: list[tuple[Flight, Answered]], now: float) -> None:
        """Take answers with code 0, each with its flight."""
        first = found[0][0]
        if now - first.began >= SLOW_S:
            self._slow(first.queue.broker_name, now - first.began, now)
        self._landed([flight for flight, _ in found], [place_of(*one) for one in found])


class Form:
    """The answers with code 0 of a connection, as the first of them was written."""

    __slots__ = ("match", "region", "traced")

    def __init__(self, fields: dict[bytes, bytes], language: bytes, version: bytes) -> None:
        texts = [b'"%b":"%b"' % (name, _OWN.get(name) or re.escape(value)) for name, value in fields.items()]
        pattern = rb'\{"code":0,"extFields":\{%b\},"flag":1,"language":"%b","opaque":(?P<opaque>\d{1,10}),'
        pattern += rb'"serializeTypeCurrentRPC":"JSON","version":%b\}'
        if b"transactionId" not in fields:
            pattern += rb"(?P<transactionId>)"
        self.match = re.compile(pattern % (b",".join(texts), language, version)).fullmatch
        self.region = fields.get(b"MSG_REGION", b"DefaultRegion").decode()
        self.traced = fields.get(b"TRACE_ON") != b"false"


def form_of(header: bytes) -> Form | None:
    """Return the form of answers like this one; None if it is none of a plain send that was stored."""
    found = _ANSWER.fullmatch(header)
    if found is None:
        return None
    try:
        header.decode()
    except UnicodeDecodeError:
        return None
    fields = dict(_FIELDS.findall(found[1]))
    needed = (b"queueId", b"queueOffset", b"msgId")
    return None if b"recallHandle" in fields or not all(map(fields.get, needed)) else Form(fields, *found.group(2, 3))


def place_of(flight: Flight, answered: Answered) -> SendResult:
    form, number, offset, offset_id, transaction_id = answered
    queue = flight.queue
    if int(number) != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, int(number))
    return SendResult(
        flight.key,
        offset_id.decode(),
        queue,
        int(offset),
        transaction_id.decode() or None,
        None,
        form.region,
        form.traced,
    )


def plain_text(key: str, tail: str) -> str:
    """Return the properties of a message without keys, properties of its own, shard and delay. tail: of its tags."""
    return f"{UNIQUE_KEY}\x01{key}\x02{WAIT_STORE}\x01true\x02{tail}"


def header(stop: Stop, born_ms: int, text: str, opaque: int) -> bytes:
    """Return the header of a send, the same bytes as that of `requests.send`."""
    return (stop.header % (born_ms, encode_basestring(text), opaque)).encode()
