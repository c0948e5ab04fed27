"""Records each answer that carried messages: 16 bytes into memory, nothing else, on the I/O thread.

Both twins write the same bytes: `record` is the reference, `PullRuns._tell` in `hotpath/pull.pxi` its twin. An event
names its consumer by a number, which a connection remembers for what it pulls (`PeerState.told`); the definition of the
number goes to the file with the first batch that has it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ...filter.message_filter import MessageFilter
from ...hotpath import DeliveryState
from ...named_tuple import NamedTuple
from .event_format import EVENT, EVENT_BYTES, MOST_COUNT, MOST_LOST, MOST_OFFSET, SOME, Definition

if TYPE_CHECKING:
    from ..pulling.request import PullRequest

logger = logging.getLogger(__name__)

#: Events are handed over when they fill this many bytes (16,384 events), or a second is over.
ROOM_BYTES = 256 * 1024
#: Most pieces of that size that wait for the disk; further ones are dropped and counted.
MOST_WAITING = 16
#: Most definitions in memory, and most bytes of them; the table is begun anew beyond either.
MOST_DEFINITIONS = 16_384
MOST_DEFINITION_BYTES = 4 << 20
#: Most numbers that one connection remembers.
_MOST_TOLD = 1024
#: More tags than this in one expression are not kept.
_MOST_CODES = 64
_MOST_CLIENT_CHARS = 255
_LAST_32 = 0xFFFF_FFFF

_pack_into = EVENT.pack_into


class Puller(Protocol):
    """The connection that is answered. told: key of what it pulls -> number."""

    told: dict[object, int]
    client_id: str | None

    @property
    def remote_host(self) -> str: ...


class Times(Protocol):
    """The event loop, which has the time in ms when the tick began."""

    wall_ms: int


class Taken(NamedTuple):
    """Events since the last hand-over. published: end of the published log then; the events' messages lie below it."""

    events: bytes
    definitions: dict[int, Definition]
    published: int
    wall_ms: int
    lost: int


class DeliveryRecorder(DeliveryState):
    """Owned by remoting-io. `waiting` is filled here and emptied by one other thread."""

    def __init__(self, times: Times, published: Callable[[], int], on: bool) -> None:
        # Constant after construction.
        self._times = times
        self._published = published
        #: Called when something was added to `waiting`.
        self.on_taken: Callable[[], None] = lambda: None
        self.waiting: deque[Taken] = deque()
        # Owned by remoting-io.
        self.room = bytearray(ROOM_BYTES)
        self.at = 0
        self.first_number = 0
        self._next_number = 0
        self._definitions: dict[int, Definition] = {}
        self._numbers: dict[Definition, int] = {}
        self._definition_bytes = 0
        self._lost = 0
        #: Events not kept since the start, because memory was full or an offset too large; any thread may read it.
        self.lost = 0
        # Replaced by any thread, through switch().
        self._switched = False
        self.on = on

    def record(self, request: PullRequest, next_offset: int) -> None:
        """Record an answer that carries the matching messages of [request.offset, next_offset)."""
        if not self.on:
            return
        first = request.offset
        count = next_offset - first
        key = (request.group.group_name, request.topic.topic_name, request.queue_id, request.wanted)
        number = request.conn.told.get(key, -1)
        at = self.at
        if number < self.first_number or count > MOST_COUNT or first > MOST_OFFSET or at + EVENT_BYTES > ROOM_BYTES:
            self.record_unusual(request.conn, key, *key, first, count)
            return
        _pack_into(self.room, at, number & _LAST_32, self._times.wall_ms & _LAST_32, first << 16 | count)
        self.at = at + EVENT_BYTES

    def switch(self, on: bool) -> None:
        """Any thread. Switch recording on or off from now on. The files note both ends of a gap, within a second."""
        if on != self.on:
            self.on = on
            self._switched = True

    def _put(self, number: int, first: int, count: int) -> None:
        if self.at + EVENT_BYTES > ROOM_BYTES:
            self.hand_over()
        _pack_into(self.room, self.at, number & _LAST_32, self._times.wall_ms & _LAST_32, first << 16 | count)
        self.at += EVENT_BYTES

    def record_unusual(
        self,
        conn: Puller,
        key: object,
        group: str,
        topic: str,
        queue_id: int,
        wanted: MessageFilter,
        first: int,
        count: int,
    ) -> None:
        """Record an answer when no number is known yet, one event is not enough, or there is no room. key: under which
        the connection remembers the number."""
        if first + count > MOST_OFFSET:
            self._lose(1)
            return
        number = conn.told.get(key, -1)
        if number < self.first_number:
            number = self._number_of(conn, group, topic, queue_id, wanted)
            if wanted.lasts:  # the key refers to it
                if len(conn.told) >= _MOST_TOLD:
                    conn.told.clear()
                if not conn.told:
                    conn.told = {}  # until now it shared an empty one with other peers
                conn.told[key] = number
        while count > 0:
            part = min(count, MOST_COUNT)
            self._put(number, first, part)
            first += part
            count -= part

    def _number_of(self, conn: Puller, group: str, topic: str, queue_id: int, wanted: MessageFilter) -> int:
        client = (conn.client_id or conn.remote_host)[:_MOST_CLIENT_CHARS]
        codes: tuple[int, ...] | str | None = None
        if wanted.reads_records or (wanted.codes is not None and len(wanted.codes) > _MOST_CODES):
            codes = SOME
        elif wanted.codes is not None:
            codes = tuple(sorted(wanted.codes))
        one = Definition(group, topic, queue_id, client, codes)
        number = self._numbers.get(one)
        if number is None:
            size = 200 + len(group) + len(topic) + len(client) + 12 * len(codes or ())
            if len(self._numbers) >= MOST_DEFINITIONS or self._definition_bytes + size > MOST_DEFINITION_BYTES:
                self._begin_numbers()
            number = self._next_number  # never used again; an event holds its last 32 bits
            self._next_number += 1
            self._numbers[one] = number
            self._definitions[number & _LAST_32] = one
            self._definition_bytes += size
        return number

    def _begin_numbers(self) -> None:
        """Forget all numbers; those that connections still remember are then below `first_number`."""
        self.hand_over()
        # New tables, because a thread may still read the old ones.
        self._definitions, self._numbers, self._definition_bytes = {}, {}, 0
        self.first_number = self._next_number

    def hand_over(self) -> None:
        """Hand the recorded events to the thread that writes them."""
        if self._switched:
            self._switched = False
            self._lost = MOST_LOST
        if not self.at and not self._lost:
            return
        if len(self.waiting) >= MOST_WAITING:
            self._lose(self.at // EVENT_BYTES)
        else:
            assert not self.at % EVENT_BYTES, "the files hold whole events"
            events = bytes(memoryview(self.room)[: self.at])
            self.waiting.append(Taken(events, self._definitions, self._published(), self._times.wall_ms, self._lost))
            self._lost = 0
            self.on_taken()
        self.at = 0

    def _lose(self, count: int) -> None:
        self._lost += count
        self.lost += count
