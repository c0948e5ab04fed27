"""R11, queues: how evenly the day's messages of a topic lie in its queues.

The skew of a topic is its largest queue against the average one: 1000 permille where all are equal. A group has at most
one consumer a queue, so a topic with a skew of 3 is consumed as if it had a third of its queues.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..facts.tables import QUEUES, TRAFFIC, DayFacts
from .days import View, for_people, listed, select, share_of
from .document import Document, Note, Plot, Value

REPORT = "queues"
#: From this skew on a topic is named.
SKEWED = 2000
#: With fewer messages than this for each queue, chance alone makes queues uneven.
FEW_A_QUEUE = 20
#: Topics of which each queue is listed.
MOST_TOPICS = 20


@dataclass(frozen=True, slots=True)
class Spread:
    """Messages and bytes of a topic by queue; of all its queues, without messages too."""

    queues: dict[int, tuple[int, int]]

    @property
    def messages(self) -> int:
        return sum(messages for messages, _ in self.queues.values())

    @property
    def largest(self) -> int:
        """The queue with the most messages, the first of equal ones."""
        return min(self.queues, key=lambda queue: (-self.queues[queue][0], queue))

    @property
    def skew(self) -> int | None:
        """None for a single queue, and with too few messages."""
        count, messages = len(self.queues), self.messages
        if count < 2 or messages < FEW_A_QUEUE * count:
            return None
        return self.queues[self.largest][0] * count * 1000 // messages


def spreads_of(view: View, facts: DayFacts | None) -> dict[str, Spread]:
    """Return the spread of each topic with messages, the most skewed first."""
    kinds = view.kind_of()
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, queue, messages, size in select(facts, TRAFFIC, "topic queue_id messages bytes"):
        if for_people(topic, kinds):
            queues = found.setdefault(topic, {})
            known = queues.get(queue, (0, 0))
            queues[queue] = known[0] + messages, known[1] + size
    for topic, queue in select(facts, QUEUES, "topic queue_id"):
        if topic in found:
            found[topic].setdefault(queue, (0, 0))
    spreads = {topic: Spread(queues) for topic, queues in found.items()}
    order = sorted(spreads, key=lambda topic: (-(spreads[topic].skew or 0), -spreads[topic].messages, topic))
    return {topic: spreads[topic] for topic in order}


def make(view: View) -> Document:
    found = spreads_of(view, view.today)
    rows = [_row(topic, one) for topic, one in found.items()]
    uneven = {topic: one for topic, one in found.items() if (one.skew or 0) >= SKEWED}
    measured = [topic for topic, one in found.items() if one.skew is not None]
    detail: list[tuple[Value, ...]] = [
        (topic, str(queue), *one.queues[queue], share_of(one.queues[queue][0], one.messages))
        for topic, one in ((topic, found[topic]) for topic in measured[:MOST_TOPICS])
        for queue in sorted(one.queues, key=lambda queue: (-one.queues[queue][0], queue))
    ]
    names = (("topic", "topic"), ("queue", "text"), ("messages", "messages"), ("bytes", "bytes"), ("share", "permille"))
    tables = [listed("topics", _COLUMNS, rows, ("open-topic",)), listed("queues", names, detail)]
    worst = measured[0] if measured else None
    tiles = (
        view.tile("skewed_topics", len(uneven), "count"),
        view.tile("worst_skew", found[worst].skew if worst else None, "permille", None,
                  (("topic", worst),) if worst else ()),
        view.tile("idle_queues", sum(_idle(one) for one in found.values()), "count"),
    )  # fmt: skip
    notes = [Note("skew_meaning", (("percent", SKEWED // 10),))]
    if len(measured) < len([one for one in found.values() if len(one.queues) > 1]):
        notes.append(Note("skew_of_few", (("messages", FEW_A_QUEUE),)))
    plots = [Plot("skew", f"{REPORT}-skew.svg", "topics")] if measured else []
    return view.document(REPORT, tiles, plots, tables, notes)


_COLUMNS = (
    ("topic", "topic"), ("skew", "permille"), ("queues", "count"), ("idle", "count"), ("messages", "messages"),
    ("largest_queue", "text"), ("largest", "messages"), ("least", "messages"),
)  # fmt: skip


def _idle(one: Spread) -> int:
    return sum(not messages for messages, _ in one.queues.values())


def _row(topic: str, one: Spread) -> tuple[Value, ...]:
    counts = [messages for messages, _ in one.queues.values()]
    return (topic, one.skew, len(counts), _idle(one), sum(counts), str(one.largest), max(counts), min(counts))
