"""Resets of a group's offsets: a form, a preview for each queue, the act, then a page that shows its progress. A reset
can be undone in the same way for a day."""

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
from ..pages import errors
from ..pages.changes import add_refusal, failure_audited, form_status, is_final, is_submitted
from ..pages.engine_pages import (
    MomentField,
    carry_moment,
    csv_answer,
    csv_of,
    not_found_sentence,
    refusal_text,
    topic_names,
    wants_csv,
)
from ..sign_in.forms import Form
from ..sign_in.identity import names_for
from ..users.scope import may_move
from .reset_notes import note_reset

#: Most queues that a page shows; the totals and the CSV have all of them.
MOST_SHOWN = 200
#: Most queues that one form may name.
_MOST_QUEUES = 4096
#: The largest offset or shift that the form takes.
_MOST = (1 << 62) - 1
#: Order of the states on the progress page; other states come last.
_ORDER = {"given_up": 0, "told": 1, "waiting": 2}


class ResetForm(Form):
    """The queues to move, and the target."""

    topic = forms.CharField(
        label=gettext_lazy("Topic"),
        required=False,
        max_length=1024,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("Empty: all topics of the group. Its retry topic moves only when it is named."),
    )
    queues = forms.CharField(
        label=gettext_lazy("Queues"),
        required=False,
        max_length=32_000,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "0-3, 7"}),
        help_text=gettext_lazy("Empty: all queues."),
    )
    to = forms.ChoiceField(
        label=gettext_lazy("Move to"),
        required=False,
        widget=forms.RadioSelect,
        choices=(
            ("time", gettext_lazy("a time: the first message stored then or later")),
            ("earliest", gettext_lazy("the earliest message that is kept")),
            ("latest", gettext_lazy("the end: skip all that waits")),
            ("skip", gettext_lazy("behind the message with the offset below, unless the group has gone on")),
            ("offset", gettext_lazy("an offset, the same in each queue named above")),
            ("shift", gettext_lazy("so many messages on, or back with a minus")),
        ),
    )
    at_ms = MomentField(label=gettext_lazy("Time"))
    offset = forms.IntegerField(label=gettext_lazy("Offset"), required=False, min_value=0, max_value=_MOST)
    by = forms.IntegerField(label=gettext_lazy("Messages"), required=False, min_value=-_MOST, max_value=_MOST)

    def clean_queues(self) -> list[int] | None:
        return queues_of(self.cleaned_data["queues"])

    def clean(self) -> dict[str, Any]:
        """Take a time, an offset or a number alone for its target."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not cleaned.get("to") and "to" not in self.errors:
            given = [name for name in ("at_ms", "offset", "by") if cleaned.get(name) is not None]
            cleaned["to"] = runtime.window().offset_target_meant(given)
            if cleaned["to"] is None and not {"at_ms", "offset", "by"} & self.errors.keys():
                self.add_error("to", _("Choose where to move them."))
        return cleaned


def queues_of(text: str) -> list[int] | None:
    """Parse `0-3, 7` into numbers; None for an empty text. Raises ValidationError."""
    found: dict[int, None] = {}
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            raise forms.ValidationError(_("“%(word)s” is not a queue, and no range of queues.") % {"word": word[:40]})
        low, high = int(ends[0]), int(ends[1])
        if high < low or high - low >= _MOST_QUEUES or len(found) > _MOST_QUEUES:
            raise forms.ValidationError(_("“%(word)s” is not a queue, and no range of queues.") % {"word": word[:40]})
        found.update(dict.fromkeys(range(low, high + 1)))
    return list(found) or None


def group_reset(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form, then its preview queue by queue, then do it. `to=latest&step=preview` in the address skips the
    form."""
    names = names_for(request.user)
    detail = runtime.window().groups.detail(name)
    asked = {key: request.GET.get(key, "") for key in ("topic", "queues", "to", "at_ms", "offset", "by")}
    quick = request.method == "GET" and request.GET.get("step") == "preview"
    form = ResetForm(request.POST if request.method == "POST" else asked if quick else None, initial=asked)
    context: dict[str, Any] = {"name": name, "form": form, "clients": detail.clients}
    if (quick or is_submitted(request)) and form.is_valid():
        try:
            if not names.is_every and not may_move(request.user, _reset(request, name, form.cleaned_data, False)):
                return errors.outside_pattern(request, str(names))
            done = _reset(request, name, form.cleaned_data, is_final(request))
        except NotFound as error:
            if error.kind == "group":
                raise
            form.add_error("queues" if error.kind == "queue" else "topic", not_found_sentence(error))
        except InvalidInput as error:
            add_refusal(form, error)
        except Conflict as error:
            context["changed"] = refusal_text(error)
        else:
            if done.applied:
                return redirect("group_reset_done", name, done.id)
            carry_moment(form, "at_ms")
            context |= {"preview": done, "moves": done.moves[:MOST_SHOWN], "hidden": len(done.moves) - MOST_SHOWN}
            skips_one = (len(done.moves), done.skips, done.replays) == (1, 1, 0)
            heading = _("Skip one message of %(name)s?") if skips_one else _("Move the offsets of %(name)s?")
            context["heading"] = heading % {"name": name}
            return render(request, "groups/reset_preview.html", context)
    context |= {"topics": _topics_of(detail), "heading": _("Move the offsets of %(name)s") % {"name": name}}
    status = 409 if "changed" in context else form_status(form)
    return render(request, "groups/reset_form.html", context, status=status)


