"""R10, producers: the addresses that send, how much of the day's messages, and how right their clocks are."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..facts.tables import PRODUCERS, DayFacts
from .days import View, for_people, listed, select, share_of
from .document import RUNNING_SHARE, Document, Note, Plot, Value

REPORT = "producers"
#: A clock that is so far ahead, in ms, is wrong; less may be the broker's own.
AHEAD_MS = 1000


@dataclass
class Producer:
    """Messages of an address. after_ms: sum of the times from birth to store of `timed` messages; ahead_ms: how far its
    clock was ahead of the broker's at most; most_ms: the longest of these times. topics: its topics; "" among them if
    it has more that have no row."""

    messages: int = 0
    size: int = 0
    timed: int = 0
    after_ms: int = 0
    ahead_ms: int = 0
    most_ms: int = 0
    topics: set[str] = field(default_factory=set)


def producers_of(view: View, facts: DayFacts | None) -> tuple[dict[str, Producer], int]:
    """Return producers by address, those with the most messages first; and the number of messages whose addresses are
    not kept."""
    kinds, found, others = view.kind_of(), dict[str, Producer](), 0
    columns = "topic host messages bytes timed after_ms least_ms most_ms"
    for topic, host, messages, size, timed, after, least, most in select(facts, PRODUCERS, columns):
        if not host:
            others += messages
        elif for_people(topic, kinds):
            one = found.setdefault(host, Producer())
            one.messages += messages
            one.size += size
            one.topics.add(topic)
            if timed:
                one.timed += timed
                one.after_ms += after
                one.ahead_ms = max(one.ahead_ms, -least)
                one.most_ms = max(one.most_ms, most)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].messages, pair[0]))), others


def make(view: View) -> Document:
    found, others = producers_of(view, view.today)
    yesterday = view.before(1)
    before = None if yesterday is None else producers_of(view, yesterday)[0]
    total = sum(one.messages for one in found.values()) + others
    rows: list[tuple[Value, ...]] = [
        (host, one.messages, share_of(one.messages, total), one.size,
         None if "" in one.topics else len(one.topics),
         one.after_ms // one.timed if one.timed else None, one.most_ms if one.timed else None,
         one.ahead_ms if one.timed else None)
        for host, one in found.items()
    ]  # fmt: skip
    kinds = view.kind_of()
    pairs = [row for row in select(view.today, PRODUCERS, "topic host messages bytes") if all(row[:2])]
    pairs = sorted((row for row in pairs if for_people(row[0], kinds)), key=lambda row: (-row[2], row[:2]))
    tables = [
        listed("producers", _COLUMNS, rows),
        listed("pairs", (("topic", "topic"), ("host", "text"), ("messages", "messages"), ("bytes", "bytes")), pairs,
               ("open-topic",)),
    ]  # fmt: skip
    notes = [Note("producers_left_out", (("messages", others),))] if others else []
    first = next(iter(found), None)
    tiles = (
        view.tile("producers", len(found), "count", None if before is None else len(before)),
        view.tile("largest_share", share_of(found[first].messages, total) if first else None, "permille", None,
                  (("host", first),) if first else ()),
        view.tile("clocks_ahead", _ahead(found), "count", None if before is None else _ahead(before)),
    )  # fmt: skip
    figures: dict[str, int | None] = {"messages": total}
    legend = RUNNING_SHARE if len(rows) > 1 else ()
    plots = [Plot("producers", f"{REPORT}-producers.svg", "producers", legend)] if rows else []
    return view.document(REPORT, tiles, plots, tables, notes, figures)


_COLUMNS = (
    ("host", "text"), ("messages", "messages"), ("share", "permille"), ("bytes", "bytes"), ("topics", "count"),
    ("after", "ms"), ("most_after", "ms"), ("ahead", "ms"),
)  # fmt: skip


def _ahead(found: dict[str, Producer]) -> int:
    return sum(one.ahead_ms >= AHEAD_MS for one in found.values())
