"""Finds the deliveries of a message, as far as the ring of delivery events goes back.

An event holds the range of a queue that an answer covered; the filter of the pull shows which of its messages were in
the answer. An event may be older than the message: its topic was deleted and made again, or the end of the log was
lost. So the log's published end, which every batch carries, decides: a message at or behind it had not been delivered
when the batch was taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .event_format import EVENT, MOST_LOST, SOME, Batch, Definition, batches_of, decode_header, time_of
from .ring import DeliveryRing, RingFile, read_file

#: Time for a search; what was found until then is returned.
BUDGET_S = 0.5
#: Most deliveries of one message that are kept, the newest ones.
MOST_FOUND = 500
#: Most closed files whose content is remembered.
_MOST_KNOWN = 64

#: (topic, queue id) -> the lowest first offset, and the highest offset behind an answer.
Spans = dict[tuple[str, int], tuple[int, int]]


class Delivered(NamedTuple):
    """One answer that carried the message. client: its id, or its address when it had sent no heartbeat. certain: False
    when a filter that is not recorded may have kept the message out of the answer."""

    group: str
    client: str
    at_ms: int
    certain: bool


class MessagePlace(NamedTuple):
    """The fields of a message by which its deliveries are found. tag_code: that of its queue entry."""

    topic: str
    queue_id: int
    offset: int
    physical_offset: int
    stored_at_ms: int
    tag_code: int


class DeliveryHistory(NamedTuple):
    """deliveries: oldest first. complete: True if these are all. Otherwise some may be older than `kept_from_ms`, when
    the oldest kept file was begun (None: nothing is kept), or time or room ran out (`cut_short`). lost: events of the
    time since the message was stored that were not kept, because the disk or memory had no room; MOST_LOST if their
    number is unknown, because deliveries were not recorded for a while."""

    deliveries: tuple[Delivered, ...]
    complete: bool
    kept_from_ms: int | None
    cut_short: bool
    lost: int


class DeliveryReader:
    """Searches the files. Any thread; reads in the caller's."""

    def __init__(self, ring: DeliveryRing, monotonic: Callable[[], float] = time.monotonic) -> None:
        # Constant after construction.
        self._ring = ring
        self._monotonic = monotonic
        # Guarded by _lock: file number -> what it holds, of closed files.
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, int, Spans]] = {}

    def find(self, places: Sequence[MessagePlace], budget_s: float = BUDGET_S) -> tuple[DeliveryHistory, ...]:
        """Return the history of each message. Raises OSError when the files cannot be read."""
        deadline = self._monotonic() + budget_s
        files = self._ring.files()
        looks = [_Look(place) for place in places]
        kept_from_ms: int | None = None
        for file in reversed(files):
            open_looks = [look for look in looks if not look.ended and len(look.found) < MOST_FOUND]
            if not open_looks:
                break
            out_of_time = self._monotonic() > deadline
            began_ms = None if out_of_time else self._look(file, file is files[-1], open_looks, deadline)
            if began_ms is None:
                if out_of_time or self._monotonic() > deadline:
                    for look in open_looks:
                        look.cut_short = True
                break  # otherwise the file has gone, or has no header
            kept_from_ms = began_ms
        return tuple(look.history(kept_from_ms) for look in looks)

    def _look(self, file: RingFile, newest: bool, looks: list[_Look], deadline: float) -> int | None:
        """Search a file and return when it was begun; None if it has gone, has no header, or time ran out."""
        known = None if newest else self._known.get(file.number)
        if known is not None:
            published, began_ms, spans = known
            # A file is not remembered if events before one of its batches were lost, or the log lost its end.
            if not any(look.lies_in(spans) for look in looks):
                for look in looks:
                    look.ended = published <= look.place.physical_offset
                return began_ms
        data = read_file(file)
        header = None if data is None else decode_header(data)
        if data is None or header is None:
            return None
        for look in looks:
            look.begin(header.published)
        published, plain = header.published, True
        for batch in batches_of(data):
            if self._monotonic() > deadline:
                for look in looks:
                    look.end()
                return None
            plain = plain and not batch.lost and batch.published >= published
            published = batch.published
            for look in looks:
                look.take(batch)
        for look in looks:
            look.end()
        if plain and not newest:
            self._remember(file.number, (header.published, header.wall_ms, spans_of(data)))
        return header.wall_ms

    def _remember(self, number: int, what: tuple[int, int, Spans]) -> None:
        with self._lock:
            while len(self._known) >= _MOST_KNOWN:
                del self._known[min(self._known)]
            self._known[number] = what


