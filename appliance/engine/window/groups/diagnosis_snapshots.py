"""Results of a group's diagnosis from the broker's own records: frozen values, as in `snapshots.py`."""

from __future__ import annotations

from typing import Literal

from ...lazy_dataclass import dataclass
from ..sentences import Sentence


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure that a finding rests on."""

    # unit: "messages", "clients", "queues", "times", "s", "messages/s", "%" or "".
    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Skip:
    """The body of a reset of the group's offsets that goes on behind the message; asked twice it skips no second
    one."""

    topics: tuple[str, ...]
    queues: tuple[int, ...]
    to: Literal["skip"]
    offset: int


@dataclass(frozen=True, slots=True)
class HeldUpBy:
    """The message that holds up a queue. offset_id: by which it is looked at (/messages/{ref}). delivered: answers to
    the group's pulls that carried it; delivered_whole: none of them is missing. last_client, last_at_ms: of the last
    one. held_by: who holds the queue's lock, where it is consumed in order. skip: how it is left out."""

    topic: str
    queue_id: int
    offset: int
    offset_id: str
    unique_id: str | None
    keys: tuple[str, ...]
    stored_at_ms: int
    delivered: int
    delivered_whole: bool
    last_client: str | None
    last_at_ms: int | None
    held_by: str | None
    skip: Skip


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. kind: one of `diagnosis.KINDS`. level: "act" (messages are not consumed) or "watch".

    queues: (topic, queue id) of the queues concerned. clients: ids of the clients concerned. At most 100 of each; the
    evidence counts all of them. message: the message that holds up the queue, for "queue_stuck".
    """

    kind: str
    level: str
    sentence: Sentence
    evidence: tuple[Evidence, ...]
    queues: tuple[tuple[str, int], ...] = ()
    clients: tuple[str, ...] = ()
    message: HeldUpBy | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One thing that was looked at. state: found, clear, or unknown (why)."""

    kind: str
    state: Literal["found", "clear", "unknown"]
    why: Sentence | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A group at one moment: the findings, the worst first, and every kind that was looked for."""

    group: str
    at_ms: int
    findings: tuple[Finding, ...]
    looked: tuple[Look, ...]
