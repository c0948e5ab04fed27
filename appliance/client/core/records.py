"""The messages in the body of a pull. PURE."""

from __future__ import annotations

from ..errors import BadAnswer
from ..message import MessageQueue, ReceivedMessage
from ..wire import CorruptFile, decode_record


def read_messages(body: bytes, queue: MessageQueue, tags: frozenset[str] = frozenset()) -> list[ReceivedMessage]:
    """Return the messages with one of the tags, or all if no tags are given. Brokers filter by a hash of the tag, so
    messages of other tags may be in the body. Raises BadAnswer."""
    found, at = [], 0
    while at < len(body):
        try:
            record = decode_record(body, at, check_crc=False)
        except CorruptFile as error:
            raise BadAnswer(f"a message of {queue} cannot be read: {error}") from None
        at += record.size
        message = ReceivedMessage(record, queue)
        if not tags or message.tags in tags:
            found.append(message)
    return found
