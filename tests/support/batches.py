"""Batches as a producer sends them."""

from __future__ import annotations

import struct

from appliance.engine.broker.sending.batch_body import BatchRecords, Shapes
from appliance.engine.store.message_store import MessageStore
from appliance.engine.store.queues.consume_queue import ConsumeQueue


def encode_member(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """One message inside a batch's body."""
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return head + body + struct.pack(">H", len(properties)) + properties


def put_batch(
    store: MessageStore, queue: ConsumeQueue, topic_field: bytes, members: list[tuple[bytes, bytes]], born_host: bytes
) -> list[int]:
    """Stage (body, properties) as one batch; returns their physical offsets."""
    body = memoryview(b"".join(encode_member(*member) for member in members))
    batch = BatchRecords(
        body, topic_field, queue.queue_id, b"", Shapes(), 0, 1, born_host, store.store_host, 0
    )  # fmt: skip
    return store.put_batch(queue, batch.pack)
