"""The delivery state of a message for each group, by the broker's own records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...broker.clients import ConsumerGroupInfo
from ...broker.deliveries.history import Delivered
from ...broker.group_config import SubscriptionGroupConfig
from ...broker.heartbeat import SubscriptionData
from ...broker.topic_config import TopicConfig
from ...errors import RefusedRequest
from ...filter.expressions import TAG_TYPES, make_filter
from ...protocol.names import PERM_READ
from ...protocol.properties import TAGS
from ...protocol.record import Record
from ..figures.lag import BROADCASTING, LagSnapshot, never_committed
from ..sentences import Sentence, say
from . import snapshots as m
from .copies import Copies, Copy

#: (group, topic, queue id) -> the offset behind the group's last pull since the start, -1 for none.
Pulled = Callable[[str, str, int], int]


class Evidence(NamedTuple):
    """The data that a state is derived from. deliveries: by physical offset of a copy. delivered_to: returns for a
    delay level the offset of the first message that has not come due. settled: returns True if the message at an offset
    of a level was handled before it was due. transaction: returns why a half message is not in its topic."""

    lag: LagSnapshot
    group: Callable[[str], SubscriptionGroupConfig | None]
    topic: Callable[[str], TopicConfig | None]
    pulled: Pulled
    delivered_to: Callable[[int], int]
    settled: Callable[[int, int], bool]
    deliveries: Mapping[int, tuple[Delivered, ...]]
    transaction: Callable[[Copy], Sentence]

    def still_waits(self, copy: Copy) -> bool:
        """True if the copy in the schedule topic is still to be delivered."""
        level, offset = copy.level or 0, copy.record.queue_offset
        return self.delivered_to(level) <= offset and not self.settled(level, offset)


def groups_of(topic: str, lag: LagSnapshot) -> list[str]:
    """Return the groups that subscribe to a topic or have offsets of it, sorted."""
    found = {group for group, entries in lag.entries.items() if topic in entries}
    found.update(name for name, info in lag.online.items() if topic in info.subscriptions)
    return sorted(found)


def states_of(me: Copy, copies: Copies, evidence: Evidence) -> tuple[m.DeliveryState, ...]:
    """Return the state of each group that is concerned with the message or a copy of it, by name."""
    names: set[str] = set()
    if me.group is not None:
        names.add(me.group)
    else:
        names.update(groups_of(me.target or me.record.topic, evidence.lag))
        names.update(copy.group for copy in copies.after(me) if copy.group is not None)
    names.update(one.group for one in evidence.deliveries.get(me.physical, ()))
    return tuple(_state(me, name, copies, evidence) for name in sorted(names))


def _state(me: Copy, group: str, copies: Copies, evidence: Evidence) -> m.DeliveryState:
    """Return the group's state by the newest copy on the way to it."""
    last = me
    for copy in copies.after(me):
        arrived = copy.group is None and me.group is None and copy.record.topic == me.target
        arrived = arrived or (last.kind == "half" and (copy.kind == "half" or copy == copies.committed(last)))
        # A replay of the group's dead letter to a topic; other groups that get it again have had the message before.
        again = last.kind == "dead" and copy.kind == "plain" and copy.job is not None
        if copy.group == group or arrived or (again and group in groups_of(copy.record.topic, evidence.lag)):
            last = copy
    if last.kind == "dead":
        return _about(last, group, evidence, "dead", say("is_dead_letter", times=last.record.reconsume_times))
    if last.kind in ("half", "discarded"):
        return _about(last, group, evidence, "uncommitted", evidence.transaction(last))
    if last.kind == "waiting":
        return _waits(last, group, evidence)
    return _stands(last, group, evidence)


def _waits(copy: Copy, group: str, evidence: Evidence) -> m.DeliveryState:
    if not evidence.still_waits(copy):
        dropped = evidence.settled(copy.level or 0, copy.record.queue_offset)
        return _about(copy, group, evidence, "unknown", say("handled_early" if dropped else "copy_not_found"))
    if copy.group is None:
        return _about(copy, group, evidence, "delayed", say("waits_delayed", level=copy.level or 0))
    retry = say("waits_to_retry", level=copy.level or 0, times=copy.record.reconsume_times)
    return _about(copy, group, evidence, "retrying", retry)


