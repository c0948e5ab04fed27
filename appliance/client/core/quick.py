"""Sends in their usual form, with little work for each: frames by a template, answers by a pattern. PURE.

What is not usual takes the long way of `send_plan`, before anything was sent; and what becomes of a quick attempt other
than a plain "stored" is handed over to it, as the first attempt of that send.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import twin
from ..message import MessageQueue, SendResult
from ..wire import NO_SEND_TOPICS, UNIQUE_KEY, WAIT_STORE, RemotingCommand, encode_command
from . import requests
from .routes import Route
from .selection import SLOW_S, RoundRobin
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
#: Own limit of forms that are made for a connection: a broker's settings may change, and its answers with them.
_MOST_FORMS = 20

_LENGTH = struct.Struct(">i")
#: Length of the rest, and with the encoding JSON, which is 0, the header's.
_PREFIX = struct.Struct(">iI")
_GROUPS = ("queueId", "queueOffset", "msgId", "transactionId", "opaque")


#: An answer: its form, queue id, queue offset, offset id, transaction id. The compiled twin makes the result at once.
Answered: TypeAlias = "tuple[Form, bytes, bytes, bytes, bytes] | SendResult"


class Stop:
    """A queue with its broker's address, and the template of headers of sends to it: for born time, properties,
    and opaque."""

    __slots__ = ("address", "has_others", "header", "pieces", "queue")

    def __init__(self, group: str, queue: MessageQueue, address: str, has_others: bool) -> None:
        """has_others: True if another broker has the topic, too."""
        self.queue = queue
        self.address = address
        self.has_others = has_others
        whole = encode_command(requests.send(group, queue, b"", "", 0, 0))[8:].decode()
        head, _, rest = whole.partition(_DIFFERS)
        between, _, tail = rest.partition(_OPAQUE)
        #: The header but for these three.
        self.pieces = (
            f'{head}"f":"0","g":"'.encode(),
            b'","h":"0","i":',
            f',"j":"0"{between}{_OPAQUE.removesuffix("0,")}'.encode(),
            f",{tail}".encode(),
        )
        begin, second, third, end = (piece.decode().replace("%", "%%") for piece in self.pieces)
        self.header = f"{begin}%d{second}%s{third}%d{end}"


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
    it has landed. deadline: of this attempt; until: of the send. complete: takes its result or its error. is_launched:
    True once its connection awaits the answer."""

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
    is_launched: bool = False

    def __call__(self, outcome: CallFailed | RemotingCommand) -> None:
        self.fleet.diverted(self, outcome)


class Fleet:
    """The quick sends of a producer. Its lanes are guarded by the client's lock."""

    def __init__(
        self,
        group: str,
        sending: Sending,
        landed: Callable[[list[Flight], list[SendResult], list[None]], None],
        diverted: Callable[[Flight, CallFailed | RemotingCommand], None],
        slow: Callable[[str, float, float], None],
    ) -> None:
        """landed: takes messages that are stored, their places, and the list of `landing`. diverted: takes another
        outcome of a first attempt. slow: takes (broker, latency, now) of a slow one. All are called without locks."""
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
            return lane.stops[lane.queues.index(sending.queue_of(shard, lane.queues))]
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

    def envelope(self, flight: Flight) -> Envelope:
        return Envelope(self._group, flight.queue.topic, flight.body, flight.text, 0, flight.key, flight.shard)

    def landing(self, found: list[tuple[Flight, Answered]], now: float, counted: list[None]) -> None:
        """Take answers with code 0, each with its flight. After a call that a signal's handler interrupted another one
        does what is left. counted: empty at first; notes that the messages are no longer in flight."""
        first = found[0][0]
        if now - first.began >= SLOW_S:
            self._slow(first.queue.broker_name, now - first.began, now)
        self._landed([flight for flight, _ in found], [place_of(*one) for one in found], counted)


class Form:
    """The answers with code 0 of a connection, as the first of them was written."""

    __slots__ = ("match", "parts", "region", "traced")

    def __init__(self, fields: dict[bytes, bytes], language: bytes, version: bytes) -> None:
        #: The same for the compiled twin: (text, the name of what follows it), in order; what follows the last is the
        #: end.
        self.parts = _parts(fields, language, version)
        texts = [b'"%b":"%b"' % (name, _OWN.get(name) or re.escape(value)) for name, value in fields.items()]
        pattern = rb'\{"code":0,"extFields":\{%b\},"flag":1,"language":"%b","opaque":(?P<opaque>\d{1,10}),'
        pattern += rb'"serializeTypeCurrentRPC":"JSON","version":%b\}'
        if b"transactionId" not in fields:
            pattern += rb"(?P<transactionId>)"
        self.match = re.compile(pattern % (b",".join(texts), language, version)).fullmatch
        self.region = fields.get(b"MSG_REGION", b"DefaultRegion").decode()
        self.traced = fields.get(b"TRACE_ON") != b"false"


