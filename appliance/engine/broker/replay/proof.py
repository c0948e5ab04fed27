"""Finds the copies of a job that are stored already: reads its targets after a crash, or after an append whose outcome
is unknown.

The journal holds the offsets from which on copies may lie. A record there that cannot be read could be a copy, so then
nothing is sent.
"""

from __future__ import annotations

from ...errors import RocketBoxError
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, unpack_entries
from ...store.record_reader import Missing
from ..topics import TopicConfigManager
from .job import JobState, Why
from .provenance import mark_of, sequence_in

#: Entries read in one step.
STEP = 256


class Unprovable(RocketBoxError):
    """It cannot be found out which copies are stored. again: a later try may succeed."""

    def __init__(self, why: Why, again: bool = False) -> None:
        super().__init__(why.code)
        self.why = why
        self.again = again


class Proof:
    """Reads through the targets of one job, step by step. Belongs to one thread."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, state: JobState, upto: int) -> None:
        """upto: no copy of a message with this number or a higher one was sent. Raises Unprovable."""
        self._store = store
        self._job, self._secret = state.spec.id, state.spec.secret
        self._mark = mark_of(self._job)
        self._numbers = range(state.next, upto)
        self._files = store.queues.new_files(4)
        #: Numbers whose copies are stored.
        self.found: set[int] = set()
        # (topic, queue id, next offset, end)
        self._work: list[tuple[str, int, int, int]] = []
        for topic, offsets in state.targets.items():
            config = topics.get(topic)
            if config is None:
                raise Unprovable(Why("replay_target_gone", {"topic": topic}))
            for queue_id in range(max(len(offsets), config.read_queue_nums, config.write_queue_nums)):
                begin = offsets[queue_id] if queue_id < len(offsets) else 0
                low, end = store.offset_range(topic, queue_id)
                if end < begin:
                    raise Unprovable(Why("replay_target_changed", {"topic": topic}))
                if low > begin:
                    raise Unprovable(Why("replay_start_expired", {"topic": topic}))
                if end > begin:
                    self._work.append((topic, queue_id, begin, end))

    def close(self) -> None:
        self._files.close()

    def step(self) -> bool:
        """Read a piece of the targets; True when all have been read. Raises Unprovable, QueueBroken (try again)."""
        if not self._work:
            return True
        topic, queue_id, begin, end = self._work[0]
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            raise Unprovable(Why("replay_target_gone", {"topic": topic}))
        try:
            data = self._store.queues.read_entries(queue, begin, min(end - begin, STEP), self._files)
            entries = list(unpack_entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]))
            if not entries:
                raise Unprovable(Why("replay_start_expired", {"topic": topic}))
            for physical, size, _ in entries:
                self._look_at(topic, physical, size)
        except OSError as error:
            raise Unprovable(
                Why("replay_target_unreadable", {"topic": topic, "reason": error.strerror or str(error)}), again=True
            ) from None
        if begin + len(entries) >= end:
            self._work.pop(0)
        else:
            self._work[0] = topic, queue_id, begin + len(entries), end
        return not self._work

    def _look_at(self, topic: str, physical: int, size: int) -> None:
        log = self._store.log
        if not 0 < size < HOLE_SIZE:
            raise Unprovable(Why("replay_target_unreadable", {"topic": topic, "reason": "a record is damaged"}))
        data = log.read(physical, size)
        if len(data) < size:
            raise Unprovable(Why("replay_start_expired", {"topic": topic}))
        if self._mark not in data:
            return
        found = self._store.records.find(physical, size)
        if isinstance(found, Missing):
            raise Unprovable(Why("replay_target_unreadable", {"topic": topic, "reason": found.value}))
        number = sequence_in(found.record.properties, self._job, self._secret)
        if number is not None and number in self._numbers:
            self.found.add(number)
