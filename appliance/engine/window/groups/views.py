"""Views of consumer groups: the list, one group queue by queue, and the groups furthest behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...admin_settings import GROUP_SETTINGS
from ...broker.group_config import SubscriptionGroupConfig
from ...broker.groups import is_system_group
from ...broker.offsets import is_brokers_own
from ...broker.queue_locks import MessageQueue, RebalanceLockManager
from ...errors import NotFound, Unavailable
from ...protocol.names import RETRY_PREFIX
from .. import snapshots as s
from ..changes import revision_of
from ..clients.views import conflicts_of, members_of
from ..figures.lag import BROADCASTING, Backlog, LagSnapshot, lag_of, lag_time_ms, never_committed, next_of
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from ..sources import Sources
from ..tables import SORT_BUDGET_MS, page_of, sorted_by

#: Time limit for reading store times for the groups furthest behind.
LOOK_BUDGET_MS = 20
#: Time limit for counting the new retries that wait at a delay level; the next call counts the rest.
WAITING_BUDGET_MS = 25


def group_settings_of(config: SubscriptionGroupConfig) -> s.GroupSettings:
    values: dict[str, Any] = {setting.name: setting.read(config) for setting in GROUP_SETTINGS}
    return s.GroupSettings(
        **values,
        name=config.group_name,
        consume_from_min_enable=config.consume_from_min_enable,
        consume_timeout_minutes=config.consume_timeout_minute,
        notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
        revision=revision_of(config),
        values=values,
    )


class GroupViews:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        locks: RebalanceLockManager,
        broker_name: str,
        retries_waiting: Callable[[Budget], dict[str, int]],
    ) -> None:
        """retries_waiting: returns group -> number of messages that wait at a delay level for their next try."""
        # Constant after construction.
        self._groups, self._store, self._lag = sources.groups, sources.store, sources.lag
        self._sampler, self._measures, self._lag_times = sources.sampler, sources.measures, sources.lag_times
        self._locks = locks
        self._broker_name = broker_name
        self._retries_waiting = retries_waiting

    # --- the list

    def page(
        self,
        q: str = "",
        system: bool = False,
        online: bool | None = None,
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of GroupRow.

        system: with the broker's own groups. online: only those with (True) or without (False) connected clients. sort:
        name, lag, lag_time, clients, topics, out_rate, retries, dead_letters; "-" before it for the largest first.
        """
        needle = q.strip().lower()
        progress = self._lag.snapshot()
        names = {
            name
            for name in progress.groups()
            if (system or not is_system_group(name))
            and (not needle or needle in name.lower())
            and (online is None or online == (name in progress.online))
        }
        out = self._sampler.group_out_rates()
        waiting = self._waiting()
        backlogs: dict[str, Backlog] = {}
        ages: dict[str, tuple[int | None, Sentence | None]] = {}

        def backlog(name: str) -> Backlog:
            found = backlogs.get(name)
            if found is None:
                found = backlogs[name] = progress.backlog(name)
            return found

        with QueueReader(self._store) as reader:
            budget = Budget(SORT_BUDGET_MS)
            now_ms = int(time.time() * 1000)  # one for all: groups that wait for the same message are as late

            def age(name: str, late: bool = False) -> tuple[int | None, Sentence | None]:
                found = ages.get(name)
                if found is None:
                    if late and budget.spent:
                        return None, say("not_measured_yet")
                    found = ages[name] = lag_time_ms(backlog(name), reader, self._measures, now_ms)
                return found

            rows = sorted_by(
                sorted(names),
                sort,
                {
                    "name": lambda n: n,
                    "lag": lambda n: backlog(n).lag,
                    "lag_time": lambda n: age(n, late=True)[0],
                    "clients": lambda n: 0 if n not in progress.online else len(progress.online[n].channels),
                    "topics": lambda n: len(progress.topics_of(n)),
                    "out_rate": lambda n: out.get(n, 0.0),
                    "retries": lambda n: progress.retries(n) + waiting.get(n, 0),
                    "dead_letters": lambda n: progress.dead_letters(n),
                },
            )
            row = lambda n: self._row(n, progress, backlog(n), age(n), out, waiting)  # noqa: E731
            return page_of(rows, page, page_size, row)

    def _row(
        self,
        name: str,
        progress: LagSnapshot,
        backlog: Backlog,
        age: tuple[int | None, Sentence | None],
        out: dict[str, float],
        waiting: dict[str, int],
    ) -> s.GroupRow:
        info = progress.online.get(name)
        return s.GroupRow(
            name=name,
            model=None if info is None else info.message_model,
            clients=0 if info is None else len(info.channels),
            topics=len(progress.topics_of(name)),
            lag=backlog.lag,
            lag_why=backlog.why,
            lag_ms=age[0],
            lag_ms_why=age[1],
            out_rate=None if self._sampler.count < 2 else out.get(name, 0.0),
            retries=backlog.retries + waiting.get(name, 0),
            retries_ready=backlog.retries,
            dead_letters=progress.dead_letters(name),
            conflict=bool(conflicts_of(members_of(info))) if info is not None and len(info.channels) > 1 else False,
            system=is_system_group(name),
            movable=not is_brokers_own(name),
        )

    def _waiting(self) -> dict[str, int]:
        """Return the waiting retries by group; empty if too many others ask, since the page can do without them."""
        try:
            return self._retries_waiting(Budget(WAITING_BUDGET_MS))
        except Unavailable:
            return {}

    # --- one group

    def detail(self, name: str, *, queues: bool = True) -> s.GroupDetail:
        """Return one group: its clients, subscriptions and their conflicts, and the progress of every queue. queues
        False: without the queues, of which `group_queues` returns pages. NotFound."""
        progress = self._lag.snapshot()
        config = self._groups.get(name)
        info = progress.online.get(name)
        if not progress.has(name):
            raise NotFound("group", name)
        out = self._sampler.group_out_rates()
        with QueueReader(self._store) as reader:
            backlog = progress.backlog(name)
            row = self._row(name, progress, backlog, lag_time_ms(backlog, reader, self._measures), out, self._waiting())
            rows = self._queues(name, progress, reader) if queues else ()
        members = members_of(info)
        wanted = [] if info is None else sorted(info.subscriptions.copy().values(), key=lambda data: data.topic)
        return s.GroupDetail(
            **s.fields_of(row),
            settings=None if config is None else group_settings_of(config),
            consume_type=None if info is None else info.consume_type,
            consume_from=None if info is None else info.consume_from_where,
            queues=rows,
            members=members,
            subscriptions=tuple(s.Subscription(d.topic, d.sub_string, d.expression_type) for d in wanted),
            conflicts=conflicts_of(members),
        )

    def _queues(self, name: str, progress: LagSnapshot, reader: QueueReader) -> tuple[s.QueueProgress, ...]:
        info = progress.online.get(name)
        broadcast = info is not None and info.message_model == BROADCASTING
        now_ms = int(time.time() * 1000)
        locks, broker_name = self._locks, self._broker_name
        rows = []
        for topic in [*progress.topics_of(name), RETRY_PREFIX + name]:
            offsets = progress.committed(name, topic)
            for queue in sorted(progress.readable(topic), key=lambda queue: queue.queue_id):
                low, high = queue.min_offset, queue.max_offset
                committed = offsets.get(queue.queue_id)
                lag: int | None = None
                lag_ms: int | None = None
                why = why_ms = None
                if broadcast:
                    why = why_ms = say("broadcast_keeps_offsets")
                elif (lag := lag_of(queue, committed)) is None:
                    why = why_ms = never_committed(queue.queue_id, bool(offsets))
                else:
                    lag_ms = 0
                    if lag:
                        stored = self._measures.stored_at_ms(reader, queue, next_of(queue, committed))
                        lag_ms = None if stored is None else max(0, now_ms - stored)
                        why_ms = say("message_gone") if stored is None else None
                rows.append(
                    s.QueueProgress(
                        topic=topic,
                        queue_id=queue.queue_id,
                        committed=committed,
                        min_offset=low,
                        max_offset=high,
                        lag=lag,
                        lag_why=why,
                        lag_ms=lag_ms,
                        lag_ms_why=why_ms,
                        held_by=locks.owner(name, MessageQueue(topic, broker_name, queue.queue_id)),
                    )
                )
        return tuple(rows)

    # --- those furthest behind

    def behind(self, count: int, progress: LagSnapshot | None = None) -> tuple[s.GroupLag, ...]:
        """Return the groups by the harm of what is behind, those with clients first. A call reads for 20 ms at most,
        beginning with the groups that were the latest before; for the others it uses the result of the last minute.
        """
        progress = progress or self._lag.snapshot()
        found = []
        for name in progress.entries.keys() | progress.online.keys():
            if not is_system_group(name):
                backlog = progress.backlog(name)
                found.append((-self._lag_times.guess(name, backlog), -(backlog.lag or 0), name, backlog))
        found.sort(key=lambda item: item[:3])
        rows = []
        with QueueReader(self._store) as reader:
            budget = Budget(LOOK_BUDGET_MS)
            now_ms = int(time.time() * 1000)
            for _, _, name, backlog in found:
                lag_ms, why = self._lag_times.of(name, backlog, reader, budget, now_ms=now_ms)
                info = progress.online.get(name)
                clients = 0 if info is None else len(info.channels)
                rows.append(s.GroupLag(name, backlog.lag, backlog.why, lag_ms, why, clients))
        rows.sort(key=_worst_first)
        return tuple(rows[:count])


def _worst_first(row: s.GroupLag) -> tuple[bool, bool, bool, int, int, str]:
    """Sort key: connected groups that are behind before the others, which may be abandoned; among them those with a
    known lag time, by messages times time, then those of which only the lag is known."""
    is_apart = not row.clients or not row.lag
    harm = (row.lag_ms or 0) * (row.lag or 0)
    return is_apart, row.lag_ms is None, row.lag is None, -harm, -(row.lag or 0), row.group
