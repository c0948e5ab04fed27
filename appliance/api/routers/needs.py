"""Problems that need a person, and muted ones."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from ...console.health import needs
from ...console.health.needs import Mute
from .. import auth
from ..schemas import MuteIn, NeedKeyOut

router = Router(tags=["needs"])


def _may_see(request: HttpRequest, kind: str, name: str) -> bool:
    return kind in ("system", "groups") or not name or bool(auth.may_access(request, name))


def _require_own(request: HttpRequest, kind: str, name: str) -> None:
    """A mute is for all users: one who is kept to some names mutes what is about one of them."""
    if kind in ("system", "groups") or not name:
        auth.require_all_names(request)
    else:
        auth.require_access(request, name)


@router.get("/needs", response=list[NeedKeyOut])
def list_needs(request: HttpRequest) -> Any:
    """Problems that need attention now, the worst first. muted: the overview does not show it."""
    muted = {one.key for one in needs.active()}
    shown = []
    for need in needs.everything():
        if _may_see(request, need.kind, need.name):
            key = needs.key_of(need)
            about = {"level": need.level, "kind": need.kind, "name": need.name, "sentence": need.sentence}
            shown.append(about | {"key": key, "muted": key in muted})
    return shown


@router.get("/needs/mutes", response=list[Mute])
def list_mutes(request: HttpRequest) -> Any:
    """Muted needs: who muted each, why, and until when."""
    return [one for one in needs.active() if _may_see(request, *one.key.split(":", 2)[1:])]


@router.post("/needs/mutes", response={201: Mute})
def mute_need(request: HttpRequest, body: Annotated[MuteIn, Body(...)]) -> Any:
    """Hide a need until a time. key: as in GET /needs. Muting it again replaces the mute."""
    need = needs.find(needs.everything(), body.key)
    _require_own(request, need.kind, need.name)
    return Status(201, needs.mute(request, need, body.reason, body.until_ms))


@router.delete("/needs/mutes/{int:mute_id}", response=Mute)
def unmute_need(request: HttpRequest, mute_id: int) -> Any:
    """Show a muted need again."""
    for one in needs.active():
        if one.id == mute_id:
            _require_own(request, *one.key.split(":", 2)[1:])
    return needs.unmute(request, mute_id)
