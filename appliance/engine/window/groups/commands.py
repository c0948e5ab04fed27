"""Creates, changes and deletes consumer groups: checks, previews, then calls the service of requests 200 and 207."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ...admin_settings import GROUP_SETTINGS, group_fields
from ...broker.group_config import SubscriptionGroupConfig
from ...broker.group_service import SubscriptionGroupService
from ...broker.groups import SubscriptionGroupManager, is_system_group
from ...broker.topics import TopicConfigManager
from ...errors import Conflict, InvalidInput, NotFound
from ...protocol.names import DLQ_PREFIX, GROUP_MAX_LENGTH, RETRY_PREFIX, TOPIC_MAX_LENGTH, is_legal_group
from .. import snapshots as s
from ..admin_pool import AdminPool
from ..changes import check_revision, preview, refuse_if_blocked, revision_of, with_defaults, with_values
from ..figures.lag import ConsumerLag
from ..sentences import Sentence, say

#: A group's name must fit into the names of its retry and dead letter topics.
MAX_NAME_LENGTH = min(TOPIC_MAX_LENGTH - len(RETRY_PREFIX), GROUP_MAX_LENGTH)


class GroupCommands:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        service: SubscriptionGroupService,
        pool: AdminPool,
        lag: ConsumerLag,
    ) -> None:
        # Constant after construction.
        self._groups = groups
        self._topics = topics
        self._service = service
        self._pool = pool
        self._lag = lag

    def create(self, name: str, *, dry_run: bool = False, by: str = "", **settings: Any) -> s.Change:
        """Make a consumer group; durable when it returns. InvalidInput, Conflict if the group exists.

        settings: those of GROUP_SETTINGS, with their defaults: consume_enable, consume_broadcast_enable,
        consume_message_orderly, retry_queue_nums, retry_max_times.
        """
        if not is_legal_group(name) or len(name) > MAX_NAME_LENGTH:
            raise InvalidInput("name", say("bad_group_name", length=MAX_NAME_LENGTH))
        if is_system_group(name):
            raise InvalidInput("name", say("system_group", name=name))
        if self._groups.get(name) is not None:
            raise Conflict(say("group_exists", name=name))
        config = with_values(
            SubscriptionGroupConfig(group_name=name), GROUP_SETTINGS, with_defaults(GROUP_SETTINGS, settings)
        )
        change = preview(name, {}, group_fields(config), _warnings(config))
        return change if dry_run else self._made(change, config, None, by)

    def edit(
        self, name: str, *, revision: str | None = None, dry_run: bool = False, by: str = "", **settings: Any
    ) -> s.Change:
        """Change the settings that are given and not None. NotFound, Conflict (revision), InvalidInput."""
        known = self._known(name, revision)
        config = with_values(known, GROUP_SETTINGS, settings)
        change = preview(name, group_fields(known), group_fields(config), _warnings(config), (), revision_of(known))
        return change if dry_run else self._made(change, config, known, by)

    def delete(
        self,
        name: str,
        *,
        revision: str | None = None,
        offsets: bool = True,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Delete a group and (offsets=True) its offsets and retry topics; its dead letters stay, `warnings` name them.

        Blocked without `force` if it has unread messages or connected clients. NotFound, Conflict (revision).
        """
        known = self._known(name, revision)
        blockers, warnings = self._consequences(name, offsets)
        change = preview(name, group_fields(known), {}, warnings, blockers, revision_of(known))
        if dry_run:
            return change
        refuse_if_blocked(change, say("in_use", name=name), force)

        def job() -> None:
            self._check_unchanged(name, known)
            self._service.delete(name, by or "console", offsets=offsets)

        self._pool.run(job)
        return replace(change, applied=True, revision=None)

    def _made(
        self, change: s.Change, config: SubscriptionGroupConfig, known: SubscriptionGroupConfig | None, by: str
    ) -> s.Change:
        """Make the change and return it as applied."""
        if config != known:
            # A request's attributes are changes to those of the group. There are none here, so the group's stay.
            request = msgspec.structs.replace(config, attributes={})

            def job() -> None:
                self._check_unchanged(config.group_name, known)
                self._service.change([request], by or "console")

            self._pool.run(job)
        return replace(change, applied=True, revision=revision_of(config))

    def _known(self, name: str, revision: str | None) -> SubscriptionGroupConfig:
        known = self._groups.get(name)
        if known is None:
            raise NotFound("group", name)
        if is_system_group(name):
            raise InvalidInput("name", say("system_group", name=name))
        check_revision(known, revision)
        return known

    def _check_unchanged(self, name: str, known: SubscriptionGroupConfig | None) -> None:
        """Raise Conflict if the group has changed since the checks. Called on the pool's thread."""
        if self._groups.get(name) != known:
            raise Conflict(say("changed_meanwhile", name=name))

    def _consequences(self, name: str, offsets: bool) -> tuple[list[Sentence], list[Sentence]]:
        """Return (blockers, warnings) of deleting the group, with or without its offsets."""
        lag = self._lag.snapshot()
        blockers: list[Sentence] = []
        warnings: list[Sentence] = []
        for topic in lag.topics_of(name):
            backlog = lag.backlog(name, topic)
            if backlog.lag:
                blockers.append(say("group_unread", group=name, topic=topic, count=backlog.lag))
        info = lag.online.get(name)
        if info is not None:
            blockers.append(say("group_online", group=name, count=len(info.channels)))
        topics = len(lag.entries.get(name, ()))
        if topics:
            warnings.append(say("offsets_removed" if offsets else "offsets_kept", count=topics))
        for topic in (RETRY_PREFIX + name, DLQ_PREFIX + name):
            if self._topics.get(topic) is not None:
                count = sum(queue.max_offset - queue.min_offset for queue in lag.queues.get(topic, ()))
                goes = offsets and topic.startswith(RETRY_PREFIX) and not self._service.keeps_retries(name)
                warnings.append(say("retries_deleted" if goes else "leftover_topic", topic=topic, count=count))
        return blockers, warnings


def _warnings(config: SubscriptionGroupConfig) -> list[Sentence]:
    return [] if config.consume_enable else [say("consumption_off")]
