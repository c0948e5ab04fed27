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
class HeldUpBy:
    """The message that holds up a queue. delivered: number of recorded answers to the group's pulls that carried it;
    delivered_whole: no such answer is missing from the records. last_client, last_at_ms: client and time of the last
    one. held_by: id of the client that holds the queue's lock, if the queue is consumed in order."""

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
        """Arguments of `target_of` and `OffsetCommands.reset` that skip this message. They name the message, not a
        number of them: done twice or late, they skip no other one, and do not take the group back."""
        return {"topics": [self.topic], "queues": [self.queue_id], "to": "skip", "offset": self.offset}


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
