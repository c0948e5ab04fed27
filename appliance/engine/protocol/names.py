"""Names: which ones are legal, and topics and groups whose names have a meaning. PURE.

Three kinds, from strict to loose. Each name that is received from a peer is checked as one of them before it is stored:

    topics and groups        letters, digits and % | - _         used as directories of the store
    brokers, clusters        printable ASCII without blanks      used in routes, logs and pages
    client ids               any printable text                  used in logs and pages

A legal topic contains no dot and no slash, so no file is ever made outside its directory.
Source: RocketMQ `TopicValidator`, `MixAll`.
"""

from __future__ import annotations

import re

TOPIC_MAX_LENGTH = 127
#: The broker's limit, equal to that of Apache's client.
GROUP_MAX_LENGTH = 255
#: The longest name that Apache derives from others: the retry topic of a 5.x POP consumer, %RETRY%group+topic.
DERIVED_TOPIC_MAX_LENGTH = len("%RETRY%") + GROUP_MAX_LENGTH + 1 + TOPIC_MAX_LENGTH
#: Chosen here: Java's `ip@instance#nanos` takes some 40 characters, and the user chooses the instance's name.
CLIENT_ID_MAX_LENGTH = 512
#: Chosen here; also the longest host name.
BROKER_NAME_MAX_LENGTH = 255

RETRY_PREFIX = "%RETRY%"  # before a group: messages it could not consume, to be consumed again
DLQ_PREFIX = "%DLQ%"  # before a group: messages it could not consume after the last retry
TEMPLATE_TOPIC = "TBW102"  # its settings apply to topics that a send creates
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"  # messages of open transactions
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # decisions on those
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # delayed messages, a queue for each level
TIMER_TOPIC = "rmq_sys_wheel_timer"  # messages that wait for their own time
#: Every Java client names this producer group in its heartbeats, even a consumer, which sends messages back with it.
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
#: Under this group Apache and RocketBox keep their progress in reading half messages and op messages.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"

#: Clients may not send to these.
NO_SEND_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TIMER_TOPIC,  # unlike Apache, where a message sent there could reach any topic
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)

#: Messages of all topics wait in these, or end there.
TOPICS_OF_ALL = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC"))

#: RocketBox's limit; Apache takes any number. Each queue of a topic costs its consumers a poll.
MAX_QUEUE_NUMS = 65_536

#: Attributes of a topic.
MESSAGE_TYPE = "message.type"
#: Hours for which a topic's messages are shown; -1: as long as the broker keeps them. Unit: 5.x's tiered storage.
RESERVE_TIME = "reserve.time"

#: Bits of a topic's `perm`. Source: `PermName`.
PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_PRIORITY = 8
PERM_ALL = PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z", re.ASCII)
_LEGAL_DERIVED = re.compile(r"[%|a-zA-Z0-9_+-]+\Z", re.ASCII)
#: Printable ASCII without blanks, quotes (" and '), slash and backslash.
_PLAIN = re.compile(r"[!#-&(-.0-\[\]-~]+\Z", re.ASCII)
#: For `str.translate`: removes tabs and line ends, so that `isprintable` may judge the rest.
LAYOUT = str.maketrans("", "", "\t\n\r")
#: Name of a Java enum constant, or empty.
_WORD = re.compile(r"[a-zA-Z0-9_]{0,64}\Z", re.ASCII)


def topic_name_error(topic: str) -> str | None:
    """Return why a topic may not have this name, in 5.3.3's words; None if it may."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.match(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def is_legal_group(group: str) -> bool:
    """True if a group may have this name, and so its `%RETRY%` topic."""
    return len(group) <= GROUP_MAX_LENGTH and _LEGAL.match(group) is not None


def is_legal_derived_topic(topic: str) -> bool:
    """True if a topic may have this name, or if Apache may derive it from topics and groups."""
    return len(topic) <= DERIVED_TOPIC_MAX_LENGTH and _LEGAL_DERIVED.match(topic) is not None


def is_plain_name(name: str, max_length: int = BROKER_NAME_MAX_LENGTH) -> bool:
    """True if a cluster, a broker or an address may have this name.

    Apache checks none of them. Host names and addresses are plain (even IPv6 with a zone), and so is every topic that
    Apache has ever allowed.
    """
    return len(name) <= max_length and _PLAIN.match(name) is not None


def is_legal_client_id(client_id: str) -> bool:
    """True if a client may have this id: any printable text, in any script."""
    return 0 < len(client_id) <= CLIENT_ID_MAX_LENGTH and client_id.isprintable()


def permission_text(perm: int) -> str:
    """Return a topic's `perm` as text: 6 -> "RW-". Source: `PermName.perm2String`."""
    pairs = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in pairs)


def is_word(text: str) -> bool:
    """True if a text may be a Java enum constant, or is empty."""
    return _WORD.match(text) is not None
