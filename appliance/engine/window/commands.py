"""What the window can be asked to do: topics, groups, options. Checked, previewed, then done like a tool's request.

Changes run on the thread of the pool "admin", one after the other with those that arrive over the wire, and are durable
when the caller goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..broker.group_config import SubscriptionGroupConfig
from ..broker.topic_config import MESSAGE_TYPES, RESERVE_TIME, TopicConfig, reserve_hours_of
from ..broker.topics import MAX_QUEUE_NUMS
from ..errors import Blocked, Conflict, InvalidInput, NotFound, RefusedRequest, Unavailable
from ..protocol.names import (
    DLQ_PREFIX,
    GROUP_MAX_LENGTH,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    TOPIC_MAX_LENGTH,
    is_legal_group,
    topic_name_error,
)
from . import snapshots as s
from .group_views import is_system_group
from .lag import LagBook
from .sentences import Sentence, say
from .topic_views import kind_of, revision_of

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine
    from .options import Options
    from .queue_index import QueueIndex

logger = logging.getLogger(__name__)

POOL = "admin"
#: The journal's sync and the name servers' answers, with room for what is before us in the pool.
LIMIT_S = 15.0
#: MIXED is refused by the broker; these may be chosen.
KINDS = tuple(kind for kind in MESSAGE_TYPES if kind != "MIXED")
#: What the send path refuses so far.
NOT_SERVED = frozenset(("DELAY", "TRANSACTION"))
_MAX_RETRIES = 1_000_000
#: A hundred years.
MAX_RESERVE_HOURS = 876_000
#: A group's name begins two topics' names.
MAX_GROUP_LENGTH = TOPIC_MAX_LENGTH - len(RETRY_PREFIX)

T = TypeVar("T")


class Commands:
    """Any thread; waits in the caller's."""

    def __init__(self, engine: Engine, broker: Broker, index: QueueIndex, options: Options) -> None:
        self._engine = engine
        self._broker = broker
        self._index = index
        self._options = options

    def _run(self, job: Callable[[], T]) -> T:
        """Do it on the pool's thread; refusals come back as InvalidInput."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        pool = self._engine._pools.get(POOL)
        if pool is None or not pool.alive or not pool.submit(work):
            raise Unavailable(say("too_busy"))
        if threading.current_thread().name == pool.name:
            raise AssertionError("a command waits for the thread it is on")
        try:
            return future.result(LIMIT_S)
        except RefusedRequest as refusal:
            raise InvalidInput("", refusal.remark, refusal.code) from None
        except FutureTimeout:
            raise Unavailable(say("not_done_in_time", seconds=round(LIMIT_S))) from None

    # --- topics

    def create_topic(
        self,
        name: str,
        kind: str,
        read_queues: int,
        write_queues: int,
        readable: bool,
        writable: bool,
        order: bool,
        dry_run: bool,
        by: str,
    ) -> s.Change:
        self._check_topic_name(name)
        _check_kind(kind)
        _check_queues(read_queues, write_queues)
        if self._broker.topics.get(name) is not None:
            raise Conflict(say("topic_exists", name=name))
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=(PERM_READ if readable else 0) | (PERM_WRITE if writable else 0),
            order=order,
            attributes={} if kind == "UNSPECIFIED" else {"message.type": kind},
        )
        warnings = _topic_warnings(config, config)
        if dry_run:
            return _change(False, name, {}, _topic_fields(config), warnings, (), None)
        registered = self._set_topic(config, None, by)
        return _change(True, name, {}, _topic_fields(config), warnings, (), config, registered)

    def edit_topic(
        self,
        name: str,
        revision: str | None,
        kind: str | None,
        read_queues: int | None,
        write_queues: int | None,
        readable: bool | None,
        writable: bool | None,
        order: bool | None,
        force: bool,
        dry_run: bool,
        by: str,
        reserve_hours: int | None = None,
    ) -> s.Change:
        known = self._known_topic(name, revision)
        attributes = dict(known.attributes)
        if reserve_hours is not None and reserve_hours != (reserve_hours_of(known) or 0):
            if not 0 <= reserve_hours <= MAX_RESERVE_HOURS:
                raise InvalidInput(
                    "reserve_hours", say("out_of_range", field="reserve_hours", low=0, high=MAX_RESERVE_HOURS)
                )
            attributes.pop(RESERVE_TIME, None)
            if reserve_hours:
                attributes[RESERVE_TIME] = str(reserve_hours)
        if kind is not None and kind != kind_of(known):
            _check_kind(kind)
            attributes.pop("message.type", None)
            if kind != "UNSPECIFIED":
                attributes["message.type"] = kind
        perm = known.perm
        for wanted, bit in ((readable, PERM_READ), (writable, PERM_WRITE)):
            if wanted is not None:
                perm = perm | bit if wanted else perm & ~bit
        config = msgspec.structs.replace(
            known,
            read_queue_nums=known.read_queue_nums if read_queues is None else read_queues,
            write_queue_nums=known.write_queue_nums if write_queues is None else write_queues,
            perm=perm,
            order=known.order if order is None else order,
            attributes=attributes,
        )
        _check_queues(config.read_queue_nums, config.write_queue_nums)
        before, after = _topic_fields(known), _topic_fields(config)
        warnings = _topic_warnings(config, known)
        blockers = self._lost_queues(known, config)
        if dry_run:
            return _change(False, name, before, after, warnings, blockers, known)
        if blockers and not force:
            raise Blocked(
                say("messages_would_be_lost", name=name),
                blockers,
                _change(False, name, before, after, warnings, blockers, known),
            )
        registered = self._set_topic(config, known, by) if config != known else {}
        return _change(True, name, before, after, warnings, blockers, config, registered)

    def delete_topic(self, name: str, revision: str | None, force: bool, dry_run: bool, by: str) -> s.Change:
        known = self._known_topic(name, revision)
        book = LagBook(self._broker, self._index)
        blockers, warnings = self._consumers_lost(name, book)
        messages = sum(queue.max_offset - queue.min_offset for queue in book.queues.get(name, ()))
        if messages:
            warnings.append(say("topic_has_messages", count=messages))
        before = _topic_fields(known)
        if dry_run:
            return _change(False, name, before, {}, warnings, blockers, known)
        if blockers and not force:
            preview = _change(False, name, before, {}, warnings, blockers, known)
            raise Blocked(say("in_use", name=name), tuple(blockers), preview)

        def job() -> None:
            self._same_topic(name, known)
            self._broker.admin_topics.delete(name, by or "console")
            self._forget_route(name)

        self._run(job)
        return _change(True, name, before, {}, warnings, blockers, None)

    def _check_topic_name(self, name: str) -> None:
        if topic_name_error(name) is not None:
            raise InvalidInput("name", say("bad_topic_name", length=TOPIC_MAX_LENGTH))
        if self._broker.topics.is_system_topic(name):
            raise InvalidInput("name", say("system_topic", name=name))
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise InvalidInput("name", say("made_with_group"))

    def _known_topic(self, name: str, revision: str | None) -> TopicConfig:
        known = self._broker.topics.get(name)
        if known is None:
            raise NotFound("topic", name)
        if self._broker.topics.is_system_topic(name):
            raise InvalidInput("name", say("system_topic", name=name))
        _check_revision(known, revision)
        return known

    def _same_topic(self, name: str, known: TopicConfig | None) -> None:
        """On the pool's thread: nobody has changed it since the checks."""
        if self._broker.topics.get(name) != known:
            raise Conflict(say("changed_meanwhile", name=name))

    def _set_topic(self, config: TopicConfig, known: TopicConfig | None, by: str) -> dict[str, bool]:
        """attributes of a request are changes of what there is."""
        old = {} if known is None else known.attributes
        changes = {f"+{key}": value for key, value in config.attributes.items() if old.get(key) != value}
        changes |= {f"-{key}": "" for key in old if key not in config.attributes}

        def job() -> dict[str, bool]:
            self._same_topic(config.topic_name, known)
            request = msgspec.structs.replace(config, attributes=changes)
            return self._broker.admin_topics.change([request], by or "console")

        return self._run(job)

    def _forget_route(self, name: str) -> None:
        """Have the own name server forget the topic, as a tool would ask it to (216)."""
        namesrv = self._engine.namesrv
        pool = self._engine._pools.get("namesrv")
        if namesrv is not None and pool is not None:
            pool.submit(lambda: namesrv.routes.delete_topic(name, None))

    def _lost_queues(self, known: TopicConfig, config: TopicConfig) -> tuple[Sentence, ...]:
        """Messages in queues that are taken away from reading."""
        if config.read_queue_nums >= known.read_queue_nums:
            return ()
        gone = range(config.read_queue_nums, known.read_queue_nums)
        count = sum(
            queue.max_offset - queue.min_offset for queue in self._index.of(config.topic_name) if queue.queue_id in gone
        )
        return (say("queues_taken_away", first=gone[0], last=gone[-1], count=count),) if count else ()

    def _consumers_lost(self, topic: str, book: LagBook) -> tuple[list[Sentence], list[Sentence]]:
        """(blockers, warnings): groups that have not read all of it, groups whose clients are connected."""
        blockers: list[Sentence] = []
        warnings: list[Sentence] = []
        groups = {group for group, entries in book.entries.items() if topic in entries}
        online = {group for group, info in book.online.items() if topic in info.subscriptions}
        for group in sorted(groups | online):
            backlog = book.backlog(group, topic)
            if backlog.lag:
                blockers.append(say("group_unread", group=group, topic=topic, count=backlog.lag))
            if group in online:
                blockers.append(say("group_online", group=group, count=len(book.online[group].channels)))
            if f"{RETRY_PREFIX}{group}" in book.queues and group in groups:
                pending = book.retries(group)
                if pending:
                    warnings.append(say("leftover_topic", topic=f"{RETRY_PREFIX}{group}", count=pending))
        return blockers, warnings

    def clean(self, what: str, by: str) -> tuple[str, ...]:
        """See EngineAdmin.clean."""
        cleaning = self._broker.cleaning

        def job() -> tuple[str, ...]:
            if what == "log":
                cleaning.clean_log(by or "console")
                return ()
            return tuple((cleaning.clean_queues if what == "queues" else cleaning.clean_topics)(by or "console"))

        return self._run(job)

    # --- groups

    def create_group(self, name: str, values: Mapping[str, Any], dry_run: bool, by: str) -> s.Change:
        _check_group_name(name)
        if is_system_group(name):
            raise InvalidInput("name", say("system_group", name=name))
        if self._broker.groups.get(name) is not None:
            raise Conflict(say("group_exists", name=name))
        _check_group_values(values)
        config = msgspec.structs.replace(SubscriptionGroupConfig(group_name=name), **values)
        warnings = _group_warnings(config)
        if not dry_run:
            self._set_group(config, None, by)
        return _change(not dry_run, name, {}, _group_fields(config), warnings, (), None if dry_run else config)

    def edit_group(
        self, name: str, revision: str | None, values: Mapping[str, Any], dry_run: bool, by: str
    ) -> s.Change:
        known = self._known_group(name, revision)
        values = {field: value for field, value in values.items() if value is not None}
        _check_group_values(values)
        config = msgspec.structs.replace(known, **values)
        if not dry_run and config != known:
            self._set_group(config, known, by)
        return _change(
            not dry_run,
            name,
            _group_fields(known),
            _group_fields(config),
            _group_warnings(config),
            (),
            known if dry_run else config,
        )

    def delete_group(
        self, name: str, revision: str | None, offsets: bool, force: bool, dry_run: bool, by: str
    ) -> s.Change:
        known = self._known_group(name, revision)
        book = LagBook(self._broker, self._index)
        blockers: list[Sentence] = []
        warnings: list[Sentence] = []
        info = book.online.get(name)
        for topic in book.topics_of(name):
            backlog = book.backlog(name, topic)
            if backlog.lag:
                blockers.append(say("group_unread", group=name, topic=topic, count=backlog.lag))
        if info is not None:
            blockers.append(say("group_online", group=name, count=len(info.channels)))
        topics = len(book.entries.get(name, ()))
        if topics:
            warnings.append(say("offsets_removed" if offsets else "offsets_kept", count=topics))
        for topic in (RETRY_PREFIX + name, DLQ_PREFIX + name):
            if self._broker.topics.get(topic) is not None:
                count = sum(queue.max_offset - queue.min_offset for queue in book.queues.get(topic, ()))
                warnings.append(say("leftover_topic", topic=topic, count=count))
        before = _group_fields(known)
        if dry_run:
            return _change(False, name, before, {}, warnings, blockers, known)
        if blockers and not force:
            preview = _change(False, name, before, {}, warnings, blockers, known)
            raise Blocked(say("in_use", name=name), tuple(blockers), preview)

        def job() -> None:
            self._same_group(name, known)
            self._broker.admin_groups.delete(name, offsets, by or "console")

        self._run(job)
        return _change(True, name, before, {}, warnings, blockers, None)

    def _known_group(self, name: str, revision: str | None) -> SubscriptionGroupConfig:
        known = self._broker.groups.get(name)
        if known is None:
            raise NotFound("group", name)
        if is_system_group(name):
            raise InvalidInput("name", say("system_group", name=name))
        _check_revision(known, revision)
        return known

    def _same_group(self, name: str, known: SubscriptionGroupConfig | None) -> None:
        if self._broker.groups.get(name) != known:
            raise Conflict(say("changed_meanwhile", name=name))

    def _set_group(self, config: SubscriptionGroupConfig, known: SubscriptionGroupConfig | None, by: str) -> None:
        def job() -> None:
            self._same_group(config.group_name, known)
            self._broker.admin_groups.change([msgspec.structs.replace(config, attributes={})], by or "console")

        self._run(job)

    # --- options

    def change_configuration(
        self, values: Mapping[str, object], revision: str | None, dry_run: bool, by: str
    ) -> s.Change:
        return self._run(lambda: self._options.change(values, revision, dry_run, by))


