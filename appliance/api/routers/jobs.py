"""Jobs: long acts that other operations start; here they are watched and cancelled, and their files fetched."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Router

from ...console import jobs
from ...console.jobs import audit_check
from ...console.jobs.views import file_answer
from ...engine.errors import NotFound
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut, JobPage, State
from ..paging import Cursor, Limit, page_number, rows_page
from ..schemas import MEDIA_TYPE

router = Router(tags=["jobs"])


@router.get("/jobs", response=JobPage)
def list_jobs(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    kind: str = Query("", max_length=64, description="Only this kind, for example audit-check."),
    state: State | None = Query(None, description="Only those in this state."),
) -> Any:
    """Jobs that you may see, newest first."""
    question = ("jobs", kind, state, limit)
    return rows_page(jobs.seen(request.user, kind, state or ""), page_number(cursor, question), limit, question)


@router.get("/jobs/{job}", response=JobOut)
def job(request: HttpRequest, job: str) -> Any:
    """One job as it is now."""
    return jobs.find(request.user, job)


@router.post("/jobs/{job}/cancel", response=JobOut)
def cancel_job(request: HttpRequest, job: str) -> Any:
    """Cancel a job at its next step. The files that it has written are removed. 409 when it has ended already."""
    found = jobs.find(request.user, job)
    if not found.ended and not jobs.may_cancel(request.user, found):
        raise NotFound("job", job)
    return jobs.cancel(request, job)


@router.get("/jobs/{job}/files/{name}", response={200: bytes}, openapi_extra={MEDIA_TYPE: "application/octet-stream"})
def job_file(request: HttpRequest, job: str, name: str) -> HttpResponseBase:
    """A file of a job that is done, as bytes."""
    return file_answer(request, jobs.find(request.user, job), name)


@router.post("/audit/checks", response={202: JobOut})
def check_audit(request: HttpRequest, idempotency_key: IdempotencyKey) -> Any:
    """Have every entry of the audit log compared with its digest, as a job. 202 with its place."""
    return accepted(request, idempotency_key, lambda: jobs.start(request, audit_check.NAME, {}))
