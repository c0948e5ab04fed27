"""Writes messages into the outbox, a table of the project's own database; `relay.py` sends them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from .sdk import InvalidOption, Message, SendOptions, Where, body_of, check_message, taken_apart

if TYPE_CHECKING:
    from .models import OutboxMessage


def send_by_outbox(
    message: Message | str, body: bytes | str | None = None, *, using: str | None = None, **given: Unpack[SendOptions]
) -> OutboxMessage:
    """Write a message into the transaction that is open, for `manage.py relay_outbox` to send: at least once if it
    commits, never if not. Returns its row.

    using: alias of the database; the router's choice without it. Messages of one shard are sent in the order in which
    they were written, provided that transactions that write for one shard do not run at the same time. A `delay` begins
    now. Raises InvalidMessage; InvalidOption for `queue`, `select` and `timeout`, which only a send has.
    """
    from .models import OUTBOX_ID, OutboxMessage

    whole, where = taken_apart(message, body, given)
    if where != Where(None, None, None):
        raise InvalidOption("A message of the outbox is sent later, so queue, select and timeout mean nothing to it.")
    outbox_id = uuid.uuid4().hex
    marked = replace(whole, properties={**whole.properties, OUTBOX_ID: outbox_id})
    check_message(marked)
    row = OutboxMessage.of(whole, body_of(whole), outbox_id)
    row.save(using=using)
    return row
