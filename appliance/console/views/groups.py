"""Consumer groups: the list, one group with its lag and clients, and making, changing and deleting one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from ... import runtime
from ...engine.errors import NotFound
from ..recent_login import recent_login_required
from . import changes
from .window import PAGE_SIZE, all_rows, asks_the_engine, csv_answer, page_number, wants_csv

_ONLINE = {"yes": True, "no": False}


class GroupForm(changes.SettingsForm):
    """A group's settings; `name` only while it is new."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=255,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "What its consumers name: letters, digits and _ - % | only. It cannot be changed later."
        ),
    )
    consume_enable = forms.BooleanField(
        label=gettext_lazy("Consumption"),
        required=False,
        help_text=gettext_lazy("Off: its clients get no messages; they wait where they are."),
    )
    consume_broadcast_enable = forms.BooleanField(
        label=gettext_lazy("May broadcast"),
        required=False,
        help_text=gettext_lazy("Its clients may each take every message, and keep their offsets themselves."),
    )
    consume_message_orderly = forms.BooleanField(
        label=gettext_lazy("In order"),
        required=False,
        help_text=gettext_lazy("For clients that leave the order to the broker. Others order by locking queues."),
    )
    retry_max_times = forms.IntegerField(
        label=gettext_lazy("Retries before a dead letter"),
        min_value=-1,
        help_text=gettext_lazy("For messages that consumers send back, which this version does not take yet."),
    )
    retry_queue_nums = forms.IntegerField(label=gettext_lazy("Retry queues"), min_value=0)


def _edit(name: str, *, force: bool, **values: Any) -> Any:
    """Changing a group loses nothing, so there is nothing to force."""
    return runtime.window().edit_group(name, **values)


def _settings(name: str) -> Any:
    settings = runtime.window().group(name).settings
    if settings is None:
        raise NotFound("group", name)
    return settings


_FIRST = {
    "consume_enable": True, "consume_broadcast_enable": True, "consume_message_orderly": False,
    "retry_max_times": 16, "retry_queue_nums": 1,
}  # fmt: skip
NOUN = changes.Noun(
    word="group",
    form=GroupForm,
    first=_FIRST,
    texts={
        "list": gettext_lazy("Consumer groups"),
        "create": gettext_lazy("Create a group"),
        "create it": gettext_lazy("Create the group"),
        "create?": gettext_lazy("Create %(name)s?"),
        "taken": gettext_lazy("There is a group of this name already."),
        "made": gettext_lazy("The group %(name)s is made."),
        "settings": gettext_lazy("Settings of %(name)s"),
        "change?": gettext_lazy("Change %(name)s?"),
        "changed": gettext_lazy("The settings of %(name)s are in force."),
        "delete": gettext_lazy("Delete the group"),
        "delete?": gettext_lazy("Delete %(name)s?"),
        "delete lead": gettext_lazy("Its settings go, and its offsets unless you keep them. It cannot be undone."),
        "not its name": gettext_lazy("This is not the group's name."),
        "deleted": gettext_lazy("The group %(name)s is deleted."),
    },
    settings=_settings,
    initial=lambda settings: {name: getattr(settings, name) for name in _FIRST},
    create=lambda name, **values: runtime.window().create_group(name, **values),
    edit=_edit,
    delete=lambda name, **options: runtime.window().delete_group(name, **options),
)  # fmt: skip


@require_safe
@asks_the_engine
def groups(request: HttpRequest) -> HttpResponse:
    """The list; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    online = request.GET.get("online", "")
    system = request.GET.get("system") == "yes"
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().groups(
            q=q, system=system, online=_ONLINE.get(online), sort=sort, page=page, page_size=size
        )

    if wants_csv(request):
        return csv_answer(
            "groups",
            ("group", "model", "clients", "topics", "lag", "lag_ms", "out_per_s", "retries", "dead_letters",
             "conflict"),
            (
                (row.name, row.model, row.clients, row.topics, row.lag, row.lag_ms, row.out_rate, row.retries,
                 row.dead_letters, row.conflict)
                for row in all_rows(fetch)
            ),
        )  # fmt: skip
    context = {"page": fetch(page_number(request), PAGE_SIZE), "sort": sort, "q": q, "online": online, "system": system}
    return render(request, "groups/list.html", context)


@require_safe
@asks_the_engine
def group(request: HttpRequest, name: str) -> HttpResponse:
    """One group; the queues furthest behind come first. `format=csv` for its queues."""
    detail = runtime.window().group(name)
    queues = sorted(
        detail.queues, key=lambda queue: (-(queue.lag_ms or 0), -(queue.lag or 0), queue.topic, queue.queue_id)
    )
    if wants_csv(request):
        return csv_answer(
            f"group-{name}",
            ("topic", "queue", "committed", "min_offset", "max_offset", "lag", "lag_ms", "held_by"),
            (
                (queue.topic, queue.queue_id, queue.committed, queue.min_offset, queue.max_offset, queue.lag,
                 queue.lag_ms, queue.held_by)
                for queue in queues
            ),
        )  # fmt: skip
    return render(request, "groups/group.html", {"group": detail, "row": detail.row, "queues": queues})


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def group_create(request: HttpRequest) -> HttpResponse:
    """A group before its first consumer comes."""
    return changes.create(request, NOUN)


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def group_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Its settings."""
    return changes.edit(request, NOUN, name)


@require_http_methods(["GET", "HEAD", "POST"])
@recent_login_required
@asks_the_engine
def group_delete(request: HttpRequest, name: str) -> HttpResponse:
    """The group, and its offsets unless they are to stay."""
    keep = request.POST.get("offsets") == "keep"
    return changes.delete(request, NOUN, name, offsets=not keep)
