"""A replay job as a value: its order, its progress, and the result of each message. PURE.

The messages of a job are numbered from 0 on, through its spans of queue offsets; the numbers never change.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import msgspec

from .letter_filter import LetterFilter

#: Targets of copies: the failed group, the topic each message was first sent to, or one given topic.
TO_GROUP, TO_ORIGINAL, TO_TOPIC = "group", "original", "topic"
TARGETS = (TO_GROUP, TO_ORIGINAL, TO_TOPIC)

RUNNING, PAUSED, DONE, CANCELLED, FAILED = "running", "paused", "done", "cancelled", "failed"
FINISHED = frozenset((DONE, CANCELLED, FAILED))
#: State of a job whose journal cannot be read: nothing is known about it, and nothing is sent for it.
UNREADABLE = "unreadable"

#: Most messages and most spans of one job.
MOST_MESSAGES = 10_000_000
MOST_SPANS = 10_000
#: Highest rate, in messages a second.
MOST_RATE = 10_000
#: Highest value of `max_replays`, the limit of the loop guard.
MOST_REPLAYS = 1000


class Result(enum.IntEnum):
    """The result of one message; a byte in the journal."""

    NOT_REACHED = 0
    REPLAYED = 1
    GUARD = 2  # replayed as often before as the guard allows
    GONE = 3  # expired, or deleted with its topic
    UNREADABLE = 4
    NO_ORIGIN = 5  # its properties do not name the topic it was first sent to
    NO_TOPIC = 6  # the topic it was to go to does not exist
    NOT_WRITABLE = 7
    TOO_LONG = 8  # no room for the properties of the replay
    REFUSED = 9  # the broker rejects the copy
    UNKNOWN = 10  # may have been sent, and whether it was stored can no longer be found out
    NOT_CHOSEN = 11  # the job's filter leaves it out


class Span(NamedTuple):
    """Queue offsets [begin, end) of one queue of the dead letter topic."""

    queue_id: int
    begin: int
    end: int


class Why(msgspec.Struct, frozen=True):
    """A reason: the code and the arguments of a sentence of the window."""

    code: str
    args: dict[str, str | int] = {}


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The order for a job. topic: the topic of all copies; "" when each goes to the topic it was first sent to. rate:
    most messages a second. filter: chooses among the spans' messages; None for all. secret: hex digits that prove
    copies (`provenance.proof_of`), "" in a job of an older version, whose copies have no proof."""

    id: str
    group: str
    target: str
    topic: str
    spans: tuple[Span, ...]
    rate: int
    max_replays: int
    by: str
    created_ms: int
    filter: LetterFilter | None = None
    secret: str = ""

    @property
    def total(self) -> int:
        return sum(span.end - span.begin for span in self.spans)


class JobState(msgspec.Struct, frozen=True):
    """Progress of a job, as its journal has it.

    next: the results of all messages below it are in the journal. counts: these results, by Result. targets: topic ->
    the offsets of its queues from which on copies of messages from `next` on may lie; empty if there are none.
    """

    spec: JobSpec
    state: str = RUNNING
    why: Why | None = None
    next: int = 0
    counts: tuple[int, ...] = (0,) * len(Result)
    targets: dict[str, tuple[int, ...]] = {}
    changed_ms: int = 0

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


class Numbering:
    """Translates between the numbers of a job's messages and their places."""

    def __init__(self, spans: tuple[Span, ...]) -> None:
        self._spans = spans
        self._begins = [0, *accumulate(span.end - span.begin for span in spans)]

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, Span]]:
        """Yield (number of its first message, span) for the messages [begin, end), cut at the spans' ends."""
        at = begin
        end = min(end, self._begins[-1])
        while at < end:
            index = bisect_right(self._begins, at) - 1
            span, first = self._spans[index], self._begins[index]
            upto = min(end, self._begins[index + 1])
            yield at, Span(span.queue_id, span.begin + at - first, span.begin + upto - first)
            at = upto

    def overlaps(self, wanted: Span) -> Iterator[tuple[int, Span]]:
        """Yield (number of its first message, span) for the messages that lie in `wanted`."""
        # Spans are sorted and do not overlap, so of those that begin before `wanted` only the last may reach into it.
        index = max(0, bisect_right(self._spans, (wanted.queue_id, wanted.begin)) - 1)
        while index < len(self._spans) and self._spans[index][:2] < (wanted.queue_id, wanted.end):
            span, first = self._spans[index], self._begins[index]
            begin, end = max(span.begin, wanted.begin), min(span.end, wanted.end)
            if span.queue_id == wanted.queue_id and begin < end:
                yield first + begin - span.begin, Span(span.queue_id, begin, end)
            index += 1


def count_results(results: bytes | bytearray) -> tuple[int, ...]:
    return tuple(results.count(code) for code in Result)


def spans_of(places: list[tuple[int, int]]) -> tuple[Span, ...]:
    """Return the (queue id, offset) places as sorted spans; each place counts once."""
    spans: list[Span] = []
    for queue_id, offset in sorted(set(places)):
        if spans and spans[-1].queue_id == queue_id and spans[-1].end == offset:
            spans[-1] = spans[-1]._replace(end=offset + 1)
        else:
            spans.append(Span(queue_id, offset, offset + 1))
    return tuple(spans)
