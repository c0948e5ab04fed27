"""The set of brokers with fail-over: its leader, the members that may lead, and switches to another leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from ... import runtime
from ...engine.errors import NotFound
from ...engine.window.replicas.snapshots import SetView
from ...engine.window.snapshots import Change
from .. import auth
from ..changes import DryRun, by, make_change
from ..set_schemas import AdoptIn, SwitchIn

router = Router(tags=["replication"])


@router.get("/replication/set", response=SetView)
def replica_set(request: HttpRequest) -> Any:
    """The set as this member sees it; topics only for callers that may see all of them. 404 where fail-over is off."""
    view = runtime.window().replica_set()
    if view is None:
        raise NotFound("set", "with fail-over here: haStore is not set")
    if not auth.names(request).is_every:
        view = replace(view, quarantine=tuple(replace(one, topics=()) for one in view.quarantine))
    return view


@router.post("/replication/set/switch", response=Change)
def switch_leader(request: HttpRequest, response: HttpResponse, body: SwitchIn, dry_run: DryRun) -> Any:
    """Have another member lead; on the leader. Nothing acknowledged is lost, and sends that still come here are passed
    on for `haRelayTime`. 409 when this member does not lead, or no other is in sync."""
    to = body.to or ""
    return make_change(
        request, response, "set.switch", to or "-",
        lambda: runtime.window().member.switch(to, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.post("/replication/set/adopt", response=Change)
def adopt_set(request: HttpRequest, response: HttpResponse, body: AdoptIn, dry_run: DryRun) -> Any:
    """Have a member lead although its log may lack acknowledged messages; on that member. `warnings` say how much may
    be lost. 409 while another one leads, 422 without the set's name in `confirm`."""
    return make_change(
        request, response, "set.adopt", body.uuid,
        lambda: runtime.window().member.adopt(body.uuid, body.confirm, dry_run=dry_run, by=by(request)),
    )  # fmt: skip
