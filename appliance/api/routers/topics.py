"""Topics: the list, one topic's configuration, queues, route, consumers and producers."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from ... import runtime
from ...engine.window.snapshots import Change, Route, TopicRow, TopicSettings
from .. import auth
from ..changes import DryRun, Force, IfMatch, by, created, expected_revision, make_change, set_etag
from ..paging import Cursor, Limit, table
from ..topic_schemas import (
    ProducerList,
    PurgeIn,
    QueueList,
    SchemaIn,
    SchemaOut,
    TopicFilter,
    TopicGroupList,
    TopicIn,
    TopicPage,
    TopicPatch,
)

router = Router(tags=["topics"])

Sort = Literal[
    "name", "kind", "queues", "messages", "in_rate", "out_rate", "consumers", "bytes", "oldest",
    "-name", "-kind", "-queues", "-messages", "-in_rate", "-out_rate", "-consumers", "-bytes", "-oldest",
]  # fmt: skip


@router.get("/topics", response=TopicPage)
def list_topics(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    wanted: Query[TopicFilter],
    sort: Sort = Query("name", description="Sort by this; put `-` before it for the largest first."),
) -> Any:
    """Topics with rates, bytes and oldest message."""
    q, kind = wanted.q, wanted.kind
    show = wanted.category or ("all" if wanted.system else "user")
    page = lambda number, size: runtime.window().topics.page(q, kind, show, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("topics", q, kind, show, sort), "name", "topic")


@router.post("/topics", response={200: Change, 201: Change})
def create_topic(request: HttpRequest, response: HttpResponse, body: TopicIn, dry_run: DryRun, force: Force) -> Any:
    """Create a topic: it is on disk, and the name servers in `registered` know it. 409 when it exists, or with blockers
    when it has queues that producers would use and no consumer could read."""
    auth.require_topics(request, body.name)
    return created(request, response, make_change(
        request, response, "topic.create", body.name,
        lambda: runtime.window().topic_commands.create(
            **body.model_dump(), force=force, dry_run=dry_run, by=by(request)
        ),
    ))  # fmt: skip


@router.get("/topics/{topic}", response=TopicSettings)
def topic_settings(request: HttpRequest, response: HttpResponse, topic: str) -> Any:
    """A topic's configuration; the ETag is its revision."""
    settings = runtime.window().topics.settings(topic)
    set_etag(response, settings.revision)
    return settings


@router.patch("/topics/{topic}", response=Change)
def edit_topic(
    request: HttpRequest,
    response: HttpResponse,
    topic: str,
    body: TopicPatch,
    if_match: IfMatch,
    dry_run: DryRun,
    force: Force,
) -> Any:
    """Change the settings given and leave the others. 409 with blockers when messages would become unreadable."""
    change = body.model_dump(exclude_unset=True) | {"revision": expected_revision(if_match)}
    return make_change(
        request, response, "topic.edit", topic,
        lambda: runtime.window().topic_commands.edit(topic, **change, force=force, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.delete("/topics/{topic}", response=Change)
def delete_topic(
    request: HttpRequest, response: HttpResponse, topic: str, if_match: IfMatch, dry_run: DryRun, force: Force
) -> Any:
    """Delete a topic and every group's offsets of it. 409 with blockers while it is in use."""
    revision = expected_revision(if_match)
    return make_change(
        request, response, "topic.delete", topic,
        lambda: runtime.window().topic_commands.delete(
            topic, revision=revision, force=force, dry_run=dry_run, by=by(request)
        ),
    )  # fmt: skip


@router.post("/topics/{topic}/purge", response=Change)
def purge_topic(
    request: HttpRequest,
    response: HttpResponse,
    topic: str,
    if_match: IfMatch,
    dry_run: DryRun,
    force: Force,
    body: PurgeIn | None = None,
) -> Any:
    """Show a topic's messages no longer: all so far, or those stored before a time. The queues begin behind them, over
    restarts and at all members of a set; their records stay on disk until the log's files expire. If-Match: the ETag of
    a dry run, whose time then counts, so that later messages stay; 412 when others would go by now. 409 with blockers
    while groups have not read all of them."""
    revision = expected_revision(if_match)
    return make_change(
        request, response, "topic.purge", topic,
        lambda: runtime.window().topic_purges.purge(
            topic, before_ms=None if body is None else body.before_ms, revision=revision, force=force, dry_run=dry_run,
            by=by(request),
        ),
    )  # fmt: skip


@router.get("/topics/{topic}/schema", response=SchemaOut, by_alias=True)
def topic_schema(request: HttpRequest, topic: str) -> Any:
    """The schema by which the topic's bodies are shown. 404 without one."""
    return runtime.window().schemas.described(topic)


@router.put("/topics/{topic}/schema", response=Change)
def set_topic_schema(request: HttpRequest, response: HttpResponse, topic: str, body: SchemaIn, dry_run: DryRun) -> Any:
    """Show the topic's bodies by this schema, which takes the place of the one before. It checks no message, and no
    client sees it. Slaves and followers take it over."""
    return make_change(
        request, response, "topic.schema", topic,
        lambda: runtime.window().schema_commands.put(
            topic, kind=body.kind, data=body.schema_bytes(), message=body.message, dry_run=dry_run, by=by(request)
        ),
    )  # fmt: skip


@router.delete("/topics/{topic}/schema", response=Change)
def remove_topic_schema(request: HttpRequest, response: HttpResponse, topic: str, dry_run: DryRun) -> Any:
    """Show the topic's bodies without a schema. 404 if it has none."""
    return make_change(
        request, response, "topic.schema", topic,
        lambda: runtime.window().schema_commands.remove(topic, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.get("/topics/{topic}/stats", response=TopicRow)
def topic_stats(request: HttpRequest, topic: str) -> Any:
    """Rates, bytes, messages and oldest message of one topic, as in the list."""
    return runtime.window().topics.detail(topic).row


@router.get("/topics/{topic}/queues", response=QueueList)
def topic_queues(request: HttpRequest, topic: str) -> Any:
    """Offsets, bytes and times of each queue."""
    return {"items": runtime.window().topics.queue_rows(topic)}


@router.get("/topics/{topic}/route", response=Route)
def topic_route(request: HttpRequest, topic: str) -> Any:
    """The route that our name server gives to clients."""
    return runtime.window().route(topic)


@router.get("/topics/{topic}/groups", response=TopicGroupList)
def topic_groups(request: HttpRequest, topic: str) -> Any:
    """Groups that consume the topic, and how far behind they are."""
    return {"items": auth.accessible(request, runtime.window().topics.consumer_rows(topic), "group")}


@router.get("/topics/{topic}/producers", response=ProducerList)
def topic_producers(request: HttpRequest, topic: str) -> Any:
    """Senders of the topic's most recent messages."""
    detail = runtime.window().topics.detail(topic)
    return {"items": detail.producers, "why": detail.producers_why}
