"""A life with the broker's tables beside the store: topics, groups and offsets change, are synced and saved."""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.life import TOPICS, Life, Recovered
from tests.crash.tables import GROUP, Tables

GROUPS = ("G", "H")
NAMES = [
    *(("topics", topic) for topic in TOPICS),
    *(("groups", group) for group in GROUPS),
    *(("offsets", topic) for topic in TOPICS),
]


class BrokerLife(Life):
    """Sends and administrators make topics. What they did is marked "changed", and "kept" once it is acknowledged."""

    tables: Tables

    def begin(self) -> None:
        super().begin()
        self.tables = Tables(self.disk)
        self.closing.append(self.tables.close)
        # As in the broker: no message is acknowledged in a topic that could be lost.
        self.store.sync_first(self.before_log, lambda: True)

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [
            *super().actions(deletions),
            (3, self._change),
            (2, self._sync_journal),
            (1, self._save),
            (1, self._commit),
        ]

    def _is_topic(self, topic: str) -> bool:
        if self.tables.make_topic(topic):
            self._mark_changed("topics", topic)
        return self.tables.topics.get(topic) is not None

    def _mark_changed(self, table: str, name: str) -> None:
        self.disk.mark(("changed", table, name, self.tables.value(table, name)))

    def _change(self) -> None:
        """Change a topic or a group as an administrator does, who gets the reply after the next sync."""
        count = self.chance.randrange(1, 9)
        table, name = self.chance.choice(NAMES[: len(TOPICS) + len(GROUPS)])
        if table == "groups" and self.chance.random() < 0.3:
            done = self.tables.forget(table, name)
        elif table == "groups":
            done = self.tables.set_retries(name, count)
        else:
            done = self.tables.set_queues(name, count)
        if done:
            self._mark_changed(table, name)

    def before_log(self) -> None:
        """Sync the files that must be durable before the log is."""
        self._sync_journal()

    def _sync_journal(self) -> None:
        if self.tables.sync():
            self.disk.mark(("kept", "topics"))
            self.disk.mark(("kept", "groups"))
        else:
            self.disk.mark(("unkept", ""))

    def _save(self) -> None:
        """A table's thread rewrites its file."""
        name = self.chance.choice(("topics", "groups", "offsets"))
        try:
            getattr(self.tables, name).persist()
        except OSError:
            return
        self._mark_saved(name)

    def _mark_saved(self, name: str) -> None:
        """A file alone makes no deletion durable: the journal may still hold what the file lacks."""
        journal = self.tables.journal
        if name == "offsets" or journal.durable == journal.written:
            self.disk.mark(("kept", name))

    def _commit(self) -> None:
        topic = self.chance.choice(TOPICS)
        self._count += 1
        self.tables.offsets.commit(GROUP, topic, 0, self._count)
        self._mark_changed("offsets", topic)

    def _forget_topic(self, topic: str) -> bool:
        """Do the steps before the deletion of a topic's queues. Return False if it was refused."""
        tables = self.tables
        if tables.topics.get(topic) is not None:
            if not tables.forget("topics", topic):
                return False
            self._mark_changed("topics", topic)
        if not tables.sync():
            return False
        self.disk.mark(("kept", "topics"))
        self.disk.mark(("kept", "groups"))
        tables.offsets.remove_topic(topic)
        self._mark_changed("offsets", topic)
        try:
            tables.offsets.persist()
        except OSError:
            return False
        self.disk.mark(("kept", "offsets"))
        return True

    def _stop(self) -> None:
        self.store.end_tick()
        for name in ("offsets", "topics", "groups"):
            try:
                getattr(self.tables, name).persist()
                self._mark_saved(name)
            except OSError:
                pass
        self._sync_journal()
        self.tables.close()
        super()._stop()

    def recovered(self) -> Recovered:
        found = super().recovered()
        found.configs = {name: self.tables.value(*name) for name in NAMES}
        return found
