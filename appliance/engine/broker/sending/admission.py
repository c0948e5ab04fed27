"""Accepts or refuses a send, and chooses its queue.

Order of checks and texts: RocketMQ 5.3.3 `AbstractSendMessageProcessor.msgCheck`, as recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ...errors import RefusedRequest
from ...host_port import join_host_port
from ...hotpath import AdmissionState
from ...protocol.codes import FAQ_HINT, ResponseCode
from ...protocol.message_id import decode_host
from ...protocol.names import NO_SEND_TOPICS, PERM_WRITE, RETRY_PREFIX, topic_name_error
from ...store.queues.consume_queue import ConsumeQueue
from ...store.queues.consume_queue_table import ConsumeQueueTable
from ..topic_config import refuse_batch_queues
from ..topics import TopicConfigManager
from .fields import SendFields
from .retry_policy import RetryPolicy

#: Most routes that are kept; a full table is emptied.
_ROUTES_KEPT = 50_000


def topic_field(topic: str) -> bytes:
    """Return a topic as a record of the first version holds it: a length byte, then the name."""
    raw = topic.encode()
    return bytes((len(raw),)) + raw


class TopicRoute:
    """The data that sends to one topic need, resolved once per change of the topic table."""

    __slots__ = ("given_up", "is_retry", "queues", "text", "topic", "topic_field", "write_queues")

    def __init__(self, topic: str, queue_count: int, write_queues: int, text: str) -> None:
        self.topic = topic
        self.is_retry = topic.startswith(RETRY_PREFIX)
        #: True if the message was sent to a retry topic and goes to the dead letters.
        self.given_up = False
        self.topic_field = topic_field(topic)
        self.queues: list[ConsumeQueue | None] = [None] * queue_count
        self.write_queues = write_queues
        self.text = text


class SendAdmission(AdmissionState):
    """Owned by remoting-io. Unknown topics are made here, after their template, where that is allowed.

    broker_permission: returns the broker's own permission.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        queues: ConsumeQueueTable,
        retry_policy: RetryPolicy,
        broker_permission: Callable[[], int],
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._queues = queues
        self._retry_policy = retry_policy
        self._broker_permission = broker_permission
        # Owned by remoting-io.
        self.routes: dict[str, TopicRoute] = {}
        self.generation = -1

    def admit(self, fields: SendFields, client_version: int, born_host: bytes) -> tuple[TopicRoute, ConsumeQueue]:
        """Return the route and the queue of a send. Raises RefusedRequest with the code and text a client expects."""
        if self._topics.generation != self.generation:
            self.routes.clear()
            self.generation = self._topics.generation
        route = self.routes.get(fields.topic)
        if route is None:
            route = self._resolve(fields, born_host)
        queue_id = fields.queue_id
        if route.is_retry:
            dead = self._retry_policy.dead_letter_topic(
                fields.topic, fields.reconsume_times, fields.max_reconsume_times, client_version
            )
            if dead is not None:
                route, queue_id = TopicRoute(dead.topic_name, 1, 1, str(dead)), 0
                route.given_up = True
        if queue_id < 0:
            queue_id = random.randrange(max(1, route.write_queues))
        if queue_id >= len(route.queues):
            producer = join_host_port(*decode_host(born_host))
            raise RefusedRequest(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {route.text} Producer: {producer}",
            )
        queue = route.queues[queue_id]
        if queue is None:
            queue = route.queues[queue_id] = self._queues.get_or_create(route.topic, queue_id)
        return route, queue

    def _resolve(self, fields: SendFields, peer: bytes) -> TopicRoute:
        """Check a topic, make it where that is allowed, and return its route."""
        topic = fields.topic
        error = topic_name_error(topic)
        if error is not None:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, error)
        if topic in NO_SEND_TOPICS:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic)
        if config is None:
            if self._topics.may_make(topic, fields.default_topic):
                self._retry_policy.refuse_to_make()
            config = self._topics.create_from_default(
                topic, fields.default_topic, fields.default_topic_queue_nums, peer=peer
            )
            if config is None and topic.startswith(RETRY_PREFIX):
                config = self._retry_policy.retry_topic(topic, peer)
            if config is None:
                raise RefusedRequest(
                    ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ_HINT}"
                )
        refuse_batch_queues(config)
        if config.order and not self._broker_permission() & PERM_WRITE:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        count = max(config.read_queue_nums, config.write_queue_nums)
        route = TopicRoute(topic, count, config.write_queue_nums, str(config))
        # Kept for the generation that was seen before the topic was looked up: whatever changed since then, another
        # thread's change or this send's own new topic, empties the table at the next send.
        if len(self.routes) >= _ROUTES_KEPT:
            self.routes.clear()
        self.routes[topic] = route
        return route
