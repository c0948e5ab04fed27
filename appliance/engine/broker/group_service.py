"""Changing consumer groups: one way for requests 200, 225 and 207 and for the window.

On the thread of the pool "admin", one change after the other. When a call returns its change is durable, and in a set
the members that may lead next have it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from .group_config import SubscriptionGroupConfig
from .groups import SubscriptionGroupManager
from .offsets import ConsumerOffsetManager
from .topic_service import TopicService

logger = logging.getLogger(__name__)


class SubscriptionGroupService:
    """Creates, changes and deletes consumer groups."""

    def __init__(
        self,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        topics: TopicService,
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def change(self, configs: Iterable[SubscriptionGroupConfig], by: str) -> None:
        """Create or replace groups. The first bad one ends it; those before it are changed. by: who asked, for the log.

        Refuses with 1 as `SubscriptionGroupManager.update` does, and if members did not confirm it in time.
        """
        ticket = 0
        for config in configs:
            ticket = self._groups.update(config) or ticket
            logger.info("admin: group set %s by=%s", config.group_name, by)
        if ticket:
            self._groups.wait_durable(ticket)
        # Also when all is here already: members may lack it, if they did not confirm an earlier change in time.
        self._topics.tell_members("changed")

    def delete(self, group: str, by: str, *, offsets: bool) -> None:
        """Delete a group, and with `offsets` also its offsets and retries: a group without offsets reads its retry
        topic from the beginning. Its dead letters stay, and so does the retry topic if `keeps_retries`. Refuses with 1
        if something of that may come back."""
        existed = self._groups.get(group) is not None
        ticket = self._groups.delete(group)
        if ticket:
            self._groups.wait_durable(ticket)
        self._offsets.pulled.remove_group(group)
        if offsets:
            self._topics.delete_retries(group, by, existed)
            self._offsets.remove_group(group)
            try:
                self._offsets.persist()
            except OSError as error:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR, f"the group is gone, its offsets may come back: {error}; try again"
                ) from None
        self._topics.tell_members("deleted")
        logger.info("admin: group deleted %s by=%s", group[:300], by)

    def keeps_retries(self, group: str) -> bool:
        """True if a deletion of this group leaves its retry topic: pop consumers of another one read it. Any thread."""
        return self._topics.holds_pop_retries(group, existed=True)
