"""Crashes a life at every operation, in every mode, and lets the next one recover; again and again from there."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.crash.life import Expected, Life, Violation, judge
from tests.crash.recording_disk import Image
from tests.crash.replayer import MODES, CrashedDisk, fingerprint
from tests.support.effort import effort

#: Share of recovered stores that go on working and crash again, and of their operations that are tried.
AGAIN = 0.06
AGAIN_AT = 0.1
DEPTH = 2
#: TIMES multiplies the number of lives. SHARE of a life's operations are tried as the moment of the first crash.
TIMES = effort(1, 3, 15)
SHARE = effort(0.12, 1.0, 1.0)


def least(images: int) -> int:
    """Return the least number of distinct images of a run. `images`: the number if all crashes of the fewest lives are
    tried."""
    return int(images * TIMES * SHARE * 0.8 if SHARE < 1 else images * TIMES)


def nothing(life: Life) -> None:
    """No sabotage."""


class Crashes:
    """Counts what it tried. `seen`: fingerprints of the distinct disk images that were recovered."""

    def __init__(self, prepare: Callable[[Life], None] = nothing, kind: type[Life] = Life) -> None:
        self._prepare = prepare
        #: A sabotage ends at the first crash that shows it, so all moments are tried until then.
        self._share = SHARE if prepare is nothing else 1.0
        self._kind = kind
        self._tried: set[tuple[bytes, int, int]] = set()
        self.seen: set[bytes] = set()
        self.recoveries = 0

    def run(self, seed: str, synchronous: bool, steps: int, faults: bool = False) -> None:
        """One life from an empty disk. Raises Violation, with all it takes to see it again."""
        life = self._kind(seed, None, synchronous, self._prepare, faults)
        life.open()
        life.work(steps)
        self._crash(life, None, Expected(), None, random.Random("crash " + seed), 0)

    def _crash(
        self,
        life: Life,
        image: Image | None,
        before: Expected,
        after: Expected | None,
        chance: random.Random,
        depth: int,
    ) -> None:
        """before: what is expected of crashes inside the life's recovery, `after` of later ones."""
        crashed = CrashedDisk(image, life.disk.kinds)
        expected = before.copy()
        record = life.disk.record
        for index, operation in enumerate(record):
            if index == life.opened_at and after is not None:
                expected = after.copy()
            crashed.follow(operation)
            if operation[0] == "mark":
                expected.follow(operation[1])
            elif operation[0] == "lost":  # in async flush a reader may have seen it
                expected.published = dict(expected.promised)
                expected.exact = False
            if index + 1 < len(record) and record[index + 1][0] == "mark":
                continue
            if chance.random() > (AGAIN_AT if depth else self._share):
                continue
            for mode in MODES:
                self._try(life, crashed, mode, expected, index, chance, depth)

    def _try(
        self,
        life: Life,
        crashed: CrashedDisk,
        mode: str,
        expected: Expected,
        index: int,
        chance: random.Random,
        depth: int,
    ) -> None:
        image = crashed.image(mode, chance)
        seen = fingerprint(image)
        promised = expected.published if mode == "all" else expected.promised
        key = (seen, sum(promised.values()), len(expected.deleting))
        if key in self._tried:
            return
        self._tried.add(key)
        self.seen.add(seen)
        self.recoveries += 1
        following = self._kind(
            f"{life.seed}/{index}{mode[0]}", image, life.settings.synchronous, self._prepare, life.faults
        )
        try:
            following.open()
            recovered = following.recovered()
            judge(expected, recovered, killed=mode == "all")
            following.go_on()
        except Violation as error:
            raise Violation(f"{error} (life {life.seed}, crash at {index}, {mode})") from None
        except Exception as error:
            raise Violation(f"{error!r} (life {life.seed}, crash at {index}, {mode})") from error
        if depth < DEPTH and chance.random() < AGAIN:
            following.work(8)
            if mode != "all":
                expected = expected.copy()
                expected.published = dict(expected.promised)
                expected.exact = False
            self._crash(following, image, expected, Expected.all_of(recovered), chance, depth + 1)


def run_lives(
    crashes: Crashes,
    name: str,
    count: int,
    steps: int,
    faults: bool = False,
    first: tuple[int, bool] | None = None,
) -> None:
    """So many seeds, each a life in either flush mode; before them `first`, a seed and whether that life syncs.

    Raises Violation."""
    lives = [(seed, synchronous) for seed in range(count) for synchronous in (True, False)]
    for seed, synchronous in [first, *lives] if first else lives:
        crashes.run(f"{name} {seed}", synchronous, steps, faults)
    print(f"{name}: {2 * count} lives, {len(crashes.seen)} distinct images, {crashes.recoveries} recoveries")
