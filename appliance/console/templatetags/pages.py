"""Tags and filters of the pages that show the engine; they are built in, so no template loads them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..pages.template_tags import as_bytes, as_duration, as_time, thousands
from ..pages.words import ADVICE, EVIDENCE, WORDS, in_readers_language
from ..users.access import allows
from ..users.scope import admits, may_move

register = template.Library()

# Numbers in a sentence are shown with spaces between thousands, sizes in a suitable unit.
_SIZE = re.compile(r"%\((\w+_bytes)\)d (?:bytes|字节)")
_WHOLE = re.compile(r"%\((\w+)\)d")


@register.filter
def translated(sentence: Any) -> str:
    """Translate a sentence of the engine into the reader's language; "" for None."""
    if sentence is None:
        return ""
    template = in_readers_language(sentence.template, sentence.args)
    sizes = set(_SIZE.findall(template))
    wholes = set(_WHOLE.findall(template))
    args = {
        name: as_bytes(value) if name in sizes
        else as_duration(value / 1000) if name.endswith("_span")
        else plain_time(value) if name.endswith("_at_ms")
        else thousands(value) if type(value) is int and name in wholes
        else word(value) if name == "field"
        else value
        for name, value in sentence.args.items()
    }  # fmt: skip
    return _WHOLE.sub(r"%(\1)s", _SIZE.sub(r"%(\1)s", template)) % args


@register.filter
def word(value: object) -> str:
    """Translate a value of the engine ("clustering", "NORMAL", "act") into a word of the reader's language; return it
    as it is if there is none."""
    return str(WORDS.get(str(value), value))


@register.filter
def reset_target(reset: Any) -> SafeString | str:
    """Return the target of an offset reset in words."""
    if reset.kind == "undo":
        return _("back to where it was before reset %(number)s") % {"number": reset.asked}
    if reset.kind == "clone":
        return _("to where %(group)s is") % {"group": reset.asked}
    name, _space, value = reset.asked.partition(" ")
    if name == "offsets" and len(reset.moves) == 1:
        (move,) = reset.moves
        where = {"offset": "-" if move.to is None else move.to, "queue": f"{move.topic}/{move.queue_id}"}
        return _("to offset %(offset)s of %(queue)s") % where
    if name == "time":
        return format_html("{} {}", _("to messages stored from"), as_time(int(value)))
    if name == "shift":
        by = int(value)
        count = f"{by:+,}".replace(",", "\u202f")
        return ngettext("by %(count)s message", "by %(count)s messages", abs(by)) % {"count": count}
    words = {
        "earliest": _("to the earliest message that is kept"),
        "latest": _("to the end"),
        "offsets": _("to chosen offsets"),
    }
    return str(words.get(name, reset.asked))


@register.filter
def place_query(move: Any) -> str:
    """Return the query of a search that finds the first message of a move."""
    return urlencode({"q": f"{move.topic}/{move.queue_id}/{move.first_offset}"})


@register.filter
def evidence_name(name: str) -> str:
    """Return the words for a figure of a finding."""
    return str(EVIDENCE.get(name, name))


@register.filter
def advice(kind: str) -> str:
    """Return the advice on a finding of this kind; "" if there is none."""
    return str(ADVICE.get(kind, ""))


@register.filter
def evidence_value(one: Any) -> str:
    """Format a figure of a finding with its unit."""
    match one.unit:
        case "s":
            return as_duration(one.value)
        case "messages/s":
            return per_second(one.value)
        case "%":
            return f"{thousands(one.value)} %"
    return thousands(one.value)


@register.filter
def skip_query(held: Any) -> str:
    """Return the query of the page that previews an offset reset, for one that skips the message."""
    asked = {"topic": held.topic, "queues": held.queue_id, "to": held.skip.to, "offset": held.skip.offset}
    return urlencode(asked | {"step": "preview"})


@register.simple_block_tag(takes_context=True)
def link(context: Any, content: SafeString, view: str, *names: object, query: str = "") -> SafeString:
    """Return the block as a link to a view, or just as it is to users who may not open that page."""
    user = context["user"]
    if not allows(user, view) or not admits(user, view, str(names[0]) if names else None):
        return content
    address = reverse(view, args=names) + (f"?{query}" if query else "")
    return format_html('<a href="{}">{}</a>', address, content)


@register.filter
def is_movable_by(reset: Any, user: Any) -> bool:
    """True if the user's patterns allow them all that an offset reset moves."""
    return may_move(user, reset)


