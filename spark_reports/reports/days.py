"""Access of reports to the facts: columns of a table, days before, hours of a day, kinds of topics."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import zip_longest
from typing import Any

from appliance.engine.broker.groups import is_system_group
from appliance.engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX

from ..facts.again import is_late
from ..facts.hours import HOUR_MS, day_bounds, stretches
from ..facts.tables import FINDINGS, DayFacts, Table, t0_of
from ..snapshot import Snapshot
from ..source.topics import is_system
from .document import Document, Note, Plot, Tile, Value
from .document import Table as Shown

DAY_MS = 24 * HOUR_MS
#: Most rows of a table in a document; pages list all of these.
MOST_ROWS = 500
#: Kinds of findings that have a note of their own; its key has "_" for a blank.
FINDING_KINDS = (
    "gap", "corrupt", "deliveries lost", "deliveries gap", "deliveries unknown", "deliveries begin", "log begins",
    "earlier run",
)  # fmt: skip


def select(facts: DayFacts | None, table: Table, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield these columns (two or more) of each row; nothing if there are no facts."""
    names = [name for name, _ in table.columns]
    wanted = operator.itemgetter(*(names.index(one) for one in columns.split()))
    return map(wanted, facts.get(table.name, ()) if facts else ())


@dataclass(frozen=True, slots=True)
class View:
    """The input of a report: a run's snapshot, and the facts of its day and of days before it."""

    snapshot: Snapshot
    facts: Mapping[str, DayFacts]

    @property
    def today(self) -> DayFacts:
        return self.facts[self.snapshot.day]

    def day_before(self, count: int) -> str:
        """Return the day `count` days before this one, as YYYY-MM-DD."""
        return (date.fromisoformat(self.snapshot.day) - timedelta(days=count)).isoformat()

    def before(self, count: int) -> DayFacts | None:
        return self.whole(self.day_before(count))

    def whole(self, day: str) -> DayFacts | None:
        """Return a day's facts; None without any, and for an earlier day of which only a part was counted: it must not
        be compared with whole days."""
        facts = self.facts.get(day)
        t0_ms = t0_of(facts)
        partly = t0_ms is not None and t0_ms < day_bounds(day, self.snapshot.zone)[1]
        return None if partly and day != self.snapshot.day else facts

    def in_time(self, day: str) -> DayFacts | None:
        """Return a day's facts; None without any, and if queues, groups and the disk were read so late that they do not
        describe the day. After a time without runs, all its days are read at one moment."""
        if day == self.snapshot.day:
            return None if self.late else self.today
        facts = self.facts.get(day)
        t0_ms = t0_of(facts)
        late = t0_ms is not None and is_late(t0_ms, day_bounds(day, self.snapshot.zone)[1])
        return None if late else facts

    @property
    def late(self) -> bool:
        """True if this day's queues, groups and disk were read so late that they are those of another day."""
        return is_late(self.snapshot.t0_ms, day_bounds(self.snapshot.day, self.snapshot.zone)[1])

    def last_days(self, count: int) -> list[str]:
        """Return the last `count` days, this one last."""
        return [self.day_before(n) for n in range(count - 1, -1, -1)]

    @property
    def unfinished(self) -> bool:
        """True if the day was not over at T0, so that it must not be compared with whole days."""
        return self.snapshot.to_ms < day_bounds(self.snapshot.day, self.snapshot.zone)[1]

    def document(
        self,
        report: str,
        tiles: Iterable[Tile],
        plots: Iterable[Plot],
        tables: Iterable[Shown],
        notes: Iterable[Note],
        figures: dict[str, int | None] | None = None,
    ) -> Document:
        """Make a document of this day; the notes that concern every report come first."""
        of = self.snapshot
        said = (*self.notes(), *notes)
        return Document(
            report, of.day, of.zone, of.t0_ms, tuple(tiles), tuple(plots), tuple(tables), said, figures or {}
        )

    @staticmethod
    def tile(
        key: str, value: int | None, unit: str, before: int | None = None, where: tuple[tuple[str, Value], ...] = ()
    ) -> Tile:
        """Make a tile without a trend."""
        return Tile(key, value, unit, before, (), where)

    def kind_of(self) -> dict[str, str]:
        """Return topic -> "user", "retry", "dead-letter" or "system"; see `kind_by_name` for topics that are gone."""
        return {topic.name: topic.kind for topic in self.snapshot.topics}

    def notes(self) -> tuple[Note, ...]:
        """Return the notes of every report: the day is not over, was read late, or some of it could not be read."""
        found: list[Note] = []
        if self.unfinished:
            found.append(Note("unfinished_day", (("until", self.snapshot.to_ms),)))
        if self.late:
            found.append(Note("made_late", (("until", self.snapshot.t0_ms),)))
        kinds: dict[str, list[tuple[str, int, int]]] = {}
        for kind, place, count, size in select(self.today, FINDINGS, "kind place count bytes"):
            kinds.setdefault(kind, []).append((place, count, size))
        for kind, places in sorted(kinds.items()):
            places.sort()
            values = (
                ("places", len(places)),
                ("first", places[0][0]),
                ("count", sum(count for _, count, _ in places)),
                ("bytes", sum(size for _, _, size in places)),
            )
            key = kind.replace(" ", "_")
            found.append(Note(key, values) if kind in FINDING_KINDS else Note("finding", (("kind", kind), *values)))
        return tuple(found)


def not_told(facts: DayFacts | None) -> set[str]:
    """Return groups with answers whose messages are unknown, as a filter chose them: the number of messages that were
    delivered to these groups is not known."""
    return {place for kind, place in select(facts, FINDINGS, "kind place") if kind == "deliveries unknown"}


def late_recording(facts: DayFacts | None) -> bool:
    """True if the kept deliveries begin after the day's first message, or none are kept."""
    return any(kind == "deliveries begin" for kind, _ in select(facts, FINDINGS, "kind place"))


def for_people(topic: str, kinds: Mapping[str, str]) -> bool:
    """True if people send to the topic: it is neither the broker's own, nor one of retries or dead letters."""
    return kinds.get(topic, kind_by_name(topic)) == "user"


def kind_by_name(topic: str) -> str:
    """Return the kind of a topic by its name, for topics that were deleted within the day and so are not in the
    snapshot."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead-letter"
    return "system" if is_system(topic) else "user"


def own_group(group: str) -> bool:
    """True if the broker made the group for itself."""
    return is_system_group(group)


def hours_of(snapshot: Snapshot) -> list[int]:
    """Return the begins of the clock's hours in the day, as facts count them: 23 or 25 if the clock was changed."""
    found: set[int] = set()
    cuts = stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone)
    for stretch, following in zip_longest(cuts, cuts[1:]):
        end = following.from_ms if following else snapshot.to_ms
        found.update(range(stretch.hour(stretch.from_ms), end, HOUR_MS))
    return sorted(found)


def listed(
    key: str, columns: tuple[tuple[str, str], ...], rows: Sequence[tuple[Value, ...]], acts: tuple[str, ...] = ()
) -> Shown:
    """Make a table of the first rows, MOST_ROWS at most. acts: those that each row offers."""
    shown = tuple(rows[:MOST_ROWS])
    return Shown(key, columns, shown, tuple(acts for _ in shown) if acts else (), len(rows) - len(shown))


def share_of(part: int, whole: int) -> int | None:
    """Return a part in permille, None of nothing."""
    return part * 1000 // whole if whole else None


def by_size(found: Mapping[Any, int]) -> list[Any]:
    """Return the keys, the largest value first; those of equal values in their own order."""
    return sorted(found, key=lambda key: (-found[key], key))
