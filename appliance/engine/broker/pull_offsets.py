"""PullOffsets: the offset up to which each group has pulled each queue.

Messages between it and the committed offset are in flight. Kept in memory only: the first pull after a restart sets it
again.
Source: RocketMQ 5.3.3 `ConsumerOffsetManager.pullOffsetTable`, `commitPullOffset`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

#: RocketBox's limit. An entry takes some 100 bytes: 50 MB. 500 groups that read 1,000 queues each do not exceed it.
#: Beyond it all entries are forgotten, and each group's next pulls set them again.
MOST_ENTRIES = 500_000


class PullOffsets:
    """group -> queue -> offset behind the last pulled message. `note` belongs to remoting-io, the rest to any thread.

    Each step on a table is one C call; no lock is needed.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[ConsumeQueue, int]] = {}

    def note(self, group: str, queue: ConsumeQueue | None, next_offset: int) -> None:
        """Note that a pull was answered, or is held, and the group is at `next_offset` of the queue. Runs for each
        pull."""
        if queue is not None:
            try:
                self._groups[group][queue] = next_offset
            except KeyError:
                self._groups[group] = {queue: next_offset}

    def get(self, group: str, queue: ConsumeQueue | None) -> int:
        """Return the offset behind the last message that was pulled; -1 if none was."""
        queues = self._groups.get(group)
        return -1 if queues is None or queue is None else queues.get(queue, -1)

    def forget(self, group: str, queue: ConsumeQueue) -> None:
        """Forget up to where the group has pulled, because its offset was moved."""
        self._groups.get(group, {}).pop(queue, None)

    def remove_topic(self, topic: str) -> None:
        """Forget the queues of a deleted topic."""
        for queues in list(self._groups.values()):
            for queue in [queue for queue in list(queues) if queue.topic == topic]:
                queues.pop(queue, None)

    def remove_group(self, group: str) -> None:
        self._groups.pop(group, None)

    def trim(self, known: Callable[[str], object]) -> None:
        """Keep the limit, and forget groups that were deleted and had a pull answered after that; called every few
        seconds.

        known: returns a group's configuration, None if there is no such group.
        """
        for group in list(self._groups):
            if known(group) is None:
                self._groups.pop(group, None)
        count = len(self)
        if count > MOST_ENTRIES:
            logger.warning("pull offsets: %d are too many, all are forgotten until the next pulls", count)
            self._groups.clear()

    def __len__(self) -> int:
        return sum(map(len, list(self._groups.values())))