@register.filter
def next_place(queue: Any) -> str:
    """Return the query of a search that finds a queue's next message."""
    return urlencode({"q": f"{queue.topic}/{queue.queue_id}/{queue.next_offset}"})


@register.filter
def spark(values: Iterable[float | None]) -> str:
    """Return the points of a <polyline>, 96 wide and 22 high, on a scale from 0 to the largest value."""
    known = [value or 0.0 for value in values]
    if len(known) < 2:
        return ""
    top = max(known) or 1.0
    step = 96 / (len(known) - 1)
    return " ".join(f"{number * step:.1f},{21 - 20 * value / top:.1f}" for number, value in enumerate(known))


@register.filter
def spaced(words: Iterable[str]) -> str:
    """Join words with spaces. `join` would escape each, and a filter that shortens the text could cut an escape in
    two."""
    return " ".join(words)


@register.filter
def ending(text: str) -> str:
    """Shorten an id to its last characters, in which ids of one producer differ."""
    return text if len(text) <= 14 else f"…{text[-12:]}"


@register.filter
def id_code(text: str) -> SafeString:
    """Return an id for a table: its ending, or all of it on narrow screens, which show each row as a card."""
    if text == ending(text):
        return format_html("<code>{}</code>", text)
    return format_html('<code class="cut" title="{}"><span>{}</span>{}</code>', text, text[:-12], text[-12:])


@register.filter
def id_link(row: Any) -> SafeString:
    """Return the id of a message as a link to it."""
    named = row.offset_id if row.unique_id is None else row.unique_id
    return format_html(
        '<a href="{}">{}</a>', reverse("message", args=[row.offset_id]), id_code(Truncator(named).chars(66))
    )


@register.filter
def unknown(why: Any) -> SafeString:
    """Return "not known", and the reason on the next line if there is one."""
    if not why:
        return format_html('<span class="soft">{}</span>', _("not known"))
    return format_html(
        '<span class="soft">{}</span> <span class="faint why">{}</span>', _("not known"), translated(why)
    )


@register.simple_tag
def lag_of(row: Any) -> SafeString | str:
    """Show a row's lag in messages; with "≥" and the reason in its tooltip where some of its queues are not counted."""
    if row.lag is None:
        return unknown(row.lag_why)
    if row.lag_why:
        return format_html('<span title="{}">≥ {}</span>', translated(row.lag_why), thousands(row.lag))
    return thousands(row.lag)


@register.filter
def per_second(rate: float | None) -> str:
    """Format a rate: `8 412 /s`, with one digit after the point if it is below ten."""
    if rate is None:
        return _("not measured yet")
    return f"{thousands(round(rate, 1) if rate < 10 else round(rate))} /s"


@register.filter
def in_unit(value: float | None, unit: str) -> str:
    """Format a figure of the history in its unit: "messages", "messages/s", "bytes", "bytes/s", "ms", "%" or ""."""
    if value is None:
        return _("not measured")
    match unit:
        case "bytes":
            return as_bytes(int(value))
        case "bytes/s":
            return as_bytes(int(value)) + "/s"
        case "ms":
            return f"{value:.3g} ms" if 0 < value < 1000 else as_duration(value / 1000)
        case "%":
            return f"{value:.1f} %"
        case "messages/s":
            return per_second(value)
    return thousands(round(value, 1) if value < 10 else round(value))


@register.filter
def plain_time(at_ms: int) -> str:
    """Format a wall time as plain text, for a tooltip that cannot have elements."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S %Z")


@register.filter
def values_of(plot: Any, step: Any) -> list[tuple[str, float | None]]:
    """Return (name of a line, its value) for each line at a step of a plot."""
    return [(line.name, value) for line, value in zip(plot.lines, step.values, strict=True)]


@register.filter
def rows_of(plot: Any) -> list[dict[str, Any]]:
    """Return the rows of a plot's table, the newest first, without steps in which nothing was measured."""
    rows = []
    for n, step in enumerate(plot.steps):
        if any(value is not None for value in step.values):
            values = [
                column[n] for line in plot.lines
                for column in (line.history.averages, line.history.lows, line.history.highs)
            ]  # fmt: skip
            rows.append({"at_ms": step.at_ms, "values": values})
    return rows[::-1]


@register.filter
def ms_as_duration(span_ms: float | None) -> str:
    """Format a span in milliseconds in its two largest units."""
    return as_duration(None if span_ms is None else span_ms / 1000)


