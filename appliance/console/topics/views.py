"""Topics: the list, one topic, and creating, editing and deleting one. Each change has a preview."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.admin_settings import TOPIC_SETTINGS
from ...engine.errors import Blocked, Conflict, InvalidInput, Unavailable
from ..audit.log import audit
from ..pages.changes import (
    SettingsForm,
    add_refusal,
    before_and_after,
    failure_audited,
    form_status,
    is_final,
    is_forced,
    is_submitted,
)  # fmt: skip
from ..pages.curl import curl
from ..pages.engine_pages import PAGE_SIZE, all_rows, csv_of, page_number, refusal_text, wants_csv
from ..pages.words import WORDS
from ..users.scope import cut

SHOWN = ("user", "system", "retry", "dlq", "all")
#: Type -> its consequences for producers and consumers.
CONSEQUENCES = {
    "NORMAL": gettext_lazy("Messages go to any queue and are consumed in parallel. The usual choice."),
    "FIFO": gettext_lazy(
        "Messages of one queue are consumed in order, one at a time. Producers choose the queue, by order number for "
        "example; one message that fails holds up those behind it."
    ),
    "DELAY": gettext_lazy("For messages that are delivered later: the delay level of a message says when."),
    "TRANSACTION": gettext_lazy("For messages that become visible when the producer's own transaction commits."),
    "UNSPECIFIED": gettext_lazy(
        "No type is stored, as for topics created by older tools; the broker treats it as normal."
    ),
}


class TopicForm(SettingsForm):
    """A topic's settings; `name` only while it is new."""

    settings = TOPIC_SETTINGS
    field_order = ("name", "kind", "write_queues")
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=127,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy("Letters, digits and _ - % | only, 127 at most. It cannot be changed later."),
    )


def topics(request: HttpRequest) -> HttpResponse:
    """Show the list, which the engine filters, sorts and cuts into pages; `format=csv` for all of the filter's rows."""
    show = request.GET.get("show", "user")
    kind = request.GET.get("kind") or None
    q = request.GET.get("q", "")
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().topics.page(q=q, kind=kind, show=show, sort=sort, page=page, page_size=size)

    fetch_cut = cut(request, "topic", fetch)
    if wants_csv(request):
        return csv_of(
            "topics",
            "topic=name type=kind read_queues write_queues permission=perm messages in_per_s=in_rate "
            "out_per_s=out_rate bytes bytes_estimated oldest_at_ms consumer_groups=consumers",
            all_rows(fetch_cut),
        )
    context = {
        "page": fetch_cut(page_number(request), PAGE_SIZE),
        "sort": sort,
        "q": q,
        "kind": kind or "",
        "show": show,
    }
    context["as_curl"] = curl(request, {"system": "true"} if show == "all" else {"category": request.GET.get("show")})
    context |= {"kinds": [(value, WORDS[value]) for value in CONSEQUENCES]}
    context |= {"shown": [(value, WORDS.get(value, _("all"))) for value in SHOWN]}
    return render(request, "topics/list.html", context)


def topic(request: HttpRequest, name: str) -> HttpResponse:
    """Show one topic: queues, consumers, producers, settings."""
    window = runtime.window()
    detail = window.topics.detail(name)
    try:
        schema = window.schemas.find(name)
    except Unavailable as error:
        messages.error(request, refusal_text(error))
        schema = None
    return render(request, "topics/topic.html", {"topic": detail, "schema": schema})


def topic_create(request: HttpRequest) -> HttpResponse:
    """Create a topic. The form begins with the type and its consequences for producers and consumers."""
    form = TopicForm(request.POST or None, new=True)
    if is_submitted(request) and form.is_valid():
        settings = dict(form.cleaned_data)
        name = settings.pop("name")
        try:
            with failure_audited(request, "topic.create", name):
                change = runtime.window().topic_commands.create(
                    name, **settings, force=is_forced(request), dry_run=not is_final(request), by=request.user.label
                )
        except Conflict:
            form.add_error("name", _("There is already a topic with this name."))
        except Blocked as error:
            audit(request, "topic.create", name, result="refused")
            return render(request, "topics/preview.html", _creating(form, name, error.change), status=409)
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            if is_final(request):
                audit(request, "topic.create", name, None, before_and_after(change)[1])
                messages.success(request, _("Topic %(name)s created.") % {"name": name})
                return redirect("topic", name)
            return render(request, "topics/preview.html", _creating(form, name, change))
    context = {"form": form, "new": True, "heading": _("Create a topic")}
    return _form_page(request, context)


def topic_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change a topic's settings. Removing queues that hold messages has to be confirmed."""
    settings = runtime.window().topics.settings(name)
    form = TopicForm(request.POST or None, initial=settings.values, new=False)
    revision = request.POST.get("revision") or settings.revision
    context: dict[str, Any] = {"name": name, "revision": revision}
    preview = {"form": form, "heading": _("Change %(name)s?") % {"name": name}, "apply": _("Apply")}
    context["heading"] = _("Settings of %(name)s") % {"name": name}
    if is_submitted(request) and form.is_valid():
        try:
            with failure_audited(request, "topic.edit", name):
                change = runtime.window().topic_commands.edit(
                    name, revision=revision, **form.cleaned_data, force=is_forced(request),
                    dry_run=not is_final(request), by=request.user.label,
                )  # fmt: skip
        except Conflict:
            form = TopicForm(initial=settings.values, new=False)
            context |= {"form": form, "revision": settings.revision, "changed": True}
            return _form_page(request, context, 409)
        except Blocked as error:
            audit(request, "topic.edit", name, result="refused")
            return render(request, "topics/preview.html", context | preview | {"change": error.change}, status=409)
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            if is_final(request):
                audit(request, "topic.edit", name, *before_and_after(change))
                messages.success(request, _("Settings of %(name)s saved.") % {"name": name})
                return redirect("topic", name)
            return render(request, "topics/preview.html", context | preview | {"change": change})
    return _form_page(request, context | {"form": form})


def topic_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a topic with its queues and every group's offsets in it, once its name was typed."""
    context = {"name": name, "change": runtime.window().topic_commands.delete(name, dry_run=True)}
    context |= {"heading": _("Delete %(name)s?") % {"name": name}}
    if request.method != "POST":
        return render(request, "topics/delete.html", context)
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = _("This is not the topic's name.")
        return render(request, "topics/delete.html", context, status=422)
    revision = request.POST.get("revision") or None
    force = is_forced(request)
    try:
        with failure_audited(request, "topic.delete", name):
            done = runtime.window().topic_commands.delete(name, revision=revision, force=force, by=request.user.label)
    except Blocked as error:
        audit(request, "topic.delete", name, result="refused")
        context |= {"change": error.change, "error": _("It is in use. Tick “Delete anyway” to delete it.")}
        return render(request, "topics/delete.html", context, status=409)
    audit(request, "topic.delete", name, before_and_after(done)[0], {"force": force})
    messages.success(request, _("Topic %(name)s deleted.") % {"name": name})
    return redirect("topics")


def _creating(form: TopicForm, name: str, change: Any) -> dict[str, Any]:
    """Return the context for the preview of a new topic."""
    heading = _("Create %(name)s?") % {"name": name}
    return {"form": form, "change": change, "new": True, "name": name, "heading": heading,
            "apply": _("Create the topic")}  # fmt: skip


def _form_page(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    form = context["form"]
    kinds = [(kind, WORDS[kind], CONSEQUENCES[kind]) for kind in CONSEQUENCES]
    context |= {"kinds": kinds, "chosen": form["kind"].value()}
    return render(request, "topics/form.html", context, status=max(status, form_status(form)))
