"""What a handler's end means for its messages. PURE."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Reject, Retry, Suspend
from ..message import ReceivedMessage

#: Level of a dead letter, and of a delay that the broker chooses by the attempts.
DEAD = -1
BY_ATTEMPTS = 0
#: Seconds of the levels, as brokers have them unless configured.
_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

#: Seconds for which the queue of an ordered consumer rests after a failure; with bounds, as Java has them.
_REST_S = 1.0
_LEAST_REST_S, _MOST_REST_S = 0.01, 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """failed: messages that are not done. level: of the delay until their next delivery. rest_s: for an ordered
    consumer in its place."""

    failed: Sequence[ReceivedMessage] = ()
    level: int = BY_ATTEMPTS
    rest_s: float = _REST_S


DONE = Outcome()


def outcome_of(error: BaseException, messages: Sequence[ReceivedMessage]) -> Outcome:
    """Return what an exception of a handler says about the messages that it was given."""
    if isinstance(error, Reject):
        return Outcome(messages, DEAD)
    if isinstance(error, Suspend):
        return Outcome(messages, rest_s=_rest(error.seconds))
    if isinstance(error, Retry):
        again = messages if error.messages is None else [one for one in messages if one in error.messages]
        if error.after is not None:
            level = min(bisect_left(_LEVELS_S, error.after), len(_LEVELS_S) - 1) + 1
            return Outcome(again, level, _rest(error.after))
        return Outcome(again, error.level or BY_ATTEMPTS)
    return Outcome(messages)


def _rest(seconds: float) -> float:
    return min(_MOST_REST_S, max(_LEAST_REST_S, seconds))
