"""Messages as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..sentences import Sentence


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
class DeliveryState:
    """The state of one message for one group.

    state: "consumed" (the group's offset is past it), "delivered" (to a client, the offset is not past it yet),
    "waiting" (`ahead` messages are before it), "delayed" (not due yet), "retrying" (sent back, waits at a level),
    "dead", "filtered" (the subscription rejects it), "uncommitted" (a transaction that was not committed, or not yet)
    or "unknown". why: how the broker knows, or the reason.

    place: "topic/queue/offset" of the copy that decides: the newest one on the way to the group. committed: the group's
    offset of that queue. deliveries: number of recorded answers that carried it or a copy; the last one was sent at
    delivered_at_ms to the client delivered_to. level, due_ms: of a copy that waits.
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
    """One event of a message or a copy of it. at_ms: None if the broker cannot know it.

    what: with the names in detail (events of one copy also have its place, "topic/queue/offset", and offset_id):

    born        host; by the producer's clock
    stored      times (retries before it)
    delayed     level, due_ms, target (topic), waits (still)
    due         its copy was delivered to the topic that it waited for
    delivered   group, client, count (times in a row), last_ms, certain
    sent_back   group, times (this retry's number), level, due_ms, target, waits
    retried     group, times; it is in the group's retry topic
    dead        group, times
    replayed    job, replays (this one included), group if it went back to one
    half        group (its producers'), target (topic), checks (0; more in one of Apache's); a half message
    open        group, target, checks, max_checks, next_check_ms, waits_for_producer, producers (connected),
                half_place, half_offset_id
    committed   group, target, half_place, half_offset_id; by, client, admin, reason, checks, age_ms as in
                `ResolvedTransaction`, if that is kept
    rolled_back, discarded, lost   as committed
    set_aside   group, target, checks; the copy of a discarded half message
    ended       group, target, half_place, half_offset_id; how it ended is no longer known
    passed      group, offset: the group's offset is past it
    """

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
class MessageDetail:
    """One message without its body. compression: "zlib", "lz4", "zstd" by its sys flag, None for none.

    properties: as stored, the broker's own included. transaction: "none", "prepared", "committed", "rolled back".
    story, story_notes, deliveries_since_ms, groups: as in Told; empty if only the record was asked for.
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

    kind: "empty", "json", "text" or "binary". layers: compressions that were undone, outermost first ("zlib", "lz4",
    "zstd" by the sys flag, "gzip", "zlib" by the body's first bytes). stored_bytes: in the log. decoded_bytes: after
    decompression; a lower bound if `truncated`. json is indented. text, json: None if the body is neither; hex and
    base64 are always there. If `truncated`, all of them show only the first bytes; `notes` have the reason and more.
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
    """A record in the log: its fields in order as (name, position, size in bytes, value), and a hex dump of its first
    bytes as (offset, hex, printable)."""

    physical_offset: int
    size_bytes: int
    fields: tuple[tuple[str, int, int, str], ...]
    dump: tuple[tuple[int, str, str], ...]
    dump_truncated: bool


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A test message that was published. status: "SEND_OK" (durable, in sync flush), "FLUSH_DISK_TIMEOUT" or
    "FLUSH_SLAVE_TIMEOUT"."""

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
    """A message that a search found. matched: which of its names the text is: "place", "offset_id", "unique_id" or
    "key".

    row: of the record in the message's own topic, or of its newest copy if that is gone. state: "stored", "retried",
    "dead", "delayed" (it still waits, until due_at_ms, None if that is not known) or "half" (of a transaction that was
    not committed, or not yet). for_topic: the topic that it was sent to. failed_tries: how often a group has sent it
    back, the maximum over all groups. dead_letter_of: groups that have it as a dead letter. copies: number of its other
    records that the search came across.
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
    """A page of a search's hits, over a snapshot of the log.

    text: the searched text without blanks around it; "" if it was blank, or had more than 1,024 characters. kinds: what
    the text may be, most specific first, of "place", "unique_id", "offset_id" and "key". hits: a named place first,
    then the newest first. next_cursor: for the next page of the same snapshot; None at its end. searched_topics: how
    many of the `topics` have been searched to their end. truncated: time ran out, or 500 records were read, before the
    page was full; without a next_cursor, too many messages have the key for any page to get further. index_enabled:
    messageIndexEnable; without it keys and unique ids are not found. index_behind_bytes: bytes of the log that are not
    indexed yet; the search misses these newest messages. place_note: why there is no message at the place that the text
    names; None if one is there, or the text is no place.
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
