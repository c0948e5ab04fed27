"""Creates, changes and deletes topics: checks, previews, then calls the service of requests 17 and 215."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...admin_settings import TOPIC_SETTINGS, topic_fields
from ...broker.queue_index import QueueIndex
from ...broker.topic_attributes import changes_between
from ...broker.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from ...broker.topic_service import TopicChange, TopicService
from ...broker.topics import TopicConfigManager
from ...errors import Conflict, InvalidInput, NotFound
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, TOPIC_MAX_LENGTH, topic_name_error
from .. import snapshots as s
from ..admin_pool import AdminPool
from ..changes import check_revision, preview, refuse_if_blocked, revision_of, with_defaults, with_values
from ..figures.lag import ConsumerLag, LagSnapshot
from ..sentences import Sentence, say
from .views import kind_of


class TopicCommands:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        topics: TopicConfigManager,
        service: TopicService,
        pool: AdminPool,
        index: QueueIndex,
        lag: ConsumerLag,
        forget_routes: Callable[[Sequence[str]], None],
    ) -> None:
        """forget_routes: deletes topics from this process's name server, as a tool's request (216) does."""
        # Constant after construction.
        self._topics = topics
        self._service = service
        self._pool = pool
        self._index = index
        self._lag = lag
        self._forget_routes = forget_routes

    def create(
        self, name: str, *, force: bool = False, dry_run: bool = False, by: str = "", **settings: Any
    ) -> s.Change:
        """Make a topic; durable and registered with the name servers when it returns (`registered`: which took it).

        settings: those of TOPIC_SETTINGS, with their defaults: kind ("NORMAL", "FIFO", "DELAY", "TRANSACTION";
        "UNSPECIFIED": no message.type), read_queues, write_queues (0 is legal), readable, writable, order, and
        reserve_hours: messages stored longer ago are hidden, though their files stay until all messages in them have
        expired; 0: as long as the broker keeps them. by: the user, for the log. dry_run: the same checks, nothing
        changes. InvalidInput (field), Conflict if the topic exists, Unavailable; Blocked without `force` if there are
        more write queues than read queues: messages sent to the others could not be read.
        """
        self._check_name(name)
        config = with_values(TopicConfig(topic_name=name), TOPIC_SETTINGS, with_defaults(TOPIC_SETTINGS, settings))
        if self._topics.get(name) is not None:
            raise Conflict(say("topic_exists", name=name))
        change = preview(name, {}, topic_fields(config), _warnings(config, config), _unreadable_writes(config))
        if dry_run:
            return change
        refuse_if_blocked(change, say("messages_would_be_lost", name=name), force)
        return self._made(change, config, None, by)

    def edit(
        self,
        name: str,
        *,
        revision: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
        **settings: Any,
    ) -> s.Change:
        """Change the settings that are given and not None. As `create`; also NotFound, Conflict (`revision` is not
        the present one), Blocked without `force` if messages would become unreadable."""
        known = self._known(name, revision)
        config = with_values(known, TOPIC_SETTINGS, settings)
        change = preview(
            name,
            topic_fields(known),
            topic_fields(config),
            _warnings(config, known),
            (*self._lost_queues(known, config), *_unreadable_writes(config, known)),
            revision_of(known),
        )
        if dry_run:
            return change
        refuse_if_blocked(change, say("messages_would_be_lost", name=name), force)
        return self._made(change, config, known, by)

    def delete(
        self, name: str, *, revision: str | None = None, force: bool = False, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Delete a topic, its queues and all groups' offsets of it; its records leave the log when they expire.

        Blocked without `force` when a group has unread messages of it or clients of a consuming group are connected.
        NotFound, Conflict (revision), InvalidInput for a system topic.
        """
        known = self._known(name, revision)
        lag = self._lag.snapshot()
        blockers, warnings = _consumers_lost(name, lag)
        messages = sum(queue.max_offset - queue.min_offset for queue in lag.queues.get(name, ()))
        if messages:
            warnings.append(say("topic_has_messages", count=messages))
        change = preview(name, topic_fields(known), {}, warnings, blockers, revision_of(known))
        if dry_run:
            return change
        refuse_if_blocked(change, say("in_use", name=name), force)

        def job() -> None:
            self._check_unchanged(name, known)
            self._service.delete(name, by or "console")
            self._forget_routes([name])

        self._pool.run(job)
        return replace(change, applied=True, revision=None)

    def _made(self, change: s.Change, config: TopicConfig, known: TopicConfig | None, by: str) -> s.Change:
        """Make the change and return it as applied."""
        registered: dict[str, bool] = {}
        if config != known:
            attributes = changes_between({} if known is None else known.attributes, config.attributes)

            def job() -> dict[str, bool]:
                self._check_unchanged(config.topic_name, known)
                return self._service.change([TopicChange(config, attributes)], by or "console")

            registered = self._pool.run(job)
        return replace(change, applied=True, revision=revision_of(config), registered=registered)

    def _check_name(self, name: str) -> None:
        if topic_name_error(name) is not None:
            raise InvalidInput("name", say("bad_topic_name", length=TOPIC_MAX_LENGTH))
        if self._topics.is_system_topic(name):
            raise InvalidInput("name", say("system_topic", name=name))
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise InvalidInput("name", say("made_with_group"))

    def _known(self, name: str, revision: str | None) -> TopicConfig:
        known = self._topics.get(name)
        if known is None:
            raise NotFound("topic", name)
        if self._topics.is_system_topic(name):
            raise InvalidInput("name", say("system_topic", name=name))
        check_revision(known, revision)
        return known

    def _check_unchanged(self, name: str, known: TopicConfig | None) -> None:
        """Raise Conflict if the topic has changed since the checks. Called on the pool's thread."""
        if self._topics.get(name) != known:
            raise Conflict(say("changed_meanwhile", name=name))

    def _lost_queues(self, known: TopicConfig, config: TopicConfig) -> tuple[Sentence, ...]:
        """Return a blocker if there are messages in queues that will no longer be readable."""
        if config.read_queue_nums >= known.read_queue_nums:
            return ()
        gone = range(config.read_queue_nums, known.read_queue_nums)
        count = sum(
            queue.max_offset - queue.min_offset for queue in self._index.of(config.topic_name) if queue.queue_id in gone
        )
        return (say("queues_taken_away", first=gone[0], last=gone[-1], count=count),) if count else ()


