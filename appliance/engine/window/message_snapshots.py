"""Messages as the window hands them out; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

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
class MessagePage:
    """Messages of a topic between two times.

    total: how many the fixed snapshot holds in all; seen: how many of them the pages up to this one have passed.
    next_cursor: for the next page of the same snapshot, None at its end. skipped: entries on this page whose record
    could not be read or has expired. truncated: the time budget ended this page early; go on with next_cursor.
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


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where one group stands with one message. state: "consumed" (its offset is past it), "waiting" (ahead: so many
    messages before it), "filtered" (its subscription excludes the tag), "unknown" (why says the reason)."""

    group: str
    state: str
    committed: int | None
    ahead: int | None
    subscription: str | None
    clients: int
    why: Sentence | None


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened to a message. what: "born", "stored", "retried" or "dead"; detail: names for the page."""

    at_ms: int | None
    what: str
    detail: dict[str, object]


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """One message without its body. compression: "zlib", "lz4", "zstd" by its sys flag, None for none.

    properties: as stored, the broker's own included. transaction: "none", "prepared", "committed", "rolled back".
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
class SearchHit:
    """A message that a search found. matched: "place", "offset_id", "unique_id" or "key", what the text is of it."""

    matched: str
    row: MessageRow


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What a search found, over a snapshot of the log.

    text: what was searched, without blanks around it; "" when there was nothing to search, or more than 1,024
    characters. kinds: what the text may be, the most telling first, of "place", "unique_id", "offset_id" and "key".
    hits: a named place first, then by topic, of each the newest first. next_cursor: for the next page of the same
    snapshot; None at its end. searched_topics of `topics` have been looked through. truncated: time ran out before the
    page was full. index_enabled: messageIndexEnable; without it keys and unique ids are not found.
    index_behind_bytes: how much of the log is not indexed yet; its newest messages are missed by that.
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
