"""The four properties that record where a copy of a dead letter came from. PURE.

    ROCKETBOX_REPLAY_JOB   id of the job that made the copy
    ROCKETBOX_REPLAY_SEQ   number of the message within the job, from 0 on
    ROCKETBOX_REPLAYED     how many times this message has been replayed, this copy included
    ROCKETBOX_REPLAY_PROOF a keyed digest of the number, which only the job can make

Clients pass properties on: a copy that fails again has them in its retries and as a dead letter. Any client can read
job and number, and write them into its own messages. So a resume recognizes stored copies by the proof: a client that
has a proof has seen the copy. The loop guard reads ROCKETBOX_REPLAYED.
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

#: Most digits of a number; RocketBox writes no longer ones.
_MOST_DIGITS = 10


class Provenance(NamedTuple):
    """job, sequence: the replay that stored this message; None if no replay did. times: replays so far."""

    job: str | None
    sequence: int | None
    times: int


def provenance_of(properties: Mapping[str, str]) -> Provenance:
    """Return what a message's properties say. Any client may write them, so an invalid number counts as absent."""
    sequence = _number(properties.get(REPLAY_SEQ))
    job = properties.get(REPLAY_JOB) if sequence is not None else None
    return Provenance(job, None if job is None else sequence, _number(properties.get(REPLAYED)) or 0)


def proof_of(secret: str, sequence: int) -> str:
    """Return the proof that the copy with this number is the job's. secret: the job's own."""
    return hmac.digest(secret.encode(), str(sequence).encode(), "sha256").hex()[:32]


def sequence_in(properties: str, job: str, secret: str) -> int | None:
    """Return the number within `job` of a message with these stored properties; None if the job did not make it.
    secret: "" for a job whose copies have no proof."""
    if find_property(properties, REPLAY_JOB) != job:
        return None
    sequence = _number(find_property(properties, REPLAY_SEQ))
    if sequence is None or not secret:
        return sequence
    proof = (find_property(properties, REPLAY_PROOF) or "").encode()
    return sequence if hmac.compare_digest(proof, proof_of(secret, sequence).encode()) else None


def mark_of(job: str) -> bytes:
    """Return bytes that every record of the job contains; other records may contain them, too."""
    return f"{REPLAY_JOB}\x01{job}\x02".encode()


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return int(text)
