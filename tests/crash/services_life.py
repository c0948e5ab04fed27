"""A life with what works behind the log: key index, retention, checksums of closed files, each played by the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.engine.config import StoreConfig
from appliance.engine.store.index.index_query import IndexQuery
from tests.crash.life import GONE, Life, Recovered, Violation, unique_key
from tests.support.clock import FakeClock

#: Size of an index file: it is full after some twenty messages.
SLOTS, ENTRIES = 16, 42
#: Number of messages per queue that are looked up by key: the newest, which may not be indexed yet, and others.
ASKED = 3


class ServicesLife(Life):
    """Marks "expired" before log files are deleted: from there on they may be gone."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.settings = self.settings._replace(index_enabled=True, index_slots=SLOTS, index_entries=ENTRIES)

    def begin(self) -> None:
        super().begin()
        store = self.store
        self.closing.append(store.cleaner.stop)
        cleaner = store.cleaner
        cleaner.clock = FakeClock()
        cleaner.options = StoreConfig(
            delete_file_batch_max=1,
            delete_commit_log_files_interval_ms=0,
            delete_consume_queue_files_interval_ms=0,
            clean_file_forcibly_enable=False,
            redelete_hanged_file_interval_ms=0,
        )
        cleaner._prepare()
        store.blocks._pause = lambda seconds: False
        store.index._rest = lambda spent: None
        store.blocks.guarded(store.blocks.forget_strangers)

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [
            *super().actions(deletions),
            (4, self._index),
            (1, self._seal),
            (1.5, self._expire),
        ]

    def _index(self) -> None:
        """Some slices, and now and then what makes them durable."""
        index = self.store.index
        try:
            index._prepare()
            if index.files and self.chance.random() < 0.2:
                index._hold_slots()
            for _ in range(self.chance.randrange(4)):
                index.work()
            if self.chance.random() < 0.4:
                index.checkpoint()
        except OSError as error:
            index._fail(error)

    def _seal(self) -> None:
        blocks = self.store.blocks
        blocks.guarded(blocks.seal_closed)

    def _expire(self) -> None:
        """The oldest log file has reached its age."""
        segments, cleaner = self.store.log.segments, self.store.cleaner
        if len(segments) < 2:
            return
        self.disk.mark(("expired", segments[0].end))
        cleaner.clock.advance(1)
        # Its age by the clock of the records is 0; by that of its file it is older than any limit.
        cleaner._count_expired = lambda now_ms, spans, limit: 1
        cleaner.request()
        cleaner.look()

    # --- judging

    def recovered(self) -> Recovered:
        self.finish_repairs()
        found = super().recovered()
        self._judge_index(found)
        blocks = self.store.blocks
        if not blocks.guarded(blocks.scrub):
            raise Violation(f"{blocks.failure}")
        if blocks.damaged:
            raise Violation(f"taken for damage: {blocks.damaged}")
        return found

    def _judge_index(self, found: Recovered) -> None:
        """A message that is there is found by its key, and what is found is there."""
        index = self.store.index
        index._prepare()
        query = IndexQuery(self.store.index, self.store.records)
        if not query.catch_up():
            raise Violation(f"the index stands at {index.position} of {self.store.published}: {index.failure}")
        for (topic, queue_id), bodies in found.items():
            there = [body for body in bodies if body != GONE]
            for body in {*there[-ASKED:], *self.chance.sample(there, min(ASKED, len(there)))}:
                answer = query.find(topic, unique_key(body), 10, 0, 1 << 62)
                if [record.body for record, _ in answer.records] != [body]:
                    raise Violation(f"{topic}-{queue_id}: {body[:20]!r} is found as {answer.records} by its key")
