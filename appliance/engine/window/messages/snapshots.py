"""Messages as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from ...lazy_dataclass import dataclass
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..sentences import Sentence


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message without its body. unique_id: the producer's; several messages may share it. offset_id: the broker's."""

    # size_bytes: of the whole record, body_bytes: of its body as stored.
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
class TailRow:
    """A message that came: tag and keys cut to 400 characters. glance: the beginning of its body, None if it was not
    asked for; binary: it is hexadecimal; cut: the body is longer."""

    queue_id: int
    queue_offset: int
    offset_id: str
    unique_id: str | None
    stored_at_ms: int
    body_bytes: int
    tags: str | None
    keys: tuple[str, ...]
    reconsume_times: int
    glance: str | None
    binary: bool
    cut: bool


@dataclass(frozen=True, slots=True)
class MessageCopy:
    """A whole message, to be kept elsewhere. body: without the compression that its sys flag names. compression: its
    name if the body could not be decompressed, problem the reason; else None."""

    row: MessageRow
    properties: dict[str, str]
    flag: int
    sys_flag: int
    body: bytes
    compression: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an imported message. status: "sent", "valid" (a dry run) or "failed", which `reason` explains.
    left_out: names of properties that the copy did not keep."""

    status: str
    reason: str | None
    queue_id: int
    queue_offset: int
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages of a topic between two times.

    total: number of messages in the fixed snapshot; seen: how many of them the pages up to this one have passed.
    next_cursor: for the next page of the same snapshot, None at its end. skipped: entries on this page whose record
    could not be read or has expired. truncated: the time budget ended this page early; continue with next_cursor.
    scanned: entries that this page has passed. seen_bytes: size of all records passed so far; total_bytes: size of the
    snapshot, an estimate until its end. undecided: messages on this page that the filter cannot judge, because the body
    is too long or a pattern too costly; they are not among the rows.
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
class MessageLine(MessageRow):
    """A message in a list with bodies. glance: the beginning of its body, decoded by its topic's schema if it has one;
    binary: that is hexadecimal; cut: there is more."""

    glance: str
    binary: bool
    cut: bool


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """A group's progress with the message. state: consumed (its offset is past it), delivered (to a client, not
    committed yet), waiting (`ahead` messages before it), delayed, retrying, dead, filtered, uncommitted (a transaction)
    or unknown; why gives the broker's evidence. place: of the group's newest copy of the message, which the state is
    about. deliveries: answers that carried it or a copy, as far as they are kept, the last one at delivered_at_ms for
    the client delivered_to."""

    # place: "topic/queue/offset". deliveries: the last of them was sent at delivered_at_ms. level, due_ms: of a copy
    # that waits.
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
    """Something that happened to the message or to a copy of it; at_ms is None where the broker cannot know it. what,
    with the names in detail beside place (topic/queue/offset) and offset_id: born (only host), stored, delayed (level,
    due_ms, target, waits: still), due, delivered (group, client, count: times in a row, last_ms, certain), sent_back
    (group, times, level, due_ms, target, waits), retried (group, times), dead (group, times), replayed (job, replays),
    passed (only group, offset). Of a transaction: half (group: its producers', target), open (checks, max_checks,
    next_check_ms, waits_for_producer, producers), committed, rolled_back, discarded, lost (by, client, admin, reason,
    checks, age_ms, where that is kept), ended (how is not known), all with half_place and half_offset_id; set_aside
    (checks)."""

    # The names in detail; events of one copy also have its place, "topic/queue/offset", and offset_id. "committed" has
    # by, client, ... as in `ResolvedTransaction`, if that is kept. passed: the group's offset is past it.
    at_ms: int | None
    what: str
    detail: dict[str, object]

    @property
    def names(self) -> set[str]:
        """The topics and groups that this event names; a retry or dead letter topic counts as its group."""
        topic = self.detail.get("target") or str(self.detail.get("place", "")).rsplit("/", 2)[0]
        named = {self.detail.get("group"), str(topic).removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)}
        return {str(name) for name in named if name}


@dataclass(frozen=True, slots=True)
class Told:
    """A message's story. story: its events in order. notes: what may be missing. deliveries_since_ms: the time since
    which deliveries are recorded, if the message is older; else None, also if none are recorded. groups: the state of
    each group."""

    story: tuple[StoryLine, ...]
    notes: tuple[Sentence, ...]
    deliveries_since_ms: int | None
    groups: tuple[DeliveryState, ...]


@dataclass(frozen=True, slots=True)
class MessageDetail(MessageRow):
    """A message without its body. properties: as stored, the broker's own included. transaction: none, prepared,
    committed or rolled back. story_notes: what may be missing from the story. deliveries_since_ms: how far back
    deliveries are kept."""

    # compression: "zlib", "lz4", "zstd" by the sys flag, None for none. story, story_notes, deliveries_since_ms,
    # groups: as in Told; empty if only the record was asked for.
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

    kind: "empty", "json", "text" or "binary". layers: compressions that were undone, outermost first ("zlib", "lz4",
    "zstd" by the sys flag, "gzip", "zlib" by the body's first bytes). stored_bytes: in the log. decoded_bytes: after
    decompression; a lower bound if `truncated`. json is indented. text, json: None if the body is neither; hex and
    base64 are always there. If `truncated`, all of them show only the first bytes; `notes` have the reason and more.
    schema: of the topic, as "Avro shop.Order", None without one; decoded: the whole body as JSON by it, None if it does
    not fit.
    """

    kind: str
    layers: tuple[str, ...]
    stored_bytes: int
    decoded_bytes: int
    shown_bytes: int
    truncated: bool
    decoded: str | None
    schema: str | None
    json: str | None
    text: str | None
    hex: str
    base64: str
    notes: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record in the log: its fields in order as (name, position, size in bytes, value), and a hex dump of its first
    bytes as (offset, hex, printable)."""

    physical_offset: int
    size_bytes: int
    fields: tuple[tuple[str, int, int, str], ...]
    dump: tuple[tuple[int, str, str], ...]
    dump_truncated: bool


@dataclass(frozen=True, slots=True)
class SentMessage:
    """The message as stored: on disk when flushing is synchronous and status is SEND_OK."""

    # status: "SEND_OK" (durable, in sync flush), "FLUSH_DISK_TIMEOUT" or "FLUSH_SLAVE_TIMEOUT".
    status: str
    topic: str
    queue_id: int
    queue_offset: int
    unique_id: str
    offset_id: str
    took_ms: float


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message to be sent again. topic: the topic that it was first sent to, also if this is a copy of it. properties:
    those that a sender may set. left_out: names of the other ones, which clients and brokers set. body: decompressed if
    its client had compressed it; None if it was not asked for or cannot be decompressed."""

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
    """A message that was found. matched: what the text matched: place, offset_id, unique_id or key. message: the record
    in its own topic, or its newest copy where that is gone. for_topic: the topic that it was sent to. state: stored,
    retried (a group has sent it back), dead (a dead letter of dead_letter_of), delayed (until due_at_ms) or half (of a
    transaction that was not committed, or not yet). failed_tries: how often a group has sent it back, the most of any.
    copies: records of it besides this one that the search came across."""

    matched: str
    message: MessageLine | MessageRow
    for_topic: str
    state: str
    failed_tries: int
    dead_letter_of: tuple[str, ...]
    due_at_ms: int | None
    copies: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of a search's hits, over a snapshot of the log.

    text: the searched text without blanks around it; "" if it was blank, or had more than 1,024 characters. kinds: what
    the text may be, most specific first, of "place", "unique_id", "offset_id" and "key". hits: a named place first,
    then the newest first. next_cursor: for the next page of the same snapshot; None at its end. searched_topics: how
    many of the `topics` have been searched to their end. truncated: time ran out, or 500 records were read, before the
    page was full; without a next_cursor, too many messages have the key for any page to get further. index_enabled:
    messageIndexEnable; without it keys and unique ids are not found. index_behind_bytes: bytes of the snapshot that
    were not indexed in time; the search misses these newest messages. place_note: why there is no message at the place
    that the text names; None if one is there, or the text is no place.
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
