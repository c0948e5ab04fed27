"""Answers on their way to executors: one file of numbers that all of them map into memory, and its index.

answers.npy   6 rows of longs: first, behind, at_ms, below, doubtful, who; columns by queue, group, first
answers.json  [[topic, queue id, [[group, begin, end, [codes or null, ...], wait], ...]], ...]
              who: place in the list of codes; wait: [next offset, codes or null], or null
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .delivered import Answers, Wait, Waits

Longs = npt.NDArray[np.int64]
NUMBERS, INDEX = "answers.npy", "answers.json"
_NAMES = ("first", "behind", "at_ms", "below", "doubtful", "who")


@dataclass(frozen=True)
class OfGroup:
    """A group's answers from one queue, sorted by `first`. highest: the highest `behind` up to each. codes: by `who`,
    the tag codes that its filter passed, None for all. wait: what it waits for; None if that is unknown."""

    group: str
    first: Longs
    behind: Longs
    at_ms: Longs
    below: Longs
    doubtful: Longs
    who: Longs
    highest: Longs
    codes: tuple[tuple[int, ...] | None, ...]
    wait: Wait | None = None

    @property
    def asks_for_codes(self) -> bool:
        waited = None if self.wait is None else self.wait.codes
        return any(one is not None for one in (*self.codes, waited))


def save(queues: dict[tuple[str, int], Answers], directory: Path, waits: Waits | None = None) -> None:
    """Write both files. waits: what groups wait for, also in queues without answers. Raises OSError."""
    index, pieces, begin = [], [], 0
    waits = waits or {}
    for topic, queue_id in sorted(queues.keys() | waits.keys()):
        answers, of_queue = queues.get((topic, queue_id), Answers()), waits.get((topic, queue_id), {})
        numbers = np.array([np.frombuffer(getattr(answers, name), np.int64) for name in _NAMES])
        names = sorted({who.group for who in answers.whos} | of_queue.keys())
        group_of = np.array([names.index(who.group) for who in answers.whos], np.int64)[numbers[5]]
        order = np.lexsort((numbers[0], group_of))
        pieces.append(numbers[:, order])
        ends = begin + np.searchsorted(group_of[order], np.arange(len(names)), side="right")
        begins = [begin, *ends.tolist()]
        codes = [who.codes for who in answers.whos]
        groups = [[*one, codes, of_queue.get(one[0])] for one in zip(names, begins, begins[1:], strict=False)]
        index.append([topic, queue_id, groups])
        begin += len(answers)
    np.save(directory / NUMBERS, np.hstack(pieces) if pieces else np.empty((len(_NAMES), 0), np.int64))
    (directory / INDEX).write_text(json.dumps(index), encoding="utf-8")


class Saved:
    """The files that `save` wrote, opened for one task."""

    def __init__(self, directory: str) -> None:
        """Open the files in `directory`. Raises OSError."""
        place = Path(directory)
        self._numbers: Longs = np.load(place / NUMBERS, mmap_mode="r")
        self._index = {
            (topic, queue_id): groups
            for topic, queue_id, groups in json.loads((place / INDEX).read_text(encoding="utf-8"))
        }
        self._known: dict[tuple[str, int], tuple[OfGroup, ...]] = {}

    @property
    def queues(self) -> frozenset[tuple[str, int]]:
        return frozenset(self._index)

    def of(self, topic: str, queue_id: int) -> tuple[OfGroup, ...]:
        """Return the answers of a queue, by group."""
        key = topic, queue_id
        if key not in self._known:
            self._known[key] = tuple(self._of_group(*one) for one in self._index.get(key, ()))
        return self._known[key]

    def _of_group(
        self,
        group: str,
        begin: int,
        end: int,
        codes: list[list[int] | None],
        wait: tuple[int, list[int] | None] | None,
    ) -> OfGroup:
        columns = [row[begin:end] for row in self._numbers]
        highest = np.maximum.accumulate(columns[1])
        first, behind, at_ms, below, doubtful, who = columns
        wanted = tuple(None if one is None else tuple(one) for one in codes)
        waited = None if wait is None else Wait(wait[0], None if wait[1] is None else tuple(wait[1]))
        return OfGroup(group, first, behind, at_ms, below, doubtful, who, highest, wanted, waited)
