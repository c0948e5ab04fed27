"""Limits of one heartbeat, and of all that is kept for one connection. PURE.

Apache keeps whatever a heartbeat holds. Here it is checked before the first part of it is kept, so that a refused one
changes nothing. The limits are far above the use of Apache's clients: a client with hundreds of groups and thousands of
topics is served.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import CLIENT_ID_MAX_LENGTH, LAYOUT, is_legal_client_id, is_legal_derived_topic, is_word
from .heartbeat import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    TAG,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)

#: Consumer groups of one connection, and producer groups. A process has a few; a gateway for many tenants, hundreds.
MOST_GROUPS_OF_A_CONNECTION = 2000
#: Topics of one group; a body of 256 KiB holds some 1,800.
MOST_SUBSCRIPTIONS_OF_A_GROUP = 5000
#: Characters of one subscription's expression: as many as a message's properties may have.
MOST_EXPRESSION_CHARS = 32_767
#: Bytes, roughly, that all subscriptions of one connection may take. Those of an honest client fit one heartbeat, a
#: sixteenth of this; without the limit each group could hold a whole body.
MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION = 4 * 1024 * 1024
#: Bytes of an entry besides its texts, of a tag besides its characters, and of a code.
_ENTRY_BYTES, _TAG_BYTES, _CODE_BYTES = 200, 60, 40

_ENUMS = frozenset(
    (
        CONSUME_ACTIVELY,
        CONSUME_PASSIVELY,
        CLUSTERING,
        BROADCASTING,
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    )
)


def _refuse(remark: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, remark)


def check_heartbeat(data: HeartbeatData) -> None:
    """Refuse with 1 a heartbeat with impossible names, or with more of something than is kept."""
    if not data.client_id and (data.consumer_data_set or data.producer_data_set):
        raise _refuse("the heartbeat has no clientID")
    if data.client_id and not is_legal_client_id(data.client_id):
        raise _refuse(
            f"the clientID {data.client_id[:100]!r} is illegal: up to {CLIENT_ID_MAX_LENGTH} printable characters"
        )
    if max(len(data.consumer_data_set), len(data.producer_data_set)) > MOST_GROUPS_OF_A_CONNECTION:
        raise too_many_groups()
    for consumer in data.consumer_data_set:
        for value in (consumer.consume_type, consumer.message_model, consumer.consume_from_where):
            if value not in _ENUMS and not is_word(str(value)):
                raise _refuse("consumeType, messageModel or consumeFromWhere is not the name of one")
        _check_subscriptions(consumer)


def too_many_groups() -> RefusedRequest:
    return _refuse(
        f"one connection may have {MOST_GROUPS_OF_A_CONNECTION} consumer groups and as many producer groups; "
        "spread more over several clients"
    )


def check_client_id(client_id: str) -> None:
    """Refuse with 1 an illegal client id."""
    if not is_legal_client_id(client_id):
        raise _refuse(f"the client id {client_id[:100]!r} is illegal")


def _check_subscriptions(consumer: ConsumerData) -> None:
    wanted = consumer.subscription_data_set
    if len(wanted) > MOST_SUBSCRIPTIONS_OF_A_GROUP:
        raise _refuse(
            f"the group {consumer.group_name[:100]!r} subscribes {len(wanted)} topics, "
            f"at most {MOST_SUBSCRIPTIONS_OF_A_GROUP} are taken"
        )
    for data in wanted:
        topic = data.topic
        if topic not in _known_topics:
            if not is_legal_derived_topic(topic):
                raise _refuse(f"the subscribed topic {topic[:100]!r} is illegal")
            if len(_known_topics) >= _TOPICS_REMEMBERED:
                _known_topics.clear()
            _known_topics.add(topic)
        if data.sub_string != "*" or data.expression_type != TAG or data.tags_set:
            _check_expression(data)


#: Names that were found legal: heartbeats repeat the same ones every 30 s. Owned by remoting-io.
_known_topics: set[str] = set()
_TOPICS_REMEMBERED = 10_000


def _check_expression(data: SubscriptionData) -> None:
    if len(data.sub_string) > MOST_EXPRESSION_CHARS:
        raise _refuse(f"the subscription of {data.topic} has more than {MOST_EXPRESSION_CHARS} characters")
    if not data.sub_string.isprintable() and not data.sub_string.translate(LAYOUT).isprintable():
        raise _refuse(f"the subscription of {data.topic} holds control characters")
    if data.expression_type != TAG and not is_word(data.expression_type):
        raise _refuse(f"the expression type {data.expression_type[:64]!r} is illegal")
    if data.tags_set and not "".join(data.tags_set).isprintable():
        raise _refuse(f"a tag in the subscription of {data.topic} is not printable text")


def subscription_bytes(wanted: Iterable[SubscriptionData]) -> int:
    """Return roughly how many bytes a group's subscriptions take."""
    found = 0
    for data in wanted:
        found += _ENTRY_BYTES + len(data.topic) + len(data.sub_string) + _CODE_BYTES * len(data.code_set)
        found += sum(map(len, data.tags_set)) + _TAG_BYTES * len(data.tags_set)
    return found


def too_much_subscribed() -> RefusedRequest:
    return _refuse(
        f"what one connection subscribes may take {MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION} bytes; "
        "spread more over several clients"
    )
