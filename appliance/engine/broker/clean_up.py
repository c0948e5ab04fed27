"""Removal of unused groups, topics and offsets. Clients make them by naming them, and they would be kept for ever.

    a group     without members, without offsets, without a message that was ever sent back or given up
    a topic     without messages, without offsets, without subscribers; a retry or dead letter topic without its group
    an offset   of a topic or a group that is gone

and each of them not in use for some time, which is counted from the broker's start at the earliest.

They are found on any thread, and removed on remoting-io, a few at a time, after another check: there a client's
message, commit or heartbeat comes before or after the removal, never in between. For a client that comes after it they
are made as at the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from ..clock import Clock
from ..errors import RefusedRequest
from ..loop_calls import raise_from_loop
from ..protocol.codes import ResponseCode
from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..store.message_store import MessageStore
from ..store.queues.flush_queues import TopicDeletion
from .clients import ClientManager
from .groups import is_system_group
from .offsets import QueueOffsets, is_brokers_own
from .tables import Tables
from .topic_service import TopicService

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Entries that are checked and removed in one go on remoting-io: one journal entry each, half a millisecond in all.
SLICE = 16
#: Entries that one act removes at most, and the time that it may take. Its caller waits for the syncs after it, too.
MOST, WORK_S = 10_000, 8.0


class Lost(NamedTuple):
    """Offsets of a topic or a group that is gone."""

    group: str
    topic: str


class CleanUpService:
    """`unused_*` and `lost_offsets`: any thread. `remove_*`: on the thread of the pool "admin"."""

    def __init__(
        self,
        tables: Tables,
        clients: ClientManager,
        store: MessageStore,
        topic_service: TopicService,
        moved_at: Callable[[str], float],
        clock: Clock,
    ) -> None:
        """moved_at: returns when a message last came to a topic, monotonic s; 0 if none has since the start."""
        # Constant after construction.
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._store = store
        self._topic_service = topic_service
        self._moved_at = moved_at
        self._clock = clock

    def now(self) -> float:
        """Return the monotonic time in s. Taken before a search, and passed to the removal of what it finds."""
        return self._clock.monotonic()

    # --- what is not used

    def unused_groups(self, idle_s: float, awaited: Iterable[str] = ()) -> list[str]:
        """Return the groups that were never used and were quiet for `idle_s`; sorted. awaited: topics for which
        messages wait."""
        used = {entry.group for entry in self._offsets.all()}
        used.update(topic.removeprefix(RETRY_PREFIX) for topic in awaited if topic.startswith(RETRY_PREFIX))
        return sorted(
            config.group_name
            for config in self._groups.all()
            if config.group_name not in used and self._is_unused_group(config.group_name, idle_s)
        )

    def _is_unused_group(self, name: str, idle_s: float) -> bool:
        return (
            self._groups.get(name) is not None
            and not is_system_group(name)
            and self._clients.consumer_group(name) is None
            and self._groups.quiet_s(name) >= idle_s
            and not any(self._ever_had_messages(prefix + name) for prefix in (RETRY_PREFIX, DLQ_PREFIX))
        )

    def _ever_had_messages(self, topic: str) -> bool:
        return any(queue.next_offset for queue in self._store.queues.of_topic(topic))

    def unused_topics(self, idle_s: float, awaited: Iterable[str] = ()) -> list[str]:
        """Return the topics that are not used and were quiet for `idle_s`; sorted. awaited: topics for which messages
        wait."""
        used = {*awaited, *(entry.topic for entry in self._offsets.all())}
        for info in self._clients.consumer_groups():
            used.update(list(info.subscriptions))
        return sorted(
            config.topic_name
            for config in self._topics.all()
            if config.topic_name not in used and self._is_unused_topic(config.topic_name, idle_s)
        )

    def _is_unused_topic(self, name: str, idle_s: float) -> bool:
        if self._topics.get(name) is None or self._topics.is_system_topic(name):
            return False
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix) and self._is_known_group(name.removeprefix(prefix)):
                return False
        moved_at = self._moved_at(name)
        if self._topics.quiet_s(name) < idle_s or (moved_at and self._clock.monotonic() - moved_at < idle_s):
            return False
        return all(queue.next_offset <= queue.min_offset for queue in self._store.queues.of_topic(name))

    def _is_known_group(self, name: str) -> bool:
        return self._groups.get(name) is not None or self._clients.consumer_group(name) is not None

    def lost_offsets(self, idle_s: float) -> list[Lost]:
        """Return the offsets of topics and groups that are gone and were quiet for `idle_s`; sorted."""
        return sorted(Lost(entry.group, entry.topic) for entry in self._offsets.all() if self._is_lost(entry, idle_s))

    def _is_lost(self, entry: QueueOffsets, idle_s: float) -> bool:
        group = entry.group
        if is_brokers_own(group) or self._clients.consumer_group(group) is not None:
            return False
        if self._groups.get(group) is not None and self._topics.get(entry.topic) is not None:
            return False
        return min(self._groups.quiet_s(group), self._topics.quiet_s(entry.topic)) >= idle_s

    # --- removing it

    def remove_groups(self, names: list[str], idle_s: float, by: str, since: float) -> list[str]:
        """Remove those of the groups that are still unused, with their empty retry and dead letter topics; return their
        names.

        since: `now` before the search; a group that was used after that stays. Durable when it returns. Refuses with 1
        if it may not be durable.
        """
        deletions: list[TopicDeletion] = []

        def remove(name: str) -> bool:
            quiet_s = min(self._groups.quiet_s(name), self._topics.quiet_s(RETRY_PREFIX + name))
            if not self._is_unused_group(name, idle_s) or self._was_heard(quiet_s, since):
                return False
            self._groups.remove_now(name)
            for topic in (RETRY_PREFIX + name, DLQ_PREFIX + name):
                if self._topics.get(topic) is not None:
                    deletions.append(self._remove_topic(topic))
            return True

        done = self._remove(names, lambda entry: entry.group, remove)
        if done:
            self._groups.make_durable()
            self._finish(deletions)
            logger.info("admin: unused groups deleted count=%d first=%s by=%s", len(done), done[:3], by)
        return done

    def _was_heard(self, quiet_s: float, since: float) -> bool:
        return self._clock.monotonic() - quiet_s > since

    def remove_topics(self, names: list[str], idle_s: float, by: str, since: float) -> list[str]:
        """Do the same with topics."""
        deletions: list[TopicDeletion] = []

        def remove(name: str) -> bool:
            if not self._is_unused_topic(name, idle_s) or self._was_heard(self._topics.quiet_s(name), since):
                return False
            if any(name in info.subscriptions for info in self._clients.consumer_groups()):
                return False
            deletions.append(self._remove_topic(name))
            return True

        done = self._remove(names, lambda entry: entry.topic, remove)
        if done:
            self._finish(deletions)
            logger.info("admin: unused topics deleted count=%d first=%s by=%s", len(done), done[:3], by)
        return done

    def remove_offsets(self, found: list[Lost], idle_s: float, by: str, since: float) -> list[Lost]:
        """Do the same with offsets."""
        entries = {Lost(entry.group, entry.topic): entry for entry in self._offsets.all()}

        def remove(one: Lost) -> bool:
            entry = entries.get(one)
            if entry is None or not self._is_lost(entry, idle_s):
                return False
            if self._was_heard(min(self._groups.quiet_s(one.group), self._topics.quiet_s(one.topic)), since):
                return False
            self._offsets.remove_entry(entry)
            return True

        done = self._in_slices(found, lambda part: _removed(part, remove))
        if done:
            try:
                self._offsets.persist()
            except OSError as error:
                raise _incomplete(error) from None
            self._topic_service.tell_members("deleted")
            logger.info("admin: lost offsets deleted count=%d first=%s by=%s", len(done), done[:3], by)
        return done

    def _remove(
        self, names: list[str], named: Callable[[QueueOffsets], str], remove: Callable[[str], bool]
    ) -> list[str]:
        """Remove those of the names that have no offsets; return them. named: returns the topic or the group of an
        entry."""
        made, used = -1, set[str]()

        def part_of(part: list[str]) -> list[str] | None:
            if self._offsets.made != made:
                return None
            return _removed([name for name in part if name not in used], remove)

        def look() -> None:
            nonlocal made, used
            made = self._offsets.made  # first: an entry that is made from here on changes it
            used = {named(entry) for entry in self._offsets.all()}

        look()
        return self._in_slices(names, part_of, look)

    def _in_slices(
        self,
        names: list[T],
        remove: Callable[[list[T]], list[T] | None],
        look: Callable[[], None] = lambda: None,
    ) -> list[T]:
        """Remove at most MOST of the names within WORK_S; return those that were removed. remove: called on
        remoting-io; returns None if `look` has to be called first."""
        done: list[T] = []
        end = self._clock.monotonic() + WORK_S
        late = lambda: self._clock.monotonic() >= end  # noqa: E731
        begin = 0
        while begin < min(len(names), MOST) and not late():
            part = names[begin : min(begin + SLICE, MOST)]
            answer: list[list[T] | None] = []
            removal = partial(lambda part, answer: answer.append(remove(part)), part, answer)
            try:
                if not raise_from_loop(self._store.scheduler.call_soon, removal, late):
                    break
            except RefusedRequest:
                if not done:
                    raise
                break  # the removals so far are made durable and returned
            if answer[0] is None:
                look()
                continue
            done += answer[0]
            begin += len(part)
        return done

    def _remove_topic(self, name: str) -> TopicDeletion:
        """Remove a topic. Its queues, which hold no messages, are gone at once; the deletion of their files is under
        way. On remoting-io."""
        self._topics.remove_now(name)
        deletion = TopicDeletion(name)
        if self._store.queues.of_topic(name):
            self._store.forget_topic(deletion)
        else:
            deletion.done.set()
        return deletion

    def _finish(self, deletions: list[TopicDeletion]) -> None:
        """Wait until the deletions are durable here, and the members of a set that may lead next have them. Refuses
        with 1."""
        self._topics.make_durable()
        try:
            for deletion in deletions:
                self._store.wait_deleted(deletion)
                self._topic_service.forget_more(deletion.topic)
        except OSError as error:
            raise _incomplete(error) from None
        self._topic_service.tell_members("deleted")


def _removed(part: list[T], remove: Callable[[T], bool]) -> list[T]:
    """Remove the elements one by one; return those that were removed. A refusal is raised if none was removed before
    it; otherwise it only ends the work."""
    done: list[T] = []
    for one in part:
        try:
            if remove(one):
                done.append(one)
        except RefusedRequest:
            if not done:
                raise
            break
    return done


def _incomplete(error: OSError) -> RefusedRequest:
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, f"it is gone, not everything of it on disk: {error}; try again")
