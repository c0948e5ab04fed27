"""Measures queues before a page needs them; otherwise the first list of many topics would read thousands of files.

Reading a queue takes four calls that release the GIL, and beside a busy I/O thread each of them waits to get it back.
So a few queues are measured at a time, while no request waits for them.
"""

from __future__ import annotations

import time

from ...broker.queue_index import QueueIndex
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..messages.queue_reader import QueueReader
from .measures import FACTS_KEPT, Measures

#: Queues measured in one step; a topic is done whole.
STEP_QUEUES = 64
#: Topics looked at in one step at most.
STEP_TOPICS = 1000
#: Beyond this many measured queues, half of what is remembered, pages do their own reading.
MOST_QUEUES = FACTS_KEPT // 2
#: Time after which a new round begins: the first messages of known queues may have expired.
ROUND_S = 60.0


class LookAhead:
    """Belongs to one thread, the console's `look-ahead`."""

    def __init__(self, index: QueueIndex, store: MessageStore, measures: Measures) -> None:
        # Constant after construction.
        self._index = index
        self._store = store
        self._measures = measures
        # The state of this round: the table it began with, its topics, the next of them, when the next round is due.
        self._table: list[ConsumeQueue] | None = None
        self._topics: list[list[ConsumeQueue]] = []
        self._next = 0
        self._due = 0.0

    def step(self) -> bool:
        """Measure some queues before a list needs them, for a few milliseconds. Return True if there are more. For one
        thread, which rests between its calls."""
        if self._next >= len(self._topics):
            table, by_topic = self._index.look()
            now = time.monotonic()
            if table is self._table and now < self._due:
                return False
            self._table, self._topics, self._next = table, list(by_topic.values()), 0
            self._due = now + ROUND_S
        measures = self._measures
        end = min(len(self._topics), self._next + STEP_TOPICS)
        done = 0
        with QueueReader(self._store) as reader:
            while self._next < end and done < STEP_QUEUES:
                queues = self._topics[self._next]
                self._next += 1
                if measures.are_known(queues):
                    continue
                if measures.count + len(queues) > MOST_QUEUES:
                    self._next = len(self._topics)
                    return False
                for queue in queues:
                    measures.size(reader, queue)
                measures.oldest_at_ms(reader, queues)
                done += len(queues)
        return self._next < len(self._topics)
