"""Replication: the slaves or the master of this broker, and the replica set that it is a member of."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import Blocked, Conflict, InvalidInput, NotFound, Unavailable
from ...engine.host_port import bracketed, host_of
from .. import jobs
from ..audit.log import audit
from ..jobs import quarantine_send as sending
from ..pages.changes import before_and_after, failure_audited, is_final
from ..pages.engine_pages import PAGE_SIZE, refusal_text

if TYPE_CHECKING:
    from ...engine.window.replicas.snapshots import SetView

#: The checks that this page repeats.
_CHECKS = ("replication", "leader_store", "copies")
_LEVELS = ("failed", "warning", "ok")


def replication(request: HttpRequest) -> HttpResponse:
    """Show the slaves of a master, or the master of a slave; and the members of a set."""
    return render(request, "replication/page.html", _context(request))


def replication_now(request: HttpRequest) -> HttpResponse:
    """Return the changing part of the page, which the page reloads every few seconds."""
    return render(request, "replication/_now.html", _context(request) | {"again": True})


def set_switch(request: HttpRequest) -> HttpResponse:
    """Make another member the leader: show what would happen, then do it."""
    _set_here()
    values = request.POST if request.method == "POST" else request.GET
    to = values.get("to", "")
    final = request.method == "POST" and is_final(request)
    try:
        with failure_audited(request, "set.switch", to):
            change = runtime.window().member.switch(to, dry_run=not final, by=request.user.label)
    except (Conflict, Blocked, NotFound) as error:
        if final:
            audit(request, "set.switch", to, None, {"reason": str(error)}, "refused")
        messages.warning(request, refusal_text(error))
        return redirect("replication")
    if final:
        audit(request, "set.switch", change.name, *before_and_after(change))
        messages.success(request, _("Another broker of the set leads now."))
        return redirect("replication")
    context = {"change": change, "to": to, "heading": _("Have another broker lead?"), "apply": _("Have it lead")}
    return render(request, "replication/switch.html", context)


def set_adopt(request: HttpRequest) -> HttpResponse:
    """Make this member the leader with the log it has, once the set's name was typed."""
    admin = runtime.window()
    view = _set_here()
    context: dict[str, Any] = {"name": view.set, "heading": _("Adopt the set %(name)s?") % {"name": view.set}}
    try:
        context["change"] = admin.member.adopt(view.uuid, view.set, dry_run=True, by=request.user.label)
        if request.method != "POST":
            return render(request, "replication/adopt.html", context)
        context["typed"] = request.POST.get("name", "")
        if context["typed"] != view.set:
            context["error"] = _("This is not the set's name.")
            return render(request, "replication/adopt.html", context, status=422)
        with failure_audited(request, "set.adopt", view.set):
            done = admin.member.adopt(view.uuid, context["typed"], by=request.user.label)
    except InvalidInput as error:
        context |= {"error": refusal_text(error)}
        return render(request, "replication/adopt.html", context, status=422)
    except (Conflict, Blocked, NotFound) as error:
        if request.method == "POST":
            audit(request, "set.adopt", view.set, None, {"reason": str(error)}, "refused")
        messages.warning(request, refusal_text(error))
        return redirect("replication")
    before, after = before_and_after(done)
    audit(request, "set.adopt", done.name, before, after | {"warnings": [str(one) for one in done.warnings]})
    messages.success(request, _("This broker leads the set now."))
    return redirect("replication")


def quarantine(request: HttpRequest, name: str) -> HttpResponse:
    """Show the messages in one file of those cut from this log, page by page, without bodies."""
    text = request.GET.get("offset", "")
    offset = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    page = runtime.window().quarantine.page(name, offset=offset, limit=PAGE_SIZE)
    running = [job for job in jobs.seen(request.user, sending.NAME) if job.target == name][:5]
    return render(request, "replication/quarantine.html", {"page": page, "name": name, "sent": running})


def quarantine_send(request: HttpRequest, name: str) -> HttpResponse:
    """Send all messages of such a file again, as a job."""
    try:
        return redirect("job", sending.start(request, name).id)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
        return redirect("quarantine", name)


def _set_here() -> SetView:
    """Return the set that this broker is a member of. Raises Conflict if there is none."""
    view = runtime.window().replica_set()
    if view is None:
        raise Conflict(_("This broker is in no set with fail-over: haStore is not set."))
    return view


def _context(request: HttpRequest) -> dict[str, Any]:
    admin = runtime.window()
    view = admin.replica_set()
    context: dict[str, Any] = {"set": view, "shown": None, "why": ""}
    try:
        context["shown"] = shown = admin.replication.snapshot()
    except Unavailable as error:
        if view is None:
            raise
        context["why"] = refusal_text(error)  # the broker is changing its role; the set is shown anyway
    else:
        master = shown.master.address if shown.master is not None else None
        context["console_guess"] = _console_of(request, master)
        context["observers"] = [row for row in shown.slaves if not row.member]
    if view is not None:
        addresses = {one.uuid: one.addr or one.uuid for one in view.members}
        context |= {
            "in_sync": sum(one.in_sync for one in view.members),
            "elections": [(one, addresses.get(one.uuid, one.uuid)) for one in view.elections],
            "offer_adopt": view.role in ("frozen", "fenced") or not view.leader,
        }
    context["checks"] = checks = [one for one in admin.checks() if one.name in _CHECKS]
    levels = {one.level for one in checks}
    context["level"] = next((level for level in _LEVELS if level in levels), "")
    return context


def _console_of(request: HttpRequest, address: str | None) -> str:
    """Return the likely address of the master's console, guessed with the port of this one; "" if there is no master
    address."""
    if not address:
        return ""
    with contextlib.suppress(ValueError):
        return f"{request.scheme}://{bracketed(host_of(address))}:{request.get_port()}/"
    return ""
