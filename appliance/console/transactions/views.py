"""Transactions: the open, discarded and ended ones, and acts of administrators on them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import AdminError, Conflict, InvalidInput
from ..audit.log import audit
from ..pages.changes import add_refusal, failure_audited, form_status, is_final, is_submitted
from ..pages.curl import command_of
from ..pages.engine_pages import PAGE_SIZE, refusal_text, topic_names
from ..pages.outcomes import Line, counted, keep, kept, way_back
from ..pages.words import WORDS
from ..sign_in.forms import Form

if TYPE_CHECKING:
    from ...engine.window.transactions.snapshots import TransactionAct, TransactionOutcome

#: A half message's offset and its unique id.
Place = tuple[int, str | None]
SHOWN = ("open", "discarded", "resolved")
HOW = ("committed", "rolled_back", "discarded", "lost")
BY = ("producer", "check", "administrator", "broker")
#: Parameters of the filter in the address of the open ones.
_FILTER = ("topic", "group", "key")
DAY_MS = 24 * 3600 * 1000
#: Most transactions that one decision takes.
MOST_PICKED = 100
LONGEST_ID = 64


class ReasonForm(Form):
    """The reason for an act."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Kept with the transaction and in the audit log."),
    )


def transactions(request: HttpRequest) -> HttpResponse:
    """Show one of three lists, which ?show= chooses."""
    admin = runtime.window()
    show = request.GET.get("show", "open")
    if show not in SHOWN:
        raise InvalidInput("show", _("“%(text)s” is not a choice here.") % {"text": show[:40]})
    asked = {name: request.GET.get(name, "").strip() for name in ("topic", "group", "key", "how", "by")}
    wanted: dict[str, Any] = {name: asked[name] or None for name in ("topic", "group", "key")}
    wanted |= {"cursor": request.GET.get("cursor") or None, "limit": PAGE_SIZE}
    by = [(one, WORDS[f"by_{one}"]) for one in BY]
    context: dict[str, Any] = {"show": show, "asked": asked, "how": HOW, "by": by, "topics": topic_names()}
    context |= {"filtered": any(asked.values()), "carried": {name: asked[name] for name in _FILTER}}
    context["counts"] = admin.transactions.counts()
    named = {name: asked[name] for name in _FILTER}
    if show == "resolved":
        named = asked | {"from": "24 h ago"}
    context["as_curl"] = command_of(request, f"transactions/{show}", named)
    status = 200
    try:
        if show == "open":
            context["page"] = admin.transactions.open(**wanted)
        elif show == "discarded":
            context["page"] = admin.transactions.discarded(**wanted)
        else:
            since = int(time.time() * 1000) - DAY_MS
            # The pages behind a cursor need the same `since`.
            text = request.GET.get("since", "")
            if text.isascii() and text.isdigit() and len(text) < 16:
                since = int(text)
            context["since"] = since
            context["page"] = admin.transactions.ended(
                **wanted, how=asked["how"] or None, by=asked["by"] or None, from_ms=since
            )
    except InvalidInput as error:
        context["error"] = refusal_text(error)
        status = 422
    return render(request, "transactions/list.html", context, status=status)


def transaction_check(request: HttpRequest) -> HttpResponse:
    """Check transactions now with their producers: the ticked ones, or all that match a filter."""
    values = request.POST if request.method == "POST" else request.GET
    places = _places(values)
    if "ticked" in values and not places:
        messages.warning(request, _("No transaction is ticked."))
        return redirect(way_back(request, _FILTER, "transactions"))
    wanted = {name: values.get(name, "").strip() or None for name in _FILTER}
    chosen: dict[str, Any] = {} if places else wanted
    final = request.method == "POST" and is_final(request)
    try:
        with failure_audited(request, "transaction.check", _target(places, wanted)):
            act = runtime.window().transaction_commands.act(
                "check", places, **chosen, dry_run=not final, by=request.user.label
            )
    except InvalidInput:
        raise
    except AdminError as error:
        messages.warning(request, refusal_text(error))
        return redirect("transactions")
    if final:
        return _told(request, act, places, wanted, "")
    return _preview(request, act, places, {"what": "check", "wanted": wanted})


