"""The open half messages, how often their producers were asked, and when they are to be asked next.

Each half message takes a byte, in pages that go when all of theirs are decided, and eight in the bucket of its due
time: a hundred thousand open ones cost a megabyte, and looking for due ones costs nothing while there are none. Their
content is in the log.
"""

from __future__ import annotations

import heapq
import math
import random
from array import array
from collections.abc import Iterable

#: Half messages in a page.
PAGE = 4096
#: Precision of due times in ms. Times far away, which any producer may ask for, have a coarser one: (how far, ms), so
#: that there are some ten thousand buckets at most.
STEP_MS = 50
_FAR_STEPS = ((3_600_000, 60_000), (60_000, 1000))
#: A half is looked at after four days at the latest, and then found due or not.
_FARTHEST_MS = 4 * 86_400_000
#: Most producer groups whose halves wait for a member. Halves of further groups are looked at again and again.
MOST_PARKED_GROUPS = 10_000
#: Entries that one look at what is due passes: a third of a millisecond.
LOOKED_AT_ONCE = 1000
#: Entries of an array that another thread looks through at a time.
_PIECE = 4096
#: Table that turns the states of a page into 1 for open and 0 for the others: finding the next open one is one C call.
_MARKED = b"\0" + b"\1" * 255
#: A byte holds one more than the checks that were made.
MOST_CHECKS = 254


class _Page:
    __slots__ = ("count", "states")

    def __init__(self) -> None:
        #: 0: not open; else one more than the checks made.
        self.states = bytearray(PAGE)
        self.count = 0


