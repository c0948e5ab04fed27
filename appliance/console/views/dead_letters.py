"""Dead letters: the groups that have some, those of a group, and sending them again, as jobs that are watched."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, NotFound
from ..audit import audit
from ..forms import Form
from ..identity import names_for
from ..scope import cut
from .changes import add_refusal, failure_audited, form_status, is_final, is_submitted
from .window import (
    PAGE_SIZE,
    all_rows,
    asks_the_engine,
    csv_answer,
    not_found_sentence,
    page_number,
    refusal_text,
    time_asked,
    time_shown,
    topic_names,
    wants_csv,
)  # fmt: skip

#: Kinds of results, as the window names them.
RESULTS = ("replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_reached")
#: Dead letters that one form may name; more are chosen by time.
MOST_PICKED = 500


class ReplayForm(Form):
    """Where dead letters go, how fast, and which: those of a time, or picked ones as `queue-offset`."""

    target = forms.ChoiceField(
        label=gettext_lazy("Send them to"),
        choices=(
            ("group", gettext_lazy("this group only, through its retry topic")),
            ("original", gettext_lazy("the topic each was sent to: every group there gets it again")),
            ("topic", gettext_lazy("another topic")),
        ),
    )
    topic = forms.CharField(
        label=gettext_lazy("The other topic"),
        required=False,
        max_length=127,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
    )
    rate = forms.IntegerField(label=gettext_lazy("Messages a second, at most"), min_value=1, max_value=10_000)
    max_replays = forms.IntegerField(
        label=gettext_lazy("Skip what was replayed this often"),
        min_value=1,
        max_value=1000,
        help_text=gettext_lazy("So that a message that fails each time does not go round for ever."),
    )
    picked = forms.CharField(required=False, max_length=MOST_PICKED * 24, widget=forms.HiddenInput)
    # As in the address: a moment in UTC, or milliseconds.
    from_ms = forms.CharField(required=False, max_length=32, widget=forms.HiddenInput)
    to_ms = forms.CharField(required=False, max_length=32, widget=forms.HiddenInput)

    def clean_picked(self) -> list[tuple[int, int]]:
        found = []
        for word in self.cleaned_data["picked"].split():
            queue_id, dash, offset = word.partition("-")
            numbers = queue_id + offset
            if not (dash and queue_id and offset and numbers.isascii() and numbers.isdigit() and len(word) <= 30):
                raise forms.ValidationError(_("“%(word)s” is not a queue and an offset.") % {"word": word[:40]})
            found.append((int(queue_id), int(offset)))
        return found

    def clean_from_ms(self) -> int | None:
        return _milliseconds(self.cleaned_data["from_ms"])

    def clean_to_ms(self) -> int | None:
        return _milliseconds(self.cleaned_data["to_ms"])


def _milliseconds(text: str) -> int | None:
    if text and not (text.isascii() and text.isdigit()):
        raise forms.ValidationError(_("“%(text)s” is not a date and time.") % {"text": text[:40]})
    return int(text) if text else None


@require_safe
@asks_the_engine
def dead_letter_groups(request: HttpRequest) -> HttpResponse:
    """The groups that have dead letters, and the replays; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    sort = request.GET.get("sort", "-count")
    admin = runtime.window()

    def fetch(page: int, size: int) -> Any:
        return admin.dead_letter_groups(q, sort, page, size)

    fetch_cut = cut(request, "group", fetch)
    if wants_csv(request):
        return csv_answer(
            "dead-letters",
            ("group", "dead_letters", "oldest_ms", "newest_ms", "expires_not_before_ms", "replay"),
            (
                (row.group, row.count, row.oldest_ms, row.newest_ms, row.expires_not_before_ms, row.job)
                for row in all_rows(fetch_cut)
            ),
        )
    found = admin.replay_jobs()
    context = {"page": fetch_cut(page_number(request), PAGE_SIZE), "q": q, "sort": sort}
    names = names_for(request.user)
    context |= {"jobs": [job for job in found.jobs if names.has_group(job.group)][:20]}
    context |= {"unreadable": found.unreadable if names.is_every else ()}
    return render(request, "dead_letters/groups.html", context)


