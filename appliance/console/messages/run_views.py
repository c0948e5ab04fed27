"""Run a message on one connected consumer: its listener is called again, now. To try a fix, or to find a cause."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import NotFound, Unavailable
from ..audit.log import audit
from ..pages.changes import form_status, is_final, is_submitted
from ..pages.engine_pages import refusal_text
from ..sign_in.forms import Form

if TYPE_CHECKING:
    from ...engine.window.clients.asking_snapshots import DirectConsumption
    from ...engine.window.messages.snapshots import MessageRow

#: A client's result -> words.
RESULTS = {
    "CR_SUCCESS": gettext_lazy("its listener consumed the message"),
    "CR_COMMIT": gettext_lazy("its listener consumed the message, and committed"),
    "CR_LATER": gettext_lazy("its listener could not consume it and would want it again later"),
    "CR_ROLLBACK": gettext_lazy("its listener rolled back"),
    "CR_THROW_EXCEPTION": gettext_lazy("its listener threw an exception"),
    "CR_RETURN_NULL": gettext_lazy("its listener gave no result, which counts as a failure"),
    "": gettext_lazy("it did not say what became of the message"),
}
GOOD = ("CR_SUCCESS", "CR_COMMIT")


class RunForm(Form):
    """A member of a group. The value is the pair as JSON, since names may have any characters."""

    member = forms.ChoiceField(
        label=gettext_lazy("Group and client"), error_messages={"required": gettext_lazy("Choose a client.")}
    )

    def __init__(self, *args: Any, members: list[tuple[str, str, str]], **kwargs: Any) -> None:
        """members: (group, client id, address)."""
        super().__init__(*args, **kwargs)
        self.fields["member"].choices = [
            (json.dumps([group, client]), f"{group} · {client} · {address}") for group, client, address in members
        ]


def message_run(request: HttpRequest, ref: str) -> HttpResponse:
    """Run a message: choose a client, see a preview, run it; the message's page then shows the result."""
    admin = runtime.window()
    row = admin.messages.detail(ref, story=False)
    members = list(admin.asking.consumers_for(row.offset_id))
    if wanted := request.GET.get("group"):
        members.sort(key=lambda member: member[0] != wanted)
    form = RunForm(request.POST or None, members=members)
    context: dict[str, Any] = {"row": row, "form": form, "members": members, "place": _place(row)}
    if is_submitted(request) and form.is_valid():
        group, client = json.loads(form.cleaned_data["member"])
        if is_final(request):
            return _run(request, row, group, client)
        context |= {"group": group, "client": client}
        return render(request, "message/run_preview.html", context)
    return render(request, "message/run.html", context, status=form_status(form))


def _run(request: HttpRequest, row: MessageRow, group: str, client: str) -> HttpResponse:
    what: dict[str, Any] = {"group": group, "client_id": client}
    answer = HttpResponseRedirect(reverse("message", args=[row.offset_id]))
    try:
        done = runtime.window().asking.consume_directly(group, client, row.offset_id, by=request.user.label)
    except NotFound as error:
        if error.kind != "client":
            raise
        messages.warning(
            request, _("%(client)s has left %(group)s; nothing was run.") % {"client": client, "group": group}
        )
    except Unavailable as error:
        audit(request, "message.run", _place(row), None, what | {"reason": str(error)}, "failed")
        text = _("%(why)s It may have consumed the message all the same.") % {"why": refusal_text(error)}
        messages.warning(request, text)
    else:
        audit(request, "message.run", _place(row), None, what | {"result": done.result, "remark": done.remark[:200]})
        tell = messages.success if done.result in GOOD else messages.warning
        tell(request, _told(done))
    return answer


def _told(done: DirectConsumption) -> str:
    text = _("Run on %(client)s of %(group)s: %(what)s.") % {
        "client": done.client_id,
        "group": done.group,
        "what": RESULTS.get(done.result, done.result),
    }
    if done.spent_ms is not None:
        text += " " + _("It took %(ms)s ms.") % {"ms": done.spent_ms}
    if done.remark:
        text += " " + _("It says: %(remark)s") % {"remark": done.remark[:500]}
    return text + " " + _("No offset has moved.")


def _place(row: MessageRow) -> str:
    return f"{row.topic}/{row.queue_id}/{row.queue_offset}"
