"""Messages that wait until they are due: a histogram by due time, a list, and acts on them before that.

An act on ticked messages, or on all of a filter, has three pages: a preview, the act itself, and its result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import AdminError, InvalidInput
from ..audit.log import audit
from ..pages.changes import failure_audited, is_final
from ..pages.curl import curl
from ..pages.engine_pages import PAGE_SIZE, refusal_text, time_asked, time_shown, topic_names
from ..pages.outcomes import Line, counted, keep, kept, way_back

if TYPE_CHECKING:
    from ...engine.window.waiting.snapshots import WaitingAct, WaitingOutcome

#: Level, offset and unique id.
Place = tuple[int, int, str | None]
#: Names of the acts in forms and addresses.
ACTIONS = ("deliver_now", "drop", "to_dead_letters")
#: Most messages that one form may name; more are chosen by a filter.
MOST_PICKED = 100
#: Most messages that one click handles, and the longest time for that; the result says if more are left.
MOST_HANDLED = 20_000
LONGEST_S = 10.0
#: A longer unique id does not fit into an address; the message's place is enough then.
LONGEST_ID = 64
#: Name of a span -> (milliseconds of a bar, number of bars).
SPANS = {
    "15m": (15_000, 60),
    "2h": (120_000, 60),
    "1d": (1_800_000, 48),
    "7d": (10_800_000, 56),
    "40d": (57_600_000, 60),
}
WIDTH, HEIGHT = 720, 180


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the histogram. end_ms: the last moment that belongs to it."""

    begin_ms: int
    end_ms: int
    count: int
    x: float
    y: float
    width: float
    height: float
    query: str


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter in an address; its fields are arguments of the window."""

    topic: str | None
    level: int | None
    from_ms: int | None
    to_ms: int | None
    retries: bool | None

    @property
    def asked(self) -> dict[str, Any]:
        names = ("topic", "level", "from_ms", "to_ms", "retries")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def fields(self) -> dict[str, object]:
        """The parameters of an address; None for those that are not in it."""
        show = {None: None, False: "delayed", True: "retries"}[self.retries]
        return {"topic": self.topic, "level": self.level, "from": self.from_ms, "to": self.to_ms, "show": show}

    @property
    def api_fields(self) -> dict[str, object]:
        """The same of the API's operation."""
        retries = None if self.retries is None else str(self.retries).lower()
        return {name: value for name, value in self.fields.items() if name != "show"} | {"retries": retries}

    def query(self, **changes: object) -> str:
        """Return the filter as part of an address."""
        values = self.fields | changes
        return urlencode({name: value for name, value in values.items() if value is not None})


def filter_asked(values: Any, from_ms: int | None, to_ms: int | None) -> Filter:
    """Read the filter from an address or a form. Raises InvalidInput."""
    level = values.get("level", "").strip()
    if level and not (level.isascii() and level.isdigit() and len(level) < 10):
        raise InvalidInput("level", _("“%(text)s” is not a delay level.") % {"text": level[:40]})
    show = values.get("show", "")
    if show not in ("", "all", "delayed", "retries"):
        raise InvalidInput("show", _("“%(text)s” is not a choice here.") % {"text": show[:40]})
    return Filter(
        topic=values.get("topic", "").strip() or None,
        level=int(level) if level else None,
        from_ms=from_ms,
        to_ms=to_ms,
        retries={"delayed": False, "retries": True}.get(show),
    )