class OpenHalves:
    """Owned by remoting-io. A half message is named by its offset in the half queue. Times: ms of a steady clock."""

    def __init__(self) -> None:
        # In the order of their halves.
        self._pages: dict[int, _Page] = {}
        self._buckets: dict[int, array[int]] = {}
        self._bucket_times: list[int] = []
        #: Producer group -> halves that wait for a member of it.
        self._parked: dict[str, array[int]] = {}
        #: Offset that a bucket or a group still has -> the offset where its half lies, if it has moved since; and back.
        self._moved: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        #: Time of the last look for due halves; before the first one nothing counts as far away.
        self._now_ms = math.inf
        self.count = 0

    # --- open or not

    def open(self, offset: int, due_ms: float, checks: int = 0) -> None:
        """Add a half message that was stored; its producers are asked when it is due."""
        self._mark(offset, checks)
        self.wait(offset, due_ms)

    def adopt(self, offsets: Iterable[int], due_ms: float) -> None:
        """Add open halves that were found in the store; all are older than those added since."""
        for offset in offsets:
            self._mark(offset, 0)
            self.wait(offset, due_ms)
        self._pages = dict(sorted(self._pages.items()))

    def _mark(self, offset: int, checks: int) -> None:
        number, index = divmod(offset, PAGE)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = _Page()
        if not page.states[index]:
            page.count += 1
            self.count += 1
        page.states[index] = 1 + min(checks, MOST_CHECKS)

    def close(self, offset: int) -> bool:
        """Remove a half that is decided; False if it was not open."""
        number, index = divmod(offset, PAGE)
        page = self._pages.get(number)
        if page is None or not page.states[index]:
            return False
        page.states[index] = 0
        page.count -= 1
        self.count -= 1
        assert self.count >= page.count >= 0, "the pages' open halves add up to all"
        if not page.count:
            del self._pages[number]
        return True

    def move(self, offset: int, now: int, checks: int) -> None:
        """Have an open half lie at the offset `now`. It keeps its due time, or goes on waiting for its producers."""
        self.close(offset)
        self._mark(now, checks)
        entry = self._entries.pop(offset, offset)
        self._moved[entry] = now
        self._entries[now] = entry

    def _place(self, offset: int) -> int:
        """Return where the half lies that a bucket or a group has at this offset."""
        return self._moved.get(offset, offset)

    def _take(self, offset: int) -> int:
        """Return the same for an entry that leaves its bucket or group."""
        now = self._moved.pop(offset, offset)
        self._entries.pop(now, None)
        return now

    def checks(self, offset: int) -> int | None:
        """Return how often a half's producers were asked; None if it is not open."""
        number, index = divmod(offset, PAGE)
        page = self._pages.get(number)
        state = 0 if page is None else page.states[index]
        return state - 1 if state else None

    def set_checks(self, offset: int, checks: int) -> None:
        """Set the checks of an open half."""
        self._mark(offset, checks)

    def restore(self, number: int, states: bytes) -> None:
        """Restore the checks of a page from before this start; an open half keeps the higher of the two counts."""
        page = self._pages.get(number)
        if page is not None:
            both = zip(page.states, states, strict=True)
            page.states[:] = bytes([max(now, before) if now else 0 for now, before in both])

    @property
    def lowest(self) -> int | None:
        """Offset of the oldest open half; None without any."""
        for number, page in self._pages.items():
            return number * PAGE + PAGE - len(page.states.lstrip(b"\0"))
        return None

    def all(self, begin: int, count: int) -> list[int]:
        """Return up to `count` open halves from `begin` on, the oldest first."""
        found: list[int] = []
        for number, page in self._pages.items():
            if (number + 1) * PAGE <= begin:
                continue
            base = number * PAGE
            marks = page.states.translate(_MARKED)
            at = marks.find(1, max(0, begin - base))
            while at >= 0:
                found.append(base + at)
                if len(found) >= count:
                    return found
                at = marks.find(1, at + 1)
        return found

    # --- when

    def wait(self, offset: int, due_ms: float) -> None:
        """Ask about a half at that time, unless it is decided by then."""
        at = self._bucket_of(due_ms)
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = array("q")
            heapq.heappush(self._bucket_times, at)
        bucket.append(offset)

    def _bucket_of(self, due_ms: float) -> int:
        """Return the number of the bucket for a due time; it is never earlier, but for times beyond _FARTHEST_MS."""
        far_ms = due_ms - self._now_ms
        if far_ms > _FARTHEST_MS:
            due_ms, far_ms = self._now_ms + _FARTHEST_MS, _FARTHEST_MS
        for beyond_ms, step_ms in _FAR_STEPS:
            if far_ms > beyond_ms:
                return (int(due_ms) // step_ms + 1) * (step_ms // STEP_MS)
        return int(due_ms) // STEP_MS + 1

    def park(self, offset: int, group: str) -> bool:
        """Ask about a half when a producer of the group is there. False if too many groups are waited for."""
        parked = self._parked.get(group)
        if parked is None:
            if len(self._parked) >= MOST_PARKED_GROUPS:
                return False
            parked = self._parked[group] = array("q")
        parked.append(offset)
        for _ in range(2):  # so for a group that never comes, at most twice as many stay as are open
            at = random.randrange(len(parked))
            if self.checks(self._place(parked[at])) is None:
                self._take(parked[at])
                last = parked.pop()
                if at < len(parked):
                    parked[at] = last
            if not parked:
                break
        return True

    def unpark(self, group: str, due_ms: float) -> int:
        """Ask about the halves that waited for a producer of the group, as one is there; return how many these are."""
        parked = self._parked.pop(group, None)
        if parked is None:
            return 0
        at = self._bucket_of(due_ms)
        bucket = self._buckets.get(at)
        if bucket is None:
            self._buckets[at] = parked
            heapq.heappush(self._bucket_times, at)
        else:
            bucket.extend(parked)
        return len(parked)

    def parked_groups(self) -> list[tuple[str, int]]:
        """Return (producer group, half messages that wait for a member of it, decided ones among them)."""
        return [(group, len(parked)) for group, parked in self._parked.items()]

    def is_due(self, now_ms: float) -> bool:
        self._now_ms = now_ms
        return bool(self._bucket_times) and self._bucket_times[0] * STEP_MS <= now_ms

    def take_due(self, now_ms: float, most: int) -> list[int]:
        """Return open halves that are due, at most `most`; the caller has them wait or parks them again. Of many that
        were decided meanwhile only some are passed at a time: the result may be empty while `is_due` is True."""
        found: list[int] = []
        left = LOOKED_AT_ONCE
        while left > 0 and len(found) < most and self.is_due(now_ms):
            at = self._bucket_times[0]
            bucket = self._buckets[at]
            room = min(most - len(found), left)
            if len(bucket) > room:
                # From the end: the front of an array is expensive to cut.
                taken = bucket[-room:]
                del bucket[-room:]
            else:
                taken = bucket
                heapq.heappop(self._bucket_times)
                del self._buckets[at]
            left -= len(taken) + 1
            places = map(self._take, taken) if self._moved else taken
            found += [offset for offset in places if self.checks(offset) is not None]
        return found

    # --- other threads: what they take is copied with one C call

    def pages(self) -> list[tuple[int, bytes]]:
        """Return (number, a byte for each half: 0 if it is not open, else one more than its checks), the oldest
        first."""
        return [(number, bytes(page.states)) for number, page in list(self._pages.items())]

    def page_numbers(self) -> list[int]:
        """Return the numbers of pages with open halves, the oldest first."""
        return list(self._pages)

    def page(self, number: int) -> bytes:
        """Return a page as in `pages`; empty if none of it is open."""
        page = self._pages.get(number)
        return b"" if page is None else bytes(page.states)

    def due_times(self, wanted: set[int]) -> dict[int, float]:
        """Return when each of these is asked about, ms of the steady clock; without those that wait for a producer."""
        found: dict[int, float] = {}
        entries = self._entries_of(wanted)
        wanted = set(entries)
        for at, bucket in list(self._buckets.items()):
            for entry in _among(bucket, wanted):
                offset = entries[entry]
                found[offset] = max(at * STEP_MS, found.get(offset, 0))
        return found

    def _entries_of(self, wanted: set[int]) -> dict[int, int]:
        """Return the offset that a bucket or a group has for each of these halves -> where it lies."""
        return {self._entries.get(one, one): one for one in wanted}

    def open_parked(self, group: str) -> tuple[int, int | None]:
        """Return (how many open halves of a group wait for a producer, the oldest of them)."""
        count, oldest = 0, None
        parked = self._parked.get(group) or array("q")
        for begin in range(0, len(parked), _PIECE):
            places = map(self._place, parked[begin : begin + _PIECE])
            still = [offset for offset in places if self.checks(offset) is not None]
            count += len(still)
            oldest = min(still if oldest is None else [oldest, *still], default=None)
        return count, oldest

    def parked_among(self, group: str, wanted: set[int]) -> set[int]:
        """Return those of `wanted` that wait for a producer of the group."""
        parked, entries = self._parked.get(group), self._entries_of(wanted)
        return set() if parked is None else {entries[entry] for entry in _among(parked, set(entries))}


def _among(offsets: array[int], wanted: set[int]) -> set[int]:
    """Return the offsets of an array that are wanted. It is searched in pieces, as all of it would keep the GIL."""
    found: set[int] = set()
    for begin in range(0, len(offsets), _PIECE):
        found |= wanted.intersection(offsets[begin : begin + _PIECE])
    return found
