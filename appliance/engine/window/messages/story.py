"""The story of one message: its events, and its state for each group.

It is made only from the broker's own data: records and their copies, delivery events, committed offsets (D17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Protocol

from ...broker.deliveries.event_format import MOST_LOST
from ...broker.deliveries.history import MOST_FOUND, Delivered, DeliveryHistory, DeliveryReader, MessagePlace
from ...broker.replay.provenance import REPLAYED
from ...broker.transactions.half import checks_of
from ...protocol.compression import compression_of
from ...protocol.properties import PRODUCER_GROUP, decode_properties
from ...protocol.record import SYS_COMMIT, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION_MASK, Record, body_crc
from ...store.dispatch import properties_tag_code
from ..figures.lag import LagSnapshot
from ..sentences import Sentence, say
from ..snapshots import fields_of
from ..sources import Sources
from ..topics.views import host_text
from ..transactions.snapshots import OpenTransaction, ResolvedTransaction
from . import snapshots as m
from .consumption import Evidence, Pulled, groups_of, states_of
from .copies import Copies, Copy, MessageCopies

_TRANSACTION = {0: "none", SYS_PREPARED: "prepared", SYS_COMMIT: "committed", SYS_ROLLBACK: "rolled back"}
#: Order of events within one millisecond: a transaction begins and ends before its message is stored.
_ORDER = {"half": 0, "committed": 1, "rolled_back": 1, "discarded": 1, "lost": 1}
#: Lines of a story at most: the first ones and the last ones.
MOST_LINES = 200
#: Lines about groups whose offset is past the message at most; `groups` has all of them.
MOST_PASSED = 20


def detail_of(record: Record, row: m.MessageRow, told: m.Told | None) -> m.MessageDetail:
    """Build the detail of a message. told: None if only the record itself is asked for."""
    return m.MessageDetail(
        **fields_of(row),
        properties=decode_properties(record.properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        store_host=host_text(record.store_host),
        body_crc=record.body_crc,
        crc_ok=not record.body or body_crc(record.body) == record.body_crc,
        compression=compression_of(record.sys_flag),
        transaction=_TRANSACTION[record.sys_flag & SYS_TRANSACTION_MASK],
        prepared_transaction_offset=record.prepared_transaction_offset,
        story=told.story if told else (),
        story_notes=told.notes if told else (),
        deliveries_since_ms=told.deliveries_since_ms if told else None,
        groups=told.groups if told else (),
    )


class Transactions(Protocol):
    """The part of `transactions.TransactionViews` that stories use."""

    def one_open(self, offset: int) -> OpenTransaction | None:
        """Return the open transaction of the half message at a queue offset; None if there is none."""

    def end_of(self, half_offset: int, physical: int) -> ResolvedTransaction | None:
        """Return how a half message's transaction ended; None if that is not recorded."""


