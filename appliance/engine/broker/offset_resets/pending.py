"""PendingResets: offsets that were moved and that no member of the group has taken over yet.

A member learns of it by its next pull of the queue, which is answered 21 with the offset (parked pulls are answered at
once), or, when the queue is new to it, by asking for the group's offset (14). It has taken over when it then pulls at
just that offset. Until then what is committed (15, or with a pull) is what it knew before, and does not count.

In Apache the first pull ends it (5.3.3 `ConsumerOffsetManager.assignResetOffset`). But 4.9 clients go on reporting
their old offset for the 10 s that they need to take over, which moves the group back should they end in that time.
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

#: How often a queue's members are told before they may do as they please: a client that does not do as it is told asks
#: again at once, for ever. And for how long: 4.9 clients take 10 s and their rebalance's 20 s.
MOST_TELLINGS = 100
TELLING_S = 180.0
#: Kept in memory at most, 300 bytes each. More resets are refused.
MOST_PENDING = 100_000
#: Queues remembered whose members did not do as they were told.
_MOST_GIVEN_UP = 10_000


class Pending(NamedTuple):
    """One queue's. reset_id: of which reset. tellings: how often the offset was told; -1 while it is being written
    down, when members do not hear of it yet. told_at: monotonic s of the first time."""

    target: int
    reset_id: int
    tellings: int = 0
    told_at: float = 0.0


class GroupMove:
    """Offsets of a group that are to be moved at once, made ready beside remoting-io. topic -> queue id -> offset; what
    members are to be told; (topic, queue id) of those that are to be none."""

    def __init__(self, group: str, reset_id: int, moves: Iterable[tuple[str, int, int]]) -> None:
        """moves: (topic, queue id, offset), below 0 for none."""
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
        #: Called with the group when a member was told for the first time; it may need a nudge to go on.
        self.on_told: Callable[[str], None] = lambda group: None
        #: (reset id, topic, queue id) of those that are over and may be forgotten once the offsets are on disk.
        self.over: deque[tuple[int, str, int]] = deque()
        #: Whose members were told in vain -> of which reset; since the start. Added to by remoting-io, read by anyone.
        self.given_up: dict[Key, int] = {}
        # Owned by remoting-io: group -> queues that its members were told of, some of them over by now.
        self._told_of: dict[str, set[Key]] = {}

    # --- remoting-io

    def hold(self, keys: Iterable[Key], reset_id: int) -> dict[Key, Pending | None]:
        """Commits do not count from here on: a reset of these is being written down. What was there before."""
        before = {key: self.table.get(key) for key in keys}
        self.table.update(dict.fromkeys(before, Pending(-1, reset_id, -1)))
        return before

    def restore(self, before: Mapping[Key, Pending | None]) -> None:
        """It could not be written down: as `hold` found it."""
        for key, pending in before.items():
            if pending is None:
                self.table.pop(key, None)
            else:
                self.table[key] = pending

    def arm(self, key: Key, target: int, reset_id: int) -> None:
        """The group's offset was moved; tell the members."""
        self.table[key] = Pending(target, reset_id)

    def answer(self, key: Key, offset: int) -> int | None:
        """The offset to answer a pull at `offset` with, and 21; None to serve it."""
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
        """A member was told the group's offset (14), with which it begins."""
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
        """Whether a member of the group has yet to take over what it was told."""
        left = {key for key in self._told_of.pop(group, ()) if key in self.table}
        if left:
            self._told_of[group] = left
        return bool(left)

    # --- any thread

    def end(self, key: Key) -> None:
        """It was taken over, or is not to be any more."""
        pending = self.table.pop(key, None)
        if pending is not None and pending.reset_id:
            self.over.append((pending.reset_id, key[1], key[2]))
