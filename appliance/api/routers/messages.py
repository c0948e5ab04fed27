"""Messages: those of a topic by time, one of them, its body for users who may read bodies, and test messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router

from ... import runtime
from ...console.audit.log import audit
from ...console.messages.search_views import audit_bodies
from ...engine.cursors import encode_cursor
from ...engine.errors import NotFound
from ...engine.window.clients.asking_snapshots import DirectConsumption
from ...engine.window.messages.snapshots import MessageDetail, SentMessage
from ...engine.window.snapshots import fields_of
from .. import auth, forms
from ..changes import DryRun, audited, by
from ..idempotency import once
from ..message_schemas import (
    BodyOut,
    DeliveryIn,
    MessageIn,
    MessagePageOut,
    MessageQuestion,
    RecordOut,
    SearchOut,
    SearchQuestion,
    TailOut,
)
from ..paging import BodyChars, Cursor, tail_place
from ..schemas import Text

router = Router(tags=["messages"])

# Bytes of a body that its page shows to users who may read bodies but not export.
_SHOWN_BYTES = 65_536
# Most topics and groups that a search may name, and most characters of a name.
_NAMES = 20
_LONGEST_NAME = 255
# Printable ASCII, as header values are.
IdempotencyKey = Annotated[
    str | None,
    Header(
        None, alias="Idempotency-Key", min_length=1, max_length=200, pattern=forms.VISIBLE,
        description="When you repeat it within 24 hours, you get the first answer again and nothing is sent.",
    ),
]  # fmt: skip


@router.get("/topics/{topic}/messages", response=MessagePageOut)
def topic_messages(
    request: HttpRequest,
    topic: str,
    asked: Query[MessageQuestion],
    body_chars: BodyChars = None,
) -> Any:
    """Messages by the time they were stored; without bodies unless `body_chars` is given. Pages are of one snapshot,
    without newer messages. With a filter a page ends after 250 ms or 64 MiB, whatever it has found by then; `scanned`
    says how far it came."""
    if runtime.window().messages.filter_reads_bodies(asked.filter):
        auth.require_bodies(request)
        if asked.cursor is None:
            audit(request, "message.filter", topic, after={"filter": (asked.filter or "")[:500]})
    views = runtime.window().messages
    if body_chars is not None:
        auth.require_bodies(request, "Bodies in a list need the right to read message bodies.")
    given = {"filter_text" if name == "filter" else name: value for name, value in asked}
    page = views.page(topic, **given) if body_chars is None else views.lines(topic, **given, body_chars=body_chars)
    if body_chars is not None:
        audit(request, "message.read", topic, after={"messages": len(page.rows)})
    shown = fields_of(page)
    return shown | {"items": page.rows, "scanned": shown | {"bytes": page.scanned_bytes, "ms": page.took_ms}}


@router.get("/topics/{topic}/tail", response=TailOut)
def tail_of_topic(
    request: HttpRequest,
    topic: str,
    tags: Text = Query("", max_length=1000, description="One of these, as a consumer says it: paid || sent."),
    key: Text = Query("", max_length=1000, description="One of the message's keys."),
    expression: Text = Query("", max_length=1000, description="SQL92 over the properties."),
    one_in: int = Query(1, ge=1, le=1_000_000, description="Of so many that match, one."),
    limit: int = Query(100, ge=1, le=200, description="Most messages of one answer."),
    body_chars: BodyChars = None,
    cursor: Cursor = None,
) -> Any:
    """The messages that were stored since the answer whose cursor is given; without one only a cursor, of now. For
    programs that ask again and again. No offset is committed, no group is made."""
    if body_chars is not None:
        auth.require_bodies(request, "Bodies in a list need the right to read message bodies.")
    place, matched = (None, 0) if cursor is None else tail_place(cursor)
    tails = runtime.window().tails
    wanted = tails.wanted(topic, tags, key, expression, one_in, body_chars=body_chars or 0)
    found = tails.since(wanted, place, matched, limit)
    look = fields_of(found.look)
    if body_chars is not None and look["rows"]:
        audit(request, "message.read", topic, after={"messages": len(look["rows"])})
    return look | {"items": look["rows"], "next_cursor": encode_cursor((found.place, found.matched))}


@router.post("/topics/{topic}/messages", response={201: SentMessage})
def send_message(request: HttpRequest, topic: str, body: MessageIn, idempotency_key: IdempotencyKey) -> HttpResponse:
    """Send a test message exactly like a client's; the answer comes once consumers can read it."""
    if body.half_of:
        auth.require_groups(request, body.half_of)
    send = lambda: runtime.window().sender.send(  # noqa: E731
        topic, body.body.content(), tags=body.tags, keys=body.keys, properties=body.properties, queue_id=body.queue_id,
        delay_level=body.delay_level, deliver_at_ms=body.deliver_at_ms, half_of=body.half_of,
        sharding_key=body.sharding_key, by=by(request),
    )  # fmt: skip
    noted = lambda sent: {"offset_id": sent.offset_id, "queue_id": sent.queue_id}  # noqa: E731
    return once(request, idempotency_key, 201, lambda: audited(request, "message.send", topic, send, noted))