def delayed(request: HttpRequest) -> HttpResponse:
    """Show a histogram of the waiting messages by due time, and a list, those due first at the top."""
    admin = runtime.window()
    q = request.GET.get("q", "").strip()
    span = request.GET.get("span", "2h")
    if span not in SPANS:
        raise InvalidInput("span", _("“%(text)s” is not a choice here.") % {"text": span[:40]})
    context: dict[str, Any] = {"q": q, "span": span, "spans": tuple(SPANS), "topics": topic_names()}
    context["asked"] = {name: request.GET.get(name, "") for name in ("from", "to", "topic", "level", "show")}
    status = 200
    try:
        wanted = filter_asked(request.GET, time_asked(request, "from"), time_asked(request, "to"))
        context["asked"] |= {"from": time_shown(wanted.from_ms), "to": time_shown(wanted.to_ms)}
        context |= {"wanted": wanted, "query": wanted.query(), "carried": wanted.fields | {"q": q}}
        context["as_curl"] = curl(request, {} if q else wanted.api_fields)
        if q:
            context["page"] = admin.waiting.by_name(q, PAGE_SIZE)
        else:
            cursor = request.GET.get("cursor") or None
            context["page"] = admin.waiting.page(**wanted.asked, cursor=cursor, limit=PAGE_SIZE)
        bucket_ms, buckets = SPANS[span]
        chosen = {name: value for name, value in wanted.asked.items() if name not in ("from_ms", "to_ms")}
        found = admin.waiting.by_due(bucket_ms, buckets, **chosen)
        context |= {"histogram": found, "bars": _bars(found, wanted, span), "ticks": _ticks(found)}
        context |= {"most": max(found.counts), "width": WIDTH, "height": HEIGHT}
        context["levels"] = admin.waiting.levels()
    except InvalidInput as error:
        context["error"] = refusal_text(error)
        status = 422
    return render(request, "delayed/list.html", context, status=status)


def _bars(found: Any, wanted: Filter, span: str) -> list[Bar]:
    """Return the bars of the histogram that are not empty."""
    most = max(1, *found.counts)
    step = WIDTH / len(found.counts)
    bars = []
    for number, count in enumerate(found.counts):
        if count <= 0:
            continue
        begin = found.begin_at_ms + number * found.bucket_ms
        end = begin + found.bucket_ms - 1
        height = max(2.0, HEIGHT * count / most)
        query = wanted.query(**{"from": begin, "to": end, "span": span})
        x, y = number * step, HEIGHT - height
        bars.append(Bar(begin, end, count, round(x + 0.5, 1), round(y, 1), round(step - 1, 1), round(height, 1), query))
    return bars


