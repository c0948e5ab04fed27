"""Topics: the list, one topic, and making, changing and deleting one. A change is shown before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ... import runtime
from ...engine.errors import Blocked, Conflict, InvalidInput
from ..audit import audit
from ..recent_login import recent_login_required
from ..words import WORDS
from .window import PAGE_SIZE, all_rows, asks_the_engine, csv_answer, page_number, wants_csv

if TYPE_CHECKING:
    from ...engine.admin.snapshots import Change, TopicSettings

SHOWN = ("user", "system", "retry", "dlq", "all")
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED")
#: What each type means for those who use the topic.
CONSEQUENCES = {
    "NORMAL": gettext_lazy("Messages go to any queue and are consumed in parallel. The usual choice."),
    "FIFO": gettext_lazy(
        "Messages of one queue are consumed in their order, one at a time. Producers choose the queue, by the order's "
        "number for example; one message that fails holds up those behind it."
    ),
    "DELAY": gettext_lazy(
        "For messages that are delivered later. This version stores none of them: sends with a delay are refused."
    ),
    "TRANSACTION": gettext_lazy(
        "For messages that become visible when the producer's own transaction commits. This version refuses them."
    ),
    "UNSPECIFIED": gettext_lazy(
        "No type is stored, as topics made by older tools are; the broker treats it as normal."
    ),
}


class TopicForm(forms.Form):
    """A topic's settings; `name` only while it is new."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=127,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy("Letters, digits and _ - % | only, 127 at most. It cannot be changed later."),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Type"), choices=[(kind, WORDS[kind]) for kind in KINDS], widget=forms.RadioSelect
    )
    write_queues = forms.IntegerField(
        label=gettext_lazy("Write queues"),
        min_value=0,
        help_text=gettext_lazy("Producers spread their messages over so many. As many consumers can work at once."),
    )
    read_queues = forms.IntegerField(
        label=gettext_lazy("Read queues"),
        min_value=0,
        help_text=gettext_lazy("Usually as many as write queues. To take queues away, lower these last."),
    )
    readable = forms.BooleanField(label=gettext_lazy("May be read"), required=False)
    writable = forms.BooleanField(label=gettext_lazy("May be written"), required=False)
    order = forms.BooleanField(
        label=gettext_lazy("Ordered"),
        required=False,
        help_text=gettext_lazy("Tells clients that the place of its queues must not change."),
    )

    def __init__(self, *args: Any, new: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not new:
            del self.fields["name"]


@require_safe
@asks_the_engine
def topics(request: HttpRequest) -> HttpResponse:
    """The list, filtered, sorted and cut by the engine; `format=csv` for all of the filter's rows."""
    show = request.GET.get("show", "user")
    kind = request.GET.get("kind") or None
    q = request.GET.get("q", "")
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.admin().topics(q=q, kind=kind, show=show, sort=sort, page=page, page_size=size)

    if wants_csv(request):
        return csv_answer(
            "topics",
            ("topic", "type", "read_queues", "write_queues", "permission", "messages", "in_per_s", "out_per_s",
             "bytes", "bytes_estimated", "oldest_at_ms", "consumer_groups"),
            ((row.name, row.kind, row.read_queues, row.write_queues, row.perm, row.messages, row.in_rate,
              row.out_rate, row.bytes, row.bytes_estimated, row.oldest_at_ms, row.consumers)
             for row in all_rows(fetch)),
        )  # fmt: skip
    context = {"page": fetch(page_number(request), PAGE_SIZE), "sort": sort, "q": q, "kind": kind or "", "show": show}
    context |= {"kinds": [(value, WORDS[value]) for value in KINDS], "shown": SHOWN}
    return render(request, "topics/list.html", context)


@require_safe
@asks_the_engine
def topic(request: HttpRequest, name: str) -> HttpResponse:
    """One topic: queues, consumers, producers, settings."""
    return render(request, "topics/topic.html", {"topic": runtime.admin().topic(name)})


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def topic_create(request: HttpRequest) -> HttpResponse:
    """Fill in, look at what will be, make it."""
    first = {"kind": "NORMAL", "read_queues": 8, "write_queues": 8, "readable": True, "writable": True}
    form = TopicForm(request.POST or None, initial=first, new=True)
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "back":
        name, values = _values(form)
        apply = request.POST.get("step") == "apply"
        try:
            change = runtime.admin().create_topic(name, **values, dry_run=not apply, by=request.user.label)
        except Conflict:
            form.add_error("name", _("There is a topic of this name already."))
        except InvalidInput as error:
            _put_error(form, error)
        else:
            if apply:
                audit(request, "topic.create", name, None, _fields(change, "after"))
                messages.success(request, _("The topic %(name)s is made.") % {"name": name})
                return HttpResponseRedirect(reverse("topic", args=[name]))
            return render(request, "topics/preview.html", {"form": form, "change": change, "name": name, "new": True})
    return _form_page(request, form, {"new": True})


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def topic_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change the settings; what would be lost needs to be said yes to."""
    settings = runtime.admin().topic_settings(name)
    form = TopicForm(request.POST or None, initial=_initial(settings), new=False)
    context: dict[str, Any] = {"name": name, "revision": request.POST.get("revision") or settings.revision}
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "back":
        apply = request.POST.get("step") == "apply"
        force = request.POST.get("force") == "yes"
        try:
            change = runtime.admin().edit_topic(
                name, revision=context["revision"], **_values(form)[1], force=force, dry_run=not apply,
                by=request.user.label,
            )  # fmt: skip
        except Conflict:
            form.add_error(None, _("It was changed by somebody else meanwhile. These are the settings of now."))
            form = TopicForm(initial=_initial(settings), new=False)
            context |= {"revision": settings.revision, "changed": True}
            return _form_page(request, form, context, 409)
        except Blocked as error:
            audit(request, "topic.change", name, result="refused")
            context |= {"form": form, "change": error.change}
            return render(request, "topics/preview.html", context, status=409)
        except InvalidInput as error:
            _put_error(form, error)
        else:
            if apply:
                audit(request, "topic.change", name, _fields(change, "before"), _fields(change, "after"))
                messages.success(request, _("The settings of %(name)s are in force.") % {"name": name})
                return HttpResponseRedirect(reverse("topic", args=[name]))
            return render(request, "topics/preview.html", context | {"form": form, "change": change})
    return _form_page(request, form, context)


@require_http_methods(["GET", "HEAD", "POST"])
@recent_login_required
@asks_the_engine
def topic_delete(request: HttpRequest, name: str) -> HttpResponse:
    """What goes with it, its name typed in, and then it is gone."""
    admin = runtime.admin()
    change = admin.delete_topic(name, dry_run=True)
    context: dict[str, Any] = {"name": name, "change": change}
    if request.method != "POST":
        return render(request, "topics/delete.html", context)
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = _("This is not the topic's name.")
        return render(request, "topics/delete.html", context, status=422)
    force = request.POST.get("force") == "yes"
    try:
        done = admin.delete_topic(
            name, revision=request.POST.get("revision") or None, force=force, by=request.user.label
        )
    except Blocked as error:
        audit(request, "topic.delete", name, result="refused")
        context |= {"change": error.change, "error": _("It is in use: say that it may be deleted all the same.")}
        return render(request, "topics/delete.html", context, status=409)
    audit(request, "topic.delete", name, _fields(done, "before"), {"force": force})
    messages.success(request, _("The topic %(name)s is deleted.") % {"name": name})
    return HttpResponseRedirect(reverse("topics"))


def _initial(settings: TopicSettings) -> dict[str, object]:
    names = ("kind", "read_queues", "write_queues", "readable", "writable", "order")
    return {name: getattr(settings, name) for name in names}


def _values(form: TopicForm) -> tuple[str, dict[str, Any]]:
    """(name or "", keyword arguments of create_topic and edit_topic)."""
    values = dict(form.cleaned_data)
    return values.pop("name", ""), values


def _fields(change: Change, side: str) -> dict[str, object]:
    """One side of a change's differences, for the audit log."""
    return {one.field: getattr(one, side) for one in change.differences}


def _put_error(form: TopicForm, error: InvalidInput) -> None:
    form.add_error(error.field if error.field in form.fields else None, str(error))


def _form_page(request: HttpRequest, form: TopicForm, context: dict[str, Any], status: int = 200) -> HttpResponse:
    kinds = [(kind, WORDS[kind], CONSEQUENCES[kind]) for kind in KINDS]
    context |= {"form": form, "kinds": kinds, "chosen": form["kind"].value()}
    return render(request, "topics/form.html", context, status=422 if form.is_bound and form.errors else status)
