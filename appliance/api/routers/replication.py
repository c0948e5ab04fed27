"""Replication: the slaves of this broker, or its master; messages that were cut from its log."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from ... import runtime
from ...console.jobs import quarantine_send as sending
from ...engine.window.replicas.snapshots import Replication
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut
from ..replication_schemas import QuarantinePageOut

router = Router(tags=["replication"])


@router.get("/replication", response=Replication)
def replication(request: HttpRequest) -> Any:
    """The slaves of a master with their lag, or the master of a slave; who was turned away."""
    return runtime.window().replication.snapshot()


Name = Path(..., max_length=128, description="Of a file in `quarantine` of GET /replication/set.")


@router.get("/replication/quarantine/{name}", response=QuarantinePageOut)
def quarantine(
    request: HttpRequest,
    name: str = Name,
    offset: int | None = Query(None, ge=0, description="Where the page begins: `next_offset` of the one before."),
    limit: int = Query(50, ge=1, le=500),
) -> Any:
    """Messages that were cut from this broker's log, in its order, without bodies."""
    return runtime.window().quarantine.page(name, offset=offset, limit=limit)


@router.post("/replication/quarantine/{name}/sends", response={202: JobOut})
def send_quarantined(request: HttpRequest, idempotency_key: IdempotencyKey, name: str = Name) -> HttpResponse:
    """Send all of a file again, to whoever leads now, as a job; what the leader has already is left out."""
    return accepted(request, idempotency_key, lambda: sending.start(request, name))
