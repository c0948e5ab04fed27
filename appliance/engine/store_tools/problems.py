"""The problems that the tools find in a store; the first ones of each kind are reported one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ..plain_text import plain

#: Problems of one kind that are reported one by one; further ones are counted.
TOLD_PER_KIND = 100

DAMAGE = "damage"
NOTE = "note"


class Problem(NamedTuple):
    """level: "damage" (something is lost, altered, or not what its format promises) or "note" (something that a kill
    leaves and the next start repairs, or that is only unexpected). kind: one word. file: its path below the store
    directory, or `rocketbox/...`. at: position in that file, -1 for all of it. text: a sentence."""

    level: str
    kind: str
    file: str
    at: int
    text: str

    def __str__(self) -> str:
        place = self.file if self.at < 0 else f"{self.file} @{self.at}"
        return plain(f"{self.level:<6} {self.kind:<18} {place}: {self.text}")


class Problems:
    """Counts all problems, keeps the first ones of each kind, and reports these to `tell`."""

    def __init__(self, tell: Callable[[Problem], None] = lambda problem: None) -> None:
        self._tell = tell
        self.kept: list[Problem] = []
        #: (level, kind) -> number of problems.
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, level: str, kind: str, file: str, at: int, text: str) -> None:
        self.counts[level, kind] += 1
        if self.counts[level, kind] <= TOLD_PER_KIND:
            problem = Problem(level, kind, file, at, text)
            self.kept.append(problem)
            self._tell(problem)

    def damage(self, kind: str, file: str, at: int, text: str) -> None:
        self.add(DAMAGE, kind, file, at, text)

    def note(self, kind: str, file: str, at: int, text: str) -> None:
        self.add(NOTE, kind, file, at, text)

    @property
    def damaged(self) -> int:
        return sum(count for (level, _), count in self.counts.items() if level == DAMAGE)

    @property
    def untold(self) -> int:
        return sum(max(0, count - TOLD_PER_KIND) for count in self.counts.values())
