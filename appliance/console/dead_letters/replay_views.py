"""Replays, jobs that send dead letters again: a form, a preview, then the progress and the result of each message."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import AdminError, Conflict, InvalidInput, NotFound
from ..audit.log import audit
from ..live import streams
from ..pages import errors
from ..pages.changes import add_refusal, failure_audited, form_status, is_final, is_submitted
from ..pages.engine_pages import PAGE_SIZE, MomentField, cell, not_found_sentence, refusal_text, topic_names
from ..pages.outcomes import way_back
from ..sign_in.forms import Form
from ..sign_in.identity import names_for
from .views import FILTER, letters_asked

#: Kinds of results, as the window names them.
RESULTS = ("chosen", "replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_chosen", "not_reached")
#: Most dead letters that one form may name; more are chosen by a filter.
MOST_PICKED = 500
#: Results that are read at a time for a download, and seconds between two such steps.
STEP, REST_S = 500, 0.005


class LettersForm(Form):
    """The dead letters of a filter and time, or picked ones as `queue-offset`."""

    picked = forms.CharField(required=False, max_length=MOST_PICKED * 24, widget=forms.HiddenInput)
    # In the forms that the address has: a moment as people type it, or milliseconds.
    from_ms = MomentField(widget=forms.HiddenInput)
    to_ms = MomentField(widget=forms.HiddenInput)
    # The filter, as in the address of the list.
    origin = forms.CharField(required=False, max_length=255, widget=forms.HiddenInput, strip=False)
    no_origin = forms.CharField(required=False, max_length=8, widget=forms.HiddenInput)
    retries = forms.CharField(required=False, max_length=10, widget=forms.HiddenInput)
    key = forms.CharField(required=False, max_length=1024, widget=forms.HiddenInput)
    replayed = forms.CharField(required=False, max_length=8, widget=forms.HiddenInput)

    def clean_picked(self) -> list[tuple[int, int]]:
        found = []
        for word in self.cleaned_data["picked"].split():
            queue_id, dash, offset = word.partition("-")
            numbers = queue_id + offset
            if not (dash and queue_id and offset and numbers.isascii() and numbers.isdigit() and len(word) <= 30):
                raise forms.ValidationError(_("“%(word)s” is not a queue and an offset.") % {"word": word[:40]})
            found.append((int(queue_id), int(offset)))
        return found


class ReplayForm(LettersForm):
    """The dead letters to replay, their target, and the rate."""

    target = forms.ChoiceField(
        label=gettext_lazy("Send them to"),
        choices=(
            ("group", gettext_lazy("this group only, through its retry topic")),
            ("original", gettext_lazy("the topic each was sent to: every group there gets it again")),
            ("topic", gettext_lazy("another topic")),
        ),
        widget=forms.RadioSelect,
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


#: Fields that the form takes over from the address of the list.
CARRIED = ("from_ms", "to_ms", "origin", "no_origin", "retries", "key", "replayed")


def started(plan: Any) -> dict[str, Any]:
    """Return the values of a new replay for the audit log."""
    job = plan.job
    said = {"replay": job.id, "messages": job.total, "target": job.target, "topic": job.topic, "rate": job.rate}
    if job.filter is not None:
        said["filter"] = {name: value for name, value in asdict(job.filter).items() if value is not None}
    return said | {"max_replays": job.max_replays}


def wanted_of(form: LettersForm) -> Any:
    """Return the filter in a form, for the sentence above it; None if there is none."""
    values = {name: form[name].value() or "" for name in ("origin", "no_origin", "retries", "key", "replayed")}
    return values if any(values.values()) else None


def may_see(request: HttpRequest, job: Any) -> bool:
    """True if the caller may access the replay's group."""
    return names_for(request.user).has_group(job.group)


def may_send(request: HttpRequest, target: str, topic: str | None) -> bool:
    """True if the caller may send to the target of a replay. A caller who may not can neither start such a replay nor
    control one of another user."""
    names = names_for(request.user)
    if target == "original":  # may be any topic
        return not names.topics
    return target != "topic" or topic is None or names.has_topic(topic)


def replay_create(request: HttpRequest, name: str) -> HttpResponse:
    """Start a replay: a form with the dead letters and their target, a preview, then the start."""
    runtime.window().dead_letters.page(name, limit=1)  # raises if there are none; the group itself may be deleted
    picked = request.GET.getlist("pick")
    back = way_back(request, FILTER, "dead_letters", name)
    if "ticked" in request.GET and not picked:  # none was ticked, which must not mean all of them
        messages.warning(request, _("No dead letter is ticked."))
        return redirect(back)
    if len(picked) > MOST_PICKED:
        raise InvalidInput("pick", _("These are more than one form takes; choose them by time."))
    initial = {
        "target": "group",
        "rate": 100,
        "max_replays": 3,
        "picked": " ".join(picked),
        **{name: "" if picked else request.GET.get(name, "") for name in CARRIED},
    }
    form = ReplayForm(request.POST or None, initial=initial)
    context: dict[str, Any] = {"group": name, "topics": topic_names(), "heading": _("Replay dead letters")}
    if is_submitted(request) and form.is_valid():
        asked = {name: form.cleaned_data[name] for name in ("target", "rate", "max_replays", "from_ms", "to_ms")}
        picked = form.cleaned_data["picked"]
        asked["topic"] = form.cleaned_data["topic"] or None
        if not may_send(request, asked["target"], asked["topic"]):
            return errors.outside_pattern(request, str(names_for(request.user)))
        try:
            asked["wanted"] = letters_asked(request.POST)
            with failure_audited(request, "replay.start", name):
                plan = runtime.window().replay_commands.start(
                    name, **asked, offsets=picked or None, dry_run=not is_final(request), by=request.user.label
                )
        except NotFound as error:
            form.add_error("target" if error.kind == "group" else "topic", not_found_sentence(error))
        except (InvalidInput, Conflict) as error:
            add_refusal(form, error)
        else:
            if plan.job is not None:
                audit(request, "replay.start", name, None, started(plan))
                return redirect("replay", plan.job.id)
            heading = _("Replay dead letters of %(group)s?") % {"group": name}
            would = sum(one.count for one in plan.by_topic)
            context |= {"form": form, "plan": plan, "would": would, "heading": heading, "asked": asked}
            context["takes_s"] = (would if plan.truncated is False else plan.total) / asked["rate"]
            return render(request, "dead_letters/preview.html", context)
    context |= {"form": form, "wanted": wanted_of(form)}
    return render(request, "dead_letters/form.html", context, status=form_status(form))


