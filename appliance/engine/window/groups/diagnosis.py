"""Diagnosis of a consumer group from the broker's own records: each finding has the numbers that it rests on.

One look for each kind of finding, all over one snapshot of offsets and clients. A look that lacks data returns
"unknown" with the reason; it never guesses. The broker cannot see why a client commits nothing; only the client can
report that (`Asking.running_info` asks it).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property

from ...broker.clients import ConsumerGroupInfo
from ...broker.deliveries.history import Delivered, DeliveryHistory, DeliveryReader
from ...broker.deliveries.last_pulls import LastPull
from ...broker.queue_locks import MessageQueue, RebalanceLockManager
from ...broker.sampler import SLOTS
from ...errors import NotFound, RefusedRequest
from ...filter.expressions import TAG_TYPES, make_filter
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.properties import decode_properties
from ...protocol.record import Record
from ...store.queues.consume_queue import ConsumeQueue
from ..clients.views import conflicts_of, members_of
from ..figures.lag import BROADCASTING, Backlog, LagSnapshot
from ..health import limits
from ..health.lateness import Lateness, StandingQueue
from ..health.needs import say_late
from ..health.unread_deletion import UnreadDeletion, messages_and_age
from ..messages.queue_reader import QueueReader
from ..messages.story import place_of
from ..messages.views import row_of
from ..sentences import Sentence, say
from ..sources import Sources
from . import diagnosis_snapshots as d

logger = logging.getLogger(__name__)

#: The kinds of findings, in the order in which they are looked for.
KINDS = (
    "deleted_unread",
    "deleted_soon",
    "consumption_off",
    "no_consumer",
    "nobody_pulls",
    "client_id_twice",
    "subscriptions_differ",
    "expression",
    "silent_lock",
    "queue_stuck",
    "falls_behind",
    "slow_handler",
    "retries_storming",
    "dead_letters_growing",
    "fewer_consumers",
    "idle_consumers",
    "uneven_share",
)

#: Queues and clients that a finding names at most.
MOST_NAMED = 100
#: Addresses that a sentence names at most.
MOST_HOSTS = 5
#: Number of queues for which the message that holds them up is shown, the time limit for finding its deliveries, and
#: how long those deliveries are remembered, since a page comes back every few seconds.
MOST_TOLD = 8
DELIVERIES_S = 0.1
DELIVERIES_KEPT_S = 10.0
_MOST_KEPT = 1000

_LEVELS = {"act": 0, "watch": 1}


class _Unknown(Exception):
    """A look lacks data; `why` is the reason, as a sentence."""

    def __init__(self, why: Sentence) -> None:
        super().__init__(str(why))
        self.why = why


class GroupDiagnosis:
    """Any thread; reads a few store times from the log in the caller's."""

    def __init__(
        self,
        sources: Sources,
        locks: RebalanceLockManager,
        last_pull: Callable[[str, str, int], LastPull | None],
        judge: Lateness,
        unread: UnreadDeletion,
        deliveries: DeliveryReader,
        broker_name: str,
    ) -> None:
        """last_pull: returns the LastPull of a (group, topic, queue id), None without one."""
        # Constant after construction.
        self._groups, self._store, self._lag = sources.groups, sources.store, sources.lag
        self._pulled, self._sampler, self._measures = sources.pulled, sources.sampler, sources.measures
        self._lateness, self.unread = judge, unread
        self._broker_name = broker_name
        self._deliveries = deliveries
        # (group, physical offset) -> (when that was looked up, deliveries to the group, whether these are all).
        self._known: dict[tuple[str, int], tuple[float, list[Delivered], bool]] = {}
        self._last_pull = last_pull
        self._locks = locks

    def of(self, group: str, may_see: Callable[[str], bool] = lambda topic: True) -> d.Diagnosis:
        """Return what is wrong with a group by the broker's own records, each finding with its numbers.

        The kinds that were looked for and found in order, or could not be judged, are listed as well. `KINDS`
        has the kinds, and the thresholds beside it their reasons. may_see(topic): True if the caller may see a topic's
        messages; messages of other topics are not named. NotFound for a group that is not configured, not online and
        has no offsets.
        """
        progress = self._lag.snapshot()
        if not progress.has(group):
            raise NotFound("group", group)
        found: list[d.Finding] = []
        looked = []
        with QueueReader(self._store) as reader:
            one = _Patient(self, group, progress, reader, may_see)
            for kind in KINDS:
                look: Callable[[], Iterator[d.Finding]] = getattr(one, kind)
                try:
                    these = list(look())
                except _Unknown as unknown:
                    looked.append(d.Look(kind, "unknown", unknown.why))
                    continue
                found += these
                looked.append(d.Look(kind, "found" if these else "clear", None))
        found.sort(key=lambda finding: _LEVELS[finding.level])
        return d.Diagnosis(group, int(time.time() * 1000), tuple(found), tuple(looked))

    def delivered(self, group: str, records: list[Record]) -> list[tuple[list[Delivered], bool]]:
        """Return for each message (the answers that carried it to the group, oldest first; True if none is missing)."""
        now, places = time.monotonic(), [(group, record.physical_offset) for record in records]
        known = {
            place: one for place in places if (one := self._known.get(place)) and now - one[0] <= DELIVERIES_KEPT_S
        }
        missing = [(place, record) for place, record in zip(places, records, strict=True) if place not in known]
        if missing:
            try:
                histories = self._deliveries.find([place_of(record) for _, record in missing], DELIVERIES_S)
            except OSError as error:
                logger.warning("diagnosis: delivery records cannot be read: %s", error)
                histories = tuple(DeliveryHistory((), False, None, False, 0) for _ in missing)
            for (place, _), history in zip(missing, histories, strict=True):
                found = [one for one in history.deliveries if one.group == group]
                known[place] = now, found, history.complete and not history.lost
            if len(self._known) + len(known) > _MOST_KEPT:
                self._known.clear()
            self._known.update(known)
        return [known[place][1:] for place in places]