def _ticks(found: Any) -> list[tuple[float, int, str]]:
    """Return (percent of the width, time, anchor) of the marks on the time axis."""
    whole = found.bucket_ms * len(found.counts)
    return [
        (round(100 * part / 3, 1), found.begin_at_ms + whole * part // 3, anchor)
        for part, anchor in ((0, "start"), (1, "middle"), (2, "middle"), (3, "end"))
    ]


def delayed_act(request: HttpRequest) -> HttpResponse:
    """Show what an act on ticked messages, or on all of a filter, would do; then do it."""
    if (asked := asked_act(request)) is None:
        return redirect(way_back(request, ("topic", "level", "from", "to", "show", "q"), "delayed"))
    values, what, places = asked
    wanted = filter_asked(values, _milliseconds(values, "from"), _milliseconds(values, "to"))
    if not places and not wanted.asked:
        wanted = Filter(None, None, 0, None, None)  # all waiting messages
    chosen: dict[str, Any] = {} if places else wanted.asked
    if request.method == "POST" and is_final(request):
        return _apply(request, what, places, chosen, wanted)
    context = preview_of(request, what, places, chosen)
    if context is None:
        return redirect("delayed")
    return render(request, "delayed/preview.html", context | {"wanted": wanted})


def asked_act(request: HttpRequest) -> tuple[Any, str, list[Place]] | None:
    """Return the values of the form or the address, the act, and the ticked messages. None, with a notice, if none was
    ticked, which must not mean all of them. Raises InvalidInput."""
    values = request.POST if request.method == "POST" else request.GET
    what, picked = values.get("what", ""), values.getlist("pick")
    if what not in ACTIONS:
        raise InvalidInput("what", _("There is no such act."))
    if len(picked) > MOST_PICKED:
        raise InvalidInput("pick", _("These are more than one form takes; choose them by a filter."))
    if "ticked" in values and not picked:
        messages.warning(request, _("No message is ticked."))
        return None
    return values, what, [place_of(word) for word in picked]


def preview_of(request: HttpRequest, what: str, places: list[Place], chosen: dict[str, Any]) -> dict[str, Any] | None:
    """Return the context of an act's preview; None, with a notice, if the only ticked message is gone."""
    admin = runtime.window()
    try:
        plan = admin.waiting_commands.run(what, places, **chosen, dry_run=True, by=request.user.label)
    except InvalidInput:
        raise
    except AdminError as error:
        messages.warning(request, refusal_text(error))
        return None
    rows = [row for row in admin.waiting.rows_at(places) if row is not None]
    impossible = [one for one in plan.results if one.why is not None][:20]
    context = {"plan": plan, "counts": counted(plan.counts), "possible": plan.counts.get("possible", 0), "rows": rows}
    picked = (request.POST if request.method == "POST" else request.GET).getlist("pick")
    return context | {"what": what, "picked": picked, "places": bool(places), "impossible": impossible}


def _apply(
    request: HttpRequest, what: str, places: list[Place], chosen: dict[str, Any], wanted: Filter
) -> HttpResponse:
    named = named_in_audit(places, chosen)
    done = carried_out(request, f"delayed.{what}", wanted.topic or "", what, places, chosen, named)
    if done is None:
        return redirect("delayed")
    facts, results = done
    facts["query"] = "" if places else wanted.query(what=what)
    keep(request, "delayed_done", facts, (line_of(one) for one in results))
    return redirect("delayed_done")


def carried_out(
    request: HttpRequest,
    action: str,
    target: str,
    what: str,
    places: list[Place],
    chosen: dict[str, Any],
    named: dict[str, Any],
) -> tuple[dict[str, Any], list[WaitingOutcome]] | None:
    """Do an act step by step and write it to the audit log; return its facts and single results. If the engine refuses
    it at once, show a notice and return None. named: the messages, as the audit log names them."""
    admin = runtime.window()
    counts: dict[str, int] = {}
    results: list[WaitingOutcome] = []
    done = 0
    cursor: str | None = None
    more = True
    begin = time.monotonic()
    try:
        with failure_audited(request, action, target):
            while more and sum(counts.values()) < MOST_HANDLED and time.monotonic() - begin < LONGEST_S:
                step: dict[str, Any] = chosen if places else chosen | {"cursor": cursor}
                act: WaitingAct = admin.waiting_commands.run(what, places, **step, by=request.user.label)
                done += act.done
                for outcome, count in act.counts.items():
                    counts[outcome] = counts.get(outcome, 0) + count
                results = (results + list(act.results))[:1000]
                cursor, more = act.next_cursor, act.more
    except InvalidInput:
        raise
    except AdminError as error:
        if not counts:
            messages.warning(request, refusal_text(error))
            return None
        messages.error(request, refusal_text(error))
    asked = sum(counts.values())
    audit(request, action, target, None, {"asked": asked, "done": done, "counts": counts} | named)
    return {"what": what, "asked": asked, "done": done, "counts": counted(counts), "more": more}, results


def named_in_audit(places: list[Place], chosen: dict[str, Any]) -> dict[str, Any]:
    if places:
        return {"messages": [unique_id or f"{level}/{offset}" for level, offset, unique_id in places[:20]]}
    return {"filter": chosen}


def line_of(one: WaitingOutcome) -> Line:
    name = one.unique_id or f"{one.level} / {one.queue_offset}"
    address = "" if one.copy_place is None else reverse("search") + "?" + urlencode({"q": one.copy_place})
    return Line(name, address, one.outcome, one.why)


def place_of(word: str) -> Place:
    """Parse `level-offset-unique id`, in which the id may be missing. Raises InvalidInput."""
    level, _dash, rest = word.partition("-")
    offset, _dash, unique_id = rest.partition("-")
    numbers = level + offset
    if not (level and offset and numbers.isascii() and numbers.isdigit() and len(level) < 10 and len(offset) < 20):
        raise InvalidInput("pick", _("“%(word)s” is no message that waits.") % {"word": word[:40]})
    return int(level), int(offset), unique_id or None


def _milliseconds(values: Any, name: str) -> int | None:
    text = values.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidInput(name, _("“%(text)s” is not a date and time.") % {"text": text[:40]})
    return int(text)


def delayed_done(request: HttpRequest) -> HttpResponse:
    """Show the result of this session's last act on waiting messages."""
    found = kept(request, "delayed_done")
    if found is None:
        return redirect("delayed")
    return render(request, "delayed/done.html", {"act": found})