@router.get("/search", response=SearchOut)
def search(request: HttpRequest, asked: Query[SearchQuestion], body_chars: BodyChars = None) -> Any:
    """Find messages by id, key or place in all topics you may access, without bodies unless `body_chars` is given; and
    topics and groups by name. A message is one item, the newest first, and says what became of it. A page ends after
    250 ms, 500 records or 64 MiB."""
    if asked.topic is not None:
        auth.require_topics(request, asked.topic)
    if body_chars is not None:
        auth.require_bodies(request, "Bodies in a list need the right to read message bodies.")
    names = auth.names(request)
    window = runtime.window()
    found = window.search.page(**dict(asked), may_see=names.has_topic, body_chars=body_chars or 0)
    if body_chars is not None:
        audit_bodies(request, found)
    text = asked.text.strip()
    topics: list[str] = []
    groups: list[str] = []
    if asked.cursor is None and 0 < len(text) <= _LONGEST_NAME:
        size = 500 if auth.has_pattern(request) else _NAMES
        named: Any = window.topics.page(q=text, show="all", page_size=size)
        topics = [row.name for row in named.rows if names.has_topic(row.name)]
        named = window.groups.page(q=text, system=True, page_size=size)
        groups = [row.name for row in named.rows if names.has_group(row.name)]
    named = {"topic_names": topics[:_NAMES], "group_names": groups[:_NAMES]}
    return fields_of(found) | {"items": found.hits} | named


@router.post("/messages/{path:ref}/deliveries", response=DirectConsumption)
def run_on_client(request: HttpRequest, ref: str, body: DeliveryIn, dry_run: DryRun) -> Any:
    """Run the message on a client: the listener of one connected consumer of the group is called once with it, now. No
    offset moves, and nothing is sent back when it fails. 503 does not say that it was not consumed."""
    place = _reach(request, ref)
    auth.require_groups(request, body.group)
    row = runtime.window().messages.detail(ref, story=False)
    client = body.client_id or _first_member(body.group)
    if dry_run:
        if not any(body.group in one.consumer_groups for one in runtime.window().clients.named(client)):
            raise NotFound("client", client)
        return DirectConsumption(
            delivered=False, group=body.group, client_id=client, offset_id=row.offset_id, result="", in_order=None,
            auto_commit=None, remark="", spent_ms=None, took_ms=0,
        )  # fmt: skip
    run = lambda: runtime.window().asking.consume_directly(body.group, client, row.offset_id, by=by(request))  # noqa: E731
    noted = lambda done: {  # noqa: E731
        "group": body.group, "client_id": client, "result": done.result, "remark": done.remark[:200],
    }  # fmt: skip
    return audited(request, "message.run", place, run, noted)


def _first_member(group: str) -> str:
    rows: tuple[Any, ...] = runtime.window().clients.page(role="consumer", group=group, page_size=1).rows
    if not rows:
        raise NotFound("client", f"a member of {group}")
    return str(rows[0].client_id)


@router.get("/messages/{path:ref}/body", response=BodyOut)
def message_body(request: HttpRequest, ref: str, max_bytes: int = Query(65_536, ge=1, le=1 << 20)) -> Any:
    """Its body, decompressed. Needs the right to read bodies, and for more than 65,536 bytes the right to export. Each
    read is in the audit log."""
    place = _reach(request, ref)
    if max_bytes > _SHOWN_BYTES:
        auth.require_export(request)
    view = runtime.window().messages.body(ref, max_bytes, None if request.user.may_export else _SHOWN_BYTES)
    audit(request, "message.read", place)
    return view


@router.get("/messages/{path:ref}/record", response=RecordOut)
def message_record(request: HttpRequest, ref: str, dump_bytes: int = Query(4096, ge=0, le=65_536)) -> Any:
    """The record as stored, body included: needs the right to read bodies, and is in the audit log."""
    place = _reach(request, ref)
    record = runtime.window().messages.raw(ref, dump_bytes)
    audit(request, "message.read_raw", place)
    return record


@router.get("/messages/{path:ref}", response=MessageDetail)
def message(request: HttpRequest, ref: str) -> Any:
    """A message without its body. ref: its offset id, its unique id, or topic/queue/offset. Groups and copies that the
    caller may not access are left out."""
    _reach(request, ref)
    detail = runtime.window().messages.detail(ref)
    return replace(
        detail,
        story=tuple(line for line in detail.story if all(auth.may_access(request, name) for name in line.names)),
        groups=tuple(auth.accessible(request, detail.groups, "group")),
    )


def _reach(request: HttpRequest, ref: str) -> str:
    """The message's place, for the audit log; an offset id says no topic. Refuses what is beyond a token's pattern."""
    row = runtime.window().messages.detail(ref, story=False)
    auth.require_topics(request, row.topic)
    return f"{row.topic}/{row.queue_id}/{row.queue_offset}"
