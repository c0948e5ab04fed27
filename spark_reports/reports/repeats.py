"""R13, repeats: messages that were stored more than once, and the most frequent keys.

Where a day has more ids or keys than a run holds in memory, they are samples (`facts/contents.py`): their counts are
multiplied by `one_in`. Nothing is estimated from fewer than FEW ids of a topic.
"""

from __future__ import annotations

from ..facts.tables import FREQUENT, REPEATS
from .days import View, for_people, listed, select, share_of
from .digest import user_traffic
from .document import Document, Note, Plot, Value

REPORT = "repeats"
#: Sampled ids of a topic from which on its copies are estimated.
FEW = 100


def make(view: View) -> Document:
    kinds = view.kind_of()
    traffic = {topic: messages for topic, (messages, _) in user_traffic(view, view.today).items()}
    rows: list[tuple[Value, ...]] = []
    copies = repeated = seen = ids_in = 0
    for topic, ids, twice, more, one_in in select(view.today, REPEATS, "topic ids repeated copies one_in"):
        if for_people(topic, kinds):
            ids_in = max(ids_in, one_in)
            is_known = one_in <= 1 or ids >= FEW
            found = (more * one_in, twice * one_in, share_of(more, ids + more)) if is_known else (None, None, None)
            rows.append((topic, *found, ids))
            copies, repeated, seen = copies + more * one_in, repeated + twice * one_in, seen + (ids + more) * one_in
    rows.sort(key=lambda row: (-int(row[1] or 0), str(row[0])))
    frequent: dict[str, list[tuple[Value, ...]]] = {"id": [], "key": [], "shard": []}
    keys_in = 0
    for what, topic, text, messages, one_in in select(view.today, FREQUENT, "what topic text messages one_in"):
        if what in frequent and for_people(topic, kinds):
            keys_in = max(keys_in, one_in) if what != "id" else keys_in
            # An estimate may be above the number of all, which is known.
            count = min(messages * one_in, traffic.get(topic, messages * one_in))
            frequent[what].append((topic, text, count, share_of(count, traffic.get(topic, 0))))
    for found_rows in frequent.values():
        found_rows.sort(key=lambda row: (-int(row[2] or 0), row[:2]))
    keys = frequent["key"]
    tables = [
        listed("topics", _TOPICS, rows, ("open-topic",)),
        listed("ids", _texts("id"), frequent["id"]),
        listed("keys", _texts("key"), keys),
        listed("shards", _texts("shard"), frequent["shard"]),
    ]
    hottest = max(
        (*keys, *frequent["shard"]), key=lambda row: (int(row[3] or 0), str(row[0]), str(row[1])), default=None
    )
    tiles = (
        view.tile("copies", copies if rows else None, "messages"),
        view.tile("copies_share", share_of(copies, seen), "permille"),
        view.tile("repeated_ids", repeated if rows else None, "count"),
        view.tile("hottest", int(hottest[3] or 0) if hottest else None, "permille", None,
                  (("topic", hottest[0]), ("key", hottest[1])) if hottest else ()),
    )  # fmt: skip
    notes = []
    if ids_in > 1:
        notes.append(Note("ids_sampled", (("one_in", ids_in), ("few", FEW))))
    if keys_in > 1:
        notes.append(Note("keys_sampled", (("one_in", keys_in),)))
    plots = [Plot("keys", f"{REPORT}-keys.svg", "keys")] if keys else []
    return view.document(REPORT, tiles, plots, tables, notes)


_TOPICS = (
    ("topic", "topic"), ("copies", "messages"), ("repeated", "count"), ("share", "permille"), ("ids", "count"),
)  # fmt: skip


def _texts(name: str) -> tuple[tuple[str, str], ...]:
    return ("topic", "topic"), (name, "text"), ("messages", "messages"), ("share", "permille")