def _consumers_lost(topic: str, lag: LagSnapshot) -> tuple[list[Sentence], list[Sentence]]:
    """Return (blockers, warnings) of deleting a topic. Blockers: groups with unread messages, and groups with connected
    clients. Warnings: retries that wait in the groups' retry topics."""
    blockers: list[Sentence] = []
    warnings: list[Sentence] = []
    groups = {group for group, entries in lag.entries.items() if topic in entries}
    online = {group for group, info in lag.online.items() if topic in info.subscriptions}
    for group in sorted(groups | online):
        backlog = lag.backlog(group, topic)
        if backlog.lag:
            blockers.append(say("group_unread", group=group, topic=topic, count=backlog.lag))
        if group in online:
            blockers.append(say("group_online", group=group, count=len(lag.online[group].channels)))
        if f"{RETRY_PREFIX}{group}" in lag.queues and group in groups:
            pending = lag.retries(group)
            if pending:
                warnings.append(say("leftover_topic", topic=f"{RETRY_PREFIX}{group}", count=pending))
    return blockers, warnings


def _unreadable_writes(config: TopicConfig, known: TopicConfig | None = None) -> tuple[Sentence, ...]:
    """Return a blocker if producers would use queues that cannot be read. Empty if the change leaves both numbers of
    queues as they were."""
    first, last = config.read_queue_nums, config.write_queue_nums - 1
    if last < first or not config.perm & PERM_WRITE:
        return ()
    if known is not None and (known.read_queue_nums, known.write_queue_nums) == (first, last + 1):
        return ()
    return (say("unreadable_writes", first=first, last=last),)


def _warnings(config: TopicConfig, known: TopicConfig) -> list[Sentence]:
    found = []
    kind = kind_of(config)
    if kind == "FIFO" or config.order:
        found.append(say("order_one_queue"))
    if config.write_queue_nums < known.write_queue_nums:
        found.append(say("fewer_write_queues", first=config.write_queue_nums, last=known.write_queue_nums - 1))
    if not config.perm & PERM_READ:
        found.append(say("unreadable"))
    if not config.perm & PERM_WRITE:
        found.append(say("unwritable"))
    return found
