"""Delivery events of a run, ready to be joined with messages. Plain Python; both ways of counting read them here.

An answer delivered messages [first, behind) of a queue. docs/formats/deliveries.md defines to which messages an event
of a batch may refer; here those are two positions of the log with each event:

    below     it refers to no message from there on: this batch or a later one gives this as the published end. The log
              may have been longer and lost its end since, or the queue may be that of a topic made again
    doubtful  it refers to a message from there on only if it is not older than the message: the batch before gives this
              as the published end
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from appliance.engine.broker.deliveries.event_format import (
    EVENT,
    MOST_LOST,
    SOME,
    Batch,
    Definition,
    FileHeader,
    batches_of,
    decode_header,
    time_of,
)
from appliance.engine.broker.deliveries.ring import DeliveryRing, RingFile, read_file
from appliance.engine.disk import Disk

from ..snapshot import Snapshot

#: Position before any batch has limited it.
_EVERYTHING = (1 << 63) - 1


class Who(NamedTuple):
    """codes: tag codes of the messages that the answers contained, None for all."""

    group: str
    codes: tuple[int, ...] | None


class Wait(NamedTuple):
    """The messages of a queue that a group waits for, of those that no answer delivered by T0: from `next_offset` on,
    with these tag codes, None for all."""

    next_offset: int
    codes: tuple[int, ...] | None


#: Queue -> group -> what it waits for.
Waits = dict[tuple[str, int], dict[str, Wait]]
#: Next offset of a group that waits for nothing.
NOTHING = (1 << 62) - 1


class Answers:
    """The answers of one queue as columns of longs, one place in each for an answer. who: index in `whos`."""

    def __init__(self) -> None:
        self.first = array("q")
        self.behind = array("q")
        self.at_ms = array("q")
        self.below = array("q")
        self.doubtful = array("q")
        self.who = array("q")
        self._numbers: dict[Who, int] = {}

    def number_of(self, who: Who) -> int:
        return self._numbers.setdefault(who, len(self._numbers))

    @property
    def whos(self) -> list[Who]:
        return list(self._numbers)

    def __len__(self) -> int:
        return len(self.first)


@dataclass(slots=True)
class Delivered:
    """queues: (topic, queue id) -> answers up to T0 that may refer to the day's messages. lost: number of events of the
    day and later that were not kept. gaps: number of times that nothing was recorded for a while. unknown: group ->
    number of answers whose messages are unknown, as a filter chose them. complete_from: physical offset; answers with
    messages below it may have been deleted; None if no answer is kept."""

    queues: dict[tuple[str, int], Answers] = field(default_factory=dict)
    lost: int = 0
    gaps: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    complete_from: int | None = None


def read_delivered(snapshot: Snapshot, lowest: int) -> Delivered:
    """Read the delivery files, the newest first. lowest: physical offset below which no message of the day lies. Raises
    OSError.

    A file counts up to its first batch that is not whole. Files older than one without a header are left out: they may
    be of a log that was longer."""
    found = Delivered()
    below = _EVERYTHING
    for file in reversed(DeliveryRing(Path(snapshot.deliveries_dir), Disk()).files()):
        read = _read(file)
        if read is None:
            break
        header, batches = read
        floors = [below] * len(batches)
        for i in range(len(batches) - 1, -1, -1):
            floors[i] = below = min(below, batches[i].published)
        _FileOfAnswers(found, snapshot, lowest).take(header, batches, floors)
        below = min(below, header.published)
        found.complete_from = below
        if below <= lowest:
            break
    found.queues = {key: answers for key, answers in found.queues.items() if len(answers)}
    return found


def waits_of(snapshot: Snapshot, delivered: Delivered) -> Waits:
    """Return what the groups wait for: an entry for each group and queue that it had not consumed to its end, or that
    it got answers from. Groups with answers whose messages are unknown are left out.

    If no member said at T0 which tags it wants, the group wants those of its answers, and all without any."""
    seen: dict[tuple[str, int], dict[str, set[int] | None]] = {}
    for key, answers in delivered.queues.items():
        of_queue = seen.setdefault(key, {})
        for who in answers.whos:
            known = of_queue.get(who.group, set())
            of_queue[who.group] = None if known is None or who.codes is None else known | set(who.codes)
    found: Waits = {
        key: {group: Wait(NOTHING, None) for group in of_queue if group not in delivered.unknown}
        for key, of_queue in seen.items()
    }
    for one in snapshot.waiting:
        if one.group in delivered.unknown:
            continue
        key = one.topic, one.queue_id
        told = seen.get(key, {}).get(one.group)
        codes = one.codes if one.codes is not None else None if told is None else tuple(sorted(told))
        found.setdefault(key, {})[one.group] = Wait(one.next_offset, codes)
    return found


def _read(file: RingFile) -> tuple[FileHeader, list[Batch]] | None:
    data = read_file(file)
    header = None if data is None else decode_header(data)
    return None if data is None or header is None else (header, list(batches_of(data)))


class _FileOfAnswers:
    """One file's events on their way into the columns."""

    def __init__(self, found: Delivered, snapshot: Snapshot, lowest: int) -> None:
        self._found = found
        self._from_ms, self._t0_ms, self._lowest = snapshot.from_ms, snapshot.t0_ms, lowest
        #: Number -> (columns for its answers, its number in them); or the group, if its answers' messages are unknown.
        self._known: dict[int, tuple[Answers, int] | str] = {}

    def take(self, header: FileHeader, batches: list[Batch], floors: list[int]) -> None:
        """Take the events of a file. floors: for each batch the lowest published position of it and all later ones."""
        before = header.published
        for batch, below in zip(batches, floors, strict=True):
            for number, one in batch.definitions.items():
                self._known[number] = self._place_of(one)
            if below > self._lowest:
                self._count_lost(batch)
                self._take_events(batch, below, before)
            before = batch.published

    def _place_of(self, one: Definition) -> tuple[Answers, int] | str:
        if one.codes == SOME:
            return one.group
        assert not isinstance(one.codes, str)
        answers = self._found.queues.setdefault((one.topic, one.queue_id), Answers())
        return answers, answers.number_of(Who(one.group, one.codes))

    def _count_lost(self, batch: Batch) -> None:
        if batch.wall_ms >= self._from_ms:
            if batch.lost == MOST_LOST:
                self._found.gaps += 1
            else:
                self._found.lost += batch.lost

    def _take_events(self, batch: Batch, below: int, doubtful: int) -> None:
        known, wall_ms, t0_ms = self._known, batch.wall_ms, self._t0_ms
        for number, event_time, where in EVENT.iter_unpack(batch.events):
            place = known.get(number)
            count = where & 0xFFFF
            if place is None or not count:
                continue
            at_ms = time_of(event_time, wall_ms)
            if at_ms > t0_ms:
                continue
            if isinstance(place, str):
                self._found.unknown[place] = self._found.unknown.get(place, 0) + 1
                continue
            answers, who = place
            first = where >> 16
            answers.first.append(first)
            answers.behind.append(first + count)
            answers.at_ms.append(at_ms)
            answers.below.append(below)
            answers.doubtful.append(doubtful)
            answers.who.append(who)