def _parts(fields: dict[bytes, bytes], language: bytes, version: bytes) -> list[tuple[bytes, str]]:
    parts, text = [], b'{"code":0,"extFields":{'
    for number, (name, value) in enumerate(fields.items()):
        text += b'%b"%b":"' % (b"," if number else b"", name)
        if name in _OWN:
            parts.append((text, name.decode()))
            text = b""
        else:
            text += value
        text += b'"'
    parts.append((text + b'},"flag":1,"language":"%b","opaque":' % language, "opaque"))
    parts.append((b',"serializeTypeCurrentRPC":"JSON","version":%b}' % version, ""))
    return parts


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


class Flights:
    """The flights of one connection: frames, answers, and deadlines. Guarded as the connection is."""

    __slots__ = ("_form", "_forms_left", "_landed", "_least", "_waiting")

    def __init__(self) -> None:
        #: By the opaque of their requests.
        self._waiting: dict[int, Flight] = {}
        #: No deadline is before this.
        self._least = math.inf
        self._landed: list[tuple[Flight, Answered]] = []
        #: The form of the last answer.
        self._form: Form | None = None
        self._forms_left = _MOST_FORMS

    def __len__(self) -> int:
        return len(self._waiting)

    def launch(self, flight: Flight, stop: Stop, born_ms: int, opaque: int) -> bytes:
        """Await the answer to a send; return its frame without the body."""
        head = header(stop, born_ms, flight.text, opaque)
        self._waiting[opaque] = flight
        flight.is_launched = True
        self._least = min(self._least, flight.deadline)
        return _PREFIX.pack(4 + len(head) + len(flight.body), len(head)) + head

    def walk(self, received: bytearray, at: int) -> int:
        """Land the flights whose usual answers are the next frames; return the position of the first other frame."""
        while self._waiting and len(received) - at >= 8:
            length, header_bytes = _PREFIX.unpack_from(received, at)
            end = at + 4 + length
            # Another length is that of a frame with a body, or whose header is no JSON.
            if header_bytes != length - 4 or end > len(received) or not self._lands(received, at + 8, end):
                break
            at = end
        return at

    def _lands(self, received: bytearray, begin: int, end: int) -> bool:
        """True if a header is the usual answer to a flight, which no longer waits then."""
        form = self._form
        match = None if form is None else form.match(received, begin, end)
        if match is None:
            if self._forms_left:
                form = form_of(bytes(received[begin:end]))
                if form is not None:
                    self._form = form
                    self._forms_left -= 1
                    match = form.match(received, begin, end)
            if match is None:
                return False
        assert form is not None, "it has matched"
        number, offset, offset_id, transaction_id, opaque = match.group(*_GROUPS)
        place = int(opaque)
        flight = self._waiting.get(place)
        if flight is None:
            return False
        # Without a call, at which a signal's handler may raise: it waits, or has landed.
        self._landed += ((flight, (form, number, offset, offset_id, transaction_id)),)
        del self._waiting[place]
        return True

    def take_landed(self) -> list[tuple[Flight, Answered]]:
        """Return the flights that have landed, each only once, with their answers."""
        landed, self._landed = self._landed, []
        return landed

    def pop(self, opaque: int) -> Flight | None:
        """Return a flight whose answer is another one; it no longer waits."""
        flight = self._waiting.get(opaque)
        if flight is not None:  # without a call, as in `_lands`
            del self._waiting[opaque]
        return flight

    def next_deadline(self) -> float | None:
        """Return when `expire` has to be called at the latest; None if nothing waits."""
        return self._least if self._waiting else None

    def expire(self, now: float) -> list[Flight]:
        """Remove and return the flights whose deadline has come. It looks at all of them, but only about once in their
        time-out."""
        if now < self._least:
            return []
        expired = {opaque: flight for opaque, flight in self._waiting.items() if flight.deadline <= now}
        for opaque in expired:
            del self._waiting[opaque]
        self._least = min((flight.deadline for flight in self._waiting.values()), default=math.inf)
        return list(expired.values())

    def lost(self) -> list[Flight]:
        """Remove and return all flights that wait."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._least = math.inf
        return waiting


def place_of(flight: Flight, answered: Answered) -> SendResult:
    if isinstance(answered, SendResult):
        return answered
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


def tally(flights: Sequence[Flight]) -> tuple[int, Mapping[str, int]]:
    """Return (bytes of the bodies, {topic: messages})."""
    return sum([len(flight.body) for flight in flights]), Counter([flight.queue.topic for flight in flights])


def complete(flights: Sequence[Flight], places: Sequence[SendResult]) -> None:
    """Hand the results out."""
    for flight, place in zip(flights, places, strict=True):
        flight.complete(place, None)


if not TYPE_CHECKING and twin.compiled is not None:
    _kit = twin.compiled.SendKit(SendResult, MessageQueue, form_of)
    Flight, Flights = twin.compiled.Flight, partial(twin.compiled.Flights, _kit)
    tally, complete = twin.compiled.tally, twin.compiled.complete
