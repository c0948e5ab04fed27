"""Finds what an operator has to attend to now, the worst first.

`lateness.py` judges which groups stand still or are late, here and in their diagnoses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...broker.deleted_unread import ALL
from ...broker.groups import is_system_group
from ...broker.topic_config import reserve_hours_of
from ...protocol.names import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX
from ...store.queues.consume_queue import ConsumeQueue
from .. import snapshots as s
from ..clients.views import conflicts_of, members_of
from ..dead_letters.expiry import Expiry
from ..figures.lag import Backlog, LagSnapshot
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..options import Options
from ..sentences import Sentence, say
from ..sources import Sources
from . import limits
from .disk_room import DiskRoom
from .finding import Finding
from .lateness import Late, Lateness
from .unread_deletion import UnreadDeletion, messages_and_age

#: Needs that are listed at most; further ones are only counted.
MOST_NEEDS = 300
#: Queues that a sentence names at most.
MOST_NAMED = 4
#: Time limit for reading store times in one look; the rest was read by the look before, or will be by the next.
LOOK_BUDGET_MS = 20

#: Sentence codes by harm: within a level the first are the worst. A code that is not listed comes last.
_ORDER = (
    "io_ended",
    "store_broken",
    "disk_full",
    "disk_deletes",
    "disk_full_soon",
    "disk_filling",
    "deleted_unread",
    "deleted_unread_by_some",
    "deleted_unread_soon",
    "certificate_expired",
    "slave_gone",
    "slave_lags_far",
    "set_store_short",
    "set_contradicts",
    "set_member_slow_kept",
    "set_member_slow",
    "queues_unread",
    "client_id_twice",
    "certificate_stays",
    "certificate_ends_soon",
    "certificate_refused",
    "dead_letters_expire",
    "subscriptions_differ",
    "falls_behind",
    "dead_letters",
    "stuck",
    "queues_stuck",
    "transactions_without_producer",
    "transactions_undecided",
    "slave_lags",
    "slave_behind",
    "queues_unreadable",
    "supers_in_clear",
    "users_at_quota",
    "consumption_is_off_behind",
    "nobody_consumes_late",
    "nobody_consumes",
    "catching_up",
)
_HARM = {code: place for place, code in enumerate(_ORDER)}
_LEVELS = {"act": 0, "stuck": 1, "watch": 2}


def _place(need: Finding) -> tuple[int, bool, int, float, str]:
    harm = _HARM.get(need.sentence.code, len(_ORDER))
    return _LEVELS[need.level], need.kind != "system", harm, -need.size, need.name


def _need(level: str, kind: str, name: str, sentence: Sentence, size: float = 0) -> Finding:
    return Finding(sentence, level=level, kind=kind, name=name, size=size)


def of_users(at_quota: list[str], in_clear: list[str]) -> Iterator[Finding]:
    """Yield findings about users of the wire. at_quota: the names of those who reached a quota in the last minute.
    in_clear: of the Super users who signed in clear from another machine lately."""
    for code, names in (("supers_in_clear", in_clear), ("users_at_quota", at_quota)):
        if names:
            shown = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
            yield _need("watch", "system", code, say(code, count=len(names), names=shown), len(names))


class Needs:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        lateness: Lateness,
        disk: DiskRoom,
        options: Options,
        unread: UnreadDeletion,
        others: Sequence[Callable[[], Iterable[Finding]]],
    ) -> None:
        """others: return the findings of other subjects."""
        # Constant after construction.
        self._store, self._topics, self._groups = sources.store, sources.topics, sources.groups
        self._measures, self._lag_times = sources.measures, sources.lag_times
        self._lateness = lateness
        self._disk = disk
        self._options = options
        self._unread = unread
        self._others = others

    def of(self, progress: LagSnapshot, findings: Iterable[Finding]) -> tuple[s.Need, ...]:
        """Return the needs among the findings of the checks, and those that follow from topics and groups' progress."""
        found = [*findings, *(one for other in self._others for one in other())]
        found += self._full_disk()
        found += self._unreadable_queues(progress)
        with QueueReader(self._store) as reader:
            look = _Look(self, progress, reader)
            found += look.dead_letters()
            found += look.deleted_unread_by_some()
            for group in progress.entries.keys() | progress.online.keys():
                if not is_system_group(group):
                    found += look.group(group)
                    found += look.deleted_unread(group)
        ranked = sorted((one for one in found if one.level), key=_place)
        needs = [s.Need(one.level, one.kind, one.name, one.sentence) for one in ranked]
        if len(needs) > MOST_NEEDS:
            more = len(needs) - MOST_NEEDS + 1
            needs[MOST_NEEDS - 1 :] = [s.Need("watch", "groups", "", say("more_needs", count=more))]
        return tuple(needs)

    def _full_disk(self) -> Iterator[Finding]:
        at_ms, _ = self._disk.full_at_ms(self._disk.figures())
        if at_ms is None:
            return
        left = at_ms - time.time() * 1000
        if 0 < left <= limits.DISK_MS:
            level = "act" if left <= limits.DISK_URGENT_MS else "watch"
            yield _need(level, "system", "disk_full", say("disk_full_soon", full_at_ms=at_ms), -left)

    def _unreadable_queues(self, progress: LagSnapshot) -> Iterator[Finding]:
        """Yield the topics to which producers may send, or have sent, messages that cannot be read."""
        for config in self._topics.all():
            name, readable = config.topic_name, config.read_queue_nums
            if self._topics.is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            queues = progress.queues.get(name, ())
            if config.write_queue_nums <= readable and len(queues) <= readable:
                continue
            count = sum(one.max_offset - one.min_offset for one in queues if one.queue_id >= readable)
            if count:
                text = say("queues_unread", topic=name, count=count, queues=readable)
                yield _need("act", "topic", name, text, count)
            elif config.write_queue_nums > readable and config.perm & PERM_WRITE:
                text = say("queues_unreadable", topic=name, write=config.write_queue_nums, read=readable)
                yield _need("watch", "topic", name, text)


