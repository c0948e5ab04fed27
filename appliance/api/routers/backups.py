"""Backups that the console makes: their list, new ones, the schedule, checks and files."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Router
from pydantic import Field

from ...console import jobs
from ...console.audit.log import audit
from ...console.backups import settings as backups
from ...console.jobs.views import stream
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut
from ..schemas import In, Out

router = Router(tags=["system"])


class ScheduleOut(Out):
    """every_hours: 0 for no schedule. keep: number of backups that stay; the oldest are deleted after each new one."""

    every_hours: int
    keep: int


class BackupList(Out):
    """Newest first. next_at_ms: time of the next scheduled one, null without a schedule."""

    items: list[backups.Backup]
    schedule: ScheduleOut
    next_at_ms: int | None


class ScheduleIn(In):
    """every_hours: 0 for no schedule."""

    every_hours: Annotated[int, Field(ge=0, le=backups.MOST_HOURS)]
    keep: Annotated[int, Field(ge=1, le=backups.MOST_KEPT)]


Name = Path(..., max_length=64, description="Of a backup in the list.")


@router.get("/system/backups", response=BackupList)
def list_backups(request: HttpRequest) -> Any:
    """The backups in the data directory, newest first."""
    schedule = backups.schedule()
    return {"items": backups.listing(), "schedule": schedule, "next_at_ms": backups.next_at_ms(schedule)}


@router.post("/system/backups", response={202: JobOut})
def make_backup(request: HttpRequest, idempotency_key: IdempotencyKey) -> HttpResponse:
    """Make a backup now, as a job: the whole data directory at one end of the log. 409 while another is made."""
    return accepted(request, idempotency_key, lambda: jobs.start(request, backups.KIND, {}))


@router.put("/system/backups/schedule", response=ScheduleOut)
def schedule_backups(request: HttpRequest, body: ScheduleIn) -> Any:
    """The schedule: how often a backup is made, and how many are kept."""
    was = backups.schedule()
    wanted = backups.Schedule(body.every_hours, body.keep)
    backups.save_schedule(wanted)
    audit(request, "backup.schedule", "", {"every_hours": was.every_hours, "keep": was.keep}, body.model_dump())
    return wanted


@router.post("/system/backups/{name}/checks", response={202: JobOut})
def check_backup(request: HttpRequest, idempotency_key: IdempotencyKey, name: str = Name) -> HttpResponse:
    """Compare every file of a backup with its manifest, as a job."""
    backups.path_of(name)
    return accepted(
        request, idempotency_key, lambda: jobs.start(request, backups.CHECK_KIND, {"backup": name}, target=name)
    )


@router.get("/system/backups/{name}/file")
def backup_file(request: HttpRequest, name: str = Name) -> Any:
    """The backup itself, a tar file. It holds message bodies, hashes of passwords, and keys."""
    path = backups.path_of(name)
    return stream(request, path, name, path.stat().st_size, "backup.download")
