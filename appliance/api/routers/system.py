"""The system: the running server, its health and settings, and its figures over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Body, Query, Router

from ... import runtime
from ...console.audit.log import health_check
from ...console.history import series as history
from ...console.models import now_ms
from ...console.users.user_acts import require_not_more
from ...engine.errors import InvalidInput
from ...engine.figures import KEPT
from ...engine.window.process.system_snapshots import Configuration, Retention, SystemInfo
from ...engine.window.snapshots import Change, Overview, fields_of
from .. import auth
from ..changes import DryRun, IfMatch, audited, by, expected_revision, make_change, set_etag
from ..paging import From, To
from ..schemas import Asked, ChecksOut, CleanedOut, ConfigurationIn, LogOut, MetricOut, SeriesOut, Text, worst_of

router = Router(tags=["system"])

#: Figures of which the engine itself keeps the last ten minutes.
LIVE = ("in", "out", "in_bytes", "out_bytes")


@router.get("/system", response=SystemInfo)
def system(request: HttpRequest) -> Any:
    """Version, addresses, directories, disk and process."""
    return runtime.window().system()


@router.get("/system/checks", response=ChecksOut)
def system_checks(request: HttpRequest) -> Any:
    """Every health check, of the engine and of the audit log, as a sentence with a level."""
    checks: list[Any] = [*runtime.window().checks(), health_check()]
    return {"worst": worst_of(checks), "items": checks}


@router.get("/system/log", response=LogOut)
def system_log(
    request: HttpRequest,
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO",
    q: Text = Query("", max_length=255, description="Part of the text, or of the logger's name."),
    after: int = Query(0, ge=0, description="Only lines with a larger number."),
    limit: int = Query(200, ge=1, le=2000),
) -> Any:
    """The newest lines of this process's log, the oldest of them first. The whole log is what the process prints."""
    return {"items": runtime.window().log.lines(level, q, after, limit)}


@router.get("/system/config", response=Configuration)
def system_config(request: HttpRequest, response: HttpResponse) -> Any:
    """Every option in force, by its RocketMQ name; `hot` ones may be changed. The ETag is the revision."""
    configuration = runtime.window().options.listing()
    set_etag(response, configuration.revision)
    return configuration


@router.patch("/system/config", response=Change)
def change_system_config(
    request: HttpRequest,
    response: HttpResponse,
    values: Annotated[ConfigurationIn, Body(...)],
    if_match: IfMatch,
    dry_run: DryRun,
) -> Any:
    """Change hot options: {"autoCreateTopicEnable": false}; null returns to the configured value. All or none."""
    if "accessControl" in values:  # without it every client may read every message
        require_not_more(request.user, {"may_read_bodies": True})
        if not dry_run:
            auth.require_recent_login(request)
    revision = expected_revision(if_match)
    return make_change(
        request, response, "config.change", ", ".join(values),
        lambda: runtime.window().option_commands.change(values, revision=revision, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.get("/system/retention", response=Retention)
def system_retention(request: HttpRequest) -> Any:
    """Retention: times and limits in force, and the last deletion."""
    found = runtime.window().retention.snapshot()
    may_see = auth.names(request).has_topic
    return replace(found, topic_hours={name: hours for name, hours in found.topic_hours.items() if may_see(name)})


@router.post("/system/retention/clean", response=CleanedOut)
def clean(request: HttpRequest, what: Literal["log", "queues", "topics"]) -> Any:
    """Delete expired data now: log files, queue files that point before the log's start, queues without a topic."""
    act = lambda: runtime.window().retention.clean(what, by=by(request))  # noqa: E731
    topics = audited(request, "system.clean", what, act, lambda found: {"topics": len(found)})
    return {"what": what, "topics": topics}


@router.get("/broker", response=Overview)
def broker(request: HttpRequest) -> Any:
    """Rates, totals, disk, what needs attention, and the groups furthest behind."""
    overview = runtime.window().overview.snapshot()
    behind = auth.accessible(request, overview.behind, "group")
    needs = [one for one in overview.needs if one.kind == "system" or auth.may_access(request, one.name)]
    return replace(overview, behind=tuple(behind), needs=tuple(needs))


@router.get("/metrics", response=list[MetricOut])
def list_metrics(request: HttpRequest) -> Any:
    """The figures of which a history is kept: every 30 seconds for 7 days, every 15 minutes for 13 months."""
    return list(KEPT.values())


class SeriesQuestion(Asked):
    """Selects a figure's values."""

    from_ms: From
    to_ms: To
    metric: str = Query(
        ...,
        max_length=64,
        description="One of GET /metrics; or in, out, in_bytes, out_bytes: each second of the last ten minutes.",
    )
    step: int | None = Query(None, ge=30, le=2_592_000, description="Seconds a step; a multiple of 30.")
    points: int = Query(300, ge=1, le=history.MOST_POINTS, description="Without step: at most so many steps.")
    seconds: int = Query(3600, ge=1, le=3600, description="How far back, when from is not given.")
    topic: str | None = Query(None, max_length=1024, description="Of this topic.")
    group: str | None = Query(None, max_length=1024, description="Of this group.")


@router.get("/metrics/series", response=SeriesOut)
def metrics_series(request: HttpRequest, asked: Query[SeriesQuestion]) -> Any:
    """A figure over any span: of the broker, a topic, or a group. GET /metrics lists the figures."""
    metric, topic, group = asked.metric, asked.topic, asked.group
    if topic is not None:
        auth.require_topics(request, topic)
    if group is not None:
        auth.require_groups(request, group)
    if metric in LIVE:
        return runtime.window().charts.series(metric, asked.seconds, topic, group)
    kind = history.kind_of(metric)
    if (topic is not None and kind != "topic") or (group is not None and kind != "group"):
        raise InvalidInput("metric", f"{metric} is a figure of a {kind}.")
    if topic is not None:
        runtime.window().topics.settings(topic)
    elif group is not None:
        runtime.window().groups.detail(group)
    to = now_ms() if asked.to_ms is None else asked.to_ms
    since = to - asked.seconds * 1000 if asked.from_ms is None else asked.from_ms
    step_ms = None if asked.step is None else asked.step * 1000
    found = history.series(metric, topic or group or "", since, to, points=asked.points, step_ms=step_ms)
    return fields_of(found) | {"values": found.averages}
