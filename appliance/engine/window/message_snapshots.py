"""Messages as the window hands them out; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX
from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list; no body. size_bytes: of the whole record, body_bytes: of its body as stored.

    unique_id: the producer's id (UNIQ_KEY); offset_id: the broker's; several messages may share a unique id.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    offset_id: str
    unique_id: str | None
    stored_at_ms: int
    born_at_ms: int
    born_host: str
    size_bytes: int
    body_bytes: int
    tags: str | None
    keys: tuple[str, ...]
    reconsume_times: int


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """All there is of a message, to be kept elsewhere. body: without the compression that its sys flag names;
    compression: that, where it could not be taken off, and problem says why."""

    row: MessageRow
    properties: dict[str, str]
    flag: int
    sys_flag: int
    body: bytes
    compression: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of an imported message. status: "sent", "valid" (a dry run) or "failed", which reason explains.
    left_out: properties that it did not take over."""

    status: str
    reason: str | None
    queue_id: int
    queue_offset: int
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages of a topic between two times.

    total: how many the fixed snapshot holds in all; seen: how many of them the pages up to this one have passed.
    next_cursor: for the next page of the same snapshot, None at its end. skipped: entries on this page whose record
    could not be read or has expired. truncated: the time budget ended this page early; go on with next_cursor.
    scanned: entries that this page has passed. seen_bytes: size of all records passed so far; total_bytes: what the
    snapshot comes to by that, an estimate until its end. undecided: messages on this page of which a filter cannot tell
    whether they fit, as their body is too long or a pattern too costly; they are not among the rows.
    """

    rows: tuple[MessageRow, ...]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int
    truncated: bool
    scanned_bytes: int
    took_ms: float
    snapshot_at_ms: int
    scanned: int = 0
    seen_bytes: int = 0
    total_bytes: int = 0
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where one group stands with one message.

    state: "consumed" (its offset is past it), "delivered" (to a client, its offset is not past it yet), "waiting"
    (ahead: so many messages before it), "delayed" (not due yet), "retrying" (sent back, waits at a level), "dead",
    "filtered" (its subscription keeps it out), "uncommitted" (a transaction that was not committed, or not yet) or
    "unknown". why: what the broker knows that by, or the reason.

    place: "topic/queue/offset" of the copy that this is about: the newest one on the group's way. committed: the
    group's offset of that queue. deliveries: answers that carried it or a copy, as far as they are kept; the last one
    left at delivered_at_ms for the client delivered_to. level, due_ms: of a copy that waits.
    """

    group: str
    state: str
    place: str
    committed: int | None
    ahead: int | None
    subscription: str | None
    clients: int
    deliveries: int
    delivered_at_ms: int | None
    delivered_to: str | None
    level: int | None
    due_ms: int | None
    why: Sentence


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened to a message or a copy of it. at_ms: None where the broker cannot know it.

    what, and the names in detail (place, "topic/queue/offset", and offset_id besides where it is stored there):

    born        host; by the producer's clock
    stored      times (retries before it)
    delayed     level, due_ms, target (topic), waits (still)
    due         its copy went where it was to go
    delivered   group, client, count (times in a row), last_ms, certain
    sent_back   group, times (this retry's number), level, due_ms, target, waits
    retried     group, times; it is in the group's retry topic
    dead        group, times
    replayed    job, replays (this one included), group where it went back to one
    half        group (its producers'), target (topic), checks (0; more in one of Apache's); a half message
    open        group, target, checks, max_checks, next_check_ms, waits_for_producer, producers (connected),
                half_place, half_offset_id
    committed   group, target, half_place, half_offset_id; by, client, admin, reason, checks, age_ms as in
                `ResolvedTransaction` where that is kept
    rolled_back, discarded, lost   as committed
    set_aside   group, target, checks; the copy of a discarded half message
    ended       group, target, half_place, half_offset_id; how is not known any more
    passed      group, offset: the group's offset is past it
    """

    at_ms: int | None
    what: str
    detail: dict[str, object]

    @property
    def names(self) -> set[str]:
        """The topics and groups it tells of; a retry or dead letter topic counts as its group."""
        topic = self.detail.get("target") or str(self.detail.get("place", "")).rsplit("/", 2)[0]
        named = {self.detail.get("group"), str(topic).removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)}
        return {str(name) for name in named if name}


@dataclass(frozen=True, slots=True)
class Told:
    """story: in its order. notes: what may be missing from it. deliveries_since_ms: how far back deliveries are kept,
    where that is not back to the message; None when none are."""

    story: tuple[StoryLine, ...]
    notes: tuple[Sentence, ...]
    deliveries_since_ms: int | None
    groups: tuple[DeliveryState, ...]


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """One message without its body. compression: "zlib", "lz4", "zstd" by its sys flag, None for none.

    properties: as stored, the broker's own included. transaction: "none", "prepared", "committed", "rolled back".
    story, story_notes, deliveries_since_ms, groups: as in Told; empty when only the record was asked for.
    """

    row: MessageRow
    properties: dict[str, str]
    flag: int
    sys_flag: int
    store_host: str
    body_crc: int
    crc_ok: bool
    compression: str | None
    transaction: str
    prepared_transaction_offset: int
    story: tuple[StoryLine, ...]
    story_notes: tuple[Sentence, ...]
    deliveries_since_ms: int | None
    groups: tuple[DeliveryState, ...]


@dataclass(frozen=True, slots=True)
class BodyView:
    """A message's body, for reading.

    kind: "empty", "json", "text" or "binary". layers: what was taken off, outermost first ("zlib", "lz4", "zstd" by the
    sys flag, "gzip", "zlib" found by looking). stored_bytes: in the log. decoded_bytes: after the layers; a lower bound
    when `truncated`. json is indented. text, json are None when the body is not that; hex and base64 are always there.
    All of them show the first bytes only when `truncated`; `notes` say why and what else is worth knowing.
    """

    kind: str
    layers: tuple[str, ...]
    stored_bytes: int
    decoded_bytes: int
    shown_bytes: int
    truncated: bool
    json: str | None
    text: str | None
    hex: str
    base64: str
    notes: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as it lies in the log: fields in their order as (name, position, size in bytes, value), and a hex dump
    of its first bytes (offset, hex, printable)."""

    physical_offset: int
    size_bytes: int
    fields: tuple[tuple[str, int, int, str], ...]
    dump: tuple[tuple[int, str, str], ...]
    dump_truncated: bool


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A test message that was published (durable, in sync flush). status: "SEND_OK" or "FLUSH_DISK_TIMEOUT"."""

    status: str
    topic: str
    queue_id: int
    queue_offset: int
    unique_id: str
    offset_id: str
    took_ms: float


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message to be sent again. topic: where it was first sent to, whatever copy this is of. properties: those that
    its sender may set. left_out: names of its other ones, which say what became of it. body: decompressed when its
    client had compressed it; None when it was not asked for, or cannot be decompressed."""

    topic: str
    queue_id: int
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    sharding_key: str
    left_out: tuple[str, ...]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that a search found. matched: "place", "offset_id", "unique_id" or "key", what the text is of it.

    row: of the record in the message's own topic, or of its newest copy where that is gone. state: "stored", "retried",
    "dead", "delayed" (it still waits, until due_at_ms, None where that is not known) or "half" (of a transaction that
    was not committed, or not yet). for_topic: the topic that it was sent to. failed_tries: how often a group has sent
    it back, the most of any. dead_letter_of: groups whose dead letter it is. copies: records of it besides this one
    that the search came across.
    """

    matched: str
    row: MessageRow
    state: str
    for_topic: str
    failed_tries: int
    dead_letter_of: tuple[str, ...]
    due_at_ms: int | None
    copies: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What a search found, over a snapshot of the log.

    text: what was searched, without blanks around it; "" when there was nothing to search, or more than 1,024
    characters. kinds: what the text may be, the most telling first, of "place", "unique_id", "offset_id" and "key".
    hits: a named place first, then the newest first. next_cursor: for the next page of the same snapshot; None at its
    end. searched_topics of `topics` have been looked through to their end. truncated: time ran out, or 500 records were
    read, before the page was full; without a next_cursor, so many messages have the key that no page gets further.
    index_enabled: messageIndexEnable; without it keys and unique ids are not found.
    index_behind_bytes: how much of the log is not indexed yet; its newest messages are missed by that. place_note: why
    there is no message at the place that the text is; None when one is there, or the text is no place.
    """

    text: str
    kinds: tuple[str, ...]
    hits: tuple[SearchHit, ...]
    next_cursor: str | None
    searched_topics: int
    topics: int
    truncated: bool
    index_enabled: bool
    index_behind_bytes: int
    took_ms: float
    place_note: Sentence | None = None
