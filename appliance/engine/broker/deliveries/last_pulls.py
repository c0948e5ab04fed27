"""The client that last got messages of a queue, and when: kept in memory, from the events on their way to the files.

A consumer that does not lock its queues leaves no other trace of the queues that it has.
"""

from __future__ import annotations

import sys

from ...named_tuple import NamedTuple
from .event_format import EVENT, EVENT_BYTES, time_of
from .recorder import Taken

#: Most queues of groups that are remembered, some 300 bytes each; beyond that all are forgotten until their next pull.
MOST_KEPT = 100_000

_LITTLE = sys.byteorder == "little"
_WORDS = EVENT_BYTES // 4


class LastPull(NamedTuple):
    """client: its id, or its address when it had sent no heartbeat. first: the lowest offset that was delivered since
    the start, as far as that was still remembered."""

    client: str
    at_ms: int
    first: int


class LastPulls:
    """`take` belongs to the thread `delivery-events`; any thread may call `get`."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, int], LastPull] = {}

    def take(self, taken: Taken) -> None:
        """Remember the last event of each number. A few C calls find it, however many events there are."""
        words = memoryview(taken.events).cast("I")
        numbers = words[::_WORDS].tolist()
        last = dict(zip(numbers, words[1::_WORDS].tolist(), strict=True))
        numbers.reverse()
        earliest = dict(zip(numbers, range(len(numbers) - 1, -1, -1), strict=True))
        if len(self._last) + len(last) > MOST_KEPT:
            self._last = {}
        for number, at in last.items():
            one = taken.definitions.get(_swapped(number))
            if one is not None:
                key = (one.group, one.topic, one.queue_id)
                at_ms = time_of(_swapped(at), taken.wall_ms)
                first = EVENT.unpack_from(taken.events, earliest[number] * EVENT_BYTES)[2] >> 16
                known = self._last.get(key)
                if known is not None:
                    first = min(first, known.first)
                if known is None or known.at_ms <= at_ms:  # two members may have pulled it within this second
                    self._last[key] = LastPull(one.client, at_ms, first)

    def get(self, group: str, topic: str, queue_id: int) -> LastPull | None:
        """Return the last pull of a group's queue; None if nothing of it was delivered since the start."""
        return self._last.get((group, topic, queue_id))


def _swapped(word: int) -> int:
    """Return the value of a word of the events, which are big endian."""
    return int.from_bytes(word.to_bytes(4, "little"), "big") if _LITTLE else word
