"""Making, changing and deleting what has settings: topics and consumer groups. Shown first, done after, written down.

A `Noun` says in what the two differ; the flow is the same: a form, a page with the difference and its consequences, the
act. Deleting asks for the name, and for the password when it was given long ago (the view is decorated with that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from ...engine.errors import Blocked, Conflict, InvalidInput, StoreBroken, Unavailable
from ..audit import audit
from .window import refusal_text

if TYPE_CHECKING:
    from ...engine.window.snapshots import Change


class SettingsForm(forms.Form):
    """Settings; `name` only while the thing is new."""

    name: forms.Field

    def __init__(self, *args: Any, new: bool, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        if not new:
            del self.fields["name"]


@dataclass(frozen=True, slots=True)
class Noun:
    """word: begins the names of views, templates' directory and audit entries, "topic". texts: see `topics.NOUN`.

    first: a new one's values. settings: what there is, with a `revision`; initial: the form's values of that. create,
    edit, delete: of the window, by name; create and edit take the form's values.
    """

    word: str
    form: type[SettingsForm]
    first: Mapping[str, object]
    texts: Mapping[str, str | Promise]
    settings: Callable[[str], Any]
    initial: Callable[[Any], dict[str, object]]
    create: Callable[..., Change]
    edit: Callable[..., Change]
    delete: Callable[..., Change]
    more: Callable[[SettingsForm], dict[str, object]] = lambda form: {}

    def text(self, key: str, name: str = "") -> str:
        return str(self.texts[key]) % {"name": name}

    def context(self, name: str = "") -> dict[str, Any]:
        """What every page of a change shows: where it belongs, and where its Cancel leads."""
        list_address = reverse(f"{self.word}s")
        own = reverse(self.word, args=[name]) if name else list_address
        return {"noun": self.word, "name": name, "list_address": list_address, "list_label": self.texts["list"],
                "address": own}  # fmt: skip


def create(request: HttpRequest, noun: Noun) -> HttpResponse:
    """Fill in, look at what will be, make it."""
    form = noun.form(request.POST or None, initial=dict(noun.first), new=True)
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "back":
        name, values = _values(form)
        apply = request.POST.get("step") == "apply"
        try:
            with failing(request, f"{noun.word}.create", name):
                change = noun.create(name, **values, dry_run=not apply, by=request.user.label)
        except Conflict:
            form.add_error("name", noun.text("taken"))
        except InvalidInput as error:
            _put_error(form, error)
        else:
            if apply:
                audit(request, f"{noun.word}.create", name, None, sides(change)[1])
                messages.success(request, noun.text("made", name))
                return HttpResponseRedirect(reverse(noun.word, args=[name]))
            context = noun.context() | {"form": form, "change": change, "new": True, "name": name}
            context |= {"heading": noun.text("create?", name), "apply": noun.text("create it")}
            return render(request, "changes/preview.html", context)
    context = noun.context() | {"new": True, "heading": noun.text("create")}
    return _form_page(request, noun, form, context)


def edit(request: HttpRequest, noun: Noun, name: str) -> HttpResponse:
    """Change the settings; what would be lost needs to be said yes to."""
    settings = noun.settings(name)
    form = noun.form(request.POST or None, initial=noun.initial(settings), new=False)
    context = noun.context(name) | {"revision": request.POST.get("revision") or settings.revision}
    preview = {"heading": noun.text("change?", name), "apply": _("Apply")}
    context["heading"] = noun.text("settings", name)
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "back":
        apply = request.POST.get("step") == "apply"
        force = request.POST.get("force") == "yes"
        try:
            with failing(request, f"{noun.word}.edit", name):
                change = noun.edit(
                    name, revision=context["revision"], **_values(form)[1], force=force, dry_run=not apply,
                    by=request.user.label,
                )  # fmt: skip
        except Conflict:
            form = noun.form(initial=noun.initial(settings), new=False)
            context |= {"revision": settings.revision, "changed": True}
            return _form_page(request, noun, form, context, 409)
        except Blocked as error:
            audit(request, f"{noun.word}.edit", name, result="refused")
            context |= preview | {"form": form, "change": error.change}
            return render(request, "changes/preview.html", context, status=409)
        except InvalidInput as error:
            _put_error(form, error)
        else:
            if apply:
                audit(request, f"{noun.word}.edit", name, *sides(change))
                messages.success(request, noun.text("changed", name))
                return HttpResponseRedirect(reverse(noun.word, args=[name]))
            return render(request, "changes/preview.html", context | preview | {"form": form, "change": change})
    return _form_page(request, noun, form, context)


def delete(request: HttpRequest, noun: Noun, name: str, **options: object) -> HttpResponse:
    """What goes with it, its name typed in, and then it is gone. options: further arguments of `noun.delete`."""
    change = noun.delete(name, dry_run=True, **options)
    context = noun.context(name) | {"change": change, "heading": noun.text("delete?", name)}
    context |= {"lead": noun.texts["delete lead"], "apply": noun.texts["delete"], "options": options}
    if request.method != "POST":
        return render(request, f"{noun.word}s/delete.html", context)
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = noun.text("not its name")
        return render(request, f"{noun.word}s/delete.html", context, status=422)
    force = request.POST.get("force") == "yes"
    try:
        with failing(request, f"{noun.word}.delete", name):
            done = noun.delete(
                name, revision=request.POST.get("revision") or None, force=force, by=request.user.label, **options
            )
    except Blocked as error:
        audit(request, f"{noun.word}.delete", name, result="refused")
        context |= {"change": error.change, "error": _("It is in use: say that it may be deleted all the same.")}
        return render(request, f"{noun.word}s/delete.html", context, status=409)
    audit(request, f"{noun.word}.delete", name, sides(done)[0], {"force": force} | options)
    messages.success(request, noun.text("deleted", name))
    return HttpResponseRedirect(reverse(f"{noun.word}s"))


@contextmanager
def failing(request: HttpRequest, action: str, target: str) -> Iterator[None]:
    """Write down that an act did not come to its end: some of it may have been done."""
    try:
        yield
    except (Unavailable, StoreBroken) as error:
        audit(request, action, target, None, {"reason": str(error)}, "failed")
        raise


def sides(change: Change) -> tuple[dict[str, object], dict[str, object]]:
    """(before, after) of a change's differences, for the audit log."""
    before: dict[str, object] = {one.field: one.before for one in change.differences}
    return before, {one.field: one.after for one in change.differences}


def _values(form: SettingsForm) -> tuple[str, dict[str, Any]]:
    """(name or "", keyword arguments of create and edit)."""
    values = dict(form.cleaned_data)
    return values.pop("name", ""), values


def _put_error(form: SettingsForm, error: InvalidInput) -> None:
    form.add_error(error.field if error.field in form.fields else None, refusal_text(error))


def _form_page(
    request: HttpRequest, noun: Noun, form: SettingsForm, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    context |= {"form": form} | noun.more(form)
    return render(request, f"{noun.word}s/form.html", context, status=422 if form.is_bound and form.errors else status)
