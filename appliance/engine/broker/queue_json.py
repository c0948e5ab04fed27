"""Tables whose keys are queues, in the dialect of Java's fastjson: an object as the key, without quotes around it.

Source: RocketMQ `RemotingSerializable` over `Map<MessageQueue, ?>`, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def queue_key(broker_name: str, topic: str, queue_id: int) -> bytes:
    """Return {"brokerName":..,"queueId":..,"topic":..}."""
    return msgspec.json.encode({"brokerName": broker_name, "queueId": queue_id, "topic": topic})


def queue_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return {key:value,..}. entries: keys made by `queue_key`, and values in JSON."""
    return b"{" + b",".join(key + b":" + value for key, value in entries) + b"}"
