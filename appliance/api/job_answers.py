"""The answer of an operation that starts a job: 202, the job, and its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Header

from ..console.jobs import Job
from . import forms
from .idempotency import once
from .job_schemas import JobOut

IdempotencyKey = Annotated[
    str | None,
    Header(
        None, alias="Idempotency-Key", min_length=1, max_length=200, pattern=forms.VISIBLE,
        description="When you repeat it within 24 hours, you get the first answer again and no second job starts.",
    ),
]  # fmt: skip


def accepted(request: HttpRequest, key: str | None, start: Callable[[], Job]) -> HttpResponse:
    """Start it, once for each key."""
    act = lambda: JobOut.model_validate(start())  # noqa: E731
    return once(request, key, 202, act, place=lambda job: f"/api/v1/jobs/{job.id}")