class _Look:
    """One look at all groups."""

    def __init__(self, needs: Needs, progress: LagSnapshot, reader: QueueReader) -> None:
        self._progress = progress
        self._reader = reader
        self._lateness = needs._lateness
        self._measures = needs._measures
        self._groups = needs._groups
        self._topics = needs._topics
        self._lag_times = needs._lag_times
        self._expiry: Callable[[], Expiry] = lambda: Expiry(needs._store, needs._options)
        self._budget = Budget(LOOK_BUDGET_MS)
        self._unread = needs._unread.look(progress, reader, needs._measures)
        self._lost = needs._unread.lost()
        self._now_ms = int(time.time() * 1000)

    def dead_letters(self) -> Iterator[Finding]:
        expiry = self._expiry()
        for topic, queues in self._progress.queues.items():
            if not topic.startswith(DLQ_PREFIX):
                continue
            count = sum(queue.max_offset - queue.min_offset for queue in queues)
            if not count:
                continue
            group = topic[len(DLQ_PREFIX) :]
            text = say("dead_letters", count=count, group=group)
            left = self._expires_in_ms(topic, queues, expiry)
            if left is not None and left <= limits.EXPIRES_MS:
                text = say("dead_letters_expire", count=count, group=group, left_span=max(0, left))
            yield _need("act", "dead_letters", group, text, count)

    def _expires_in_ms(self, topic: str, queues: list[ConsumeQueue], expiry: Expiry) -> int | None:
        """Return for how many ms the oldest dead letter stays at least; None if that is not known."""
        config = self._topics.get(topic)
        first: tuple[int, int] | None = None
        for queue in queues:
            low = queue.min_offset
            if low < queue.max_offset:
                place = self._measures.place(self._reader, queue, low)
                stored = None if place is None else self._measures.stored_at_ms(self._reader, queue, low)
                if place is not None and stored is not None and (first is None or place < first[0]):
                    first = (place, stored)
        if first is None:
            return None
        at_ms = expiry.of(*first, None if config is None else reserve_hours_of(config))
        return None if at_ms is None else at_ms - self._now_ms

    def group(self, group: str) -> Iterator[Finding]:
        info = self._progress.online.get(group)
        if info is not None and len(info.channels) > 1 and conflicts_of(members_of(info)):
            yield _need("act", "group", group, say("subscriptions_differ", group=group))
        for client_id in sorted(set() if info is None else info.twice)[:MOST_NAMED]:
            yield _need("act", "group", group, say("client_id_twice", group=group, client=client_id))
        backlog = self._progress.backlog(group)
        if not backlog.lag:
            return
        yield from self._deleted_soon(group, backlog)
        config = self._groups.get(group)
        if config is not None and not config.consume_enable:
            text = say("consumption_is_off_behind", group=group, lag=backlog.lag)
            yield _need("watch", "group", group, text, backlog.lag)
        elif info is None:
            late_ms, _ = self._lag_times.of(group, backlog, self._reader, self._budget)
            code = "nobody_consumes" if late_ms is None else "nobody_consumes_late"
            text = say(code, group=group, lag=backlog.lag, late_span=late_ms or 0)
            yield _need("watch", "group", group, text, _harm(backlog.lag, late_ms))
        else:
            yield from self._late(group, backlog)

    def deleted_unread(self, group: str) -> Iterator[Finding]:
        """Yield the needs of a group that has lost messages, also once it has read all that is left."""
        for topic, rows in self._lost.get(group, {}).items():
            count, ago_ms = messages_and_age(rows, self._now_ms)
            text = say("deleted_unread", count=count, topic=topic, group=group, for_span=ago_ms)
            yield _need("act", "group", group, text, count)

    def deleted_unread_by_some(self) -> Iterator[Finding]:
        """Yield the need of groups of which so many lost messages that the broker keeps only the sum."""
        rows = self._lost.get(ALL, {}).get(ALL)
        if rows:
            count, ago_ms = messages_and_age(rows, self._now_ms)
            text = say("deleted_unread_by_some", count=count, for_span=ago_ms)
            yield _need("act", "system", "deleted_unread", text, count)

    def _deleted_soon(self, group: str, backlog: Backlog) -> Iterator[Finding]:
        """Yield the need of a group that will lose messages."""
        ahead = self._unread.of(group, backlog, self._budget)
        if ahead is not None and ahead.is_soon:
            text = say("deleted_unread_soon", group=group, topic=ahead.topic, left_span=ahead.left_ms)
            yield _need(ahead.level, "group", group, text, -ahead.left_ms)

    def _late(self, group: str, backlog: Backlog) -> Iterator[Finding]:
        """Yield the needs of a group that has members and is behind."""
        standing = self._lateness.standing(group, self._progress, backlog, self._reader)
        if standing:
            longest = max(one.stands_ms for one in standing)
            lag = sum(one.waiting for one in standing)
            text: Sentence
            moves = self._lateness.has_moved(group, self._progress, longest)
            if len(standing) == len(backlog.lagging) and not moves:
                text = say("stuck", group=group, lag=backlog.lag, idle_span=longest)
            else:
                names = sorted(f"{one.queue.topic}/{one.queue.queue_id}" for one in standing)
                named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
                text = say("queues_stuck", group=group, count=len(names), queues=named, lag=lag, idle_span=longest)
            yield _need("stuck", "group", group, text, _harm(lag, longest))
        late = self._lateness.late(group, backlog, standing, self._reader, self._budget)
        if late is not None:
            level = "watch" if late.soon else "act"
            yield _need(level, "group", group, say_late(group, late), _harm(late.lag, late.late_ms))


def _harm(messages: int, ms: float | None) -> float:
    """Return messages times time: one that was left behind long ago comes after a thousand of today."""
    return messages * (ms or 1)


def say_late(group: str, late: Late) -> Sentence:
    """Return the sentence about a late group, for needs and diagnoses."""
    known = {"group": group, "lag": late.lag, "late_span": late.late_ms}
    if late.eta_ms is not None:
        return say("catching_up", **known, eta_span=late.eta_ms)
    return say("falls_behind", **known, came=round(late.came, 1), went=round(late.went, 1))
