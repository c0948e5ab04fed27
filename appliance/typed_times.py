"""Times as people type them, in the console, on a command line and in the API; the only place that reads them.

    2026-11-21 13:34:32   also with T, without seconds, without a time (midnight), with a zone (Z, +08:00, UTC)
    10:00                 today; yesterday 18:00, tomorrow 9:00, today, now
    1 h ago               1 h 30 min ago, in 10 min; days and weeks are the calendar's and take a time: 2 days ago 10:00
    1795268072000         milliseconds since 1970

The words may be Chinese (昨天 18:00, 2 小时前), capitals do not matter. A text without a zone is read in the zone that
is passed in. A time that depends on the present moment is a whole second, so that it can be written down and reused.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

#: One of each kind, for hints and refusals.
EXAMPLES = ("2026-11-21 13:34", "10:00", "yesterday 18:00", "2 h ago")
LONGEST = 64

_DAYS = {
    "today": 0, "yesterday": -1, "tomorrow": 1,
    "今天": 0, "昨天": -1, "前天": -2, "明天": 1, "后天": 2,
}  # fmt: skip
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒", "秒钟"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "分", "分钟"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时", "个小时"), 3600),
    **dict.fromkeys(("d", "day", "days", "天"), 86_400),
    **dict.fromkeys(("w", "week", "weeks", "周", "星期"), 604_800),
}
_A_DAY = 86_400
_BEHIND = ("ago", "之前", "以前", "前")
_AHEAD = ("之后", "以后", "后")
_TIME = r"\d{1,2}:\d\d(?::\d\d(?:\.\d{1,9})?)?"
_ZONE = r"(?:utc|z|[+-]\d\d:?\d\d)"

_WHOLE = re.compile(rf"(\d{{4}}-\d\d-\d\d)(?:[t ] ?({_TIME}))? ?({_ZONE})?", re.ASCII)
_WORDS = re.compile(rf"(.*?) ?(?<!\d)({_TIME})? ?({_ZONE})?", re.ASCII)
_PIECE = re.compile(r"(an?|\d{1,9}(?:\.\d{1,3})?) ?([a-z]+|[\u4e00-\u9fff]+)")


def milliseconds_of(text: str, now_ms: int, zone: tzinfo | None = UTC) -> int:
    """Return milliseconds since 1970. Raises ValueError for a text that names no time, or one before 1970.

    now_ms: the present moment, likewise. zone: for a text that names none; None for this machine's.
    """
    said = " ".join(text.casefold().split())
    if not said or len(said) > LONGEST:
        raise ValueError(text)
    if said.isascii() and said.isdigit() and len(said) < 20:
        return int(said)
    try:
        found = _whole(said, zone) if _WHOLE.fullmatch(said) else _by_words(said, now_ms, zone)
    except (OverflowError, OSError):
        raise ValueError(text) from None
    if found < 0:
        raise ValueError(text)
    return found


def _whole(said: str, zone: tzinfo | None) -> int:
    match = _WHOLE.fullmatch(said)
    assert match is not None
    day, at, named = match.groups()
    return _ms(date.fromisoformat(day), _time(at), _zone(named, zone))


def _by_words(said: str, now_ms: int, zone: tzinfo | None) -> int:
    match = _WORDS.fullmatch(said)
    if match is None:
        raise ValueError(said)
    words, at, named = match.groups()
    zone = _zone(named, zone)
    here = datetime.fromtimestamp(now_ms // 1000, zone).replace(tzinfo=None)
    if words in ("now", "现在") and at is None:
        return now_ms // 1000 * 1000
    if words in _DAYS or (not words and at is not None):
        return _ms(here.date() + timedelta(days=_DAYS.get(words, 0)), _time(at), zone)
    seconds, is_days = _far(words)
    if at is not None:
        if not is_days:
            raise ValueError(said)
        return _ms(here.date() + timedelta(seconds=seconds), _time(at), zone)
    if is_days:  # the same time of another day, be that day 23 hours long
        return _ms((then := here + timedelta(seconds=seconds)).date(), then.time(), zone)
    return (now_ms // 1000 + int(seconds)) * 1000


def _far(words: str) -> tuple[float, bool]:
    """Return (seconds from now, True if they are whole days) of "1 h 30 min ago", "in 2 days". Raises ValueError."""
    ahead = words.startswith("in ")
    body = words.removeprefix("in ")
    if not ahead:
        ending = next((one for one in _BEHIND + _AHEAD if body.endswith(one)), "")
        if not ending:
            raise ValueError(words)
        body, ahead = body.removesuffix(ending), ending in _AHEAD
    pieces = _PIECE.findall(body)
    if not pieces or _PIECE.sub("", body).strip():
        raise ValueError(words)
    total, is_days = 0.0, True
    for amount, unit in pieces:
        if unit not in _SECONDS:
            raise ValueError(words)
        total += (1 if amount.startswith("a") else float(amount)) * _SECONDS[unit]
        is_days = is_days and _SECONDS[unit] >= _A_DAY and "." not in amount
    return (total if ahead else -total), is_days


def _time(at: str | None) -> time:
    if at is None:
        return time()
    return time.fromisoformat(at if at[2] == ":" else f"0{at}")


def _zone(named: str | None, zone: tzinfo | None) -> tzinfo | None:
    if named is None:
        return zone
    return datetime.fromisoformat(f"2000-01-01T00:00{'Z' if named == 'utc' else named.upper()}").tzinfo


def _ms(day: date, at: time, zone: tzinfo | None) -> int:
    return int(datetime.combine(day, at, zone).timestamp() * 1000)
