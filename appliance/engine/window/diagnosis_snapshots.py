"""What is wrong with a group, as far as the broker's own records show it: frozen values, as in `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on. unit: "messages", "clients", "queues", "times", "s", "messages/s",
    "%" or ""."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class HeldUpBy:
    """The message that holds up a queue. delivered: answers to pulls of the group that carried it, as far as that is
    kept; delivered_whole: these are all. last_client, last_at_ms: of the last of them. held_by: the client id that
    holds the queue's lock, when it is consumed in order."""

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

    @property
    def skip(self) -> dict[str, object]:
        """The reset of offsets that goes on behind it: what EngineAdmin.offset_target and reset_offsets take. It says
        where to, not how far, so that asking twice does not skip two."""
        return {"topics": [self.topic], "queues": [self.queue_id], "to": "offset", "offset": self.offset + 1}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. kind: one of `diagnosis.KINDS`. level: "act" (messages are not consumed) or "watch".

    queues: (topic, queue id) of those it is about. clients: ids of those it is about. At most 100 of each; the evidence
    counts all of them. message: of a queue that stands.
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
