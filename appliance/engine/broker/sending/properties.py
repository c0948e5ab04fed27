"""The properties of a message as they are stored: a client's own, and what the broker adds.

The broker adds MSG_REGION, CLUSTER, TRACE_ON and a unique key if there is none, as 5.3.3 does. The last of them ends
the properties, with a byte that is no zero, so that no crash can make them look unwritten.
"""

from __future__ import annotations

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...protocol.message_id import UniqueKeys
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.properties import (
    CLUSTER,
    DELAY_NAMES,
    DELAY_TIME_LEVEL,
    INNER_NUM,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    POP_CK,
    TRACE_SWITCH,
    TRANSACTION_PREPARED,
    TRANSIENT_PREFIX,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from ...protocol.record import SYS_INNER_BATCH, SYS_TRANSACTION_MASK, UNWRITTEN
from ...store.dispatch import has_queue_entry, properties_tag_code
from .fields import SendFields

#: No ordinary message has one of these. A record with one may have no queue entry (`has_queue_entry`).
_UNUSUAL_FLAGS = SYS_TRANSACTION_MASK | SYS_INNER_BATCH


#: (unique key, properties as stored, tag code of their queue entry). A plain tuple: each send makes one.
StoredProperties = tuple[str, bytes, int]


class IllegalProperties(RefusedRequest):
    """Properties that no record may hold; the reply is the general one for illegal messages, with its limits."""

    def __init__(self) -> None:
        super().__init__(ResponseCode.MESSAGE_ILLEGAL, "the message's properties are illegal")


class SendProperties:
    """Owned by remoting-io; `added` may be read by anyone."""

    def __init__(self, region: str, cluster: str, trace_on: bool, unique_keys: UniqueKeys) -> None:
        # Constant after construction.
        self._region = region
        self._cluster = cluster
        self._unique_keys = unique_keys
        # Owned by remoting-io.
        self.take_trace(trace_on)

    def take_trace(self, on: bool) -> None:
        """What the broker adds to each message follows traceOn."""
        self.added = {MSG_REGION: self._region, CLUSTER: self._cluster, TRACE_SWITCH: "true" if on else "false"}
        self.suffix = encode_properties(self.added).encode()

    def stored(self, fields: SendFields, topic: str, store_ms: int) -> StoredProperties:
        """Complete the properties of a send that goes to `topic`. store_ms: what a unique key is made of.

        Refuses with 13 what is not served yet, and what after a crash could not be told from something else.
        """
        text = fields.properties
        at = text.find("UNIQ_KEY\x01")
        if (
            at < 0
            or (at > 0 and text[at - 1] != "\x02")
            or fields.sys_flag & _UNUSUAL_FLAGS
            or "\0" in text
            or "DELAY" in text
            or "CLUSTER\x01" in text
            or (text.count("_") > 1 and _has_unusual_name(text))  # UNIQ_KEY has one
        ):
            return self._by_the_map(fields, topic, store_ms)
        end = text.find("\x02", at + 9)
        if end < 0:
            key = text[at + 9 :]
            raw = text.encode() + b"\x02" + self.suffix
        else:
            key = text[at + 9 : end]
            raw = text.encode() + (b"" if text[-1] == "\x02" else b"\x02") + self.suffix
        if len(raw) > MAX_PROPERTIES_BYTES:
            raise IllegalProperties
        # The broker's own properties hold no tag.
        return key, raw, properties_tag_code(text)

    def new_key(self, store_ms: int, born_ms: int) -> str:
        """A unique key for what came without one."""
        return self._unique_keys.next(store_ms or born_ms)

    def _by_the_map(self, fields: SendFields, topic: str, store_ms: int) -> StoredProperties:
        """The same for any properties at all."""
        found = decode_properties(fields.properties)
        if found.get(TRANSACTION_PREPARED, "").lower() == "true" or fields.sys_flag & SYS_TRANSACTION_MASK:
            raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, "transactional messages are not supported yet")
        if not has_queue_entry(fields.sys_flag) or INNER_NUM in found:
            raise IllegalProperties  # a batch of 5.x's batch queues, which this topic has not
        if topic.startswith(DLQ_PREFIX) and fields.topic.startswith(RETRY_PREFIX):
            found[DELAY_TIME_LEVEL] = "0"  # given up: a dead letter has no delay
        for name in DELAY_NAMES:
            level = found.get(name)
            if level is not None and not (name == DELAY_TIME_LEVEL and _is_no_delay(level)):
                raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, f"delayed messages ({name}) are not supported yet")
        found.pop(POP_CK, None)
        for name in [name for name in found if name.startswith(TRANSIENT_PREFIX)]:
            del found[name]
        key = found.get(UNIQUE_KEY)
        if key is None:
            key = found[UNIQUE_KEY] = self.new_key(store_ms, fields.born_ms)
        text = encode_properties(found | self.added)
        return key, checked_bytes(text), properties_tag_code(text)


def checked_bytes(properties: str) -> bytes:
    """Properties as a record may hold them: UTF-8, within their length, and never like a sector that was not written.

    Raises RefusedRequest (13).
    """
    try:
        raw = properties.encode()
    except UnicodeEncodeError:
        raise IllegalProperties from None
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise IllegalProperties
    if UNWRITTEN in raw:
        raise RefusedRequest(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its properties hold {len(UNWRITTEN)} zeros in a row, "
            "which after a power cut could not be told from what was never written",
        )
    return raw


def _has_unusual_name(text: str) -> bool:
    """Whether properties may hold one of the names with a `_` that the map has to look at."""
    return (
        "TIMER_" in text
        or "TRAN_MSG" in text
        or "MSG_REGION\x01" in text
        or "TRACE_ON\x01" in text
        or "POP_CK\x01" in text
        or "INNER_NUM\x01" in text
        or TRANSIENT_PREFIX in text
    )


def _is_no_delay(level: str) -> bool:
    """DELAY that means none: 0 or less, as Integer.parseInt reads it."""
    try:
        return int(level) <= 0
    except ValueError:
        return False