class MessageStories:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        sources: Sources,
        copies: MessageCopies,
        deliveries: DeliveryReader,
        delivered_to: Callable[[int], int],
        settled: Callable[[int, int], bool],
        transactions: Transactions,
    ) -> None:
        """delivered_to, settled: as in Evidence."""
        # Constant after construction.
        self._copies = copies
        self._deliveries = deliveries
        self._group, self._topic = sources.groups.get, sources.topics.get
        find_queue, pulled = sources.store.find_queue, sources.pulled
        self._pulled: Pulled = lambda group, topic, queue_id: pulled.get(group, find_queue(topic, queue_id))
        self._delivered_to = delivered_to
        self._settled = settled
        self._transactions = transactions

    def tell(self, record: Record, lag: LagSnapshot) -> m.Told:
        """Return a message's story and its state for each group."""
        copies = self._copies.find(record, groups_of(record.topic, lag))
        me = next(copy for copy in copies.all if copy.physical == record.physical_offset)
        consumable = [copy for copy in copies.all if copy.kind not in ("waiting", "half", "discarded")]
        notes = list(copies.notes)
        histories: tuple[DeliveryHistory, ...] = ()
        try:
            histories = self._deliveries.find([place_of(copy.record) for copy in consumable])
        except OSError as error:
            notes.append(say("deliveries_unreadable", reason=error.strerror or str(error)))
        found = {copy.physical: one.deliveries for copy, one in zip(consumable, histories, strict=False)}
        notes += _notes(histories)
        evidence = Evidence(
            lag, self._group, self._topic, self._pulled, self._delivered_to, self._settled, found, self._why_not
        )
        states = states_of(me, copies, evidence)
        lines = _lines(copies, evidence)
        halves, still_open = self._halves(copies)
        lines = lines[:1] + sorted([*lines[1:], *halves], key=lambda line: (line.at_ms or 0, _ORDER.get(line.what, 2)))
        if len(lines) > MOST_LINES:
            notes.append(say("story_long", count=len(lines) - MOST_LINES))
            lines = [*lines[: MOST_LINES // 2], *lines[-MOST_LINES // 2 :]]
        passed = [
            m.StoryLine(None, "passed", {"group": one.group, "offset": one.committed})
            for one in states
            if one.state == "consumed"
        ]
        if len(passed) > MOST_PASSED:
            notes.append(say("story_passed", count=len(passed) - MOST_PASSED))
        lines += still_open + passed[:MOST_PASSED]
        since = [
            one.kept_from_ms
            for one in histories
            if one.kept_from_ms is not None and not one.complete and not one.cut_short
        ]
        return m.Told(tuple(lines), tuple(notes), min(since, default=None), states)

    def _why_not(self, copy: Copy) -> Sentence:
        """Return why a half message, or the copy of a discarded one, is not in the topic that it is for."""
        if copy.kind == "discarded":
            return say("half_not_committed")
        one = self._transactions.one_open(copy.record.queue_offset)
        if one is not None and one.message is not None and one.message.physical_offset == copy.physical:
            return say("half_open")
        end = self._transactions.end_of(copy.record.queue_offset, copy.physical)
        return say("half_unknown" if end is None or end.how == "committed" else "half_not_committed")

    def _halves(self, copies: Copies) -> tuple[list[m.StoryLine], list[m.StoryLine]]:
        """Return (lines of half messages whose end is known, lines of those that are open or ended in an unknown
        way)."""
        ended, still_open = [], []
        for copy in copies.all:
            if copy.kind != "half":
                continue
            detail: dict[str, object] = {"group": copy.properties.get(PRODUCER_GROUP, ""), "target": copy.target}
            detail |= {"half_place": copy.place, "half_offset_id": copy.offset_id}
            one = self._transactions.one_open(copy.record.queue_offset)
            if one is not None and one.message is not None and one.message.physical_offset == copy.physical:
                detail |= {
                    "checks": one.checks,
                    "max_checks": one.max_checks,
                    "next_check_ms": one.next_check_at_ms,
                    "waits_for_producer": one.waits_for_producer,
                    "producers": one.message.producers,
                }
                still_open.append(m.StoryLine(None, "open", detail))
                continue
            end = self._transactions.end_of(copy.record.queue_offset, copy.physical)
            committed = copies.committed(copy)
            if end is not None:
                for name in ("by", "client", "admin", "reason", "checks", "age_ms"):
                    detail[name] = getattr(end, name)
                stored_ms = end.ended_at_ms if committed is None else committed.record.store_time_ms
                ended.append(m.StoryLine(min(end.ended_at_ms, stored_ms), end.how, detail))
            elif committed is not None:
                ended.append(m.StoryLine(committed.record.store_time_ms, "committed", detail))
            elif not any(one.kind in ("discarded", "half") for one in copies.after(copy)):  # else it was put back
                still_open.append(m.StoryLine(None, "ended", detail))
        return ended, still_open


def place_of(record: Record) -> MessagePlace:
    """Return the place by which the deliveries of a message are found."""
    return MessagePlace(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.store_time_ms,
        properties_tag_code(record.properties),
    )


def _notes(histories: Iterable[DeliveryHistory]) -> list[Sentence]:
    """Return the reasons why deliveries may be missing."""
    histories = list(histories)
    notes = []
    if any(len(one.deliveries) >= MOST_FOUND for one in histories):
        notes.append(say("deliveries_many", count=MOST_FOUND))
    elif any(one.cut_short for one in histories):
        notes.append(say("deliveries_cut"))
    if any(not one.complete and not one.cut_short for one in histories):
        kept = any(one.kept_from_ms is not None for one in histories)
        notes.append(say("deliveries_not_kept" if kept else "no_deliveries_kept"))
    lost = max((one.lost for one in histories), default=0)
    if lost == MOST_LOST:
        notes.append(say("deliveries_gap"))
    elif lost:
        notes.append(say("deliveries_lost", count=lost))
    return notes


def _lines(copies: Copies, evidence: Evidence) -> list[m.StoryLine]:
    """Return the events in their order. The birth comes first, because the producer's clock may be wrong."""
    first = copies.all[0].record
    lines = [m.StoryLine(first.born_time_ms, "born", {"host": host_text(first.born_host)})]
    later: list[m.StoryLine] = []
    waited: set[int] = set()
    for copy in copies.all:
        later.append(_stored(copy, copies, waited, evidence))
        later += _delivered(copy, evidence.deliveries.get(copy.physical, ()))
    # A stable sort: events of the same time stay in the order of the log.
    return lines + sorted(later, key=lambda line: line.at_ms or 0)


def _stored(copy: Copy, copies: Copies, waited: set[int], evidence: Evidence) -> m.StoryLine:
    """Return the line of a copy's origin. waited: physical offsets of copies that an earlier copy has become."""
    record = copy.record
    detail: dict[str, object] = {"place": copy.place, "offset_id": copy.offset_id, "times": record.reconsume_times}
    if copy.group is not None:
        detail["group"] = copy.group
    if copy.kind == "waiting":
        arrived = copies.arrived(copy)
        if arrived is not None:
            waited.add(arrived.physical)
        waits = arrived is None and evidence.still_waits(copy)
        detail |= {"level": copy.level, "due_ms": copy.due_ms, "target": copy.target, "waits": waits}
        return m.StoryLine(record.store_time_ms, "delayed" if copy.group is None else "sent_back", detail)
    if copy.kind in ("half", "discarded"):
        detail |= {"group": copy.properties.get(PRODUCER_GROUP, ""), "target": copy.target}
        detail["checks"] = checks_of(copy.record.properties)
        return m.StoryLine(record.store_time_ms, "half" if copy.kind == "half" else "set_aside", detail)
    if copy.kind == "dead":
        return m.StoryLine(record.store_time_ms, "dead", detail)
    if copy.physical in waited:
        return m.StoryLine(record.store_time_ms, "due" if copy.group is None else "retried", detail)
    if copy.job is not None and record.reconsume_times == 0:
        detail |= {"job": copy.job, "replays": copy.properties.get(REPLAYED)}
        return m.StoryLine(record.store_time_ms, "replayed", detail)
    if copy.kind == "retry":
        return m.StoryLine(record.store_time_ms, "retried", detail)
    return m.StoryLine(record.store_time_ms, "stored", detail)


def _delivered(copy: Copy, deliveries: Iterable[Delivered]) -> list[m.StoryLine]:
    """Return a line for each delivery to a group; deliveries to the same client in a row are one line."""
    lines = []
    for (group, client), run in groupby(deliveries, lambda one: (one.group, one.client)):
        some = list(run)
        detail: dict[str, object] = {
            "group": group,
            "client": client,
            "count": len(some),
            "last_ms": some[-1].at_ms,
            "certain": all(one.certain for one in some),
            "place": copy.place,
            "offset_id": copy.offset_id,
        }
        lines.append(m.StoryLine(some[0].at_ms, "delivered", detail))
    return lines
