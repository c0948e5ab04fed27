"""Plans the ranges that tasks read, from queue offsets. The same offsets make the same plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise

from ..named_offsets import EARLIEST, LATEST, NamedOffsets
from ..options import OptionError
from .offsets import OffsetReader, Offsets
from .pulls import OnGap, Range
from .routes import Addresses, Queue

#: Messages of one queue in a partition, unless the option sets it: some 300 MB at 1 KiB each, some seconds of reading.
ROWS_PER_PARTITION = 250_000
#: Queues with at most this many are read together by one task: a task costs some 10 ms even if there is nothing to do.
_FEW_ROWS = 10_000


def between(
    reader: OffsetReader,
    queues: Iterable[Queue],
    start: NamedOffsets,
    end: NamedOffsets,
    from_ms: int | None,
    to_ms: int | None,
    offsets: tuple[int | None, int | None],
    on_gap: OnGap,
) -> dict[Queue, tuple[int, int]]:
    """Return for each queue with anything to read the offsets [start, end). end: by broker it is one of all queues, and
    what it does not name came later. offsets: such bounds for every queue, None for no bound. on_gap: takes what a
    queue does not have of such an end."""
    queues = list(queues)
    first, behind = reader.first(queues), reader.end(queues)
    starts = _resolved(queues, start, first, behind, first)
    ends = _resolved(queues, end, first, behind, first if end.has_brokers else behind)
    for queue, offset in ends.items() if end.has_brokers else ():
        if offset > behind[queue]:
            # The next batch begins at that end, and would not read them either.
            on_gap(queue, behind[queue], offset, f"{reader.answered[queue.broker]} ends it at {behind[queue]}")
    ends = {queue: min(offset, behind[queue]) for queue, offset in ends.items()}
    if from_ms is not None:
        starts = _later(starts, reader.not_before(queues, from_ms))
    if to_ms is not None:
        later = reader.not_after(queues, to_ms)
        ends = {queue: min(offset, later[queue]) for queue, offset in ends.items()}
    from_offset, to_offset = offsets
    if from_offset is not None:
        starts = {queue: max(offset, from_offset) for queue, offset in starts.items()}
    if to_offset is not None:
        ends = {queue: min(offset, to_offset) for queue, offset in ends.items()}
    return {queue: (starts[queue], ends[queue]) for queue in queues if starts[queue] < ends[queue]}


def starts(reader: OffsetReader, queues: Iterable[Queue], start: NamedOffsets, from_ms: int | None) -> Offsets:
    """Return for each queue the offset at which reading begins."""
    queues = list(queues)
    first, behind = reader.first(queues), reader.end(queues)
    found = _resolved(queues, start, first, behind, first)
    return found if from_ms is None else _later(found, reader.not_before(queues, from_ms))


def share(backlog: Mapping[Queue, int], most_rows: int) -> dict[Queue, int]:
    """Divide `most_rows` among the queues, in proportion to their backlogs."""
    total = sum(backlog.values())
    if total <= most_rows:
        return dict(backlog)
    found = {queue: waiting * most_rows // total for queue, waiting in backlog.items()}
    left = most_rows - sum(found.values())
    for queue in sorted(backlog, key=lambda queue: (found[queue] - backlog[queue], queue)):
        if left and found[queue] < backlog[queue]:
            found[queue] += 1
            left -= 1
    return found


def check_named(
    option: str, offsets: NamedOffsets, queues: Collection[Queue], has_topic: Callable[[str], bool] = lambda _: True
) -> None:
    """Raise OptionError if the option names a broker, topic or queue that is not among these. has_topic: the topics
    that were looked for."""
    known = {
        (broker, topic, number) for queue in queues for broker, topic, number in (queue, queue._replace(broker=""))
    }
    for broker, topic, queue_id in sorted(offsets.queues.keys() - known):
        if not has_topic(topic):
            continue
        of_broker = f" of {broker}" if broker else ""
        raise OptionError(
            f"The option {option} names {topic}, queue {queue_id}{of_broker}, which is not there to read."
        )


def check_next(start: NamedOffsets, end: NamedOffsets) -> None:
    """Raise OptionError if an end by broker leaves out a queue with a begin: the batch that begins there would read it
    from its first message."""
    if not end.has_brokers:
        return
    for broker, topic, queue_id in sorted(start.queues.keys() - end.queues.keys()):
        if broker and end.of(topic, queue_id, broker) is None:
            raise OptionError(
                f"The option endingOffsets does not name {topic}, queue {queue_id} of {broker}, which startingOffsets "
                "names: it was not there when that end was taken."
            )


def _resolved(
    queues: Iterable[Queue], named: NamedOffsets, first: Offsets, behind: Offsets, otherwise: Offsets
) -> Offsets:
    """Return for each queue the requested offset, or the one in `otherwise`."""
    found = {}
    for queue in queues:
        offset = named.of(queue.topic, queue.queue_id, queue.broker)
        if offset is None:
            found[queue] = otherwise[queue]
        elif offset == EARLIEST:
            found[queue] = first[queue]
        elif offset == LATEST:
            found[queue] = behind[queue]
        else:
            found[queue] = offset
    return found


def _later(offsets: Offsets, others: Offsets) -> Offsets:
    return {queue: max(offset, others[queue]) for queue, offset in offsets.items()}


def tasks(
    wanted: Mapping[Queue, tuple[int, int]], brokers: Mapping[str, Addresses], most_rows: int | None
) -> list[tuple[Range, ...]]:
    """Return the ranges of each task: a part of one queue, of `most_rows` at most, or several whole queues of one
    broker with few messages."""
    most = most_rows or ROWS_PER_PARTITION
    few = min(most, _FEW_ROWS)
    found: list[tuple[Range, ...]] = []
    together: list[Range] = []
    rows = 0
    for queue in sorted(wanted):
        start, end = wanted[queue]
        servers = brokers[queue.broker]
        if end - start > few:
            # Parts of one size, so that no task is left with a handful.
            parts = -(-(end - start) // most)
            cuts = [start + (end - start) * part // parts for part in range(parts + 1)]
            found += [(Range(queue, low, high, servers),) for low, high in pairwise(cuts)]
            continue
        if together and (together[0].queue.broker != queue.broker or rows + end - start > few):
            found.append(tuple(together))
            together, rows = [], 0
        together.append(Range(queue, start, end, servers))
        rows += end - start
    if together:
        found.append(tuple(together))
    return found
