"""What is wrong with a group, as far as the broker's own records show it: frozen values, as in `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on. unit: "messages", "clients", "queues", "s", "messages/s", "%" or ""."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. kind: one of `diagnosis.KINDS`. level: "act" (messages are not consumed) or "watch".

    queues: (topic, queue id) of those it is about. clients: ids of those it is about. At most 100 of each; the evidence
    counts all of them.
    """

    kind: str
    level: str
    sentence: Sentence
    evidence: tuple[Evidence, ...]
    queues: tuple[tuple[str, int], ...] = ()
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """One thing that was looked at. state: "found", "clear", or "unknown" with the reason in `why`."""

    kind: str
    state: str
    why: Sentence | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A group at one moment: what was found, the worst first, and all that was looked at."""

    group: str
    at_ms: int
    findings: tuple[Finding, ...]
    looked: tuple[Look, ...]
