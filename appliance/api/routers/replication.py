"""Replication: who follows this broker, or whom it follows; the set that it is a member of, and who leads that."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from ... import runtime
from ...console.jobs import quarantine_send as sending
from ...engine.errors import Unavailable
from .. import auth
from ..changes import DryRun, by, make_change
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut
from ..replication_schemas import AdoptIn, QuarantinePageOut, ReplicationOut, SetOut, SwitchIn
from ..schemas import ChangeOut

router = Router(tags=["replication"])


@router.get("/replication", response=ReplicationOut)
def replication(request: HttpRequest) -> Any:
    """The slaves of a master with their lag, or the master of a slave; who was turned away."""
    return runtime.window().replication()


@router.get("/replication/set", response=SetOut)
def replication_set(request: HttpRequest) -> Any:
    """The set with fail-over that this broker is a member of, as it sees it. 503 without one."""
    auth.require_all_names(request)
    view = runtime.window().replica_set()
    if view is None:
        raise Unavailable("This broker is in no set with fail-over: haStore is not set.")
    return view


@router.post("/replication/set/switch", response=ChangeOut)
def switch_leader(request: HttpRequest, response: HttpResponse, body: SwitchIn, dry_run: DryRun) -> Any:
    """Have another member lead; nothing acknowledged is lost. On the leader only. Returns when the other one leads."""
    auth.require_all_names(request)
    auth.require_recent_login(request)
    return make_change(
        request, response, "set.switch", body.to,
        lambda: runtime.window().switch_leader(body.to, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.post("/replication/set/adoption", response=ChangeOut)
def adopt_set(request: HttpRequest, response: HttpResponse, body: AdoptIn, dry_run: DryRun) -> Any:
    """Have this member lead with the log it has: what others acknowledged and it does not hold is lost. `warnings` say
    how much that may be."""
    auth.require_all_names(request)
    auth.require_recent_login(request)
    return make_change(
        request, response, "set.adopt", body.confirm,
        lambda: runtime.window().adopt_set(body.uuid, body.confirm, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


Name = Path(..., max_length=128, description="Of a file in `quarantine` of GET /replication/set.")


@router.get("/replication/quarantine/{name}", response=QuarantinePageOut)
def quarantine(
    request: HttpRequest,
    name: str = Name,
    offset: int | None = Query(None, ge=0, description="Where the page begins: `next_offset` of the one before."),
    limit: int = Query(50, ge=1, le=500),
) -> Any:
    """Messages that were cut from this broker's log, in its order, without bodies."""
    auth.require_all_names(request)
    return runtime.window().quarantined(name, offset=offset, limit=limit)


@router.post("/replication/quarantine/{name}/sends", response={202: JobOut})
def send_quarantined(request: HttpRequest, idempotency_key: IdempotencyKey, name: str = Name) -> HttpResponse:
    """Send all of a file again, to whoever leads now, as a job; what the leader has already is left out."""
    auth.require_all_names(request)
    return accepted(request, idempotency_key, lambda: sending.start(request, name))
