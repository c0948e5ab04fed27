"""Acts on a group: pausing and resuming it, and cloning its settings and offsets to another group."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, NotFound
from ..audit.log import audit
from ..pages.changes import add_refusal, before_and_after, failure_audited, form_status, is_final, is_submitted
from ..pages.engine_pages import not_found_sentence, refusal_text
from ..sign_in.forms import Form
from ..users.access import allows
from .clone import GroupClone
from .reset_views import MOST_SHOWN


def group_pause(request: HttpRequest, name: str) -> HttpResponse:
    """Pause or resume a group: show what that does to its clients, then do it."""
    admin = runtime.window()
    detail = admin.groups.detail(name, queues=False)
    if detail.settings is None:
        raise NotFound("group", name)
    resume = not detail.settings.consume_enable
    if is_final(request):
        wanted = request.POST.get("what") == "resume"
        action = "group.resume" if wanted else "group.pause"
        try:
            with failure_audited(request, action, name):
                change = admin.group_commands.edit(name, consume_enable=wanted, by=request.user.label)
        except Conflict as error:
            messages.warning(request, refusal_text(error))
        else:
            audit(request, action, name, *before_and_after(change))
            text = _("%(name)s consumes again.") if wanted else _("%(name)s is paused.")
            messages.success(request, text % {"name": name})
        return redirect("group", name)
    context = {"name": name, "row": detail, "resume": resume}
    context["heading"] = (_("Resume %(name)s?") if resume else _("Pause %(name)s?")) % {"name": name}
    return render(request, "groups/pause.html", context)


class CloneForm(Form):
    """The target group, and the parts to clone."""

    target = forms.CharField(
        label=gettext_lazy("To the group"),
        max_length=255,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy("A new one is created with the same settings."),
    )
    offsets = forms.BooleanField(
        label=gettext_lazy("Offsets"),
        required=False,
        help_text=gettext_lazy("It goes on where this group is now."),
    )
    settings = forms.BooleanField(
        label=gettext_lazy("Settings"),
        required=False,
        help_text=gettext_lazy("Of a group that exists, an administrator only may change them."),
    )
    topic = forms.CharField(
        label=gettext_lazy("Offsets of one topic only"),
        required=False,
        max_length=1024,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("offsets") and not cleaned.get("settings"):
            raise forms.ValidationError(_("Choose offsets, settings, or both."))
        return cleaned


def group_clone(request: HttpRequest, name: str) -> HttpResponse:
    """Show what the other group would take over, queue by queue and setting by setting; then do it."""
    detail = runtime.window().groups.detail(name)
    form = CloneForm(request.POST or None, initial={"offsets": True})
    context: dict[str, Any] = {
        "name": name,
        "form": form,
        "topics": list(dict.fromkeys(q.topic for q in detail.queues)),
    }
    if is_submitted(request) and form.is_valid():
        asked = form.cleaned_data
        clone = GroupClone(
            runtime.window(),
            name,
            asked["target"],
            offsets=asked["offsets"],
            settings=asked["settings"],
            topic=asked["topic"] or None,
            may_edit=allows(request.user, "group_edit"),
            by=request.user.label,
        )
        try:
            if is_final(request):
                with failure_audited(request, "group.clone", asked["target"]):
                    done = clone.apply(request.POST.get("revision") or None)
                clone.note(request, done)
                messages.success(request, _("%(target)s has taken it over.") % {"target": asked["target"]})
                if done.offsets is not None:
                    return redirect("group_reset_done", asked["target"], done.offsets.id)
                return redirect("group", asked["target"])
            plan = clone.plan()
        except NotFound as error:
            form.add_error("topic" if error.kind == "topic" else "target", not_found_sentence(error))
        except InvalidInput as error:
            error.field = {"name": "target", "source": "offsets"}.get(error.field, error.field)
            add_refusal(form, error)
        except Conflict as error:
            form.add_error(None, refusal_text(error))
        else:
            context |= {"plan": plan, "heading": _("Have %(target)s take it over?") % {"target": asked["target"]}}
            if plan.offsets is not None:
                moves = plan.offsets.moves
                context |= {"moves": moves[:MOST_SHOWN], "hidden": len(moves) - MOST_SHOWN}
            return render(request, "groups/clone_preview.html", context)
    context["heading"] = _("Clone %(name)s") % {"name": name}
    return render(request, "groups/clone_form.html", context, status=form_status(form))
