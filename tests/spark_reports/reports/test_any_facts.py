"""Any facts give valid documents, plots that can be shown, the facts' sums, and the same bytes each time."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_reports import reports
from spark_reports.facts.tables import TABLES
from spark_reports.reports import digest
from spark_reports.reports.days import DAY_MS, HOUR_MS, day_bounds, for_people, own_group
from spark_reports.snapshot import ClientFacts, GroupFacts, Snapshot, TopicFacts

from .checks import check, drawn_of
from .made import DAY, days_until, shop, snapshot_of

ODD = (
    "a",
    "b",
    "%RETRY%a",
    "%DLQ%a",
    "%DLQ%<b>&\"'",
    "TBW102",
    "x" * 255,
    "组" * 90,
    "\x00\x1b[31m",
    "\u202eabc",
    "",
    "\ud800",
    "W" * 60,
)
NAMES = st.sampled_from(ODD) | st.text(max_size=8)
COUNTS = st.integers(0, 5) | st.integers(0, 10**6) | st.integers(0, 1 << 62)
DAYS = [*days_until(DAY, 4), "2026-11-13", "2026-10-20"]


def _rows(table, day: str, zone: str):
    begin, end = day_bounds(day, zone)
    columns = {
        "hour_ms": st.integers(0, (end - begin) // HOUR_MS - 1).map(lambda hour: begin + hour * HOUR_MS),
        "which": st.sampled_from(("first", "last", "late", "waiting")),
        "what": st.sampled_from((*digest.INCIDENT_UNITS, "measured", "id", "key", "shard", "?")),
        "bucket": st.integers(0, 22) | st.integers(100, 230),
        "depth": st.integers(0, 40),
        "queue_id": st.integers(0, 3),
        "clients": st.integers(0, 3),
        "kind": st.sampled_from(("gap", "corrupt", "deliveries lost", "log begins", "?")),
        "lag": st.integers(-1, 1 << 62),
        "oldest_unread_ms": st.just(-1) | st.integers(0, end + DAY_MS),
        "retention_ms": st.integers(-1, 1 << 60),
        "topic": NAMES,
    }  # fmt: skip
    row = st.tuples(*(columns.get(name, NAMES if kind == "string" else COUNTS) for name, kind in table.columns))
    most = 1 if not table.keys else 12
    places = [n for n, (name, _) in enumerate(table.columns) if name in table.keys]
    return st.lists(row, max_size=most, unique_by=lambda found: tuple(found[n] for n in places)).map(_honest(table))


def _honest(table):
    """Return a function that makes rows consistent: replayed is at most messages, min_offset at most max_offset, free
    at most total."""
    names = [name for name, _ in table.columns]
    pairs = {"retries": ("replayed", "messages"), "queues": ("min_offset", "max_offset"), "disk": ("free", "total")}

    def fixed(rows):
        if table.name not in pairs:
            return sorted(rows)
        low, high = (names.index(name) for name in pairs[table.name])
        found = []
        for row in rows:
            row = list(row)
            row[low], row[high] = sorted((row[low], row[high]))
            found.append(tuple(row))
        return sorted(found)

    return fixed


def _facts(day: str, zone: str):
    return st.fixed_dictionaries({table.name: _rows(table, day, zone) for table in TABLES})


@st.composite
def worlds(draw):
    zone = draw(st.sampled_from(("UTC", "Europe/Berlin", "Asia/Kolkata")))
    days = [DAY, *draw(st.lists(st.sampled_from(DAYS[:3] + DAYS[4:]), unique=True))]
    facts = {day: draw(_facts(day, zone)) for day in days}
    client = st.builds(ClientFacts, NAMES, NAMES, NAMES)
    group = st.builds(
        GroupFacts, NAMES, st.just(""), st.lists(client, max_size=3).map(tuple), st.none(), st.none(), st.just(60_000),
        st.lists(NAMES, max_size=2, unique=True).map(tuple),
    )  # fmt: skip
    topic = st.builds(
        TopicFacts, NAMES, st.sampled_from(("user", "retry", "dead-letter", "system")), st.none() | COUNTS
    )  # fmt: skip
    figures = st.dictionaries(st.just("messages"), st.none() | COUNTS)
    by_name = {"unique_by": lambda one: one.name, "max_size": 6}
    snapshot = snapshot_of(
        zone=zone,
        groups=tuple(draw(st.lists(group, **by_name))),
        topics=tuple(draw(st.lists(topic, **by_name))),
        retention_ms=draw(st.integers(-1, 1 << 60) | st.just(3 * DAY_MS)),
        earlier=draw(st.dictionaries(st.sampled_from(DAYS[:3]), figures)),
    )
    if draw(st.booleans()):
        snapshot = dataclasses.replace(
            snapshot, to_ms=snapshot.from_ms + 5 * HOUR_MS, t0_ms=snapshot.from_ms + 5 * HOUR_MS
        )
    return snapshot, facts


def _bytes(snapshot, facts) -> list[tuple[bytes, dict[str, bytes]]]:
    return [(document.to_json(), drawn_of(document)) for document in reports.make(snapshot, facts)]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), st.randoms(use_true_random=False))
def test_any_facts_make_valid_documents_and_the_same_again(world: tuple[Snapshot, dict], chance: random.Random):
    snapshot, facts = world
    documents = reports.make(snapshot, facts)
    assert [document.report for document in documents] == list(reports.REPORTS)
    for document in documents:
        check(document)
    _check_sums(snapshot, facts, {document.report: document for document in documents})

    days = list(facts.items())
    chance.shuffle(days)
    shuffled = {day: {name: chance.sample(rows, len(rows)) for name, rows in tables.items()} for day, tables in days}
    mixed = dataclasses.replace(
        snapshot,
        groups=tuple(chance.sample(snapshot.groups, len(snapshot.groups))),
        topics=tuple(chance.sample(snapshot.topics, len(snapshot.topics))),
    )
    assert _bytes(mixed, shuffled) == _bytes(snapshot, facts)


def _check_sums(snapshot: Snapshot, facts: dict, documents: dict) -> None:
    today = facts[snapshot.day]
    kinds = {topic.name: topic.kind for topic in snapshot.topics}
    figures = {tile.key: tile.value for tile in documents["digest"].tiles}
    assert figures["messages"] == sum(row[3] for row in today["traffic"] if for_people(row[0], kinds))
    assert figures["dead_letters"] == sum(row[3] for row in today["dead_letters"])
    assert figures["retries"] == sum(row[4] - row[5] for row in today["retries"])
    assert documents["digest"].figures == {**documents["digest"].figures, **figures}

    failures = _sums(documents["failures"])
    assert failures["pairs", "dead_letters"] == failures["groups", "dead_letters"] == figures["dead_letters"]
    assert failures["pairs", "retries"] == failures["depths", "retries"] == figures["retries"]
    assert failures["groups", "kept"] == sum(row[3] - row[2] for row in today["queues"] if row[0].startswith("%DLQ%"))
    assert documents["failures"].tables[2].rows[-1][1] == figures["dead_letters"]

    firsts = [row for row in today["latency"] if row[2] == "first" and for_people(row[1], {}) and not own_group(row[0])]
    latency = _sums(documents["latency"])
    assert latency["groups", "messages"] == latency["topics", "messages"] == sum(row[4] for row in firsts)
    assert _sums(documents["group-health"])["groups", "messages"] == sum(row[4] for row in firsts)

    capacity = _sums(documents["capacity"])
    stored = sum(row[4] for row in today["traffic"])
    assert capacity["topics", "stored"] == stored
    # Each topic with stored messages is in the plot's table once, by name or among the others.
    assert sum(row[2] for row in documents["capacity"].tables[3].rows if row[0] == DAY) == stored if stored else True
    clients = {client for group in snapshot.groups for client in group.clients}
    assert _sums(documents["hygiene"])["clients", "clients"] == len(clients)


def _sums(document) -> dict[tuple[str, str], int]:
    assert all(table.left_out == 0 or table.key == "changes" for table in document.tables)
    return {
        (table.key, name): sum(row[n] for row in table.rows if isinstance(row[n], int))
        for table in document.tables
        for n, (name, _) in enumerate(table.columns)
    }


@pytest.mark.parametrize("count", [1, 2, 3, 15, 36])
def test_a_shop_after_so_many_days(count: int):
    snapshot, facts = shop(count=count)
    for document in reports.make(snapshot, facts):
        check(document)


def test_days_after_the_report_s_are_not_looked_at():
    snapshot, facts = shop(count=3)
    before = _bytes(snapshot, facts)
    assert _bytes(snapshot, {**facts, "2026-11-21": facts["2026-11-18"]}) == before


def test_without_the_facts_of_its_day_there_are_no_reports():
    with pytest.raises(KeyError):
        reports.make(snapshot_of(), {})
