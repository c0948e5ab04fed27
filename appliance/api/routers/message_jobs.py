"""Many messages at once, as jobs: exports, searches, imports."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from ... import runtime
from ...console import jobs
from ...console.jobs import message_copy as copies
from ...console.jobs import message_export as exports
from ...console.jobs import message_import as imports
from ...engine.errors import InvalidInput
from .. import auth
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut
from ..message_job_schemas import CopyIn, ExportIn

router = Router(tags=["messages"])


@router.post("/topics/{topic}/exports", response={202: JobOut})
def export_messages(request: HttpRequest, topic: str, body: ExportIn, idempotency_key: IdempotencyKey) -> HttpResponse:
    """Write the messages that a filter finds to a file, as a job. 202 with its place; the file is one of the job's.

    Without `bodies` the file lists them only. With them it needs the rights to read bodies and to export."""
    parameters = {
        "topic": topic, "queue_id": body.queue_id, "from_ms": body.from_ms, "to_ms": body.to_ms,
        "filter": body.filter or None, "format": body.format,
    }  # fmt: skip
    window = runtime.window()
    reads_bodies = window.messages.filter_reads_bodies(body.filter)
    if body.bodies or reads_bodies:
        auth.require_bodies(request)
    if body.bodies:
        auth.require_export(request)
    # Errors in the request are returned now, not by the job.
    window.messages.page(topic, queue_id=body.queue_id, from_ms=body.from_ms, to_ms=body.to_ms, limit=1)
    kind = exports.EXPORT if body.bodies else exports.BODY_SEARCH if reads_bodies else exports.SEARCH
    return accepted(
        request, idempotency_key, lambda: jobs.start(request, kind, parameters, target=topic, names=(topic,))
    )


@router.post(
    "/topics/{topic}/imports",
    response={202: JobOut},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def import_messages(
    request: HttpRequest,
    topic: str,
    idempotency_key: IdempotencyKey,
    dry_run: bool = Query(False, description="Only look at each line, and say which are wrong."),
    rate: int = Query(imports.DEFAULT_RATE, ge=1, le=imports.MAX_RATE, description="Messages a second."),
) -> HttpResponse:
    """Send the messages of an NDJSON file to a topic, as a job: at most 32 MiB, a line a message, as exports write it.

    Copies get ids and times of their own. read = sent + failed + skipped; the job's file says which lines failed and
    why. After a restart it goes on and sends nothing twice."""
    runtime.window().imports.send(topic, (), dry_run=True)
    data = request.body
    if not data.strip():
        raise InvalidInput("body", "The file is empty.")
    kind = imports.CHECK if dry_run else imports.NAME
    parameters = {"topic": topic} | ({} if dry_run else {"rate": rate})
    return accepted(
        request,
        idempotency_key,
        lambda: jobs.start(request, kind, parameters, target=topic, names=(topic,), given=data),
    )


@router.post("/topics/{topic}/copies", response={202: JobOut})
def copy_messages(
    request: HttpRequest,
    topic: str,
    body: CopyIn,
    idempotency_key: IdempotencyKey,
    dry_run: bool = Query(False, description="Only count the messages, and those that the target would refuse."),
) -> HttpResponse:
    """Copy the messages that a filter finds to another topic, as a job; the originals stay, and can be purged then.

    Copies get ids and times of their own. After a restart the job goes on and sends nothing twice. A filter on bodies
    needs the right to read them."""
    auth.require_topics(request, body.to)
    if runtime.window().messages.filter_reads_bodies(body.filter):
        auth.require_bodies(request)
    parameters = copies.parameters_of(
        runtime.window(), topic, body.to, body.queue_id, body.from_ms, body.to_ms, body.filter or None
    )
    kind = copies.CHECK if dry_run else copies.NAME
    given = parameters if dry_run else parameters | {"rate": body.rate}
    return accepted(
        request, idempotency_key, lambda: jobs.start(request, kind, given, target=topic, names=(topic, body.to))
    )
