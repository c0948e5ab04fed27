"""PendingResets: offsets that were moved and that no member of the group has taken over yet.

A member gets the new offset in the answer to its next pull of the queue, with code 21 (parked pulls are answered at
once), or, if the queue is new to it, when it requests the group's offset (14). It has taken the offset over when it
then pulls at just that offset. Until then its commits (15, or with a pull) are of the old offset, and do not count.

In Apache the first pull ends the reset (5.3.3 `ConsumerOffsetManager.assignResetOffset`). But 4.9 clients go on
reporting their old offset for the 10 s that they need to take over, which moves the group back should they end in that
time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ...clock import Clock
from ...named_tuple import NamedTuple

logger = logging.getLogger(__name__)

#: (group, topic, queue id).
Key = tuple[str, str, int]

#: Most answers with the new offset to a queue's members, and the longest time for them; then pulls are served again. A
#: client that ignores the offset asks again at once, for ever. 4.9 clients take 10 s and the 20 s of their rebalance.
MOST_TELLINGS = 100
TELLING_S = 180.0
#: Most moved offsets in memory, 300 bytes each; further resets are refused.
MOST_PENDING = 100_000
#: Most queues that are remembered because their members ignored the offset.
_MOST_GIVEN_UP = 10_000


class Pending(NamedTuple):
    """The moved offset of one queue. reset_id: id of the reset. tellings: how often members got the offset; -1 while
    the reset is being written down, when members do not get it yet. told_at: monotonic s of the first time."""

    target: int
    reset_id: int
    tellings: int = 0
    told_at: float = 0.0


class GroupMove:
    """Offsets of a group that are to be moved at once, prepared outside remoting-io.

    targets: topic -> queue id -> offset. pending: what members are to get. forgotten: (topic, queue id) of the offsets
    that are to be removed.
    """

    def __init__(self, group: str, reset_id: int, moves: Iterable[tuple[str, int, int]]) -> None:
        """moves: (topic, queue id, offset); an offset below 0 is to be removed."""
        self.group = group
        self.targets: dict[str, dict[int, int]] = {}
        self.pending: dict[Key, Pending] = {}
        self.forgotten: list[tuple[str, int]] = []
        for topic, queue_id, offset in moves:
            if offset < 0:
                self.forgotten.append((topic, queue_id))
            else:
                self.targets.setdefault(topic, {})[queue_id] = offset
                self.pending[group, topic, queue_id] = Pending(offset, reset_id)


class PendingResets:
    """`table` belongs to remoting-io, which alone adds to it; any thread may take out. Each step is one C call."""

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        #: Also read by the compiled twin, which leaves pulls of these queues to `answer`.
        self.table: dict[Key, Pending] = {}
        #: Called with the group when a member got an offset for the first time; the member may need a nudge to go on.
        self.on_told: Callable[[str], None] = lambda group: None
        #: (reset id, topic, queue id) of moves that are over and may be forgotten once the offsets are on disk.
        self.over: deque[tuple[int, str, int]] = deque()
        #: (reset id, topic, queue id, offset) of moves that lead elsewhere now, for the journal.
        self.corrected: deque[tuple[int, str, int, int]] = deque()
        #: Queues whose members ignored the offset, since the start -> reset id. Added to by remoting-io, read by any
        #: thread.
        self.given_up: dict[Key, int] = {}
        # Owned by remoting-io: group -> queues whose new offset its members got, some of them over by now.
        self._told_of: dict[str, set[Key]] = {}

    # --- remoting-io

    def hold(self, keys: Iterable[Key], reset_id: int) -> dict[Key, Pending | None]:
        """Let commits of these queues not count while a reset is being written down. Return what was there before."""
        before = {key: self.table.get(key) for key in keys}
        self.table.update(dict.fromkeys(before, Pending(-1, reset_id, -1)))
        return before

    def restore(self, before: Mapping[Key, Pending | None]) -> None:
        """Restore what `hold` found, because the reset could not be written down."""
        for key, pending in before.items():
            if pending is None:
                self.table.pop(key, None)
            else:
                self.table[key] = pending

    def arm(self, key: Key, target: int, reset_id: int) -> None:
        """Answer members with this offset from now on: the group's offset was moved there."""
        self.table[key] = Pending(target, reset_id)

    def correct(self, key: Key, target: int) -> None:
        """Answer members with another offset from now on. Before the broker serves."""
        pending = self.table[key]
        self.table[key] = pending._replace(target=target)
        if pending.reset_id:
            self.corrected.append((pending.reset_id, key[1], key[2], target))

    def answer(self, key: Key, offset: int) -> int | None:
        """Return the offset to answer a pull at `offset` with, under code 21; None to serve the pull."""
        pending = self.table.get(key)
        if pending is None or pending.tellings < 0:
            return None
        now = self._clock.monotonic()
        if pending.tellings:
            if offset == pending.target:
                self.end(key)
                return None
            if pending.tellings >= MOST_TELLINGS or now - pending.told_at >= TELLING_S:
                logger.warning("offsets: reset is not taken over, members go on group=%s topic=%s queue=%d", *key)
                if len(self.given_up) >= _MOST_GIVEN_UP:
                    self.given_up.clear()
                self.given_up[key] = pending.reset_id
                self.end(key)
                return None
        self._told(key, pending, now)
        return pending.target

    def asked(self, key: Key) -> None:
        """Note that a member got the group's offset (14), with which it begins."""
        pending = self.table.get(key)
        if pending is not None and pending.tellings == 0:
            self._told(key, pending, self._clock.monotonic())

    def _told(self, key: Key, pending: Pending, now: float) -> None:
        first = pending.tellings == 0
        self.table[key] = pending._replace(tellings=pending.tellings + 1, told_at=now if first else pending.told_at)
        if first:
            self._told_of.setdefault(key[0], set()).add(key)
            self.on_told(key[0])

    def waits(self, group: str) -> bool:
        """True if the group's members got an offset that none has taken over yet."""
        left = {key for key in self._told_of.pop(group, ()) if key in self.table}
        if left:
            self._told_of[group] = left
        return bool(left)

    # --- any thread

    def end(self, key: Key) -> None:
        """Remove an offset that was taken over, or that no member has to take over."""
        pending = self.table.pop(key, None)
        if pending is not None and pending.reset_id:
            self.over.append((pending.reset_id, key[1], key[2]))