def replay(request: HttpRequest, job: str) -> HttpResponse:
    """Show a replay: its progress, and the result of each message."""
    admin = runtime.window()
    result = request.GET.get("result") or "chosen"
    found = admin.replays.job(job)
    if not may_see(request, found):
        return errors.outside_pattern(request, str(names_for(request.user)))
    page = admin.replays.results(job, result=result, cursor=request.GET.get("cursor") or None, limit=PAGE_SIZE)
    context = {"job": found, "page": page, "result": result, "results": RESULTS}
    return render(request, "dead_letters/replay.html", context)


def replay_progress(request: HttpRequest, job: str) -> HttpResponse:
    """Return the replay's progress, which the page loads every second; after its end the page loads again, with the
    results."""
    found = runtime.window().replays.job(job)
    if not may_see(request, found):
        return errors.outside_pattern(request, str(names_for(request.user)))
    response = render(request, "dead_letters/_progress.html", {"job": found})
    if found.finished:
        response.headers["HX-Refresh"] = "true"
    return response


async def replay_results_file(request: HttpRequest, job: str) -> HttpResponse | StreamingHttpResponse:
    """Download the results of all messages, streamed as they are read; `format=ndjson`, else CSV."""
    admin = runtime.window()
    kind = "ndjson" if request.GET.get("format") == "ndjson" else "csv"
    result = request.GET.get("result") or "chosen"
    try:
        if not may_see(request, await asyncio.to_thread(admin.replays.job, job)):
            return errors.outside_pattern(request, str(names_for(request.user)))
        first = await asyncio.to_thread(admin.replays.results, job, result=result, limit=STEP)
    except AdminError as error:
        status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, InvalidInput) else 503
        return HttpResponse(refusal_text(error), status=status, content_type="text/plain; charset=utf-8")
    kinds = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}
    stream = streams.begin(request)
    if stream is None:
        return errors.too_many_streams(request)
    response = StreamingHttpResponse(_results(stream, job, result, first, kind), content_type=kinds[kind])
    response.headers["Content-Disposition"] = content_disposition_header(True, f"replay-{job}.{kind}") or ""
    response.headers["Cache-Control"] = "no-store"
    return response


async def _results(stream: streams.Stream, job: str, result: str, first: Any, kind: str) -> AsyncIterator[bytes]:
    """Yield the results step by step. If the replay goes on meanwhile, messages in the first rows may have a later
    result by the end."""
    page = first
    try:
        yield _as_csv([_COLUMNS]) if kind == "csv" else b""
        while True:
            rows = [_row(one) for one in page.rows]
            yield _as_csv(rows) if kind == "csv" else _as_ndjson(rows)
            if page.next_cursor is None:
                return
            await asyncio.sleep(REST_S)
            page = await asyncio.to_thread(
                runtime.window().replays.results, job, result=result, cursor=page.next_cursor, limit=STEP
            )
    finally:
        stream.end()


_COLUMNS = (
    "number",
    "queue",
    "offset",
    "result",
    "why",
    "died_again",
    "origin_topic",
    "origin_id",
    "unique_id",
    "keys",
)


def _row(one: Any) -> tuple[Any, ...]:
    why = None if one.why is None else one.why.code
    again = None if one.died_again is None else ("yes" if one.died_again else "no")
    return (
        one.number, one.queue_id, one.queue_offset, one.result, why, again, one.origin_topic, one.origin_id,
        one.unique_id, " ".join(one.keys),
    )  # fmt: skip


def _as_csv(rows: list[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode(errors="replace")


def _as_ndjson(rows: list[tuple[Any, ...]]) -> bytes:
    return b"".join(json.dumps(dict(zip(_COLUMNS, row, strict=True))).encode() + b"\n" for row in rows)


def replay_act(request: HttpRequest, job: str) -> HttpResponse:
    """Pause, resume or cancel a replay."""
    admin = runtime.window()
    what = request.POST.get("what", "")
    acts = {
        "pause": admin.replay_commands.pause,
        "resume": admin.replay_commands.resume,
        "cancel": admin.replay_commands.cancel,
    }
    act = acts.get(what)
    if act is None:
        raise InvalidInput("what", _("There is no such act."))
    found = admin.replays.job(job)
    if not may_see(request, found) or not may_send(request, found.target, found.topic):
        return errors.outside_pattern(request, str(names_for(request.user)))
    try:
        with failure_audited(request, f"replay.{what}", job):
            done = act(job, by=request.user.label)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
    else:
        audit(request, f"replay.{what}", job, None, {"group": done.group, "replayed": done.replayed})
    return redirect("replay", job)
