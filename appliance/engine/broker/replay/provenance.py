"""What a copy of a dead letter says of where it came from: four properties of ours. PURE.

    ROCKETBOX_REPLAY_JOB   id of the job that made the copy
    ROCKETBOX_REPLAY_SEQ   number of the message within the job, from 0 on
    ROCKETBOX_REPLAYED     how many times this message has been replayed, this copy included
    ROCKETBOX_REPLAY_PROOF a keyed digest of the number, which only the job can make

Clients pass properties on: a copy that fails again has them in its retries and as a dead letter. Anybody can read job
and number, and write them into messages of his own. So a resume knows by the proof what is stored already: who has seen
one has seen a copy. The third is what the loop guard looks at.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.properties import find_property

REPLAY_JOB = "ROCKETBOX_REPLAY_JOB"
REPLAY_SEQ = "ROCKETBOX_REPLAY_SEQ"
REPLAYED = "ROCKETBOX_REPLAYED"
REPLAY_PROOF = "ROCKETBOX_REPLAY_PROOF"

#: Digits of a number here; a longer text is none of ours.
_MOST_DIGITS = 10


class Provenance(NamedTuple):
    """job, sequence: of the replay that this message came by, None when it came by none. times: replays so far."""

    job: str | None
    sequence: int | None
    times: int


def provenance_of(properties: Mapping[str, str]) -> Provenance:
    """What a message's properties say; anybody may have written them, so a number that is none counts as absent."""
    sequence = _number(properties.get(REPLAY_SEQ))
    job = properties.get(REPLAY_JOB) if sequence is not None else None
    return Provenance(job, None if job is None else sequence, _number(properties.get(REPLAYED)) or 0)


def proof_of(secret: str, sequence: int) -> str:
    """The proof that the copy with this number is the job's. secret: the job's own."""
    return hmac.digest(secret.encode(), str(sequence).encode(), "sha256").hex()[:32]


def sequence_in(properties: str, job: str, secret: str) -> int | None:
    """The number within `job` of a message with these stored properties; None when the job did not make it. secret: ""
    for a job whose copies have no proof."""
    if find_property(properties, REPLAY_JOB) != job:
        return None
    sequence = _number(find_property(properties, REPLAY_SEQ))
    if sequence is None or not secret:
        return sequence
    proof = (find_property(properties, REPLAY_PROOF) or "").encode()
    return sequence if hmac.compare_digest(proof, proof_of(secret, sequence).encode()) else None


def mark_of(job: str) -> bytes:
    """Bytes that every record holds that is of the job; others may hold them, too."""
    return f"{REPLAY_JOB}\x01{job}\x02".encode()


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return int(text)
