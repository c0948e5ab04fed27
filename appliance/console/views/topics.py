"""Topics: the list, one topic, and making, changing and deleting one. A change is shown before it is made."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ... import runtime
from ..recent_login import recent_login_required
from ..words import WORDS
from . import changes
from .window import PAGE_SIZE, all_rows, asks_the_engine, csv_answer, page_number, wants_csv

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


class TopicForm(changes.SettingsForm):
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
    reserve_hours = forms.IntegerField(
        label=gettext_lazy("Kept for, in hours"),
        min_value=0,
        help_text=gettext_lazy(
            "0: as long as the broker keeps messages (fileReservedTime). Older ones are not shown; their files go when "
            "all in them has expired."
        ),
    )

    def __init__(self, *args: Any, new: bool, **kwargs: Any) -> None:
        super().__init__(*args, new=new, **kwargs)
        if new:
            del self.fields["reserve_hours"]


def _kinds(form: changes.SettingsForm) -> dict[str, object]:
    return {"kinds": [(kind, WORDS[kind], CONSEQUENCES[kind]) for kind in KINDS], "chosen": form["kind"].value()}


def _initial(settings: Any) -> dict[str, object]:
    hours = settings.attributes.get("reserve.time", "")
    values = {name: getattr(settings, name) for name in NOUN.first}
    return values | {"reserve_hours": int(hours) if hours.isascii() and hours.isdigit() else 0}


NOUN = changes.Noun(
    word="topic",
    form=TopicForm,
    first={
        "kind": "NORMAL", "read_queues": 8, "write_queues": 8, "readable": True, "writable": True, "order": False,
    },
    texts={
        "list": gettext_lazy("Topics"),
        "create": gettext_lazy("Create a topic"),
        "create it": gettext_lazy("Create the topic"),
        "create?": gettext_lazy("Create %(name)s?"),
        "taken": gettext_lazy("There is a topic of this name already."),
        "made": gettext_lazy("The topic %(name)s is made."),
        "settings": gettext_lazy("Settings of %(name)s"),
        "change?": gettext_lazy("Change %(name)s?"),
        "changed": gettext_lazy("The settings of %(name)s are in force."),
        "delete": gettext_lazy("Delete the topic"),
        "delete?": gettext_lazy("Delete %(name)s?"),
        "delete lead": gettext_lazy("The topic, its queues and the offsets of all groups go. It cannot be undone."),
        "not its name": gettext_lazy("This is not the topic's name."),
        "deleted": gettext_lazy("The topic %(name)s is deleted."),
    },
    settings=lambda name: runtime.window().topic_settings(name),
    initial=_initial,
    create=lambda name, **values: runtime.window().create_topic(name, **values),
    edit=lambda name, **values: runtime.window().edit_topic(name, **values),
    delete=lambda name, **options: runtime.window().delete_topic(name, **options),
    more=_kinds,
)  # fmt: skip


@require_safe
@asks_the_engine
def topics(request: HttpRequest) -> HttpResponse:
    """The list, filtered, sorted and cut by the engine; `format=csv` for all of the filter's rows."""
    show = request.GET.get("show", "user")
    kind = request.GET.get("kind") or None
    q = request.GET.get("q", "")
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().topics(q=q, kind=kind, show=show, sort=sort, page=page, page_size=size)

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
    return render(request, "topics/topic.html", {"topic": runtime.window().topic(name)})


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def topic_create(request: HttpRequest) -> HttpResponse:
    """Its type first, with what the type means for those who use it."""
    return changes.create(request, NOUN)


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def topic_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Its settings; queues with messages in them go only on purpose."""
    return changes.edit(request, NOUN, name)


@require_http_methods(["GET", "HEAD", "POST"])
@recent_login_required
@asks_the_engine
def topic_delete(request: HttpRequest, name: str) -> HttpResponse:
    """The topic with its queues and everybody's offsets of it."""
    return changes.delete(request, NOUN, name)
