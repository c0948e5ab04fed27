"""For tests of a project: without a broker. For those with one, the pytest plugin has its fixtures.

def test_a_paid_order_is_announced(django_capture_on_commit_callbacks):
    with messages_on_commit() as sent, django_capture_on_commit_callbacks(execute=True):
        pay(order)
    assert [message.topic for message in sent] == ["orders"]

def test_it_is_billed(db):
    deliver("billing", Message("orders", '{"id": 17}', tags="paid"))
    assert Invoice.objects.get().order_id == 17
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from . import handlers, sending
from .sdk import (
    InvalidOption,
    Message,
    MessageQueue,
    ReceivedMessage,
    Record,
    body_of,
    properties_of,
    text_of,
)


@contextlib.contextmanager
def messages_on_commit() -> Iterator[list[Message]]:
    """Within the block, `send_on_commit` puts messages into the list instead of sending them. The transactions of
    Django's TestCase never commit: use `captureOnCommitCallbacks(execute=True)` with it."""
    before, sending.taken = sending.taken, []
    try:
        yield sending.taken
    finally:
        sending.taken = before


def messages_in_outbox(using: str | None = None) -> list[Message]:
    """Return the messages that wait in the outbox, in the order in which they were written."""
    from .models import OutboxMessage

    return [row.as_message() for row in OutboxMessage.objects.using(using).order_by("id")]


def deliver(group: str, message: Message, attempt: int = 1) -> object:
    """Hand a message to the group's handler for its topic, as `consume` would, and return or raise what it does. Tags
    are not looked at. Raises InvalidOption if there is no such handler."""
    for declared in handlers.declared():
        for one in declared.subscriptions:
            if (declared.name, one.topic) == (group, message.topic):
                received = _as_received(message, attempt)
                batch = declared.options.get("batch", 1)
                return declared.handler_of(one)([received] if batch > 1 else received)
    raise InvalidOption(f"No consumers.py declares a handler of {message.topic} in the group {group}.")


def _as_received(message: Message, attempt: int) -> ReceivedMessage:
    now, body = round(time.time() * 1000), body_of(message)
    properties = text_of(properties_of(message, f"TEST{time.monotonic_ns():028X}"))
    record = Record(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_time_ms=now,
        born_host=("127.0.0.1", 0),
        store_time_ms=now,
        store_host=("127.0.0.1", 0),
        reconsume_times=attempt - 1,
        prepared_transaction_offset=0,
        body=body,
        topic=message.topic,
        properties=properties,
    )
    return ReceivedMessage(record, MessageQueue(message.topic, "test", 0))
