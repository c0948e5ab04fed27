"""Changing topics: one way for requests 17, 18 and 215 and for the window.

On the thread of the pool "admin", one change after the other. When a call returns, its change is durable, and the name
servers that answer have it: tools ask for the route right afterwards.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ..clock import SYSTEM, Clock
from ..errors import RefusedRequest
from ..named_tuple import NamedTuple
from ..protocol.codes import ResponseCode
from ..protocol.names import MESSAGE_TYPE, RETRY_PREFIX, topic_name_error
from .offsets import ConsumerOffsetManager
from .topic_attributes import AttributeChange
from .topic_config import TopicConfig
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicChange(NamedTuple):
    """The new configuration of a topic. attributes: changes to its attributes; those of `config` are ignored."""

    config: TopicConfig
    attributes: tuple[AttributeChange, ...] = ()


class NameServers(Protocol):
    """The part of registration.py that is used here."""

    def register_topics(self, changed: Iterable[TopicConfig]) -> dict[str, bool]:
        """Wait until the name servers that answer have these topics; return name server -> True if it has them. Raises
        nothing."""


class QueueStore(Protocol):
    """The store of the topics' queues."""

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues. Raises OSError if not all of them are gone."""

    def has_queues(self, topic: str) -> bool:
        """True if there are queues of a topic, which may be in no table."""


#: Time that a change waits for the members of a set that are in sync; tools wait for 5 s.
MEMBERS_S = 4.0
_LOOK_S = 0.005


class TopicService:
    """Creates, changes and deletes topics."""

    def __init__(
        self,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        store: QueueStore,
        name_servers: NameServers,
        clock: Clock = SYSTEM,
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._name_servers = name_servers
        self._clock = clock
        #: Returns True for a name that a group has. Set by the broker.
        self.is_group: Callable[[str], bool] = lambda name: False
        #: Forgets what else is kept of a topic that is deleted; may raise OSError. Set by the window.
        self.forget_more: Callable[[str], None] = lambda topic: None
        self._counting = threading.Lock()
        #: Number of changes so far, written under that lock. A change is in the tables before it is counted.
        self.changes = 0
        #: Set on a leader. on_change: called after a change was counted. all_have: returns True if all members that may
        #: lead next have this many changes.
        self.on_change: Callable[[], None] = lambda: None
        self.all_have: Callable[[int], bool] = lambda changes: True

    def check_name(self, topic: str) -> None:
        """Refuse with 29 a name that is illegal or the system's."""
        error = topic_name_error(topic)
        if error is None and self._topics.is_system_topic(topic):
            error = f"The topic[{topic}] is conflict with system topic."
        if error is not None:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, error)

    def change(self, changes: Sequence[TopicChange], by: str) -> dict[str, bool]:
        """Create or replace topics whose names were checked; return name server -> True if it has them.

        by: who asked, for the log. Refuses with 1 and 29 as `TopicConfigManager.update` does; those before the one that
        is refused are changed.
        """
        for config, attributes in changes:
            if config.topic_filter_type not in FILTER_TYPES:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR, f"No enum constant TopicFilterType.{config.topic_filter_type[:64]}"
                )
            if AttributeChange("+", MESSAGE_TYPE, "MIXED") in attributes:
                raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        ticket = 0
        changed = []
        for config, attributes in changes:
            last = self._topics.update(config, attributes)
            if last:
                ticket = last
                changed.append(config)
        if changed:
            self._topics.wait_durable(ticket)
        # Also when all is here already: members may lack it, if they did not confirm an earlier change in time.
        self.tell_members("changed")
        logger.info("admin: %d of %d topics changed by=%s", len(changed), len(changes), by)
        if not changed:
            return {}
        return self._name_servers.register_topics(changed)

    def delete(self, topic: str, by: str) -> None:
        """Delete a topic's configuration, offsets and queue files; its records stay in the log until they expire.

        Retry topics of its pop consumers are deleted as well, as by 5.3.3, but not that of a group whose name is made
        of the same words. If there is no such topic, the rest of an interrupted deletion is removed. The topic cannot
        be created again in between. Refuses with 29 a bad name, with 1 if not everything of it is gone.
        """
        self.check_name(topic)
        pops = [name for group, consumed in self._consumed() if consumed == topic for name in self._pops(group, topic)]
        # The topic comes last: if one is refused, the next try finds the others by its offsets.
        self._delete([*dict.fromkeys(pops), topic], by)

    def delete_retries(self, group: str, by: str, existed: bool) -> None:
        """Delete the retry topics of a group that is gone, and of its pop consumers, in the same way, but not one that
        `holds_pop_retries`. Its offsets must still be there: they name the topics that it consumed. existed: there was
        such a group. Refuses with 1."""
        topics = [topic for one, topic in self._consumed() if one == group]
        names = list(dict.fromkeys(name for topic in topics for name in self._pops(group, topic)))
        if self._is_there(RETRY_PREFIX + group) and not self.holds_pop_retries(group, existed or bool(topics)):
            names.append(RETRY_PREFIX + group)
        if names:
            self._delete(names, by)

    def _consumed(self) -> Iterator[tuple[str, str]]:
        """Yield groups and topics that they consume, by their offsets. One of `%RETRY%A_B` that A has stands for B: its
        pop consumers may have no other one."""
        for entry in self._offsets.all():
            own = RETRY_PREFIX + entry.group
            is_pop = entry.topic.startswith((f"{own}_", f"{own}+"))
            yield entry.group, entry.topic[len(own) + 1 :] if is_pop else entry.topic

    def _pops(self, group: str, topic: str) -> list[str]:
        """Return the retry topics of a group's pop consumers of a topic that nobody else reads."""
        pops = (f"{group}_{topic}", f"{group}+{topic}")
        mine = [pop for pop in pops if self._is_there(RETRY_PREFIX + pop) and not self._reads(pop, group)]
        return [RETRY_PREFIX + pop for pop in mine]

    def holds_pop_retries(self, group: str, existed: bool) -> bool:
        """True if a group's retry topic holds retries of pop consumers of another one: that of `A_B` may be the one of
        A and topic B. Apache, which makes it, gives A an offset of it. existed: there is or was such a group; if not,
        it is enough that A consumes B."""
        for entry in self._offsets.all():
            if group.startswith((f"{entry.group}_", f"{entry.group}+")):
                behind = group[len(entry.group) + 1 :]
                if entry.topic == RETRY_PREFIX + group or (not existed and entry.topic == behind):
                    return True
        return False

    def _reads(self, name: str, group: str) -> bool:
        """True if others than `group` read the retry topic of this name: a group that is called so, or any that has
        offsets of it, as that of `A_B_C` may be the one of A and `B_C`, and of `A_B` and C."""
        return self.is_group(name) or any(one != group for one in self._offsets.groups_of(RETRY_PREFIX + name))

    def _is_there(self, topic: str) -> bool:
        """True if a topic or a part of it is there: it may have left the table in a deletion that failed or was
        interrupted before its queues went."""
        return self._topics.get(topic) is not None or self._store.has_queues(topic)

    def _delete(self, names: list[str], by: str) -> None:
        for name in names:
            with self._topics.deleting(name) as ticket:
                self._topics.wait_durable(ticket)
                self._forget(name)
                self.tell_members("deleted")
        logger.info("admin: topics deleted %s by=%s", names, by)

    def tell_members(self, what: str) -> None:
        """Count a change, and wait until all members that may lead next have it. Any thread that may wait. Refuses with
        1 after MEMBERS_S."""
        with self._counting:
            self.changes = changes = self.changes + 1
        self.on_change()
        end = self._clock.monotonic() + MEMBERS_S
        while not self.all_have(changes):
            if self._clock.monotonic() >= end:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    f"it is {what} here, and not all members in sync have said that they know; try again",
                )
            self._clock.sleep(_LOOK_S)

    def _forget(self, topic: str) -> None:
        """Remove what is kept of a topic, as much of it as can be: its messages must not come into the next one only
        because its offsets cannot be saved. Refuses with 1 if something is left."""
        self._offsets.remove_topic(topic)
        failure: OSError | None = None
        for act in (lambda: self._store.delete_topic(topic), self._offsets.persist, lambda: self.forget_more(topic)):
            try:
                act()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"topic[{topic}] is gone, not everything of it: {failure}; try again"
            )