def _stands(copy: Copy, group: str, evidence: Evidence) -> m.DeliveryState:
    """Return the state of a copy that the group may consume."""
    record, lag = copy.record, evidence.lag
    info = lag.online.get(group)
    committed = lag.committed(group, record.topic).get(record.queue_id)
    deliveries = [one for one in evidence.deliveries.get(copy.physical, ()) if one.group == group]
    if info is not None and info.message_model == BROADCASTING:
        state = "delivered" if deliveries else "unknown"
        return _about(copy, group, evidence, state, say("broadcast_keeps_offsets"))
    keeps_out, depends = _kept_out(info, record.topic, copy.properties)
    if keeps_out is not None and not deliveries:
        return _about(copy, group, evidence, "filtered", keeps_out)
    if depends and not deliveries:
        why = say("filter_depends", queue=record.queue_id)
        if committed is not None and committed > record.queue_offset:
            why = say("past_or_filtered", offset=committed, queue=record.queue_id)
        return _about(copy, group, evidence, "unknown", why)
    if committed is not None and committed > record.queue_offset:
        why = say("offset_is_past", offset=committed)
        if copy.kind == "retry":
            why = say("offset_is_past_retry", offset=committed, times=record.reconsume_times)
        return _about(copy, group, evidence, "consumed", why)
    pulled = evidence.pulled(group, record.topic, record.queue_id)
    if deliveries or pulled > record.queue_offset:
        if committed is not None and committed < record.queue_offset:
            return _about(copy, group, evidence, "delivered", say("held_back", offset=committed))
        code = "delivered_never_committed" if committed is None else "not_committed_yet"
        return _about(copy, group, evidence, "delivered", say(code))
    blocked = _blocked(group, record, info, evidence)
    if committed is None:
        never = never_committed(record.queue_id, bool(lag.committed(group, record.topic)))
        return _about(copy, group, evidence, "unknown", blocked or never)
    if blocked is None and pulled < 0:
        blocked = say("nobody_pulls", queue=record.queue_id)
    return _about(
        copy, group, evidence, "waiting", blocked or say("not_reached", count=record.queue_offset - committed)
    )


def _blocked(group: str, record: Record, info: ConsumerGroupInfo | None, evidence: Evidence) -> Sentence | None:
    """Return why the group cannot consume the queue at all; None without a known reason."""
    config, topic = evidence.group(group), evidence.topic(record.topic)
    if config is None:
        return say("group_is_gone")
    if not config.consume_enable:
        return say("consumption_is_off")
    if topic is not None and not topic.perm & PERM_READ:
        return say("topic_not_readable")
    if topic is not None and record.queue_id >= topic.read_queue_nums:
        return say("queue_not_readable", queue=record.queue_id, count=topic.read_queue_nums)
    if info is None or not info.channels:
        return say("no_consumer_online")
    if record.topic not in info.subscriptions:
        return say("not_subscribed")
    wanted = info.subscriptions[record.topic]
    try:
        make_filter(wanted.expression_type, wanted.sub_string)
    except RefusedRequest as refusal:
        return say("expression_refused", reason=str(refusal))
    return None


def _kept_out(
    info: ConsumerGroupInfo | None, topic: str, properties: Mapping[str, str]
) -> tuple[Sentence | None, bool]:
    """Return (the group's filter that rejects the message, None without one; True if the filters of some members reject
    it and those of others do not, so that it depends on which member has the queue)."""
    if info is None:
        return None, False
    wishes = [next((one for one in channel.subscriptions if one.topic == topic), None)
              for channel in list(info.channels.values()) if channel.subscriptions is not None]  # fmt: skip
    verdicts = [wish is None or _keeps_out(wish, properties) is not None for wish in wishes]
    if any(verdicts) and not all(verdicts):
        return None, True
    wanted = info.subscriptions.get(topic)
    return (None if wanted is None else _keeps_out(wanted, properties)), False


def _keeps_out(wanted: SubscriptionData, properties: Mapping[str, str]) -> Sentence | None:
    """Return how a subscription rejects the message; None if it does not."""
    if wanted.sub_string in ("", "*"):
        return None
    if wanted.expression_type in TAG_TYPES:
        tag = properties.get(TAGS)
        if not wanted.tags_set or tag in wanted.tags_set:
            return None
        return say("filtered_by_tag", expression=wanted.sub_string, tag=tag or "")
    try:
        if make_filter(wanted.expression_type, wanted.sub_string).matches(properties):
            return None
    except RefusedRequest:
        return None  # `_blocked` reports it
    return say("filtered_by_expression", kind=wanted.expression_type, expression=wanted.sub_string)


def _about(copy: Copy, group: str, evidence: Evidence, state: str, why: Sentence) -> m.DeliveryState:
    record, lag = copy.record, evidence.lag
    info = lag.online.get(group)
    wanted = None if info is None else info.subscriptions.get(record.topic)
    committed = lag.committed(group, record.topic).get(record.queue_id)
    told = (one for some in evidence.deliveries.values() for one in some if one.group == group)
    deliveries = sorted(told, key=lambda one: one.at_ms)
    ahead = None
    if state in ("waiting", "delivered") and committed is not None:
        ahead = max(0, record.queue_offset - committed)
    return m.DeliveryState(
        group=group,
        state=state,
        place=copy.place,
        committed=committed,
        ahead=ahead,
        subscription=None if wanted is None else wanted.sub_string,
        clients=0 if info is None else len(info.channels),
        deliveries=len(deliveries),
        delivered_at_ms=deliveries[-1].at_ms if deliveries else None,
        delivered_to=deliveries[-1].client if deliveries else None,
        level=copy.level,
        due_ms=copy.due_ms,
        why=why,
    )
