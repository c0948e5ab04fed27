"""Messages, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from .schemas import In, Out, PageOut, SentenceOut, Text, flattened
from .times import Moment


class MessageRowOut(Out):
    """A message without its body. unique_id: the producer's; several messages may share it. offset_id: the broker's."""

    topic: Text
    queue_id: int
    queue_offset: int
    physical_offset: int
    offset_id: str
    unique_id: Text | None
    stored_at_ms: int
    born_at_ms: int
    born_host: str
    size_bytes: int
    body_bytes: int
    tags: Text | None
    keys: list[Text]
    reconsume_times: int


class ScannedOut(Out):
    """Cost of the page: messages looked through so far of the snapshot's total, the size of their records and of all
    (an estimate until the last page), and bytes and time for this page."""

    seen: int
    total: int
    seen_bytes: int
    total_bytes: int
    bytes: int
    ms: float


class MessagePageOut(PageOut):
    """Messages of a snapshot; newer ones are not included. truncated: the time limit ended this page early; go on with
    next_cursor. skipped: entries of this page whose record could not be read or has expired. undecided: messages of
    this page that a filter could not judge, as their body is too long or the pattern too costly."""

    items: list[MessageRowOut]
    truncated: bool
    skipped: int
    undecided: int
    scanned: ScannedOut
    snapshot_at_ms: int

    @model_validator(mode="before")
    @classmethod
    def _of_page(cls, page: Any) -> Any:
        if isinstance(page, dict):
            return page
        return {
            "items": page.rows,
            "next_cursor": page.next_cursor,
            "truncated": page.truncated,
            "skipped": page.skipped,
            "undecided": page.undecided,
            "scanned": {
                "seen": page.seen,
                "total": page.total,
                "seen_bytes": page.seen_bytes,
                "total_bytes": page.total_bytes,
                "bytes": page.scanned_bytes,
                "ms": page.took_ms,
            },
            "snapshot_at_ms": page.snapshot_at_ms,
        }


class SearchHitOut(Out):
    """A message that was found. matched: what the text matched: place, offset_id, unique_id or key. message: the record
    in its own topic, or its newest copy where that is gone. for_topic: the topic that it was sent to. state: stored,
    retried (a group has sent it back), dead (a dead letter of dead_letter_of), delayed (until due_at_ms) or half (of a
    transaction that was not committed, or not yet). failed_tries: how often a group has sent it back, the most of any.
    copies: records of it besides this one that the search came across."""

    matched: str
    message: MessageRowOut = Field(validation_alias=AliasChoices("row", "message"))
    for_topic: Text
    state: str
    failed_tries: int
    dead_letter_of: list[Text]
    due_at_ms: int | None
    copies: int


class SearchOut(PageOut):
    """Results of a search, in a snapshot: newer messages are not included. topic_names, group_names: the first few
    whose names contain the text, on the first page. place_note: why there is no message at the place that the text
    names.

    kinds: what the text may be, the most telling first. truncated: the page ended before it was full, after 250 ms or
    500 records; go on with next_cursor. Without one, so many messages have the key that no page gets further: ask for a
    topic or a span of times. index_behind_bytes: how much of the newest log is not indexed yet. searched_topics of
    topics were looked through to their end.
    """

    items: list[SearchHitOut]
    kinds: list[str]
    truncated: bool
    searched_topics: int
    topics: int
    index_enabled: bool
    index_behind_bytes: int
    took_ms: float
    place_note: SentenceOut | None
    topic_names: list[Text]
    group_names: list[Text]

    @model_validator(mode="before")
    @classmethod
    def _of_page(cls, page: Any) -> Any:
        if isinstance(page, dict):
            return page
        page, topics, groups = page
        names = ("next_cursor", "kinds", "truncated", "searched_topics", "topics", "took_ms", "place_note")
        return {name: getattr(page, name) for name in (*names, "index_enabled", "index_behind_bytes")} | {
            "items": page.hits,
            "topic_names": topics,
            "group_names": groups,
        }


class StoryOut(Out):
    """Something that happened to the message or to a copy of it; at_ms is null where the broker cannot know it. what,
    with the names in detail beside place (topic/queue/offset) and offset_id: born (only host), stored, delayed (level,
    due_ms, target, waits: still), due, delivered (group, client, count: times in a row, last_ms, certain), sent_back
    (group, times, level, due_ms, target, waits), retried (group, times), dead (group, times), replayed (job, replays),
    passed (only group, offset). Of a transaction: half (group: its producers', target), open (checks, max_checks,
    next_check_ms, waits_for_producer, producers), committed, rolled_back, discarded, lost (by, client, admin, reason,
    checks, age_ms, where that is kept), ended (how is not known), all with half_place and half_offset_id; set_aside
    (checks)."""

    at_ms: int | None
    what: str
    detail: dict[str, Any]


class DeliveryOut(Out):
    """A group's progress with the message. state: consumed (its offset is past it), delivered (to a client, not
    committed yet), waiting (`ahead` messages before it), delayed, retrying, dead, filtered, uncommitted (a transaction)
    or unknown; why gives the broker's evidence. place: of the group's newest copy of the message, which the state is
    about. deliveries: answers that carried it or a copy, as far as they are kept, the last one at delivered_at_ms for
    the client delivered_to."""

    group: Text
    state: str
    place: Text
    committed: int | None
    ahead: int | None
    subscription: Text | None
    clients: int
    deliveries: int
    delivered_at_ms: int | None
    delivered_to: Text | None
    level: int | None
    due_ms: int | None
    why: SentenceOut


class MessageOut(MessageRowOut):
    """A message without its body. properties: as stored, the broker's own included. transaction: none, prepared,
    committed or rolled back. story_notes: what may be missing from the story. deliveries_since_ms: how far back
    deliveries are kept."""

    properties: dict[Text, Text]
    flag: int
    sys_flag: int
    store_host: str
    body_crc: int
    crc_ok: bool
    compression: str | None
    transaction: str
    prepared_transaction_offset: int
    story: list[StoryOut]
    story_notes: list[SentenceOut]
    deliveries_since_ms: int | None
    groups: list[DeliveryOut]

    @model_validator(mode="before")
    @classmethod
    def _of_detail(cls, detail: Any) -> Any:
        return flattened(detail, cls, MessageRowOut)


class BodyOut(Out):
    """A message's body. data: its first shown_bytes, after the layers of compression (outermost first) were removed, as
    text, or as base64 where it is not text."""

    kind: str
    layers: list[str]
    encoding: Literal["text", "base64"]
    data: Text
    stored_bytes: int
    decoded_bytes: int
    shown_bytes: int
    truncated: bool
    notes: list[SentenceOut]

    @model_validator(mode="before")
    @classmethod
    def _of_view(cls, view: Any) -> Any:
        if isinstance(view, dict):
            return view
        is_text = view.text is not None
        return {name: getattr(view, name, None) for name in cls.model_fields} | {
            "encoding": "text" if is_text else "base64",
            "data": view.text if is_text else view.base64,
        }


class FieldOut(Out):
    """A field of the stored record: its position and value."""

    name: str
    position: int
    size_bytes: int
    value: Text


class RecordOut(Out):
    """The record as stored, and a dump of its first bytes, 16 per line."""

    physical_offset: int
    size_bytes: int
    fields: list[FieldOut]
    dump: list[str]
    dump_truncated: bool

    @model_validator(mode="before")
    @classmethod
    def _of_record(cls, record: Any) -> Any:
        if isinstance(record, dict):
            return record
        names = ("name", "position", "size_bytes", "value")
        return {
            "physical_offset": record.physical_offset,
            "size_bytes": record.size_bytes,
            "fields": [dict(zip(names, row, strict=True)) for row in record.fields],
            "dump": [f"{offset:08x}  {digits}  {shown}" for offset, digits, shown in record.dump],
            "dump_truncated": record.dump_truncated,
        }


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None
    return text


class TextBodyIn(In):
    encoding: Literal["text"] = "text"
    data: str


class Base64BodyIn(In):
    encoding: Literal["base64"]
    data: Annotated[str, AfterValidator(_check_base64)]


class MessageIn(In):
    """A test message. queue_id: leave it out to let the broker choose one."""

    body: TextBodyIn | Base64BodyIn
    tags: str = ""
    keys: list[str] = Field(default_factory=list, max_length=64)
    properties: dict[str, str] = Field(default_factory=dict)
    queue_id: int | None = None
    delay_level: int = Field(0, ge=0, le=1000, description="A delay level, 0 for none: it is delivered later then.")
    deliver_at_ms: Moment | None = Field(None, description="Instead of a level: it is delivered at this time.")
    half_of: str = Field(
        "",
        max_length=255,
        description="A producer group: it is a half message of it then, left open on purpose.",
    )

    sharding_key: str = Field(
        "", max_length=1000, description="Instead of a queue: messages with the same key go to the same queue."
    )

    def body_bytes(self) -> bytes:
        data = self.body.data
        return base64.b64decode(data) if self.body.encoding == "base64" else data.encode()


class DeliveryIn(In):
    """The group, and its member, that is to consume the message. client_id: leave it out for the first one by its
    id."""

    group: str = Field(max_length=255)
    client_id: str | None = Field(None, max_length=1024)


class DirectDeliveryOut(Out):
    """The client's result: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL, or empty
    if it gave none, or for a dry run (`delivered` is false then)."""

    delivered: bool
    group: Text
    client_id: Text
    offset_id: str
    result: str
    in_order: bool | None
    auto_commit: bool | None
    remark: Text
    spent_ms: int | None
    took_ms: float


class SentOut(Out):
    """The message as stored: on disk when flushing is synchronous and status is SEND_OK."""

    status: str
    topic: Text
    queue_id: int
    queue_offset: int
    unique_id: str
    offset_id: str
    took_ms: float
