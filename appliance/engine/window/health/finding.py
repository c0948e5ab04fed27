"""What was found of one thing. The checks and the needs are the findings that have a part in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .. import snapshots as s
from ..sentences import Sentence


class Finding(NamedTuple):
    """sentence: its code says what, its arguments are the numbers. check, health: name and level of the health check
    that shows it, "" for none. level, kind, name: those of the need that it is, level "" for none. size: of two needs
    of the same kind the larger one comes first."""

    sentence: Sentence
    check: str = ""
    health: str = "ok"
    level: str = ""
    kind: str = "system"
    name: str = ""
    size: float = 0


def fine(check: str, sentence: Sentence) -> Finding:
    return Finding(sentence, check)


def degraded(check: str, sentence: Sentence, level: str = "", name: str = "") -> Finding:
    """A check that warns. level, name: those of the need, if it is one."""
    return Finding(sentence, check, "warning", level, name=name or check)


def failed(check: str, sentence: Sentence) -> Finding:
    """A check that fails; it is a need, too."""
    return Finding(sentence, check, "failed", "act", name=check)


def checks_of(findings: Iterable[Finding]) -> tuple[s.Check, ...]:
    return tuple(s.Check(one.check, one.health, one.sentence) for one in findings if one.check)
