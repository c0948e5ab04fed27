"""Collects the data of the running broker at the moment T0 at which a run of the reports begins.

The log's published end is read first, the ends of the queues after it. So every message below the log's end is below
the end of its queue, and a queue's messages beyond the log's end were published within the milliseconds between.

Thousands of topics and groups are looked at a few at a time, with rests between (D10, D11), so that other threads are
never held up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...broker.deleted_unread import DeletedUnread
from ...broker.groups import is_system_group
from ...broker.topic_config import reserve_hours_of
from ...broker.topics import TopicConfigManager
from ...filter.expressions import TAG_TYPES
from ...filter.tags import tag_filter
from ...store.message_store import MessageStore
from ...store.retention.clean_rules import full_share
from ..clients.views import conflicts_of, members_of
from ..figures.lag import BROADCASTING, ConsumerLag, LagSnapshot, lag_time_ms
from ..figures.measures import Measures, Pace
from ..health.disk_room import DiskRoom
from ..health.unread_deletion import Ahead, UnreadDeletion
from ..messages.queue_reader import QueueReader
from ..options import Options
from ..topics.views import category_of

#: Things looked at between two rests: about a millisecond of work.
PIECE = 5
#: Places and times of messages remembered during one look.
FACTS = 1000
#: Time of a rest as a multiple of the work before it.
GENTLE = 3.0
#: Reasons for no time at which the disk is full that say that it will not be.
NOT_FILLING = ("disk_not_filling", "disk_kept_by_retention")
_HOUR_MS = 3_600_000
_T = TypeVar("_T")


class QueueInput(NamedTuple):
    """min_offset: of the first message that is kept; max_offset: behind the last published one."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class TopicInput(NamedTuple):
    """kind: "user", "retry", "dlq" or "system". newest_ms: store time of its last message; None without one in the log.
    retention_ms: the topic's own retention time, None if it has none."""

    name: str
    kind: str
    newest_ms: int | None
    retention_ms: int | None


class GroupInput(NamedTuple):
    """mode: "clustering", "broadcasting", or "" while no member is connected. clients: (id, language, version) as
    reported by the clients. lag: number of messages; None if it cannot be known. oldest_unread_ms: store time of the
    first message that the group has not consumed; None if there is none, or it is not known. conflicts: topics to which
    members subscribe differently. ahead: what it loses first at the present rates, if anything."""

    name: str
    mode: str
    clients: tuple[tuple[str, str, str], ...]
    lag: int | None
    oldest_unread_ms: int | None
    conflicts: tuple[str, ...]
    ahead: Ahead | None = None


