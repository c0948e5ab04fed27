"""A message that a consumer could not use, stored again: to come back after a while, or as a dead letter (36).

The copy goes to the group's retry topic by way of the schedule topic, or at once to its dead letters. Body, born time
and host, flag and properties are those of the message; new are

    RETRY_TOPIC        the topic that it was first consumed from
    ORIGIN_MESSAGE_ID  the offset id of the message that was first consumed
    DELAY              its level; 0 in a dead letter
    WAIT               false, as Apache writes it; even so, the consumer's answer waits for the disk

and its number of retries is one higher. A dead letter keeps REAL_TOPIC and REAL_QID of its last retry.

The limit of retries is the request's, else the group's. Below it the copy waits at level 3 + retries so far; at the
limit, or for a level below 0, it is a dead letter. A message longer than 256 KiB, or not in the page cache, is read by
the pool `pull-cold`, one for a connection at a time. A peer that has much copied is not read from for a while
(`Connection.rest`). Any failure is answered with 1: a client then sends the message to `%RETRY%group` itself (310), as
does an orderly consumer that gives up; `retry_policy.py` distinguishes the two by the retries they name and by the
group's leases.

A group may send back a message of any topic that it could have consumed; its permission to consume is checked
elsewhere. Refused are messages that no consumer can have received (they wait for their time or for the end of their
transaction), retries of another group, and damaged messages.
Source: RocketMQ 5.3.3 `AbstractSendMessageProcessor.consumerSendMsgBack`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from ...errors import RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.message_id import encode_offset_id
from ...protocol.names import DLQ_PREFIX, NO_SEND_TOPICS, PERM_WRITE, RETRY_PREFIX
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TIMER_NAMES,
    TIMER_WAS_OUT_MS,
    UNIQUE_KEY,
    WAIT_STORE,
    decode_properties,
    encode_properties,
)
from ...protocol.record import Record, body_crc, hosts
from ...store.dispatch import SCHEDULE_TOPIC, has_queue_entry
from ...store.record_reader import Missing, StoredRecord
from ..delays.levels import DelayLevels, Place, make_wait, queue_of_level
from ..groups import SubscriptionGroupConfig
from ..topic_config import TopicConfig
from .outcome import PutOutcome, ReplyTo
from .own_appends import OwnAppends, copy_of
from .retry_policy import RetryPolicy
from .send_back_counts import SendBackCounts

#: The first retry waits at this level, each further one a level higher.
_FIRST_LEVEL = 3
#: Largest number of retries that a record can hold.
MOST_RETRIES = (1 << 31) - 1
#: Only in these topics the properties that name a message's origin are reliable.
_NAMES_ITS_ORIGIN = (RETRY_PREFIX, DLQ_PREFIX)


class SentBack(msgspec.Struct, frozen=True, gc=False):
    """A consumer's request. physical_offset: that of the message as it was consumed. level: 0 lets the broker choose,
    below 0 makes a dead letter at once. unit: the client calls itself one unit of several."""

    physical_offset: int
    group: str
    level: int
    max_reconsume_times: int | None = None
    unit: bool = False
    client_version: int = 0


class Target(NamedTuple):
    """A group and the retry topic where its messages come back."""

    group: SubscriptionGroupConfig
    topic: TopicConfig

    def any_queue(self) -> int:
        """Return a queue that the group's consumers read: the group may have had fewer queues when the topic was
        made."""
        queues = min(self.group.retry_queue_nums, self.topic.write_queue_nums)
        return random.randrange(queues) if queues > 1 else 0


class _Counted(msgspec.Struct, gc=False):
    """Counts a copy when it is stored, and passes the outcome on."""

    reply_to: ReplyTo
    counts: SendBackCounts
    group: str
    topic: str
    is_dead: bool

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.physical_offsets:
            self.counts.add(self.topic, self.group, self.is_dead)
        self.reply_to.put_ended(outcome)


class SendBackPath:
    """Owned by remoting-io.

    broker_permission: returns the broker's own permission.
    """

    def __init__(
        self,
        appends: OwnAppends,
        retry_policy: RetryPolicy,
        levels: DelayLevels,
        broker_permission: Callable[[], int],
        counts: SendBackCounts,
    ) -> None:
        # Constant after construction.
        self._appends = appends
        self._retry_policy = retry_policy
        self._levels = levels
        self._broker_permission = broker_permission
        self._counts = counts
        #: Returns the reason why no further retries may wait; None when they may.
        self.no_waiting: Callable[[], str | None] = lambda: None

    def retries(self, asked: SentBack) -> bool:
        """True if the group retries messages at all. Called before the message is looked up, so nothing is made here: a
        missing group is made when there is a message for it. Refuses with 26 (no such group) and 16."""
        group = self._retry_policy.known_group(asked.group)
        self._check_permission()
        return group is None or group.retry_queue_nums > 0

    def _check_permission(self) -> None:
        if not self._broker_permission() & PERM_WRITE:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")

    def target(self, asked: SentBack, peer: bytes) -> Target | None:
        """Return the group and its retry topic, made if it is missing; None if the group retries nothing. peer: the
        client.

        Refuses with 26 (no such group), 16 and, where no topic can be made, 1.
        """
        group = self._retry_policy.group(asked.group, peer)
        self._check_permission()
        if group.retry_queue_nums <= 0:
            return None
        topic = self._retry_policy.retry_topic_of(group, asked.unit)
        if not topic.perm & PERM_WRITE:
            raise RefusedRequest(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
            )
        return Target(group, topic)

    @staticmethod
    def fit(asked: SentBack, found: StoredRecord | Missing) -> StoredRecord:
        """Return the record at the offset. Refuses with 1 if there is none, or the group cannot have consumed it."""
        if isinstance(found, Missing):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {asked.physical_offset}: {found.value}"
            )
        _refuse_unfit(found.record, asked.group)
        return found

    def put(self, asked: SentBack, found: StoredRecord, target: Target, reply_to: ReplyTo) -> None:
        """Stage the copy of a message that is `fit`; `reply_to` gets its outcome."""
        record = found.record
        properties = decode_properties(record.properties)
        born_host, store_host = hosts(found.data)
        if not record.topic.startswith(_NAMES_ITS_ORIGIN):  # elsewhere clients write these, or pass them on with a copy
            properties.pop(RETRY_TOPIC, None)
            properties.pop(ORIGIN_MESSAGE_ID, None)
        origin = properties.setdefault(RETRY_TOPIC, record.topic)
        if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
            properties[ORIGIN_MESSAGE_ID] = encode_offset_id(store_host, record.physical_offset)
        properties[WAIT_STORE] = "false"
        properties.pop(TIMER_WAS_OUT_MS, None)
        tries = max(0, record.reconsume_times)  # any client may have sent a negative number
        limit = self._retry_policy.limit_of(target.group, asked.max_reconsume_times, asked.client_version)
        is_dead = asked.level < 0 or record.reconsume_times >= limit
        if is_dead:
            place = Place(self._retry_policy.dead_letters_of(asked.group).topic_name, 0)
            properties[DELAY_TIME_LEVEL] = "0"
        else:
            level = min(asked.level or _FIRST_LEVEL + tries, self._levels.highest)
            place = Place(target.topic.topic_name, target.any_queue())
            if level > 0:
                if (reason := self.no_waiting()) is not None:
                    raise RefusedRequest(ResponseCode.SYSTEM_ERROR, reason)
                make_wait(properties, level, place)
                for name in TIMER_NAMES:  # those of Apache's timer, which the message has left
                    properties.pop(name, None)
                place = Place(SCHEDULE_TOPIC, queue_of_level(level))
            else:
                properties[DELAY_TIME_LEVEL] = str(level)
        self._appends.put(
            copy_of(
                record,
                born_host,
                place,
                encode_properties(properties),
                properties.get(UNIQUE_KEY, ""),
                min(tries + 1, MOST_RETRIES),
            ),
            _Counted(reply_to, self._counts, asked.group, origin, is_dead),
        )


def _refuse_unfit(record: Record, group: str) -> None:
    """Refuse with 1 a record that no consumer of the group can have received intact."""
    reason = None
    topic = record.topic
    if topic in NO_SEND_TOPICS or not has_queue_entry(record.sys_flag):
        reason = f"no group consumes it where it lies, in {topic}"
    elif topic.startswith(RETRY_PREFIX) and not _is_retry_topic_of(group, topic):
        reason = f"it is a retry of another group: {topic}"
    elif record.body and body_crc(record.body) != record.body_crc:
        reason = "it is damaged: its body does not match its CRC"
    if reason is not None:
        raise RefusedRequest(
            ResponseCode.SYSTEM_ERROR, f"the message at {record.physical_offset} cannot be sent back: {reason}"
        )


def _is_retry_topic_of(group: str, topic: str) -> bool:
    """True for the group's retry topic, and for one that Apache made for its POP consumers: with a topic behind the
    group."""
    own = RETRY_PREFIX + group
    return topic == own or topic.startswith((f"{own}_", f"{own}+"))
