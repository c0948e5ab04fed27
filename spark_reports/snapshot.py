"""The input of one run of the reports, fixed at one moment, T0: `snapshot.json` in the run's directory.

The same snapshot over the same files gives the same reports, to the byte. Nothing here calls the broker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from appliance.engine.file_sync import replace_file

NAME = "snapshot.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """Published offsets of a queue at T0: [min_offset, max_offset)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """kind: "user", "retry", "dead-letter" or "system". newest_store_ms: when its last message was stored; None for a
    topic without messages. retention_ms: its own, shorter than the broker's; None if the broker's applies."""

    name: str
    kind: str
    newest_store_ms: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """One client of a group. language: as it sent it, "JAVA". version: "5.3.3"."""

    client_id: str
    language: str
    version: str


@dataclass(frozen=True, slots=True)
class AheadFacts:
    """Messages of a topic that will be deleted before the group consumes them, at the rates of T0. left_ms: until the
    first is deleted. age_ms: for how long that one has been stored. soon: the overview said so, too."""

    topic: str
    left_ms: int
    age_ms: int
    soon: bool


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group at T0. mode: "clustering", "broadcasting" or "" if unknown. lag, oldest_unread_ms (store time of
    the oldest message that the group has not consumed): None if unknown. limit_ms: how far behind it may be. conflicts:
    topics to which its clients are subscribed differently. ahead: None if it loses nothing at the rates of T0."""

    name: str
    mode: str
    clients: tuple[ClientFacts, ...]
    lag: int | None
    oldest_unread_ms: int | None
    limit_ms: int
    conflicts: tuple[str, ...] = ()
    ahead: AheadFacts | None = None


@dataclass(frozen=True, slots=True)
class UnreadFacts:
    """Messages that were deleted before a group had consumed them, all within a quarter of an hour. messages: their
    number, of the queue offsets [begin, end). at_ms: when the last of them was deleted. queue_id: -1 for a sum over
    several. group, topic: "*" for a sum over several of both."""

    group: str
    topic: str
    queue_id: int
    begin: int
    end: int
    messages: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """A queue that a group had not consumed to its end at T0, from `next_offset` on. codes: of the tags that the group
    wants; None for all."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    codes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """day: YYYY-MM-DD in the time zone `zone`, which is [from_ms, to_ms); an unfinished day ends at T0.

    log_min, log_end: physical offsets, the first kept byte and the published end. retention_ms: the broker's.
    disk_total, disk_free, store_bytes: bytes. disk_limit_percent: used percentage of the disk from which files are
    deleted before their retention is over (`diskSpaceCleanForciblyRatio`). earlier: the digest's figures of earlier
    days, by day (`reports/digest.py`). log_file_bytes: of each file of the log; 0 if unknown. ascends_from: physical
    offset from which on store times do not go back along the log. disk_full_ms: when the overview expected the disk to
    be full, ms since 1970; 0 for never, None if that was not known."""

    t0_ms: int
    day: str
    zone: str
    from_ms: int
    to_ms: int
    store_dir: str
    deliveries_dir: str
    log_min: int
    log_end: int
    retention_ms: int
    disk_total: int
    disk_free: int
    store_bytes: int
    queues: tuple[QueueEnds, ...] = ()
    topics: tuple[TopicFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    disk_limit_percent: int = 85
    earlier: dict[str, dict[str, int | None]] = field(default_factory=dict)
    log_file_bytes: int = 0
    ascends_from: int = 0
    deleted_unread: tuple[UnreadFacts, ...] = ()
    waiting: tuple[WaitingFacts, ...] = ()
    disk_full_ms: int | None = None
    format: int = FORMAT

    def save(self, directory: Path) -> None:
        """Write snapshot.json. Halves of surrogates, which names in other programs' stores may hold, become "?":
        neither Arrow nor UTF-8 can represent them. Raises OSError."""
        text = json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        replace_file(directory / NAME, text.encode(errors="replace"), durable=False)


def load(directory: Path) -> Snapshot:
    """Load snapshot.json. Raises OSError, ValueError for a file of another format or shape."""
    found: dict[str, Any] = json.loads((directory / NAME).read_text(encoding="utf-8"))
    if found.get("format") != FORMAT:
        raise ValueError(f"{directory / NAME} has format {found.get('format')}, and this program reads {FORMAT}")
    found["queues"] = tuple(QueueEnds(**one) for one in found["queues"])
    found["deleted_unread"] = tuple(UnreadFacts(**one) for one in found.get("deleted_unread", ()))
    found["waiting"] = tuple(
        WaitingFacts(**{**one, "codes": None if one["codes"] is None else tuple(one["codes"])})
        for one in found.get("waiting", ())
    )
    found["topics"] = tuple(TopicFacts(**one) for one in found["topics"])
    found["groups"] = tuple(
        GroupFacts(
            **{
                **one,
                "clients": tuple(ClientFacts(**client) for client in one["clients"]),
                "conflicts": tuple(one["conflicts"]),
                "ahead": AheadFacts(**one["ahead"]) if one.get("ahead") else None,
            }
        )
        for one in found["groups"]
    )
    return Snapshot(**found)