# --- checks


def _check_revision(known: Any, revision: str | None) -> None:
    if revision is not None and revision != revision_of(known):
        raise Conflict(say("changed_since"))


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidInput("kind", say("one_of", field="kind", choices=", ".join(KINDS)))


def _check_queues(read_queues: int, write_queues: int) -> None:
    for field, value in (("read_queues", read_queues), ("write_queues", write_queues)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_QUEUE_NUMS:
            raise InvalidInput(field, say("out_of_range", field=field, low=0, high=MAX_QUEUE_NUMS))


def _check_group_name(name: str) -> None:
    if not is_legal_group(name) or len(name) > min(MAX_GROUP_LENGTH, GROUP_MAX_LENGTH):
        raise InvalidInput("name", say("bad_group_name", length=MAX_GROUP_LENGTH))


def _check_group_values(values: Mapping[str, Any]) -> None:
    for field, low, high in (("retry_queue_nums", 0, MAX_QUEUE_NUMS), ("retry_max_times", -1, _MAX_RETRIES)):
        value = values.get(field, low)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidInput(field, say("out_of_range", field=field, low=low, high=high))


def _topic_warnings(config: TopicConfig, known: TopicConfig) -> list[Sentence]:
    found = []
    kind = kind_of(config)
    if kind in NOT_SERVED:
        found.append(say("type_not_served", kind=kind))
    if kind == "FIFO" or config.order:
        found.append(say("order_one_queue"))
    if config.write_queue_nums < known.write_queue_nums:
        found.append(say("fewer_write_queues", first=config.write_queue_nums, last=known.write_queue_nums - 1))
    if not config.perm & PERM_READ:
        found.append(say("unreadable"))
    if not config.perm & PERM_WRITE:
        found.append(say("unwritable"))
    return found


def _group_warnings(config: SubscriptionGroupConfig) -> list[Sentence]:
    return [] if config.consume_enable else [say("consumption_off")]


# --- differences


def _topic_fields(config: TopicConfig) -> dict[str, str]:
    fields = {
        "kind": kind_of(config),
        "read_queues": str(config.read_queue_nums),
        "write_queues": str(config.write_queue_nums),
        "readable": _yes(bool(config.perm & PERM_READ)),
        "writable": _yes(bool(config.perm & PERM_WRITE)),
        "order": _yes(config.order),
    }
    return fields | {key: value for key, value in config.attributes.items() if key != "message.type"}


def _group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    return {
        "consume_enable": _yes(config.consume_enable),
        "consume_broadcast_enable": _yes(config.consume_broadcast_enable),
        "consume_message_orderly": _yes(config.consume_message_orderly),
        "retry_queue_nums": str(config.retry_queue_nums),
        "retry_max_times": str(config.retry_max_times),
    }


def _yes(value: bool) -> str:
    return "true" if value else "false"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[s.Difference, ...]:
    """What is not the same, in the order of the fields."""
    names = list(dict.fromkeys([*before, *after]))
    return tuple(
        s.Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def _change(
    applied: bool,
    name: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    warnings: list[Sentence] | tuple[Sentence, ...],
    blockers: list[Sentence] | tuple[Sentence, ...],
    config: Any,
    registered: dict[str, bool] | None = None,
) -> s.Change:
    return s.Change(
        applied=applied,
        name=name,
        differences=differences(before, after),
        warnings=tuple(warnings),
        blockers=tuple(blockers),
        revision=None if config is None else revision_of(config),
        registered=registered or {},
    )
