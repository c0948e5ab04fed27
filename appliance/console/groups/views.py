"""Consumer groups: the list, and creating, editing and deleting one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.admin_settings import GROUP_SETTINGS
from ...engine.errors import Blocked, Conflict, InvalidInput, NotFound
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
from ..pages.engine_pages import PAGE_SIZE, all_rows, csv_of, page_number, wants_csv
from ..users.scope import cut

#: Most offsets that the page to delete a group shows.
_OFFSETS_SHOWN = 50
_ONLINE = {"yes": True, "no": False}


class GroupForm(SettingsForm):
    """A group's settings; `name` only while it is new."""

    settings = GROUP_SETTINGS
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=255,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "The name its consumers use: letters, digits and _ - % | only. It cannot be changed later."
        ),
    )


def groups(request: HttpRequest) -> HttpResponse:
    """Show the list; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    online = request.GET.get("online", "")
    system = request.GET.get("system") == "yes"
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().groups.page(
            q=q, system=system, online=_ONLINE.get(online), sort=sort, page=page, page_size=size
        )

    fetch_cut = cut(request, "group", fetch)
    if wants_csv(request):
        return csv_of(
            "groups",
            "group=name model clients topics lag lag_ms out_per_s=out_rate retries retries_ready dead_letters conflict",
            all_rows(fetch_cut),
        )
    context = {
        "page": fetch_cut(page_number(request), PAGE_SIZE),
        "sort": sort,
        "q": q,
        "online": online,
        "system": system,
    }
    is_online = {"yes": "true", "no": "false"}.get(online)
    context["as_curl"] = curl(request, {"online": is_online, "system": "true" if system else None})
    return render(request, "groups/list.html", context)


def group_create(request: HttpRequest) -> HttpResponse:
    """Create a group, before its first consumer connects."""
    form = GroupForm(request.POST or None, new=True)
    if is_submitted(request) and form.is_valid():
        settings = dict(form.cleaned_data)
        name = settings.pop("name")
        try:
            with failure_audited(request, "group.create", name):
                change = runtime.window().group_commands.create(
                    name, **settings, dry_run=not is_final(request), by=request.user.label
                )
        except Conflict:
            form.add_error("name", _("There is already a group with this name."))
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            if is_final(request):
                audit(request, "group.create", name, None, before_and_after(change)[1])
                messages.success(request, _("Group %(name)s created.") % {"name": name})
                return redirect("group", name)
            context = {"form": form, "change": change, "new": True, "name": name}
            context |= {"heading": _("Create %(name)s?") % {"name": name}, "apply": _("Create the group")}
            return render(request, "groups/preview.html", context)
    context = {"form": form, "new": True, "heading": _("Create a group")}
    return render(request, "groups/form.html", context, status=form_status(form))


def group_edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change a group's settings. No setting of a group loses messages, so there is nothing to force."""
    settings = _stored_settings(name)
    form = GroupForm(request.POST or None, initial=settings.values, new=False)
    revision = request.POST.get("revision") or settings.revision
    context: dict[str, Any] = {
        "name": name,
        "revision": revision,
        "heading": _("Settings of %(name)s") % {"name": name},
    }
    if is_submitted(request) and form.is_valid():
        try:
            with failure_audited(request, "group.edit", name):
                change = runtime.window().group_commands.edit(
                    name, revision=revision, **form.cleaned_data, dry_run=not is_final(request), by=request.user.label
                )
        except Conflict:
            form = GroupForm(initial=settings.values, new=False)
            context |= {"form": form, "revision": settings.revision, "changed": True}
            return render(request, "groups/form.html", context, status=409)
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            if is_final(request):
                audit(request, "group.edit", name, *before_and_after(change))
                messages.success(request, _("Settings of %(name)s saved.") % {"name": name})
                return redirect("group", name)
            context |= {"form": form, "change": change}
            context |= {"heading": _("Change %(name)s?") % {"name": name}, "apply": _("Apply")}
            return render(request, "groups/preview.html", context)
    return render(request, "groups/form.html", context | {"form": form}, status=form_status(form))


def group_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a group once its name was typed, with its offsets unless they are to stay."""
    offsets = request.POST.get("offsets") != "keep"
    context = {"name": name, "change": runtime.window().group_commands.delete(name, offsets=offsets, dry_run=True)}
    context |= {"heading": _("Delete %(name)s?") % {"name": name}, "offsets": offsets}
    page = runtime.window().group_now.queues(name, sort="queue", page_size=_OFFSETS_SHOWN)
    context |= {"page": page, "hidden": page.total - len(page.rows)}
    if request.method != "POST":
        return render(request, "groups/delete.html", context)
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = _("This is not the group's name.")
        return render(request, "groups/delete.html", context, status=422)
    revision = request.POST.get("revision") or None
    force = is_forced(request)
    try:
        with failure_audited(request, "group.delete", name):
            done = runtime.window().group_commands.delete(
                name, offsets=offsets, revision=revision, force=force, by=request.user.label
            )
    except Blocked as error:
        audit(request, "group.delete", name, result="refused")
        context |= {"change": error.change, "error": _("It is in use. Tick “Delete anyway” to delete it.")}
        return render(request, "groups/delete.html", context, status=409)
    audit(request, "group.delete", name, before_and_after(done)[0], {"force": force, "offsets": offsets})
    messages.success(request, _("Group %(name)s deleted.") % {"name": name})
    return redirect("groups")


def _stored_settings(name: str) -> Any:
    """Return a group's settings. Raises NotFound for a group that is known only by its offsets or clients."""
    settings = runtime.window().groups.detail(name).settings
    if settings is None:
        raise NotFound("group", name)
    return settings