def transaction_decide(request: HttpRequest) -> HttpResponse:
    """Commit or roll back ticked transactions for their producers, with a reason."""
    values = request.POST if request.method == "POST" else request.GET
    what = values.get("what", "")
    if what not in ("commit", "roll_back"):
        raise InvalidInput("what", _("There is no such act."))
    places = _places(values)
    values.get("ticked")  # read, so that it is not reported as unsupported: this act needs ticked ones anyway
    back = way_back(request, _FILTER, "transactions")
    if not places:
        messages.warning(request, _("No transaction is ticked."))
        return redirect(back)
    form = ReasonForm(request.POST or None)
    admin = runtime.window()
    try:
        if is_submitted(request) and form.is_valid():
            reason = form.cleaned_data["reason"]
            with failure_audited(request, f"transaction.{what}", _target(places, {})):
                act = admin.transaction_commands.act(
                    what, places, reason=reason, dry_run=not is_final(request), by=request.user.label
                )
            if not act.dry_run:
                return _told(request, act, places, {}, reason)
            return _preview(request, act, places, {"what": what, "form": form, "reason": reason})
        look = admin.transaction_commands.act(what, places, reason="-", dry_run=True, by=request.user.label)
    except InvalidInput as error:
        if error.field not in form.fields:
            raise
        add_refusal(form, error)
        return _preview(request, None, places, {"what": what, "form": form}, form_status(form))
    except AdminError as error:  # the only ticked transaction was decided in the meantime
        messages.warning(request, refusal_text(error))
        if isinstance(error, Conflict) and is_final(request):
            audit(request, f"transaction.{what}", _target(places, {}), after={"reason": str(error)}, result="refused")
        return redirect("transactions")
    return _preview(request, look, places, {"what": what, "form": form}, form_status(form))


def transaction_resume(request: HttpRequest, ref: str) -> HttpResponse:
    """Resume a discarded transaction: its producers are checked again, from the beginning."""
    form = ReasonForm(request.POST or None)
    found = runtime.window().messages.detail(ref)
    if is_submitted(request) and form.is_valid():
        try:
            with failure_audited(request, "transaction.resume", ref):
                done = runtime.window().transaction_commands.resume(
                    ref, reason=form.cleaned_data["reason"], by=request.user.label
                )
        except (InvalidInput, Conflict) as error:
            add_refusal(form, error)
        else:
            after = {"half": done.offset_id, "unique_id": done.unique_id, "reason": form.cleaned_data["reason"]}
            audit(request, "transaction.resume", ref, None, after)
            line = Line(done.unique_id, reverse("message", args=[done.offset_id]), "done", None)
            facts = {"what": "resume", "asked": 1, "done": 1, "counts": [("done", 1)], "reason": ""}
            keep(request, "transaction_done", facts, [line])
            return redirect("transaction_done")
    context = {"form": form, "ref": ref, "found": found, "heading": _("Resume this transaction?")}
    return render(request, "transactions/resume.html", context, status=form_status(form))


def transaction_done(request: HttpRequest) -> HttpResponse:
    """Show the result of this session's last act on transactions."""
    found = kept(request, "transaction_done")
    if found is None:
        return redirect("transactions")
    return render(request, "transactions/done.html", {"act": found})


def _preview(
    request: HttpRequest,
    act: TransactionAct | None,
    places: list[Place],
    context: dict[str, Any],
    status: int = 200,
) -> HttpResponse:
    rows = runtime.window().transactions.open_at([offset for offset, _id in places])
    context |= {"plan": act, "rows": [row for row in rows if row is not None], "places": places}
    context["picked"] = [f"{offset}-{unique_id or ''}" for offset, unique_id in places]
    if act is not None:
        context["possible"] = act.counts.get("possible", 0)
        context["counts"] = counted(act.counts)
        context["impossible"] = [one for one in act.results if one.why is not None][:20]
    return render(request, "transactions/preview.html", context, status=status)


def _told(
    request: HttpRequest, act: TransactionAct, places: list[Place], wanted: dict[str, Any], reason: str
) -> HttpResponse:
    after: dict[str, Any] = {"asked": act.asked, "done": act.done, "counts": act.counts}
    after |= {"reason": reason} if reason else {}
    after["transactions"] = [one.unique_id or str(one.half_offset) for one in act.results[:20]]
    audit(request, f"transaction.{act.action}", _target(places, wanted), None, after)
    facts = {"what": act.action, "asked": act.asked, "done": act.done, "counts": counted(act.counts)}
    facts |= {"reason": reason, "more": act.more}
    keep(request, "transaction_done", facts, (_line(one) for one in act.results))
    return redirect("transaction_done")


def _target(places: list[Place], wanted: dict[str, Any]) -> str:
    if len(places) == 1:
        return places[0][1] or str(places[0][0])
    return wanted.get("topic") or wanted.get("group") or ""


def _line(one: TransactionOutcome) -> Line:
    address = ""
    if one.decided is not None and one.decided.message is not None:
        address = reverse("message", args=[one.decided.message.offset_id])
    elif one.unique_id:
        address = reverse("search") + "?" + urlencode({"q": one.unique_id})
    return Line(one.unique_id or str(one.half_offset), address, one.outcome, one.why)


def _places(values: Any) -> list[Place]:
    words = values.getlist("pick")
    if len(words) > MOST_PICKED:
        raise InvalidInput("pick", _("These are more than one form takes; choose them by a filter."))
    found: list[Place] = []
    for word in words:
        offset, _dash, unique_id = word.partition("-")
        if not (offset.isascii() and offset.isdigit() and len(offset) < 19):
            raise InvalidInput("pick", _("“%(word)s” is no open transaction.") % {"word": word[:40]})
        found.append((int(offset), unique_id or None))
    return found
