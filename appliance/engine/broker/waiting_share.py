"""The limit of waiting messages: they are kept however full the disk is, and so may take only a share of it.

Messages with a time of their own, those at delay levels, retries among them, and open half messages stay in the log
until their time has come: no full disk deletes them. Any client may send such messages for three days ahead. So their
bytes are measured after each round of the cleaner, and sooner if the log has grown by half of what is left. If they
exceed MOST_SHARE of what the log can have, sends of such messages are refused with 14, while all others go on. The
marks of recalls (370), which wait as long as the messages that they are for, have a larger share, and retries, which
are not a client's choice, the largest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from ..clock import SYSTEM, Clock
from ..disk import DiskUsage
from ..errors import QueueBroken
from ..protocol.names import HALF_TOPIC
from ..store.dispatch import SCHEDULE_TOPIC
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import ENTRY_BYTES, unpack_entries
from .delays.levels import queue_of_level

logger = logging.getLogger(__name__)

#: Shares of what the log has and may still take. If waiting messages exceed the first, sends of such messages are
#: refused; if they exceed the second, recalls, too, and if they exceed the third, retries.
MOST_SHARE, MOST_SHARE_OF_RECALLS, MOST_SHARE_OF_RETRIES = 1 / 3, 5 / 12, 1 / 2
#: Entries read at a time, and in one look: if there are more, the measure lags behind for some looks.
_AT_ONCE, _MOST_ENTRIES = 4096, 1 << 20
_DESCRIPTORS = 4
#: Shortest time between two looks that are asked for, in seconds.
ASK_S = 0.2


class _Window:
    """A queue's entries from `begin` to `end`, and the bytes of their records."""

    __slots__ = ("begin", "bytes", "end")

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.bytes = 0