@register.filter
def ms_since(at_ms: int) -> str:
    """Format the time since a moment in its two largest units."""
    return as_duration(max(0.0, time.time() - at_ms / 1000))


@register.filter
def ago(at_ms: int | None) -> SafeString | str:
    """Format the time since a moment as "... ago", with the moment itself in a <time> beside it."""
    if at_ms is None:
        return _("not known")
    span = as_duration(max(0.0, time.time() - at_ms / 1000))
    relative = _("%(span)s ago") % {"span": span}
    return format_html('{} <span class="faint">{}</span>', relative, as_time(at_ms))


@register.filter
def countdown(at_ms: int | None) -> SafeString | str:
    """Format the time until a moment, up to which something is kept at least; the tooltip has the moment itself."""
    if at_ms is None:
        return _("not known")
    left = at_ms / 1000 - time.time()
    return _at(at_ms, _("not any more") if left <= 0 else as_duration(left))


@register.filter
def due_in(at_ms: int | None) -> SafeString | str:
    """Format the time until a moment, or "overdue"; the tooltip has the moment itself."""
    if at_ms is None:
        return _("not known")
    left = at_ms / 1000 - time.time()
    return _at(at_ms, _("in %(span)s") % {"span": as_duration(left)} if left >= 0 else _("overdue"))


@register.filter
def since(at_ms: int | None) -> SafeString | str:
    """Format the time since a moment as "... ago"; the tooltip has the moment itself."""
    if at_ms is None:
        return _("not known")
    span = as_duration(max(0.0, time.time() - at_ms / 1000))
    return _at(at_ms, _("%(span)s ago") % {"span": span})


def _at(at_ms: int, text: str) -> SafeString:
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        title = plain_time(at_ms)
    except (OverflowError, ValueError, OSError):
        return format_html("{}", text)
    return format_html('<time datetime="{}" title="{}">{}</time>', f"{moment:%Y-%m-%dT%H:%M:%SZ}", title, text)


@register.filter
def coming(at_ms: int | None) -> SafeString | str:
    """Format the time until a moment, or "overdue", with the moment itself beside it."""
    if at_ms is None:
        return _("not known")
    left = at_ms / 1000 - time.time()
    relative = _("in %(span)s") % {"span": as_duration(left)} if left >= 0 else _("overdue")
    return format_html('{} <span class="faint">{}</span>', relative, as_time(at_ms))


@register.filter
def as_hour(at_ms: int) -> SafeString:
    """Format the day and time at which a column of one hour begins, in the reader's zone: an hour of UTC may begin at
    half past."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    shown = moment.astimezone(timezone.get_current_timezone())
    return format_html(
        '<time datetime="{}">{}<br>{}</time>', f"{moment:%Y-%m-%dT%H:%MZ}", f"{shown:%m-%d}", f"{shown:%H:%M}"
    )


@register.filter
def group_behind(topic: str) -> str:
    """Return the group to which a retry or dead letter topic belongs."""
    return topic.removeprefix("%RETRY%").removeprefix("%DLQ%")


@register.filter
def of(table: Any, key: object) -> Any:
    """Return the value of a key that is itself a variable; None if the table lacks the key."""
    return table.get(key)


@register.filter
def clock(at_ms: int, span: str = "") -> str:
    """Format a moment in the reader's zone, as short as a chart of this span needs it."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, timezone.get_current_timezone())
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%m-%d %H:%M" if span.endswith("d") else "%H:%M:%S")


@register.filter
def after(at_ms: int, begin_ms: int) -> str:
    """Format the distance from another moment: `+12 ms`, `+4 min 10 s`, `−3 ms`."""
    span = at_ms - begin_ms
    sign = "+" if span >= 0 else "−"
    length = abs(span)
    return sign + (_("%(ms)s ms") % {"ms": length} if length < 1000 else as_duration(length / 1000))


@register.filter
def from_now(at_ms: int) -> str:
    """Format the time until a moment; "now" if it has come."""
    span = at_ms / 1000 - time.time()
    return _("now") if span <= 0 else _("in %(span)s") % {"span": as_duration(span)}


@register.filter
def as_time_ms(at_ms: int | None) -> SafeString | str:
    """Format a wall time with its milliseconds."""
    if at_ms is None:
        return _("not known")
    return format_html(
        '<span class="tight">{}<span class="faint">.{}</span></span>', as_time(at_ms), f"{at_ms % 1000:03d}"
    )
