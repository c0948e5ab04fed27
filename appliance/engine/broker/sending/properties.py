"""The properties of a message as they are stored: a client's own, and what the broker adds.

The broker adds MSG_REGION, CLUSTER, TRACE_ON and a unique key if there is none, as 5.3.3 does. The last of them ends
the properties, with a byte that is no zero, so that no crash can make them look unwritten.
"""

from __future__ import annotations

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...protocol.message_id import UniqueKeys
from ...protocol.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, is_legal_group
from ...protocol.properties import (
    CLUSTER,
    DELAY_TIME_LEVEL,
    INNER_NUM,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    POP_CK,
    PRODUCER_GROUP,
    TIMER_WAS_OUT_MS,
    TRACE_SWITCH,
    TRANSACTION_PREPARED,
    TRANSIENT_PREFIX,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from ...protocol.record import SYS_INNER_BATCH, SYS_TRANSACTION_MASK, UNWRITTEN
from ...store.dispatch import has_queue_entry, properties_tag_code
from ..delays.levels import Place
from ..timers.waiting import ADDED_BYTES, WaitingPlaces, Waits, has_time
from ..transactions.half import CHECKS_ROOM_BYTES, HALF_QUEUE, make_half
from .fields import SendFields

#: No ordinary message has one of these flags. A record with one may have no queue entry (`has_queue_entry`).
_UNUSUAL_FLAGS = SYS_TRANSACTION_MASK | SYS_INNER_BATCH


#: The place where half messages wait.
HALF = Waits(Place(HALF_TOPIC, HALF_QUEUE))

#: (unique key, properties as stored, tag code of their queue entry, where the message waits or None). A plain tuple,
#: because each send makes one. The tag code in the schedule topic is a different one.
StoredProperties = tuple[str, bytes, int, Waits | None]


class IllegalProperties(RefusedRequest):
    """Properties that no record may hold; the reply is the general one for illegal messages, with its limits."""

    def __init__(self) -> None:
        super().__init__(ResponseCode.MESSAGE_ILLEGAL, "the message's properties are illegal")


class SendProperties:
    """Owned by remoting-io; any thread may read `added`."""

    def __init__(
        self, region: str, cluster: str, trace_on: bool, unique_keys: UniqueKeys, places: WaitingPlaces
    ) -> None:
        # Constant after construction.
        self._places = places
        self._region = region
        self._cluster = cluster
        self._unique_keys = unique_keys
        # Owned by remoting-io.
        self.take_trace(trace_on)

    def take_trace(self, on: bool) -> None:
        """Follow traceOn in the properties that the broker adds to each message."""
        self.added = {MSG_REGION: self._region, CLUSTER: self._cluster, TRACE_SWITCH: "true" if on else "false"}
        self.suffix = encode_properties(self.added).encode()

    def stored(self, fields: SendFields, topic: str, queue_id: int, store_ms: int) -> StoredProperties:
        """Complete the properties of a send that goes to a queue of `topic`. store_ms: the time for a new unique key.

        Refuses with 13 a message of a kind that is not served, a delay that is no number or too long, and properties
        that after a crash would look like bytes that were never written.
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
            return self._by_the_map(fields, Place(topic, queue_id), store_ms)
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
        return key, raw, properties_tag_code(text), None

    def new_key(self, store_ms: int) -> str:
        """Return a unique key for a message that came without one. Its time is that of the record before it, not that
        of the producer's clock: keys never go back from a time that is far ahead."""
        return self._unique_keys.next(store_ms)

    def _by_the_map(self, fields: SendFields, target: Place, store_ms: int) -> StoredProperties:
        """Do the same as `stored` for any properties, by way of a map of them."""
        found = decode_properties(fields.properties)
        is_half = found.get(TRANSACTION_PREPARED, "").lower() == "true" and not fields.topic.startswith(RETRY_PREFIX)
        if fields.sys_flag & SYS_TRANSACTION_MASK and not is_half:
            raise RefusedRequest(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: its sys flag says that it is part of a transaction, its property TRAN_MSG not",
            )
        if is_half:
            if fields.batch or not has_queue_entry(fields.sys_flag & ~SYS_TRANSACTION_MASK) or INNER_NUM in found:
                raise IllegalProperties
            group = found.get(PRODUCER_GROUP)
            if group is None:
                raise RefusedRequest(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "the message is illegal: a half message names its producer group in PGROUP",
                )
            if not is_legal_group(group):
                raise RefusedRequest(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the message is illegal: no producer group, as PGROUP names it, can be called {group[:40]!r}",
                )
            return self._half(found, fields, target, store_ms)
        if not has_queue_entry(fields.sys_flag) or INNER_NUM in found:
            raise IllegalProperties  # for the batch queues of 5.x, which this topic has not
        given_up = target.topic.startswith(DLQ_PREFIX) and fields.topic.startswith(RETRY_PREFIX)
        if given_up:
            found[DELAY_TIME_LEVEL] = "-1"  # as Apache writes it here; after a 36 it writes 0
        waits = None if given_up else self._places.place_of(found, target)
        if waits is not None and fields.batch:
            raise IllegalProperties
        key = self._complete(found, fields, store_ms)
        text = encode_properties(found)
        raw = checked_bytes(text)
        if waits is not None and waits.due_ms:
            _leave_room(raw)
        return key, raw, properties_tag_code(text), waits

    def _half(self, found: dict[str, str], fields: SendFields, target: Place, store_ms: int) -> StoredProperties:
        """Complete the properties of a half message. Its delay or time takes effect at the commit; one that cannot be
        kept is refused now, because the message could never be committed."""
        self._places.place_of(dict(found), target)
        key = self._complete(found, fields, store_ms)
        make_half(found, target)
        text = encode_properties(found)
        raw = checked_bytes(text)
        if len(raw) > MAX_PROPERTIES_BYTES - CHECKS_ROOM_BYTES - (ADDED_BYTES if has_time(found) else 0):
            raise IllegalProperties
        self._places.on_wait(target.topic)
        return key, raw, properties_tag_code(text), HALF

    def _complete(self, found: dict[str, str], fields: SendFields, store_ms: int) -> str:
        """Remove the properties that are not stored, add those of the broker, and return the message's unique key."""
        found.pop(POP_CK, None)
        found.pop(TIMER_WAS_OUT_MS, None)  # of a message that is passed on, whose time has nothing to do with this one
        for name in [name for name in found if name.startswith(TRANSIENT_PREFIX)]:
            del found[name]
        key = found.get(UNIQUE_KEY)
        if key is None:
            key = found[UNIQUE_KEY] = self.new_key(store_ms)
        found |= self.added
        return key


def _leave_room(properties: bytes) -> None:
    """Refuse properties that leave no room for those that are added when the message is copied."""
    if len(properties) > MAX_PROPERTIES_BYTES - ADDED_BYTES:
        raise IllegalProperties


def checked_bytes(properties: str) -> bytes:
    """Return properties as a record may hold them: UTF-8, within their length, and never like a sector that was not
    written.

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
            "which after a power cut would look like bytes that were never written",
        )
    return raw


def _has_unusual_name(text: str) -> bool:
    """True if properties may hold one of the names with a `_` that need the map."""
    return (
        "TIMER_" in text
        or "TRAN_MSG" in text
        or "MSG_REGION\x01" in text
        or "TRACE_ON\x01" in text
        or "POP_CK\x01" in text
        or "INNER_NUM\x01" in text
        or TRANSIENT_PREFIX in text
    )
