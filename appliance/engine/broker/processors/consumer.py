"""A group's progress and its leases: 14, 15 consumer offsets; 41, 42 queue locks. All inline on remoting-io.

After a passing error, or while a queue is being rebuilt, 14 closes the connection instead of answering: a client would
take an error for "no offset" and skip to the queue's end.
Source: RocketMQ 5.3.3 `ConsumerManageProcessor`, `AdminBrokerProcessor.lockBatchMQ`.
"""

from __future__ import annotations

import logging

import msgspec

from ...errors import QueueBroken, RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, require_int, require_long, require_str
from ...protocol.names import MAX_QUEUE_NUMS, is_legal_derived_topic, is_legal_group, is_plain_name
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...store.message_store import MessageStore
from ..groups import SubscriptionGroupManager
from ..heartbeat import LockBody, decode_body
from ..heartbeat_bounds import check_client_id
from ..offsets import ConsumerOffsetManager, check_movable
from ..queue_locks import MessageQueue, RebalanceLockManager
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Queues that one 41 or 42 may name: twice those of a consumer of 2,000 queues in order. More would stop the I/O thread
#: for milliseconds.
MOST_QUEUES_OF_A_LOCK = 4096


class ConsumerProcessor:
    """Owned by remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        locks: RebalanceLockManager,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._locks = locks

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.QUERY_CONSUMER_OFFSET, self.handle_query_offset)
        dispatcher.add(RequestCode.UPDATE_CONSUMER_OFFSET, self.handle_update_offset)
        dispatcher.add(RequestCode.LOCK_BATCH_MQ, self.handle_lock)
        dispatcher.add(RequestCode.UNLOCK_BATCH_MQ, self.handle_unlock)

    def handle_query_offset(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """14: the stored offset. Without one, the first offset of a young queue that is in memory from its beginning;
        otherwise 22."""
        group, topic = require_str(request, "consumerGroup"), require_str(request, "topic")
        queue_id = require_int(request, "queueId")
        offset = self._offsets.get(group, topic, queue_id)
        if self._offsets.resets:
            self._offsets.pending.asked((group, topic, queue_id))
        if offset < 0:
            if not optional_bool(request, "setZeroIfNotFound", True):
                raise RefusedRequest(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
                )
            try:
                offset = self._store.young_offset(topic, queue_id)
            except (OSError, QueueBroken) as error:
                # No answer: the client asks again. After an error a 4.9 consumer would skip messages.
                level = logging.INFO if isinstance(error, QueueBroken) else logging.ERROR
                logger.log(level, "consumer offsets: no answer topic=%s queue=%d: %s", topic, queue_id, error)
                conn.close()
                return None
            if offset < 0:
                raise RefusedRequest(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
        return RemotingCommand.response(ResponseCode.SUCCESS, ext={"offset": str(offset)})

    def handle_update_offset(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """15: store the client's progress. A lower offset is accepted, too, as upstream does."""
        group, topic = require_str(request, "consumerGroup"), require_str(request, "topic")
        queue_id, offset = require_int(request, "queueId"), require_long(request, "commitOffset")
        check_movable(group)
        if self._groups.get(group) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        is_queue = offset >= 0 and self._is_queue(topic, queue_id)
        if is_queue and (group, topic, queue_id) in self._offsets.resets:  # the member has not learned of it yet
            return RemotingCommand.response(ResponseCode.SUCCESS, "Offset has been previously reset")
        if not is_queue or self._offsets.fitting(topic, queue_id, offset) < 0:  # differs: Apache keeps any offset
            raise RefusedRequest(
                ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] or commitOffset[{offset}] is illegal"
            )
        if not self._offsets.commit(group, topic, queue_id, offset, conn.born_host):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, "the offset is not kept: there are too many pairs of groups and topics"
            )
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def _is_queue(self, topic: str, queue_id: int) -> bool:
        """True if the topic has this queue, or had it before its number of queues was lowered."""
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < MAX_QUEUE_NUMS:
            return False
        return (
            queue_id < max(config.read_queue_nums, config.write_queue_nums)
            or self._store.find_queue(topic, queue_id) is not None
        )

    def handle_lock(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """41: lock the named queues, and return those that the client holds now. A queue that does not exist is never
        among them."""
        group, client_id, queues = _lock_request(request)
        if self._groups.get(group) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        there = [queue for queue in queues if self._is_queue(queue.topic, queue.queue_id)]
        held = self._locks.lock(group, client_id, there, conn.born_host, conn)
        found = [{"brokerName": q.broker_name, "queueId": q.queue_id, "topic": q.topic} for q in held]
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode({"lockOKMQSet": found}))

    def handle_unlock(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        group, client_id, queues = _lock_request(request)
        self._locks.unlock(group, client_id, queues)
        return RemotingCommand.response(ResponseCode.SUCCESS)


def _lock_request(request: RemotingCommand) -> tuple[str, str, list[MessageQueue]]:
    body = decode_body(request.body, LockBody)
    if not is_legal_group(body.consumer_group) or not body.client_id:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body has no consumerGroup or no clientId")
    check_client_id(body.client_id)
    if len(body.mq_set) > MOST_QUEUES_OF_A_LOCK:
        raise RefusedRequest(
            ResponseCode.SYSTEM_ERROR, f"{len(body.mq_set)} queues at once, at most {MOST_QUEUES_OF_A_LOCK} are taken"
        )
    for topic, broker_name in {(queue.topic, queue.broker_name) for queue in body.mq_set}:
        if not is_legal_derived_topic(topic) or not is_plain_name(broker_name):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"the queues of {topic[:100]!r} on {broker_name[:100]!r} cannot be"
            )
    queues = [MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
    return body.consumer_group, body.client_id, queues
