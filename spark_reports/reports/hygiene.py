"""R9, hygiene: topics and groups that can be deleted, groups with contradicting subscriptions, and old clients.

Nothing is claimed beyond the observations. Queues' ends never go back, so a topic whose ends are those of an earlier
day was not written to in between. Groups are observed once a day; deliveries within a day count as a client, too.
"""

from __future__ import annotations

from collections import Counter
from datetime import date

from appliance.engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX

from ..facts.tables import GROUPS, LATENCY, QUEUES, DayFacts, t0_of
from .days import DAY_MS, View, listed, not_told, own_group, select
from .document import Document, Note, Plot, Value

REPORT = "hygiene"
#: Days without a write, and without a client.
IDLE_DAYS, ALONE_DAYS = 30, 7


def make(view: View) -> Document:
    topics, unknown = _idle_topics(view)
    groups = _lonely_groups(view)
    pairs = sorted((one.name, topic) for one in view.snapshot.groups for topic in one.conflicts)
    clashing = {group for group, _ in pairs}
    conflicts: list[tuple[Value, ...]] = [*pairs]
    leftovers = _leftovers(view)
    clients = _clients(view)
    first = min(view.facts)
    notes = []
    if unknown:
        notes.append(Note("topics_not_known_yet", (("topics", unknown), ("day", first), ("need", IDLE_DAYS))))
    if first > view.day_before(ALONE_DAYS):
        notes.append(Note("groups_not_known_yet", (("day", first), ("need", ALONE_DAYS))))
    known = listed("clients", (("language", "text"), ("version", "text"), ("clients", "count")), clients)
    tables = [
        listed("topics", (("topic", "topic"), ("since", "time_ms"), ("sure", "word"), ("messages", "messages")), topics,
               ("delete-topic", "open-topic")),
        listed("groups", (("group", "group"), ("since", "day"), ("days", "count"), ("days_seen", "count"),
               ("lag", "messages")), groups, ("delete-group", "open-group")),
        listed("conflicts", (("group", "group"), ("topic", "topic")), conflicts, ("subscriptions", "clients")),
        listed("leftovers", (("topic", "topic"), ("kind", "word"), ("of", "text"), ("messages", "messages")), leftovers,
               ("delete-topic",)),
        known,
    ]  # fmt: skip
    plots = []
    if clients:
        plots.append(Plot("clients", f"{REPORT}-clients.svg", "clients"))
    else:
        notes.append(Note("no_clients"))
    tiles = [
        view.tile("idle_topics", len(topics), "count"),
        view.tile("lonely_groups", len(groups), "count"),
        view.tile("conflicts", len(clashing), "count"),
        view.tile("leftovers", len(leftovers), "count"),
    ]
    return view.document(REPORT, tiles, plots, tables, notes)


Ends = dict[str, tuple[tuple[int, int], ...]]


def _ends(facts: DayFacts) -> tuple[Ends, Counter[str]]:
    """Return two tables by topic: the end of each of its queues, and the number of messages that it holds."""
    queues: dict[str, list[tuple[int, int]]] = {}
    held: Counter[str] = Counter()
    for topic, queue, low, high in sorted(select(facts, QUEUES, "topic queue_id min_offset max_offset")):
        queues.setdefault(topic, []).append((queue, high))
        held[topic] += max(0, high - low)
    return {topic: tuple(found) for topic, found in queues.items()}, held


def _idle_topics(view: View) -> tuple[list[tuple[Value, ...]], int]:
    """Return (topic, since, "last_message" or "at_least", messages), the longest idle first; and the number of topics
    without a message for which it is unknown whether they are idle as long."""
    now, held = _ends(view.today)
    topics = [topic for topic in view.snapshot.topics if topic.kind == "user"]
    same: dict[str, int] = {}
    for day, facts in view.facts.items():
        at_ms = t0_of(facts)
        if day < view.snapshot.day and at_ms is not None:
            ends = _ends(facts)[0]
            for topic in topics:
                if topic.newest_store_ms is None and topic.name in now and ends.get(topic.name) == now[topic.name]:
                    same[topic.name] = min(at_ms, same.get(topic.name, at_ms))
    oldest = view.snapshot.t0_ms - IDLE_DAYS * DAY_MS
    found: list[tuple[Value, ...]] = []
    unknown = 0
    for topic in topics:
        since, sure = topic.newest_store_ms, "last_message"
        if since is None:
            since, sure = same.get(topic.name), "at_least"
        if since is not None and since <= oldest:
            found.append((topic.name, since, sure, held[topic.name]))
        elif sure == "at_least":
            unknown += 1
    return sorted(found, key=lambda row: (row[1], row[0])), unknown


def _lonely_groups(view: View) -> list[tuple[Value, ...]]:
    """Return (group, first day without a client, days since then, number of days observed, lag)."""
    days = sorted((day for day in view.facts if day <= view.snapshot.day), reverse=True)
    lags = dict(select(view.today, GROUPS, "group lag"))
    alone = {group: view.snapshot.day for group in _alone(view.today) if not own_group(group)}
    counts = dict.fromkeys(alone, 1)
    left = set(alone)
    for day in days[1:]:
        if view.in_time(day) is None:  # clients at the time of that late run do not show those of the day
            left -= _fetched(view.facts[day])
            continue
        left &= _alone(view.facts[day])
        for group in left:
            alone[group] = day
            counts[group] += 1
    rows: list[tuple[Value, ...]] = []
    for group, since in alone.items():
        passed = (date.fromisoformat(view.snapshot.day) - date.fromisoformat(since)).days
        if passed >= ALONE_DAYS:
            rows.append((group, since, passed, counts[group], lags[group] if lags[group] >= 0 else None))
    return sorted(rows, key=lambda row: (str(row[1]), str(row[0])))


def _alone(facts: DayFacts) -> set[str]:
    """Return groups that had no client when they were observed, and fetched nothing that was stored on the day."""
    fetched = _fetched(facts)
    return {group for group, clients in select(facts, GROUPS, "group clients") if not clients and group not in fetched}


def _fetched(facts: DayFacts) -> set[str]:
    rows = select(facts, LATENCY, "group which messages")
    return {group for group, which, messages in rows if which == "first" and messages} | not_told(facts)


def _leftovers(view: View) -> list[tuple[Value, ...]]:
    """Return (topic, "retry" or "dead-letter", the deleted group or topic to which it belonged, messages)."""
    groups = {group.name for group in view.snapshot.groups}
    topics = {topic.name for topic in view.snapshot.topics}
    held = _ends(view.today)[1]
    found: list[tuple[Value, ...]] = []
    for topic in view.snapshot.topics:
        prefix = {"retry": RETRY_PREFIX, "dead-letter": DLQ_PREFIX}.get(topic.kind)
        if prefix is None or not topic.name.startswith(prefix):
            continue
        # A consumer of 5.x has a retry topic for each topic that it reads: group+topic.
        group, plus, of = topic.name.removeprefix(prefix).partition("+")
        gone = group if group not in groups and not own_group(group) else of if plus and of not in topics else None
        if gone is not None:
            found.append((topic.name, topic.kind, gone, held[topic.name]))
    return sorted(found, key=lambda row: str(row[0]))


def _clients(view: View) -> list[tuple[Value, ...]]:
    """Return (language, version, clients), the most frequent first. A client in several groups is one client."""
    known = {(one.client_id, one.language, one.version) for group in view.snapshot.groups for one in group.clients}
    found = Counter((language, version) for _, language, version in known)
    return [(*kind, found[kind]) for kind in sorted(found, key=lambda kind: (-found[kind], kind))]
