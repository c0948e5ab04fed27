"""Tags and filters of the console's templates; they are built in, so no template loads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ...engine.plain_text import size_text
from ..serving import static_files

register = template.Library()


@register.simple_tag
def asset(name: str) -> str:
    """Return the address of a file below `static/`, with a digest of its content: browsers keep it until it changes."""
    return static_files.address(name)


@register.filter
def thousands(value: object) -> str:
    """Format a whole number with a space between thousands, a fraction with one digit, and None as "not known"."""
    if value is None:
        return _("not known")
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")  # type: ignore[call-overload]


@register.filter
def as_hours(text: str) -> str:
    """Format the hours of `deleteWhen` as times of the day: "4;16" is `04:00, 16:00`."""
    return ", ".join(f"{int(hour):02}:00" for hour in text.split(";"))


@register.filter
def as_bytes(value: int | None) -> str:
    """Format a size with a unit that leaves few digits before the point; None is "not known"."""
    return _("not known") if value is None else size_text(value)


@register.filter
def as_duration(seconds: float | None) -> str:
    """Format seconds in the two largest units, without a second one that is 0: `2 days 3 h`, `4 min 10 s`, `5 min`."""
    if seconds is None:
        return _("not known")
    whole = int(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days and not hours:
        return ngettext("%(days)d day", "%(days)d days", days) % {"days": days}
    if days:
        return ngettext("%(days)d day %(hours)d h", "%(days)d days %(hours)d h", days) % {"days": days, "hours": hours}
    if hours and not minutes:
        return _("%(hours)d h") % {"hours": hours}
    if hours:
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes}
    if minutes and not left:
        return _("%(minutes)d min") % {"minutes": minutes}
    if minutes:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": left}
    return _("%(seconds)d s") % {"seconds": left}


@register.filter
def as_time(at_ms: int | None) -> SafeString | str:
    """Format a wall time in milliseconds as `2026-11-21 13:34:32` in the reader's zone, in a <time> that names the
    zone."""
    if at_ms is None:
        return _("not known")
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        shown = moment.astimezone(timezone.get_current_timezone())
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    zone = "UTC" if shown.utcoffset() == timedelta(0) else f"{shown:%Z} ({shown:%z})"
    return mark_safe(
        f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}" title="{shown:%Y-%m-%d %H:%M:%S} {zone}">'
        f"{shown:%Y-%m-%d %H:%M:%S}</time>"
    )
