"""The messages in the body of a pull. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import twin
from ..errors import BadAnswer
from ..message import MessageQueue, ReceivedMessage
from ..wire import CorruptFile, Record, decode_host, decode_record

_KIT: Any = None if twin.compiled is None else twin.compiled.RecordKit(ReceivedMessage, decode_host)


def records_of(body: bytes, where: object, verify: bool = False) -> Iterator[Record]:
    """Yield the records of a body. where: of the error's text. verify: check the CRCs of bodies. Raises BadAnswer."""
    at = 0
    while at < len(body):
        try:
            record = decode_record(body, at, check_crc=verify)
        except CorruptFile as error:
            raise BadAnswer(f"a message of {where} cannot be read: {error}") from None
        at += record.size
        yield record


def read_messages(
    body: bytes, queue: MessageQueue, tags: frozenset[str] = frozenset(), verify: bool = False
) -> list[ReceivedMessage]:
    """Return the messages with one of the tags, or all if no tags are given. Brokers filter by a hash of the tag, so
    messages of other tags may be in the body. Raises BadAnswer."""
    messages: list[ReceivedMessage] | None = None
    if _KIT is not None and not verify and type(body) is bytes:
        messages = twin.compiled.read_messages(_KIT, body, queue)
    if messages is None:
        messages = [ReceivedMessage(record, queue) for record in records_of(body, queue, verify)]
    return [message for message in messages if message.tags in tags] if tags else messages
