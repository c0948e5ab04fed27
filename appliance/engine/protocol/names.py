"""Names: which are legal, and the topics and groups whose name has a meaning. PURE.

Three kinds, from strict to loose, and every name that comes over the wire is checked as one of them before it is kept:

    topics and groups        letters, digits and % | - _         they become directories of the store
    brokers, clusters        printable ASCII without blanks      they stand in routes, logs and pages
    client ids               any printable text                  they stand in logs and pages

A legal topic holds no dot and no slash, so no file is ever made outside its directory.
Source: RocketMQ `TopicValidator`, `MixAll`.
"""

from __future__ import annotations

import re

TOPIC_MAX_LENGTH = 127
#: The broker's bound, as that of Apache's client.
GROUP_MAX_LENGTH = 255
#: The longest name that Apache derives from others: the retry topic of a 5.x POP consumer, %RETRY%group+topic.
DERIVED_TOPIC_MAX_LENGTH = len("%RETRY%") + GROUP_MAX_LENGTH + 1 + TOPIC_MAX_LENGTH
#: Ours: Java's `ip@instance#nanos` takes some 40 characters, and the user chooses the instance's name.
CLIENT_ID_MAX_LENGTH = 512
#: Ours; a host name has at most as many.
BROKER_NAME_MAX_LENGTH = 255

RETRY_PREFIX = "%RETRY%"  # and a group: messages it could not consume, to be consumed again
DLQ_PREFIX = "%DLQ%"  # and a group: messages it could not consume after the last retry
TEMPLATE_TOPIC = "TBW102"  # its settings are those of topics that are made by a send
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"  # messages of open transactions
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # which of those are decided
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # delayed messages, a queue for each level
TIMER_TOPIC = "rmq_sys_wheel_timer"  # messages that wait for a time of their own
#: Every Java client names this producer group in its heartbeats. Consumers do, too: they send messages back with it.
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
#: Under this group Apache keeps how far it has read half messages and their op messages, and so do we.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"

#: Clients may not send to these.
NO_SEND_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TIMER_TOPIC,  # not so with Apache: what is sent there would be stored in any topic at all
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)

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
#: For `str.translate`: takes tabs and line ends out of a text, so that `isprintable` may judge the rest.
LAYOUT = str.maketrans("", "", "\t\n\r")
#: The name of a constant of a Java enum, or nothing.
_WORD = re.compile(r"[a-zA-Z0-9_]{0,64}\Z", re.ASCII)


def topic_name_error(topic: str) -> str | None:
    """Why a topic may not have this name, in 5.3.3's words; None when it may."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.match(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def is_legal_group(group: str) -> bool:
    """Whether a group may have this name, and so its `%RETRY%` topic."""
    return len(group) <= GROUP_MAX_LENGTH and _LEGAL.match(group) is not None


def is_legal_derived_topic(topic: str) -> bool:
    """Whether a topic may have this name, or one that Apache derives from topics and groups."""
    return len(topic) <= DERIVED_TOPIC_MAX_LENGTH and _LEGAL_DERIVED.match(topic) is not None


def is_plain_name(name: str, max_length: int = BROKER_NAME_MAX_LENGTH) -> bool:
    """Whether a cluster, a broker or an address may have this name.

    Apache checks none of them. Host names are plain, and addresses (IPv6 with a zone, too), and every topic that Apache
    has ever allowed.
    """
    return len(name) <= max_length and _PLAIN.match(name) is not None


def is_legal_client_id(client_id: str) -> bool:
    """Whether a client may have this id: any printable text, in any script."""
    return 0 < len(client_id) <= CLIENT_ID_MAX_LENGTH and client_id.isprintable()


def permission_text(perm: int) -> str:
    """6 -> "RW-". Source: `PermName.perm2String`."""
    pairs = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in pairs)


def is_word(text: str) -> bool:
    """Whether a text may be a constant of a Java enum, or is empty."""
    return _WORD.match(text) is not None