class WaitingShare:
    """Owned by the cleaner's thread; its public attributes are read by any thread. The `refusal_...` are for
    remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        timer_bytes: Callable[[], int],
        levels: Callable[[], list[int]],
        delivered_to: Callable[[int], int],
        open_halves: Callable[[], tuple[int | None, int]],
        ask: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM,
    ) -> None:
        """timer_bytes: returns the bytes of messages and marks that wait for a time of their own. delivered_to: returns
        the queue offset of a level's first message that waits. open_halves: returns (queue offset of the oldest, their
        number). ask: has `look` called soon."""
        # Constant after construction.
        self._store = store
        self._timer_bytes = timer_bytes
        self._levels = levels
        self._delivered_to = delivered_to
        self._open_halves = open_halves
        self._ask = ask
        self._clock = clock
        self._files = store.queues.new_files(_DESCRIPTORS)
        # Owned by the thread.
        self._windows: dict[tuple[str, int], _Window] = {}
        self._budget = 0
        #: Bytes of all waiting messages.
        self.bytes = 0
        #: The reason why sends of waiting messages, recalls or retries are refused; None if they are taken.
        self.refusing: str | None = None
        self.refusing_recalls: str | None = None
        self.refusing_retries: str | None = None
        #: The log's end when the last look began, and the bytes that sends, recalls and retries had left then.
        self._looked_to = 0
        self._left = (math.inf, math.inf, math.inf)
        # Owned by remoting-io.
        self._asked_at = -math.inf

    def refusal_of_sends(self) -> str | None:
        """Return why a message that is to wait is not taken; None if it is."""
        return self.refusing or self._unmeasured(self._left[0])

    def refusal_of_recalls(self) -> str | None:
        """Return the same for a recall."""
        return self.refusing_recalls or self._unmeasured(self._left[1])

    def refusal_of_retries(self) -> str | None:
        """Return the same for a retry."""
        return self.refusing_retries or self._unmeasured(self._left[2])

    def _unmeasured(self, left: float) -> str | None:
        """Return a reason if all that was left may have been used since the last look. This requests a look."""
        log = self._store.log
        grown = log.written + log.staged - self._looked_to
        if 2 * grown <= left:
            return None
        now = self._clock.monotonic()
        if now - self._asked_at >= ASK_S:
            self._asked_at = now
            self._ask()
        return None if grown <= left else "what waits may have more than its share of the disk, and is being measured"

    def look(self, usage: DiskUsage, refuse_share: float) -> None:
        """Measure, after a round of the cleaner. usage: of the log's disk. refuse_share: used share of the disk at
        which all sends are refused."""
        self._budget = _MOST_ENTRIES
        log = self._store.log
        begun_at = log.written
        found = self._timer_bytes()
        for level in self._levels():
            found += self._between(SCHEDULE_TOPIC, queue_of_level(level), self._delivered_to(level))[0]
        lowest, count = self._open_halves()
        if lowest is not None:
            held, entries = self._between(HALF_TOPIC, 0, lowest)
            found += held * min(count, entries) // max(1, entries)
        self.bytes = found
        kept_free = int(usage.total_bytes * max(0.0, 1 - refuse_share))
        room = log.written - log.min_offset + max(0, usage.free_bytes - kept_free)
        self.refusing = self._judge(room * MOST_SHARE, "sends", self.refusing)
        self.refusing_recalls = self._judge(room * MOST_SHARE_OF_RECALLS, "recalls", self.refusing_recalls)
        self.refusing_retries = self._judge(room * MOST_SHARE_OF_RETRIES, "retries", self.refusing_retries)
        shares = (MOST_SHARE, MOST_SHARE_OF_RECALLS, MOST_SHARE_OF_RETRIES)
        sends, recalls, retries = (room * share - found for share in shares)
        # In this order: remoting-io may read them in between, and then asks for one more look.
        self._left = (sends, recalls, retries)
        self._looked_to = begun_at

    def _judge(self, most: float, whose: str, before: str | None) -> str | None:
        if self.bytes <= most:
            if before is not None:
                logger.warning("waiting: %s that wait are taken again", whose)
            return None
        reason = (
            f"what waits has {self.bytes >> 20} MiB, more than its share of the disk, {int(most) >> 20} MiB: "
            "no more delayed, timed or half messages are taken"
        )
        if before is None:
            logger.error("waiting: %s that are to wait are refused: %s", whose, reason)
        return before or reason

    def _between(self, topic: str, queue_id: int, begin: int) -> tuple[int, int]:
        """Return (bytes, entries) of a queue from `begin` to its end, as far as they were read."""
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return 0, 0
        begin = max(begin, queue.min_offset)
        window = self._windows.get((topic, queue_id))
        if window is None or begin > window.end or begin < window.begin:
            window = self._windows[topic, queue_id] = _Window(begin)
        try:
            while window.begin < begin:
                taken, size = self._read(topic, queue_id, window.begin, begin)
                window.begin, window.bytes = window.begin + taken, max(0, window.bytes - size)
            while window.end < queue.max_offset and self._budget > 0:
                taken, size = self._read(topic, queue_id, window.end, queue.max_offset)
                window.end, window.bytes = window.end + taken, window.bytes + size
        except (OSError, QueueBroken):  # measured again at the next look, from the beginning
            del self._windows[topic, queue_id]
        assert window.begin <= window.end
        return window.bytes, window.end - window.begin

    def _read(self, topic: str, queue_id: int, begin: int, end: int) -> tuple[int, int]:
        """Read some entries; return (their number, bytes of their records)."""
        queue = self._store.find_queue(topic, queue_id)
        assert queue is not None
        data = self._store.queues.read_entries(queue, begin, min(_AT_ONCE, end - begin), self._files)
        taken = len(data) // ENTRY_BYTES
        if not taken:
            raise QueueBroken(f"entry {begin} of {topic}-{queue_id} cannot be read")
        self._budget -= taken
        return taken, sum(max(0, size) for _, size, _ in unpack_entries(data[: taken * ENTRY_BYTES]))

    def close(self) -> None:
        self._files.close()
