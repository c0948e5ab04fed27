"""R12, sizes: how large the bodies of a day's messages are, as stored, and the largest one of each topic.

Sizes lie in buckets (`contents.bucket_of`) none of which spans more than an eighth of its sizes: a percentile is the
middle of its bucket, within a sixteenth of the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..facts.contents import bounds_of
from ..facts.tables import LARGEST, SIZES, DayFacts
from .days import View, for_people, listed, select
from .document import Document, Plot, Value

REPORT = "sizes"
#: Rows of the table of largest messages.
MOST_LARGEST = 20


def buckets_of(view: View, facts: DayFacts | None) -> dict[str, Counter[int]]:
    """Return the number of messages by bucket, by topic."""
    kinds, found = view.kind_of(), dict[str, Counter[int]]()
    for topic, bucket, messages in select(facts, SIZES, "topic bucket messages"):
        if messages and for_people(topic, kinds):
            found.setdefault(topic, Counter())[bucket] += messages
    return found


def percentile(buckets: Mapping[int, int], permille: int) -> int | None:
    """Return a percentile of sizes in bytes; None without messages."""
    rank = -(-sum(buckets.values()) * permille // 1000)
    below = 0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        if below >= rank:
            least, most = bounds_of(bucket)
            return (least + most) // 2
    return None


def make(view: View) -> Document:
    found, kinds = buckets_of(view, view.today), view.kind_of()
    columns = "topic body_bytes size queue_id queue_offset at_ms msg_id"
    largest = [row for row in select(view.today, LARGEST, columns) if for_people(row[0], kinds)]
    largest.sort(key=lambda row: (-row[1], row[0]))
    of_topic = {row[0]: row[1] for row in largest}
    sums: Counter[str] = Counter()
    for topic, size in select(view.today, SIZES, "topic bytes"):
        sums[topic] += size
    rows: list[tuple[Value, ...]] = []
    for topic in sorted(found, key=lambda topic: (-of_topic.get(topic, 0), topic)):
        count = sum(found[topic].values())
        percentiles = (percentile(found[topic], permille) for permille in (500, 950, 990))
        rows.append((topic, count, sums[topic] // count, *percentiles, of_topic.get(topic), sums[topic]))
    whole: Counter[int] = Counter()
    for one in found.values():
        whole.update(one)
    steps = _steps(whole)
    tables = [
        listed("topics", _COLUMNS, rows, ("open-topic",)),
        listed("largest", _LARGEST, [
            (topic, body, size, str(queue), str(offset), at_ms, text)
            for topic, body, size, queue, offset, at_ms, text in largest[:MOST_LARGEST]
        ]),
        listed("steps", (("up_to", "bytes"), ("messages", "messages")), steps),
    ]  # fmt: skip
    yesterday = view.before(1)
    before: Counter[int] = Counter()
    for one in buckets_of(view, yesterday).values():
        before.update(one)
    first = largest[0] if largest else None
    tiles = (
        view.tile("median", percentile(whole, 500), "bytes", percentile(before, 500)),
        view.tile("p99", percentile(whole, 990), "bytes", percentile(before, 990)),
        view.tile("largest", first[1] if first else None, "bytes", None, (("topic", first[0]),) if first else ()),
    )
    plots = [Plot("steps", f"{REPORT}-steps.svg", "steps")] if steps else []
    return view.document(REPORT, tiles, plots, tables, ())


_COLUMNS = (
    ("topic", "topic"), ("messages", "messages"), ("mean", "bytes"), ("p50", "bytes"), ("p95", "bytes"),
    ("p99", "bytes"), ("largest", "bytes"), ("bytes", "bytes"),
)  # fmt: skip
_LARGEST = (
    ("topic", "topic"), ("largest", "bytes"), ("size", "bytes"), ("queue", "text"), ("offset", "text"),
    ("at", "time_ms"), ("id", "text"),
)  # fmt: skip


def _steps(buckets: Mapping[int, int]) -> list[tuple[Value, ...]]:
    """Return (2**n - 1, messages up to it) for each power of two from the smallest size to the largest one."""
    found: Counter[int] = Counter()
    for bucket, messages in buckets.items():
        found[bounds_of(bucket)[1].bit_length()] += messages
    return [((1 << bits) - 1, found[bits]) for bits in range(min(found), max(found) + 1)] if found else []