def _reset(request: HttpRequest, name: str, asked: dict[str, Any], final: bool) -> Any:
    """Preview a reset, or (final) do it and write it to the audit log."""
    admin = runtime.window()
    to, queues = asked["to"], asked["queues"]
    # The form keeps what was typed for another target.
    used = {field: asked[field] for field in ("at_ms", "offset", "by") if admin.offset_target_uses(to, field)}
    target = admin.offset_target(to, queues=queues, **used)
    options: dict[str, Any] = {"queue_id": queues, "by": request.user.label}
    topic = asked["topic"] or None
    if not final:
        return admin.offset_commands.reset(name, topic, target, dry_run=True, **options)
    revision = request.POST.get("revision") or None
    with failure_audited(request, "group.reset", name):
        done = admin.offset_commands.reset(name, topic, target, revision=revision, **options)
    note_reset(request, "group.reset", done)
    return done


def _topics_of(detail: Any) -> list[str]:
    """Return the names of topics, the group's own first, its retry topic included."""
    own = list(dict.fromkeys(queue.topic for queue in detail.queues))
    return own + [name for name in topic_names() if name not in own]


def group_resets(request: HttpRequest, name: str) -> HttpResponse:
    """Show the group's resets of the last day, newest first; `format=csv` as a file."""
    admin = runtime.window()
    found = admin.offsets.of_group(name)
    if wants_csv(request):
        return csv_answer(
            f"resets-{name}",
            ("id", "kind", "at_ms", "by", "asked", "queues", "replays", "skips", "undone_by"),
            (
                (one.id, one.kind, one.at_ms, one.by, one.asked, len(one.moves), one.replays, one.skips, one.undone_by)
                for one in found
            ),
        )
    return render(request, "groups/resets.html", {"name": name, "resets": found, "tab": "resets"})


def group_reset_done(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show one reset and the progress of each queue; `format=csv` for all queues."""
    found = _of(name, number)
    if wants_csv(request):
        columns = "topic queue=queue_id before to now replays skips state"
        return csv_of(f"reset-{number}", columns, found.moves)
    return render(request, "groups/reset.html", {"name": name, **_progress(found)})


def group_reset_progress(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Return the reset's progress, which the page loads every second until the reset is complete."""
    return render(request, "groups/_reset_progress.html", {"name": name, **_progress(_of(name, number))})


def group_reset_undo(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Undo a reset: show what that would do, then do it."""
    if not may_move(request.user, _of(name, number)):
        return errors.outside_pattern(request, str(names_for(request.user)))
    admin = runtime.window()
    if is_final(request):
        revision = request.POST.get("revision") or None
        try:
            with failure_audited(request, "group.undo_reset", name):
                done = admin.offset_commands.undo(number, revision=revision, by=request.user.label)
        except Conflict as error:
            messages.warning(request, refusal_text(error))
            return redirect("group_reset_done", name, number)
        note_reset(request, "group.undo_reset", done)
        return redirect("group_reset_done", name, done.id)
    try:
        preview = admin.offset_commands.undo(number, dry_run=True, by=request.user.label)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
        return redirect("group_reset_done", name, number)
    context = {"name": name, "preview": preview, "number": number}
    context |= {"moves": preview.moves[:MOST_SHOWN], "hidden": len(preview.moves) - MOST_SHOWN}
    context["heading"] = _("Take the reset of %(name)s back?") % {"name": name}
    return render(request, "groups/reset_preview.html", context)


def _of(name: str, number: int) -> Any:
    """Return a reset of this group. Raises NotFound."""
    found = runtime.window().offsets.one(number)
    if found.group != name:
        raise NotFound("reset", str(number))
    return found


def _progress(found: Any) -> dict[str, Any]:
    moves = sorted(found.moves, key=lambda move: _ORDER.get(move.state, 3))
    counts = found.states
    return {
        "reset": found,
        "moves": moves[:MOST_SHOWN],
        "hidden": len(moves) - MOST_SHOWN,
        "counts": counts,
        "there": sum(count for state, count in counts.items() if state not in ("waiting", "told")),
    }
