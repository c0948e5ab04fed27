"""What the pages that act on many things at once share: the result of the last act, shown on a page of its own.

It is kept in the session: a page that was reloaded acts only once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from ..words import SENTENCES

#: Single results that are kept; all are counted.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence of the engine that was kept for a while."""

    code: str
    args: dict[str, Any]

    @property
    def template(self) -> str:
        return SENTENCES[self.code]


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one thing. what: its name for people; address: of its page, "" without one."""

    what: str
    address: str
    outcome: str
    why: Any = None


def keep(request: HttpRequest, key: str, facts: dict[str, Any], lines: Iterable[Line]) -> None:
    """Keep what an act did until the next one of this kind."""
    shown = list(lines)[:MOST_SHOWN]
    request.session[key] = facts | {
        "lines": [
            [one.what, one.address, one.outcome, *([] if one.why is None else [one.why.code, one.why.args])]
            for one in shown
        ]
    }


def kept(request: HttpRequest, key: str) -> dict[str, Any] | None:
    """What `keep` kept; None without anything."""
    found = request.session.get(key)
    if not isinstance(found, dict):
        return None
    lines = [Line(what, address, outcome, _sentence(why)) for what, address, outcome, *why in found["lines"]]
    return found | {"lines": lines}


def _sentence(parts: list[Any]) -> Told | None:
    return Told(*parts) if parts and parts[0] in SENTENCES else None


def counted(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Outcomes and how many, the most first."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
