"""Topic -> its queues, kept as long as the table of queues stays the same."""

from __future__ import annotations

from ..store.queues.consume_queue import ConsumeQueue
from ..store.queues.consume_queue_table import ConsumeQueueTable


class QueueIndex:
    """Any thread may look. One that finds the index stale makes a new one; nothing is changed in place.

    Comparing the copied table with the last one costs 10 ns a queue. Grouping it again costs 200 ns a queue, for new
    queues only unless some were removed.
    """

    def __init__(self, table: ConsumeQueueTable) -> None:
        self._table = table
        # Replaced whole: (all queues, those of each topic).
        self._known: tuple[list[ConsumeQueue], dict[str, list[ConsumeQueue]]] = ([], {})

    def look(self) -> tuple[list[ConsumeQueue], dict[str, list[ConsumeQueue]]]:
        """Return (all queues in the table's order, topic -> its queues); neither may be changed."""
        queues = self._table.all()
        known, by_topic = self._known
        if queues == known:
            return self._known
        others = queues[len(known) :]
        fresh: dict[str, list[ConsumeQueue]] = {}
        if queues[: len(known)] == known:  # nearly always: some more behind the known ones
            by_topic = by_topic.copy()
        else:
            others, by_topic = queues, {}
        for queue in others:
            found = fresh.get(queue.topic)
            if found is None:
                fresh[queue.topic] = found = by_topic[queue.topic] = by_topic.get(queue.topic, []).copy()
            found.append(queue)
        self._known = (queues, by_topic)
        return self._known

    def by_topic(self) -> dict[str, list[ConsumeQueue]]:
        return self.look()[1]

    def of(self, topic: str) -> list[ConsumeQueue]:
        """Return a topic's queues that were ever written or waited for, by queue id."""
        return sorted(self.by_topic().get(topic, ()), key=lambda queue: queue.queue_id)