@require_safe
@asks_the_engine
def dead_letters(request: HttpRequest, name: str) -> HttpResponse:
    """A group's dead letters, newest first; those that are ticked go to the form below."""
    context: dict[str, Any] = {
        "group": name,
        "asked": {"from": request.GET.get("from", ""), "to": request.GET.get("to", "")},
    }
    admin = runtime.window()
    status = 200
    try:
        from_ms, to_ms = time_asked(request, "from"), time_asked(request, "to")
        context["asked"] = {"from": time_shown(from_ms), "to": time_shown(to_ms)}
        context |= {"from_ms": from_ms, "to_ms": to_ms}
        cursor = request.GET.get("cursor") or None
        context["page"] = admin.dead_letters(name, from_ms=from_ms, to_ms=to_ms, cursor=cursor, limit=PAGE_SIZE)
    except InvalidInput as error:
        context["error"] = refusal_text(error)
        status = 422
    context["jobs"] = admin.replay_jobs(name).jobs[:10]
    return render(request, "dead_letters/group.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def replay_create(request: HttpRequest, name: str) -> HttpResponse:
    """Which dead letters to send again, and where: fill in, see what would happen, start."""
    runtime.window().dead_letters(name, limit=1)  # there are some, perhaps of a group that was deleted
    picked = request.GET.getlist("pick")
    if "ticked" in request.GET and not picked:  # not all of them, then
        messages.warning(request, _("No dead letter is ticked."))
        return redirect("dead_letters", name)
    if len(picked) > MOST_PICKED:
        raise InvalidInput("pick", _("These are more than one form takes; choose them by time."))
    initial = {
        "target": "group",
        "rate": 100,
        "max_replays": 3,
        "picked": " ".join(picked),
        "from_ms": request.GET.get("from_ms", ""),
        "to_ms": request.GET.get("to_ms", ""),
    }
    form = ReplayForm(request.POST or None, initial=initial)
    context: dict[str, Any] = {"group": name, "topics": topic_names(), "heading": _("Replay dead letters")}
    if is_submitted(request) and form.is_valid():
        asked = dict(form.cleaned_data)
        picked = asked.pop("picked")
        asked["topic"] = asked["topic"] or None
        try:
            with failure_audited(request, "replay.start", name):
                plan = runtime.window().start_replay(
                    name, **asked, offsets=picked or None, dry_run=not is_final(request), by=request.user.label
                )
        except NotFound as error:
            form.add_error("target" if error.kind == "group" else "topic", not_found_sentence(error))
        except InvalidInput as error:
            add_refusal(form, error)
        except Conflict as error:
            form.add_error(None, refusal_text(error))
        else:
            if plan.job is not None:
                audit(request, "replay.start", name, None, {"replay": plan.job.id, "messages": plan.total} | asked)
                return redirect("replay", plan.job.id)
            heading = _("Replay dead letters of %(group)s?") % {"group": name}
            would = sum(count for _topic, count in plan.by_topic)
            context |= {"form": form, "plan": plan, "would": would, "heading": heading, "asked": asked}
            return render(request, "dead_letters/preview.html", context)
    context["form"] = form
    return render(request, "dead_letters/form.html", context, status=form_status(form))


@require_safe
@asks_the_engine
def replay(request: HttpRequest, job: str) -> HttpResponse:
    """One replay: how far it is, and what became of each message; `format=csv` for the results."""
    admin = runtime.window()
    result = request.GET.get("result", "")
    found = admin.replay_job(job)
    if wants_csv(request):
        rows: list[Any] = []
        cursor = None
        while len(rows) < 10_000:
            part = admin.replay_results(job, result=result or None, cursor=cursor, limit=500)
            rows += part.rows
            cursor = part.next_cursor
            if cursor is None:
                break
        return csv_answer(
            f"replay-{job}",
            ("number", "queue", "offset", "result", "why"),
            (
                (row.number, row.queue_id, row.queue_offset, row.result, None if row.why is None else row.why.code)
                for row in rows
            ),
        )
    page = admin.replay_results(job, result=result or None, cursor=request.GET.get("cursor") or None, limit=PAGE_SIZE)
    context = {"job": found, "page": page, "result": result, "results": RESULTS}
    return render(request, "dead_letters/replay.html", context)


@require_safe
@asks_the_engine
def replay_progress(request: HttpRequest, job: str) -> HttpResponse:
    """How far it is, for the page to show every second; once it has ended the page loads its results again."""
    found = runtime.window().replay_job(job)
    response = render(request, "dead_letters/_progress.html", {"job": found})
    if found.finished:
        response.headers["HX-Refresh"] = "true"
    return response


@require_POST
@asks_the_engine
def replay_act(request: HttpRequest, job: str) -> HttpResponse:
    """Pause it, have it go on, or end it for good."""
    admin = runtime.window()
    what = request.POST.get("what", "")
    acts = {"pause": admin.pause_replay, "resume": admin.resume_replay, "cancel": admin.cancel_replay}
    act = acts.get(what)
    if act is None:
        raise InvalidInput("what", _("There is no such act."))
    try:
        with failure_audited(request, f"replay.{what}", job):
            done = act(job, by=request.user.label)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
    else:
        audit(request, f"replay.{what}", job, None, {"group": done.group, "replayed": done.replayed})
    return redirect("replay", job)
