"""Messages, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from ninja import Query
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ..engine.window.messages.snapshots import MessageLine, MessageRow, SearchHit, TailRow
from .paging import Cursor, From, Limit, To
from .schemas import Asked, In, OfTuple, Out, PageOut, SentenceOut, Text
from .times import Moment


class ScannedOut(Out):
    """Cost of the page: messages looked through so far of the snapshot's total, the size of their records and of all
    (an estimate until the last page), and bytes and time for this page."""

    seen: int
    total: int
    seen_bytes: int
    total_bytes: int
    bytes: int
    ms: float


class MessageQuestion(Asked):
    """Selects messages of a topic."""

    limit: Limit
    from_ms: From
    to_ms: To
    queue_id: int | None = Query(None, ge=0, le=(1 << 31) - 1)
    newest_first: bool = True
    filter: str | None = Query(
        None,
        max_length=4096,
        description=(
            "Only what this expression finds, for example: tag = 'paid' AND body('$.amount') > 100. SQL92 over "
            "properties, and tag, key, body, property('a name'), LIKE, REGEXP. Send it with the cursor, too. One that "
            "looks into bodies needs the right to read them."
        ),
    )
    cursor: str | None = Query(
        None, max_length=65_536, description="The next_cursor of the previous page; it includes queue, times and order."
    )


class SearchQuestion(Asked):
    """What is looked for, and where."""

    limit: Limit
    from_ms: From
    to_ms: To
    cursor: Cursor
    text: str = Query(..., alias="q", max_length=1024, description="A name, id, key or place (topic/queue/offset).")
    topic: str | None = Query(None, max_length=255, description="Only keys of this topic.")
    copies: bool = Query(
        False, description="Each record is an item: also the copies in retry, dead letter and system topics."
    )


class MessagePageOut(PageOut):
    """Messages of a snapshot; newer ones are not included. truncated: the time limit ended this page early; go on with
    next_cursor. skipped: entries of this page whose record could not be read or has expired. undecided: messages of
    this page that a filter could not judge, as their body is too long or the pattern too costly."""

    items: list[MessageLine | MessageRow]
    truncated: bool
    skipped: int
    undecided: int
    scanned: ScannedOut
    snapshot_at_ms: int


class TailOut(Out):
    """Messages that came since the last answer, in the log's order. passed: all that came; filtered: they do not match;
    left_out: they match, but `one_in` or `limit` kept them out; unread: not looked at, as too many came at once, or not
    readable. next_cursor: always there; ask again with it."""

    items: list[TailRow]
    passed: int
    filtered: int
    left_out: int
    unread: int
    next_cursor: str


class SearchOut(PageOut):
    """Results of a search, in a snapshot: newer messages are not included. topic_names, group_names: the first few
    whose names contain the text, on the first page. place_note: why there is no message at the place that the text
    names.

    kinds: what the text may be, the most telling first. truncated: the page ended before it was full, after 250 ms or
    500 records; go on with next_cursor. Without one, so many messages have the key that no page gets further: ask for a
    topic or a span of times. index_behind_bytes: how much of the snapshot was not indexed in time, so that its
    newest messages may be missing; usually 0. searched_topics of topics were looked through to their end.
    """

    items: list[SearchHit]
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


class BodyOut(Out):
    """A message's body. data: its first shown_bytes, after the layers of compression (outermost first) were removed, as
    text, or as base64 where it is not text. schema_name: the schema of its topic; decoded: the whole body as JSON
    text by it, null if it does not fit, for which `notes` give the reason, and without the right to export if it has
    more than 65,536 bytes."""

    kind: str
    layers: list[str]
    encoding: Literal["text", "base64"]
    data: Text
    stored_bytes: int
    decoded_bytes: int
    shown_bytes: int
    truncated: bool
    schema_name: str | None
    decoded: Text | None
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
            "schema_name": view.schema,
        }


class FieldOut(OfTuple):
    """A field of the stored record: its position and value."""

    name: str
    position: int
    size_bytes: int
    value: Text


#: Of (offset, digits, text).
_DumpLine = Annotated[str, BeforeValidator(lambda row: f"{row[0]:08x}  {row[1]}  {row[2]}")]


class RecordOut(Out):
    """The record as stored, and a dump of its first bytes, 16 per line."""

    physical_offset: int
    size_bytes: int
    fields: list[FieldOut]
    dump: list[_DumpLine]
    dump_truncated: bool


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None
    return text


class TextBodyIn(In):
    encoding: Literal["text"] = "text"
    data: str

    def content(self) -> bytes:
        return self.data.encode()


class Base64BodyIn(In):
    encoding: Literal["base64"]
    data: Annotated[str, AfterValidator(_check_base64)]

    def content(self) -> bytes:
        return base64.b64decode(self.data)


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


class DeliveryIn(In):
    """The group, and its member, that is to consume the message. client_id: leave it out for the first one by its
    id."""

    group: str = Field(max_length=255)
    client_id: str | None = Field(None, max_length=1024)
