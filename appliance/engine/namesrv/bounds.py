"""Bounds of what the name server accepts from any sender, and which names are legal.

A sender does not have to prove that it is a broker, and Apache keeps whatever it is sent. A real cluster is far below
these bounds: a broker has one address, one connection, some thousand topics, and its host's name.
"""

from __future__ import annotations

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import BROKER_NAME_MAX_LENGTH, DERIVED_TOPIC_MAX_LENGTH, LAYOUT, is_plain_name

#: Brokers that register over one connection: Apache's broker container registers some ten.
MOST_BROKERS_OF_A_CONNECTION = 64
#: Brokers in all, and so at most as many broker names and clusters; shared by connection and address (`Shares`), but
#: each connection may always register one.
MOST_BROKERS, FEW_BROKERS = 4096, 1
#: Broker ids under one name, a master and its slaves.
MOST_ADDRESSES_OF_A_NAME = 64
#: (topic, broker name) pairs in all: four brokers of the largest kind, or hundreds with some thousand topics each. At
#: some 200 bytes a pair 200 MB.
MOST_ENTRIES = 1_000_000
#: They are shared by connection and address, too; the brokers of a connection may always have this many.
FEW_ENTRIES = 2000
#: 217 adds topics up to 1 / PART_OF_217 of what one broker, and all, may have: any client may send it for any broker.
PART_OF_217 = 2
#: Mappings of static topics, all together, in bytes. One takes a few hundred. They are shared by connection and
#: address, and the brokers of a connection may always have a few: some forty.
MOST_MAPPING_BYTES = 16 * 1024 * 1024
FEW_MAPPING_BYTES = 16 * 1024
#: A broker sends how long it may be silent (Apache's: 10 to 120 s). Without a bound it could stay for ever.
LONGEST_TIMEOUT_MS = 3_600_000
#: Length of a namespace or key, and of a value: the longest value is the queues of an ordered topic on all its brokers.
MOST_KEY_CHARS, MOST_VALUE_CHARS = DERIVED_TOPIC_MAX_LENGTH, 32_767


def refuse(remark: str) -> RefusedRequest:
    """Return a refusal with code 1, for everything that the name server cannot take."""
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, remark)


def check_name(what: str, name: str, max_length: int = BROKER_NAME_MAX_LENGTH) -> str:
    """Return the name of a cluster, a broker or an address; refuse an illegal one with 1. what: the header's field."""
    if not is_plain_name(name, max_length):
        raise refuse(f"{what} {name[:100]!r} is illegal: up to {max_length} printable characters of ASCII, no blanks")
    return name


def is_routed_name(topic: str) -> bool:
    """True if a topic of any broker may have this name."""
    return is_plain_name(topic, DERIVED_TOPIC_MAX_LENGTH)


def check_topic(topic: str) -> str:
    """Return the topic's name; refuse an illegal one with 1."""
    if not is_routed_name(topic):
        raise refuse(f"the topic {topic[:100]!r} is illegal")
    return topic


def check_key_value(namespace: str, key: str, value: str) -> None:
    """Refuse with 1 a namespace, key or value that is too long, or not text."""
    for what, text in (("namespace", namespace), ("key", key)):
        if len(text) > MOST_KEY_CHARS or not text.isprintable():
            raise refuse(f"the {what} {text[:100]!r} is illegal: up to {MOST_KEY_CHARS} printable characters")
    if len(value) > MOST_VALUE_CHARS:
        raise refuse(f"the value has {len(value)} characters, at most {MOST_VALUE_CHARS} are kept")
    if not value.translate(LAYOUT).isprintable():
        raise refuse("the value holds control characters")
