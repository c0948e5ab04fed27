"""PullOffsets: how far each group has pulled each queue, which tells what is in flight: pulled, and not yet committed.

Kept in memory only: a pull after a restart says it again.
Source: RocketMQ 5.3.3 `ConsumerOffsetManager.pullOffsetTable`, `commitPullOffset`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

#: Ours. An entry takes some 100 bytes: 50 MB. 500 groups that read 1,000 queues each stay below; beyond it everything
#: is forgotten, and known again with each group's next pulls.
MOST_ENTRIES = 500_000


class PullOffsets:
    """group -> queue -> offset behind what was last given out. `note` belongs to remoting-io, the rest to any thread.

    Each step on a table is one C call; nobody needs a lock.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[ConsumeQueue, int]] = {}

    def note(self, group: str, queue: ConsumeQueue | None, next_offset: int) -> None:
        """A pull was answered, or is held: the group is at `next_offset` of the queue. On every pull's way."""
        if queue is not None:
            try:
                self._groups[group][queue] = next_offset
            except KeyError:
                self._groups[group] = {queue: next_offset}

    def get(self, group: str, queue: ConsumeQueue | None) -> int:
        """The offset behind what was last given out; -1 when nothing was."""
        queues = self._groups.get(group)
        return -1 if queues is None or queue is None else queues.get(queue, -1)

    def forget(self, group: str, queue: ConsumeQueue) -> None:
        """The group's offset was moved: what it had pulled before says nothing any more."""
        self._groups.get(group, {}).pop(queue, None)

    def remove_topic(self, topic: str) -> None:
        """The topic is gone, and its queues with it."""
        for queues in list(self._groups.values()):
            for queue in [queue for queue in list(queues) if queue.topic == topic]:
                queues.pop(queue, None)

    def remove_group(self, group: str) -> None:
        self._groups.pop(group, None)

    def trim(self, known: Callable[[str], object]) -> None:
        """Keep the bound, and let groups go that were answered once more after their end; called every few seconds.

        known: a group's configuration, None when there is no such group.
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