class _Patient:
    """One group in one snapshot, with a method for each of KINDS."""

    def __init__(
        self,
        tools: GroupDiagnosis,
        group: str,
        progress: LagSnapshot,
        reader: QueueReader,
        may_see: Callable[[str], bool],
    ) -> None:
        self._group = group
        self._may_see = may_see
        self._progress = progress
        self._reader = reader
        self._locks = tools._locks
        self._pulled = tools._pulled
        self._sampler = tools._sampler
        self._measures = tools._measures
        self._last_pull = tools._last_pull
        self._lateness = tools._lateness
        self._unread = tools.unread
        self._broker_name = tools._broker_name
        self._delivered = tools.delivered
        self._records = tools._store.records
        self._config = tools._groups.get(group)
        self._info: ConsumerGroupInfo | None = progress.online.get(group)
        self._channels = [] if self._info is None else list(self._info.channels.values())
        self._now = time.monotonic()
        self._now_ms = int(time.time() * 1000)
        # Queues that a finding is about, so that a finding of another kind does not repeat them.
        self._told: set[ConsumeQueue] = set()

    # --- what is known

    def _broadcasts(self) -> bool:
        return self._info is not None and self._info.message_model == BROADCASTING

    def _online(self) -> None:
        if not self._channels:
            raise _Unknown(say("no_consumer_online"))

    def _shares_queues(self) -> None:
        """Raise _Unknown unless the group is online and keeps its offsets on this broker."""
        self._online()
        if self._broadcasts():
            raise _Unknown(say("broadcast_keeps_offsets"))

    def _backlog(self) -> Backlog:
        backlog = self._progress.backlog(self._group)
        if backlog.lag is None:
            raise _Unknown(backlog.why or say("not_measured_yet"))
        return backlog

    def _waiting(self) -> int:
        return self._backlog().lag or 0

    def _span(self) -> tuple[int, float]:
        span = self._sampler.span(limits.RATE_SAMPLES)
        if span[1] < limits.RATE_KNOWN_S:
            raise _Unknown(say("not_measured_yet"))
        return span

    def _rate_in(self, topic: str) -> float:
        return self._sampler.rate(self._sampler.topics.get(topic), self._span()) or 0.0

    def _rate_out(self, topic: str) -> float:
        return self._sampler.rate(self._sampler.pairs.get((topic, self._group)), self._span()) or 0.0

    def _idle_s(self, queue: ConsumeQueue) -> float:
        """Return for how many seconds the committed offset has not moved."""
        entry = self._progress.entries.get(self._group, {}).get(queue.topic)
        since = self._sampler.started_at if entry is None else self._sampler.queue_since(entry, queue.queue_id)
        return max(0.0, self._now - since)

    def _age_s(self, queue: ConsumeQueue, offset: int) -> float:
        """Return the age of a message in seconds; 0 if it is gone."""
        stored = self._measures.stored_at_ms(self._reader, queue, offset)
        return 0.0 if stored is None else max(0.0, (self._now_ms - stored) / 1000)

    def _waited_s(self, queue: ConsumeQueue, offset: int) -> float:
        """Return for how many seconds a message has waited while a member was connected; 0 if it is gone."""
        return self._lateness.waited_s(self._group, queue, offset, self._reader)

    @cached_property
    def _standing(self) -> list[StandingQueue]:
        """The queues that stand still, by the same judgement as in the overview's needs."""
        return self._lateness.standing(self._group, self._progress, self._backlog(), self._reader)

    def _held_in_order(self) -> list[StandingQueue]:
        """Return the queues that are consumed in order and whose member has held the next message for longer than
        members usually take: those that stand still, and others that will if the listener goes on."""
        if not self._locks.is_locked(self._group):
            return []
        owned = self._locks.leases(self._group)
        found = self._lateness.standing(
            self._group, self._progress, self._backlog(), self._reader, min(limits.KEEPS_UP_S, limits.STUCK_S)
        )
        return [one for one in found if MessageQueue(one.queue.topic, self._broker_name, one.queue.queue_id) in owned]

    def _is_off(self) -> bool:
        """True if consumption is switched off, which is a finding by itself."""
        return self._config is not None and not self._config.consume_enable

    def _deliveries_at(
        self, places: list[tuple[ConsumeQueue, int]]
    ) -> list[tuple[ConsumeQueue, Record, list[Delivered], bool]]:
        """Return for the first few places the message there, its deliveries, and True if none of those is missing.
        Messages that cannot be read are left out."""
        found = [(queue, self._reader.without_body(queue, offset)) for queue, offset in places[:MOST_TOLD]]
        there = [(queue, record) for queue, record in found if record is not None]
        told = self._delivered(self._group, [record for _, record in there])
        return [(*one, *known) for one, known in zip(there, told, strict=True)]

    def _given_out(self, places: list[tuple[ConsumeQueue, int]]) -> set[ConsumeQueue]:
        """Return those of the first few queues whose message was delivered to a connected member. If that was before
        the broker's last start, a member with a full cache has not pulled since."""
        members = {channel.client_id for channel in self._channels}
        return {
            queue
            for queue, _, deliveries, _ in self._deliveries_at(places)
            if any(one.client in members for one in deliveries)
        }

    def _messages(self, places: list[tuple[ConsumeQueue, int]]) -> dict[ConsumeQueue, d.HeldUpBy]:
        """Return by queue the messages at the first few of these places."""
        return {one[0]: self._message(*one) for one in self._deliveries_at(places)}

    def _message(self, queue: ConsumeQueue, record: Record, deliveries: list[Delivered], whole: bool) -> d.HeldUpBy:
        row = row_of(record)
        last = deliveries[-1] if deliveries else None
        return d.HeldUpBy(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=record.queue_offset,
            offset_id=row.offset_id,
            unique_id=row.unique_id,
            keys=row.keys,
            stored_at_ms=row.stored_at_ms,
            delivered=len(deliveries),
            delivered_whole=whole,
            last_client=None if last is None else last.client,
            last_at_ms=None if last is None else last.at_ms,
            held_by=self._locks.owner(self._group, MessageQueue(queue.topic, self._broker_name, queue.queue_id)),
            skip=d.Skip((queue.topic,), (queue.queue_id,), "skip", record.queue_offset),
        )

    def _own_topics(self) -> list[str]:
        return self._progress.topics_of(self._group)

    # --- the looks

    def deleted_unread(self) -> Iterator[d.Finding]:
        """Retention has deleted messages that the group had not consumed; its offsets have moved on since."""
        for topic, rows in self._unread.lost().get(self._group, {}).items():
            count, ago_ms = messages_and_age(rows, self._now_ms)
            queues = tuple(sorted({(topic, one.queue_id) for one in rows if one.queue_id >= 0}))
            evidence = (
                d.Evidence("lost", count, "messages"),
                d.Evidence("queues", len(queues), "queues"),
                d.Evidence("since_last", round(ago_ms / 1000, 1), "s"),
            )
            text = say("diag_deleted_unread", count=count, topic=topic, for_span=ago_ms)
            yield d.Finding("deleted_unread", "act", text, evidence if queues else evidence[::2], queues[:MOST_NAMED])

    def deleted_soon(self) -> Iterator[d.Finding]:
        """At the present rates retention deletes messages before the group consumes them."""
        backlog = self._backlog()
        if not backlog.lagging:
            return
        self._span()  # raises _Unknown while rates are not known
        ahead = self._unread.look(self._progress, self._reader, self._measures).of(self._group, backlog)
        if ahead is None or not ahead.is_soon:
            return
        evidence = (
            d.Evidence("left", round(ahead.left_ms / 1000, 1), "s"),
            d.Evidence("lag", self._progress.backlog(self._group, ahead.topic).lag or 0, "messages"),
            d.Evidence("oldest", round(ahead.age_ms / 1000, 1), "s"),
        )
        text = say("diag_deleted_soon", topic=ahead.topic, left_span=ahead.left_ms)
        yield d.Finding("deleted_soon", ahead.level, text, evidence)

    def consumption_off(self) -> Iterator[d.Finding]:
        """Pulls of the group are refused."""
        if self._config is None or self._config.consume_enable:
            return
        lag = self._progress.backlog(self._group).lag
        evidence = [d.Evidence("clients", len(self._channels), "clients")]
        if lag is not None:
            evidence.append(d.Evidence("lag", lag, "messages"))
        yield d.Finding("consumption_off", "act", say("diag_consumption_off"), tuple(evidence))

    def no_consumer(self) -> Iterator[d.Finding]:
        """Messages wait, and no client is connected."""
        if self._channels:
            return
        lag = self._waiting()
        retries = self._progress.retries(self._group)
        if lag or retries:
            evidence = (
                d.Evidence("lag", lag, "messages"),
                d.Evidence("retries", retries, "messages"),
                d.Evidence("clients", 0, "clients"),
            )
            yield d.Finding("no_consumer", "act", say("diag_no_consumer", count=lag + retries), evidence)

    def nobody_pulls(self) -> Iterator[d.Finding]:
        """Messages wait, and no connected member has pulled for long: they are suspended, busy or refused."""
        self._shares_queues()
        backlog = self._backlog()
        if not backlog.lagging or self._is_off():
            return
        silent_s = math.inf
        for queue, offset in backlog.lagging:
            if self._pulled.get(self._group, queue) > offset or self._waited_s(queue, offset) < limits.SILENT_S:
                return
            silent_s = min(silent_s, self._age_s(queue, offset))
        if self._given_out(backlog.lagging):
            return
        self._told.update(queue for queue, _ in backlog.lagging)
        lag = backlog.lag or 0
        evidence = (
            d.Evidence("lag", lag, "messages"),
            d.Evidence("clients", len(self._channels), "clients"),
            d.Evidence("idle", round(silent_s, 1), "s"),
        )
        text = say("diag_nobody_pulls", for_span=round(1000 * silent_s), count=lag)
        clients = tuple(dict.fromkeys(channel.client_id for channel in self._channels))
        yield d.Finding("nobody_pulls", "act", text, evidence, clients=clients[:MOST_NAMED])

    def client_id_twice(self) -> Iterator[d.Finding]:
        """Several clients use one client id: each takes the other's queues for its own."""
        self._online()
        for client_id in sorted(set() if self._info is None else self._info.twice)[:MOST_NAMED]:
            hosts = [one.conn.remote_host for one in self._channels if one.client_id == client_id]
            text = say("diag_client_id_twice", client=client_id, hosts=", ".join(hosts[:MOST_HOSTS]))
            evidence = (d.Evidence("clients", len(hosts), "clients"),)
            yield d.Finding("client_id_twice", "act", text, evidence, clients=(client_id,))

    def subscriptions_differ(self) -> Iterator[d.Finding]:
        """Members subscribe to a topic differently: the broker keeps one of the subscriptions for all of them."""
        self._online()
        conflicts = conflicts_of(members_of(self._info))
        for conflict in conflicts[:MOST_NAMED]:
            names = [client.client_id for version in conflict.versions for client in version.clients]
            counts = (("subscriptions", len(conflict.versions), ""), ("clients", len(names), "clients"))
            yield d.Finding(
                "subscriptions_differ",
                "act",
                say("diag_subscriptions_differ", topic=conflict.topic, versions=len(conflict.versions)),
                tuple(d.Evidence(*count) for count in counts),
                clients=tuple(names[:MOST_NAMED]),
            )

    def expression(self) -> Iterator[d.Finding]:
        """The group's filter is not a valid expression, or matches none of the topic's newest messages."""
        self._online()
        for wanted in list(self._info.subscriptions.values()) if self._info is not None else ():
            if wanted.expression_type in TAG_TYPES:
                continue
            try:
                judge = make_filter(wanted.expression_type, wanted.sub_string)
            except RefusedRequest as refusal:
                text = say("diag_expression_wrong", topic=wanted.topic, reason=str(refusal))
                yield d.Finding("expression", "act", text, (d.Evidence("clients", len(self._channels), "clients"),))
                continue
            looked = matched = 0
            for queue in self._progress.readable(wanted.topic)[:MOST_NAMED]:
                begin = max(queue.min_offset, queue.max_offset - limits.LOOKED_AT)
                for physical, size, _ in self._reader.entries(queue, begin, queue.max_offset - begin):
                    record = self._records.without_body(physical, size)
                    if record is not None:
                        looked += 1
                        matched += judge.matches(decode_properties(record.properties))
                if matched or looked >= limits.LOOKED_AT:
                    break
            if looked and not matched:
                text = say("diag_expression_lets_nothing", topic=wanted.topic, count=looked)
                yield d.Finding("expression", "watch", text, (d.Evidence("looked_at", looked, "messages"),))

    def silent_lock(self) -> Iterator[d.Finding]:
        """A queue's lock is held by a client that is gone, or by one that renews the lock and does not pull."""
        members: dict[str, int] = {}
        for channel in self._channels:
            members[channel.client_id] = members.get(channel.client_id, 0) + channel.conn.parked_count
        queues = {
            (queue.topic, queue.queue_id): queue
            for topic in [*self._own_topics(), RETRY_PREFIX + self._group]
            for queue in self._progress.readable(topic)
        }
        gone: dict[str, list[tuple[ConsumeQueue, float]]] = {}
        idle: dict[str, list[tuple[ConsumeQueue, float]]] = {}
        for place, (client_id, left_s) in self._locks.leases(self._group).items():
            queue = queues.get((place.topic, place.queue_id))
            if queue is None:
                continue
            if client_id not in members:
                gone.setdefault(client_id, []).append((queue, left_s))
            elif not members[client_id] and self._pulls_nothing(queue):
                idle.setdefault(client_id, []).append((queue, self._idle_s(queue)))
        at_work = self._given_out([(queue, self._next_of(queue)) for held in idle.values() for queue, _ in held])
        idle = {
            client_id: left
            for client_id, held in idle.items()
            if (left := [one for one in held if one[0] not in at_work])
        }
        for code, found, name in (
            ("diag_lock_of_nobody", gone, "lease_left"),
            ("diag_lock_of_silent", idle, "idle"),
        ):
            for client_id, held in sorted(found.items())[:MOST_NAMED]:
                seconds = max(value for _, value in held)
                waiting = sum(self._waiting_in(queue) for queue, _ in held)
                text = say(code, client=client_id, queues=len(held), for_span=round(1000 * seconds))
                evidence = (
                    d.Evidence("queues", len(held), "queues"),
                    d.Evidence("lag", waiting, "messages"),
                    d.Evidence(name, round(seconds, 1), "s"),
                )
                named = tuple((queue.topic, queue.queue_id) for queue, _ in held[:MOST_NAMED])
                self._told.update(queue for queue, _ in held if self._waiting_in(queue))
                yield d.Finding("silent_lock", "act" if waiting else "watch", text, evidence, named, (client_id,))

    def _next_of(self, queue: ConsumeQueue) -> int:
        return max(self._progress.committed(self._group, queue.topic).get(queue.queue_id, 0), queue.min_offset)

    def _waiting_in(self, queue: ConsumeQueue) -> int:
        offset = self._progress.committed(self._group, queue.topic).get(queue.queue_id)
        return 0 if offset is None else max(0, queue.max_offset - max(offset, queue.min_offset))

    def _pulls_nothing(self, queue: ConsumeQueue) -> bool:
        """True if messages have waited in the queue for long, and none of them is in flight."""
        offset = self._progress.committed(self._group, queue.topic).get(queue.queue_id)
        if offset is None or offset >= queue.max_offset or self._pulled.get(self._group, queue) > offset:
            return False
        return self._idle_s(queue) >= limits.SILENT_S and self._waited_s(queue, self._next_of(queue)) >= limits.SILENT_S

    def queue_stuck(self) -> Iterator[d.Finding]:
        """A queue's offset does not move; the message at the offset holds it up."""
        self._shares_queues()
        self._backlog()
        if self._is_off():
            return
        moving = {
            topic: sum(self._moves(queue) for queue in self._progress.readable(topic)) for topic in self._own_topics()
        }
        standing = [one for one in self._standing if one.queue not in self._told]
        standing.sort(key=lambda one: -one.stands_ms)
        messages = self._messages([(one.queue, one.offset) for one in standing if self._may_see(one.queue.topic)])
        for one in standing[:MOST_NAMED]:
            queue = one.queue
            message = messages.get(queue)
            evidence = [
                d.Evidence("offset", one.offset, ""),
                d.Evidence("lag", one.waiting, "messages"),
                d.Evidence("idle", round(one.stands_ms / 1000, 1), "s"),
                d.Evidence("queues_moving", moving.get(queue.topic, 0), "queues"),
            ]
            if message is not None:
                evidence.append(d.Evidence("delivered", message.delivered, "times"))
            text = say(
                "diag_queue_stuck",
                topic=queue.topic,
                queue=queue.queue_id,
                offset=one.offset,
                count=one.waiting,
                for_span=one.stands_ms,
            )
            named = ((queue.topic, queue.queue_id),)
            # A client that has gone cannot be asked; the message still names it.
            holder = None if message is None else message.held_by or message.last_client
            holders = tuple({one.client_id for one in self._channels} & {holder})
            yield d.Finding("queue_stuck", "act", text, tuple(evidence), named, holders, message)

    def _moves(self, queue: ConsumeQueue) -> bool:
        """True if the queue's offset was seen to move within the last `limits.STUCK_S` seconds."""
        entry = self._progress.entries.get(self._group, {}).get(queue.topic)
        moved_at = None if entry is None else self._sampler.queue_moved_at(entry, queue.queue_id)
        return moved_at is not None and self._now - moved_at < limits.STUCK_S

    def falls_behind(self) -> Iterator[d.Finding]:
        """The queues that move are late; the level depends on whether they catch up."""
        self._shares_queues()
        backlog = self._backlog()
        late = None if self._is_off() else self._lateness.late(self._group, backlog, self._standing, self._reader)
        if late is None:
            return
        evidence = [
            d.Evidence("lag", late.lag, "messages"),
            d.Evidence("oldest", round(late.late_ms / 1000, 1), "s"),
            d.Evidence("in_rate", round(late.came, 2), "messages/s"),
            d.Evidence("rate", round(late.went, 2), "messages/s"),
        ]
        if late.eta_ms is not None:
            evidence.append(d.Evidence("work_left", round(late.eta_ms / 1000, 1), "s"))
        level = "watch" if late.soon else "act"
        yield d.Finding("falls_behind", level, say_late(self._group, late), tuple(evidence))

    def slow_handler(self) -> Iterator[d.Finding]:
        """Many messages are pulled and committed slowly: the clients have them, and take long."""
        self._shares_queues()
        pulled_any = False
        still = {one.queue for one in self._standing} if self._progress.backlog(self._group).lag else ()
        for topic in self._own_topics():
            in_flight, oldest_s = 0, 0.0
            offsets = self._progress.committed(self._group, topic)
            for queue in self._progress.readable(topic):
                if queue in still:
                    continue  # a finding of its own
                offset = offsets.get(queue.queue_id)
                pulled = self._pulled.get(self._group, queue)
                if offset is None:  # never committed: the messages pulled first are still being worked on
                    last = self._last_pull(self._group, topic, queue.queue_id)
                    offset = pulled if last is None else last.first
                pulled_any = pulled_any or pulled >= 0
                if pulled <= offset:
                    continue
                begin = max(offset, queue.min_offset)
                in_flight += max(0, min(pulled, queue.max_offset) - begin)
                oldest_s = max(oldest_s, self._waited_s(queue, begin))
            if in_flight < limits.SLOW_IN_FLIGHT:
                continue
            rate = self._rate_out(topic)
            if rate * limits.KEEPS_UP_S > in_flight or oldest_s < limits.KEEPS_UP_S:
                continue
            if not self._sampler.rate(
                self._sampler.pairs.get((topic, self._group)), self._sampler.span(max(1, int(limits.KEEPS_UP_S)))
            ):
                rate = 0.0  # the commits of the last minute came before it hung
            evidence = [
                d.Evidence("in_flight", in_flight, "messages"),
                d.Evidence("rate", round(rate, 2), "messages/s"),
                d.Evidence("held", round(oldest_s, 1), "s"),
                d.Evidence("clients", len(self._channels), "clients"),
            ]
            if rate:
                evidence.append(d.Evidence("work_left", round(in_flight / rate, 1), "s"))
            text = say("diag_slow_handler", topic=topic, count=in_flight, rate=rate)
            yield d.Finding("slow_handler", "act" if not rate else "watch", text, tuple(evidence))
        if not pulled_any:
            self._backlog()

    def retries_storming(self) -> Iterator[d.Finding]:
        """Many messages are sent back for a retry."""
        retries = self._rate_in(RETRY_PREFIX + self._group)
        if retries < limits.STORM_RATE:
            return
        consumed = sum(self._rate_out(topic) for topic in self._own_topics())
        if retries < limits.STORM_SHARE * consumed:
            return
        evidence = [
            d.Evidence("retry_rate", round(retries, 2), "messages/s"),
            d.Evidence("rate", round(consumed, 2), "messages/s"),
            d.Evidence("retries_ready", self._progress.retries(self._group), "messages"),
        ]
        if consumed:
            evidence.append(d.Evidence("share", round(100 * retries / consumed, 1), "%"))
        text = say("diag_retries_storming", retries=retries, rate=consumed)
        yield d.Finding("retries_storming", "act", text, tuple(evidence))

    def dead_letters_growing(self) -> Iterator[d.Finding]:
        """Dead letters were stored within the sampled minutes."""
        steps, seconds = self._sampler.span(SLOTS)
        if not steps:
            raise _Unknown(say("not_measured_yet"))
        moves = self._sampler.topics.get(DLQ_PREFIX + self._group)
        count = 0 if moves is None else moves.moved(self._sampler.count, steps)
        if count:
            total = self._progress.dead_letters(self._group)
            evidence = (
                d.Evidence("new", count, "messages"),
                d.Evidence("span", round(seconds), "s"),
                d.Evidence("dead_letters", total, "messages"),
            )
            text = say("diag_dead_letters", count=count, for_span=round(1000 * seconds), total=total)
            yield d.Finding("dead_letters_growing", "act", text, evidence)

    def fewer_consumers(self) -> Iterator[d.Finding]:
        """More messages come than are consumed, and there are queues that another consumer could take."""
        self._shares_queues()
        self._waiting()
        # Without the queues that stand still: another client would not move them.
        still = {one.queue: one for one in [*self._held_in_order(), *self._standing]}
        for topic, queues, clients in self._shares():
            if not clients < queues:
                continue
            lagging = self._progress.backlog(self._group, topic).lagging
            lag = sum(queue.max_offset - offset for queue, offset in lagging if queue not in still)
            if not lag:
                continue
            held = tuple(still.values())
            rates = self._lateness.rates(self._group, (topic,), held, self._reader, limits.RATE_SAMPLES)
            if rates is None:
                raise _Unknown(say("not_measured_yet"))
            comes, goes = rates
            if comes - goes < max(limits.GROWTH_RATE, limits.GROWTH_SHARE * comes):
                continue
            evidence = (
                d.Evidence("clients", clients, "clients"),
                d.Evidence("queues", queues, "queues"),
                d.Evidence("lag", lag, "messages"),
                d.Evidence("in_rate", round(comes, 2), "messages/s"),
                d.Evidence("rate", round(goes, 2), "messages/s"),
            )
            text = say("diag_fewer_consumers", topic=topic, clients=clients, queues=queues, comes=comes, goes=goes)
            yield d.Finding("fewer_consumers", "watch", text, evidence)

    def idle_consumers(self) -> Iterator[d.Finding]:
        """More members than queues: some have nothing to do."""
        self._shares_queues()
        for topic, queues, clients in self._shares():
            if clients > queues:
                evidence = (
                    d.Evidence("clients", clients, "clients"),
                    d.Evidence("queues", queues, "queues"),
                    d.Evidence("idle", clients - queues, "clients"),
                )
                text = say("diag_idle_consumers", topic=topic, clients=clients, queues=queues, idle=clients - queues)
                yield d.Finding("idle_consumers", "watch", text, evidence)

    def uneven_share(self) -> Iterator[d.Finding]:
        """Messages wait, and one member must have at least twice as many queues as another."""
        self._shares_queues()
        self._waiting()
        for topic, queues, clients in self._shares():
            most, least = -(-queues // clients), queues // clients
            if clients > queues or most < 2 * least:
                continue
            lag = self._progress.backlog(self._group, topic).lag
            if not lag:
                continue
            evidence = (
                d.Evidence("clients", clients, "clients"),
                d.Evidence("queues", queues, "queues"),
                d.Evidence("most", most, "queues"),
                d.Evidence("least", least, "queues"),
                d.Evidence("lag", lag, "messages"),
            )
            text = say("diag_uneven_share", topic=topic, queues=queues, clients=clients, most=most, least=least)
            yield d.Finding("uneven_share", "watch", text, evidence)

    def _shares(self) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, number of its queues here, number of members that subscribe to it) for topics with both."""
        for topic in self._own_topics():
            queues = len(self._progress.readable(topic))
            clients = len(
                {
                    channel.client_id
                    for channel in self._channels
                    if channel.subscriptions is None or any(data.topic == topic for data in channel.subscriptions)
                }
            )
            if queues and clients:
                yield topic, queues, clients
