"""Results of acts on many things at once. They are kept in the session and shown on their own page, so that reloading
that page does not act again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from ..jobs.job import Told

#: Most single results that are kept; all are counted.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Line:
    """The outcome for one thing. what: its name for people; address: that of its page, "" without one."""

    what: str
    address: str
    outcome: str
    why: Any = None


def way_back(request: HttpRequest, names: Iterable[str], view: str, *args: str) -> str:
    """Return the address of a list with the filter that its form carried, in the parameters of these names."""
    values = request.POST if request.method == "POST" else request.GET
    found = {name: value for name in names if (value := values.get(name, ""))}
    address = reverse(view, args=args)
    return f"{address}?{urlencode(found)}" if found else address


def keep(request: HttpRequest, key: str, facts: dict[str, Any], lines: Iterable[Line]) -> None:
    """Keep the result of an act in the session, until the next one of this kind."""
    shown = list(lines)[:MOST_SHOWN]
    request.session[key] = facts | {
        "lines": [
            [one.what, one.address, one.outcome, *([] if one.why is None else [[one.why.template, one.why.args]])]
            for one in shown
        ]
    }


def kept(request: HttpRequest, key: str) -> dict[str, Any] | None:
    """Return the result that `keep` stored last; None if there is none."""
    found = request.session.get(key)
    if not isinstance(found, dict):
        return None
    lines = [Line(what, address, outcome, _sentence(why)) for what, address, outcome, *why in found["lines"]]
    return found | {"lines": lines}


def _sentence(parts: list[Any]) -> Told | None:
    """Return the reason; None without one, or if an older version kept the line."""
    return Told(*parts[0]) if len(parts) == 1 else None


def counted(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return (outcome, count), the most frequent first."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