class _Look:
    """The search for one message, and what it has found so far."""

    def __init__(self, place: MessagePlace) -> None:
        self.place = place
        #: Oldest first.
        self.found: list[Delivered] = []
        #: True if older files hold nothing of the message.
        self.ended = False
        self.cut_short = False
        self._lost = 0
        # In the present file. before: the message had not been delivered when the file's last batch was taken.
        self._before = False
        self._here: list[Delivered] = []
        self._lost_here = 0
        self._definitions: dict[int, Definition] = {}
        # Number -> True if a delivery is certain; of consumers that pull the message's queue and whose filter lets it
        # through.
        self._wanted: dict[int, bool] = {}

    def lies_in(self, spans: Spans) -> bool:
        low, high = spans.get((self.place.topic, self.place.queue_id), (0, 0))
        return low <= self.place.offset < high

    def begin(self, published: int) -> None:
        """Begin a file. published: as its header has it."""
        self._before = self.ended = published <= self.place.physical_offset
        self._here, self._lost_here = [], 0
        self._definitions, self._wanted = {}, {}

    def end(self) -> None:
        """End a file; the files that follow are older."""
        self.found[:0] = self._here
        self._lost += self._lost_here
        self._here, self._lost_here = [], 0

    def take(self, batch: Batch) -> None:
        self._define(batch)
        if batch.published <= self.place.physical_offset:
            # The message had not been delivered yet, so what was found before is of another one.
            self._here.clear()
            self._lost_here, self.ended, self._before = 0, True, True
            return
        self._lost_here += batch.lost
        if self._wanted:
            self._search(batch)
        self._before = False

    def _define(self, batch: Batch) -> None:
        place = self.place
        for number, one in batch.definitions.items():
            self._definitions[number] = one
            self._wanted.pop(number, None)
            if (one.topic, one.queue_id) == (place.topic, place.queue_id):
                if one.codes is None or one.codes == SOME:
                    self._wanted[number] = one.codes is None
                elif place.tag_code in one.codes:
                    self._wanted[number] = True

    def _search(self, batch: Batch) -> None:
        wanted, offset = self._wanted, self.place.offset
        for number, event_time, where in EVENT.iter_unpack(batch.events):
            if number in wanted and where >> 16 <= offset < (where >> 16) + (where & 0xFFFF):
                at_ms = time_of(event_time, batch.wall_ms)
                if self._before and at_ms < self.place.stored_at_ms:
                    continue  # the batch may begin before the message was there
                one = self._definitions[number]
                self._here.append(Delivered(one.group, one.client, at_ms, wanted[number]))

    def history(self, kept_from_ms: int | None) -> DeliveryHistory:
        """Return what the search has found."""
        cut_short = self.cut_short or len(self.found) > MOST_FOUND or (not self.ended and len(self.found) == MOST_FOUND)
        found = tuple(self.found[-MOST_FOUND:])
        lost = min(self._lost, MOST_LOST)
        return DeliveryHistory(found, self.ended and not cut_short, kept_from_ms, cut_short, lost)


def spans_of(data: bytes) -> Spans:
    """Return the offsets that a file covers, by queue."""
    found: Spans = {}
    spans: dict[int, tuple[int, int]] = {}
    queues: dict[int, tuple[str, int]] = {}

    def settle(number: int) -> None:
        low, high = spans.pop(number)
        known = found.get(queues[number], (low, high))
        found[queues[number]] = (min(low, known[0]), max(high, known[1]))

    for batch in batches_of(data):
        for number, one in batch.definitions.items():
            if number in spans:  # after a restart numbers begin anew
                settle(number)
            queues[number] = (one.topic, one.queue_id)
        for number, _, where in EVENT.iter_unpack(batch.events):
            first = where >> 16
            behind = first + (where & 0xFFFF)
            low, high = spans.get(number, (first, behind))
            spans[number] = (low if low < first else first, high if high > behind else behind)
    for number in list(spans):
        settle(number)
    return found
