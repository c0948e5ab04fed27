"""Texts of numbers and names in a plot: signs of units that are the same in every language, and no words."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from zoneinfo import ZoneInfo

#: Replaces a character that cannot be shown, or that would reverse the text around it.
_UNSHOWN = "\ufffd"
#: Rough widths in px of a text of 11 px, by character; as of DejaVu Sans, which is wider than other systems' fonts.
_WIDTHS = {
    **dict.fromkeys(" '|.,iljI", 3.6),
    **dict.fromkeys("!:;tfr()[]/-", 4.5),
    **dict.fromkeys("<>=+~^#&", 9.3),
    **dict.fromkeys("mwMW%@", 10.9),
}


def visible(text: str) -> str:
    """Replace control characters, halves of surrogates, and marks that change the direction of writing."""
    return "".join(_UNSHOWN if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Cn", "Co") else one for one in text)


def width_of(text: str) -> float:
    """Return the width of a text in px, roughly and rather too wide."""
    return sum(_WIDTHS.get(one) or _width(one) for one in text)


def _width(one: str) -> float:
    if unicodedata.east_asian_width(one) in "WF":
        return 11.5
    return 0.0 if unicodedata.combining(one) else 8.6 if one.isupper() else 7.0


def shortened(text: str, px: float) -> str:
    """Return a text; if it is wider than px its begin and end with "…" between. Names of one team begin alike."""
    text = visible(text)
    if width_of(text) <= px:
        return text
    keep = len(text) - 1
    while keep > 2 and width_of(_cut(text, keep)) > px:
        keep -= max(1, (keep - 40) // 2)
    return _cut(text, keep)


def _cut(text: str, keep: int) -> str:
    head = (keep + 1) // 2
    return f"{text[:head]}…{text[len(text) - (keep - head) :]}"


def decimal(value: int, over: int) -> str:
    """Return value / over as text, below ten with one digit after the point; rounded towards zero, so that nothing is
    overstated."""
    whole, rest = divmod(abs(value), over)
    digit = rest * 10 // over
    sign = "-" if value < 0 and (whole or digit) else ""
    return f"{sign}{whole}.{digit}" if whole < 10 and digit else f"{sign}{whole}"


def duration(ms: int) -> str:
    """Return a duration as text, rounded as in tables: 850 ms, 1.5 s, 12 s, 41 min, 3 h 12 min, 2 d 4 h."""
    if 0 < ms < 1000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
    if ms < 60_000:
        return f"{decimal(ms, 1000)} s"
    minutes = ms // 60_000
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = minutes // 60
    return f"{hours // 24} d {hours % 24} h" if hours % 24 and hours < 2400 else f"{hours // 24} d"


def size(count: int) -> str:
    """Return bytes as text: 1.5 MiB."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), " ")


def short_count(count: int) -> str:
    """Return a count as short text: 1.2k, 34M."""
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P", "E"), "")


def _scaled(count: int, base: int, signs: tuple[str, ...], between: str) -> str:
    step = 0
    while abs(count) >= base ** (step + 1) and step < len(signs) - 1:
        step += 1
    return f"{decimal(count, base**step)}{between}{signs[step]}".rstrip()


def long_count(count: int) -> str:
    """Return a count as text with a thin space between thousands: a comma or a point depends on the language."""
    return f"{count:,}".replace(",", "\u202f")


def percent(permille: int) -> str:
    return f"{decimal(permille, 10)}%"


def day_label(day: str) -> str:
    """Return MM-DD of YYYY-MM-DD."""
    return day[5:]


def hour_labels(hours_ms: list[int], zone: str) -> list[tuple[str, str]]:
    """Return ("02", "02:00") for each hour, the second with the offset from UTC on days that have an hour twice."""
    found = [datetime.fromtimestamp(at / 1000, ZoneInfo(zone)) for at in hours_ms]
    full = [at.strftime("%H:%M") for at in found]
    if len(set(full)) < len(full):
        full = [at.strftime("%H:%M %z") for at in found]
    return [(at.strftime("%H"), text) for at, text in zip(found, full, strict=True)]