class WaitingInput(NamedTuple):
    """A queue that a group has not consumed to its end, from `next_offset` on. codes: codes of the tags to which the
    group's members subscribe; None for all, or if no member says so."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    codes: tuple[int, ...] | None


class ReportInputs(NamedTuple):
    """log_begin, log_end: physical offsets, the first kept byte and the published end at T0. earliest_ms: store time of
    the log's first message, None without one. disk_total, disk_free: bytes, None if they cannot be read.
    disk_limit_percent: use of the disk from which on files are deleted before their time, or sends are refused.
    store_bytes: size of the store on the disk, without holes. log_file_bytes: size of each file of the log.
    ascends_from: physical offset from which on store times do not go back. deleted_unread: the oldest first. waiting:
    without queues in which an SQL expression chooses, since it is unknown which messages are waited for. disk_full_ms:
    when the overview expects the disk to be full, wall ms; 0 for never, None if not known."""

    t0_ms: int
    store_dir: Path
    deliveries_dir: Path
    log_begin: int
    log_end: int
    earliest_ms: int | None
    retention_ms: int
    disk_total: int | None
    disk_free: int | None
    disk_limit_percent: int
    store_bytes: int
    queues: tuple[QueueInput, ...]
    topics: tuple[TopicInput, ...]
    groups: tuple[GroupInput, ...]
    log_file_bytes: int = 0
    ascends_from: int = 0
    deleted_unread: tuple[DeletedUnread, ...] = ()
    waiting: tuple[WaitingInput, ...] = ()
    disk_full_ms: int | None = None


class ReportInputsView:
    """Any thread; works in the caller's, and rests there."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        lag: ConsumerLag,
        options: Options,
        unread: UnreadDeletion,
        disk: DiskRoom,
        deleted_unread: Callable[[], tuple[DeletedUnread, ...]] = tuple,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._lag = lag
        self._options = options
        self._wall_ms = wall_ms
        self._deleted_unread = deleted_unread
        self._unread = unread
        self._disk = disk

    def earliest_ms(self) -> int | None:
        """Return the store time of the log's first message, ms since 1970; None without one."""
        found = self._store.earliest_time_ms()
        return found if found > 0 else None

    def take(self, gentle: float = GENTLE) -> ReportInputs:
        """Return the present inputs. Takes some seconds at thousands of topics and groups, most of it rests. gentle: as
        in `Pace`."""
        store = self._store
        pace = Pace(0, gentle)
        t0_ms = self._wall_ms()
        log_end = store.published
        progress = self._lag.snapshot()
        pace.rest()
        queues = tuple(self._queues(progress, pace))
        measures = Measures(FACTS)
        with QueueReader(store) as reader:
            topics = tuple(self._topic_facts(progress, reader, pace))
            groups = tuple(self._group_facts(progress, reader, measures, t0_ms, pace))
        waiting = tuple(_waiting(progress, [one.name for one in groups], pace))
        paths, disk = store.paths, self._disk.figures()
        full_at_ms, why = self._disk.full_at_ms(disk)
        return ReportInputs(
            t0_ms=t0_ms,
            store_dir=paths.root,
            deliveries_dir=paths.own / "deliveries",
            log_begin=store.log.min_offset,
            log_end=log_end,
            earliest_ms=self.earliest_ms(),
            retention_ms=self._options.config.store.file_reserved_time_hours * _HOUR_MS,
            disk_total=disk.total_bytes,
            disk_free=disk.free_bytes,
            disk_limit_percent=round(full_share(self._options.config.store) * 100),
            store_bytes=sum(_sizes(paths.root, pace)),
            queues=queues,
            topics=topics,
            groups=groups,
            log_file_bytes=store.log.segment_bytes,
            ascends_from=store.time_order.begin,
            deleted_unread=self._deleted_unread(),
            waiting=waiting,
            disk_full_ms=0 if why is not None and why.code in NOT_FILLING else full_at_ms,
        )

    def _queues(self, progress: LagSnapshot, pace: Pace) -> Iterator[QueueInput]:
        for name in _gently(sorted(progress.queues), pace):
            for queue in sorted(progress.queues[name], key=lambda queue: queue.queue_id):
                yield QueueInput(name, queue.queue_id, queue.min_offset, queue.max_offset)

    def _topic_facts(self, progress: LagSnapshot, reader: QueueReader, pace: Pace) -> Iterator[TopicInput]:
        configs = {config.topic_name: config for config in self._topics.all()}
        for name in _gently(sorted(configs.keys() | progress.queues.keys()), pace):
            config = configs.get(name)
            hours = None if config is None else reserve_hours_of(config)
            newest: tuple[int, int, int] | None = None
            queues = progress.queues.get(name, [])
            for number, queue in enumerate(queues):
                last = queue.max_offset - 1
                if last < queue.min_offset:
                    continue
                # Physical offsets are in the order of store times, so only the time of the highest one is read.
                for physical, _, _ in reader.entries(queue, last, 1):
                    newest = max(newest or (-1, 0, 0), (physical, number, last))
            at = None if newest is None else reader.time_at(newest[0], queues[newest[1]], newest[2])
            kind = category_of(name, self._topics.is_system_topic(name))
            yield TopicInput(name, kind, at, None if hours is None else hours * _HOUR_MS)

    def _group_facts(
        self, progress: LagSnapshot, reader: QueueReader, measures: Measures, t0_ms: int, pace: Pace
    ) -> Iterator[GroupInput]:
        unread = self._unread.look(progress, reader, measures)
        for name in _gently(sorted(name for name in progress.groups() if not is_system_group(name)), pace):
            info = progress.online.get(name)
            members = members_of(info)
            backlog = progress.backlog(name)
            age, _ = lag_time_ms(backlog, reader, measures, t0_ms) if backlog.lagging else (None, None)
            mode = "" if info is None else "broadcasting" if info.message_model == BROADCASTING else "clustering"
            yield GroupInput(
                name=name,
                mode=mode,
                clients=tuple((one.client_id, one.language, one.version) for one in members),
                lag=backlog.lag,
                oldest_unread_ms=None if age is None else t0_ms - age,
                conflicts=tuple(one.topic for one in conflicts_of(members)) if len(members) > 1 else (),
                ahead=unread.of(name, backlog) if backlog.lagging else None,
            )


def _waiting(progress: LagSnapshot, groups: Iterable[str], pace: Pace) -> Iterator[WaitingInput]:
    for group in _gently(groups, pace):
        info = progress.online.get(group)
        for queue, offset in progress.backlog(group).lagging:
            wanted = None if info is None else info.subscriptions.get(queue.topic)
            if wanted is not None and wanted.expression_type not in TAG_TYPES:
                continue
            codes = None if wanted is None else tag_filter(wanted.sub_string).codes
            yield WaitingInput(
                group, queue.topic, queue.queue_id, offset, None if codes is None else tuple(sorted(codes))
            )


def _gently(names: Iterable[_T], pace: Pace) -> Iterator[_T]:
    """Yield the names, with a rest after every PIECE of them."""
    for number, name in enumerate(names, 1):
        yield name
        if number % PIECE == 0:
            pace.rest()


def _sizes(directory: Path, pace: Pace) -> Iterator[int]:
    """Yield the bytes of each file below a directory, without holes. Files deleted meanwhile are left out."""
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                yield os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
        pace.rest()
