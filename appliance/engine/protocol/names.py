"""Names of topics and groups: what is legal, and the ones with a meaning.

Source: RocketMQ `TopicValidator`, `MixAll`. A legal name never leaves its directory: it holds no dot and no slash.
"""

from __future__ import annotations

import re

TOPIC_MAX_LENGTH = 127
#: The broker's own bound for groups; Apache's client allows 255.
GROUP_MAX_LENGTH = 255
#: The longest that Apache makes of names: 5.x' retry topic of a pop consumer, %RETRY%group+topic.
DERIVED_TOPIC_MAX_LENGTH = len("%RETRY%") + GROUP_MAX_LENGTH + 1 + TOPIC_MAX_LENGTH
#: Ours: Java's `ip@instance#nanos` takes some 40 characters, and the instance's name is the user's.
CLIENT_ID_MAX_LENGTH = 512
#: Ours, as that of a host name.
BROKER_NAME_MAX_LENGTH = 255

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
TEMPLATE_TOPIC = "TBW102"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Every Java client names this producer group in its heartbeats, consumers too: they send back with it.
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"

#: Clients may not send to these.
NO_SEND_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
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
#: Printable ASCII without blanks, quotes and slashes.
_PLAIN = re.compile(r"[!#-&(-.0-\[\]-~]+\Z", re.ASCII)
#: For `str.translate`: a text of several lines without what lays it out.
LAYOUT = str.maketrans("", "", "\t\n\r")
#: What names of Java's enums consist of.
_WORD = re.compile(r"[a-zA-Z0-9_]{0,64}\Z", re.ASCII)


def topic_name_error(topic: str) -> str | None:
    """Why a topic name is illegal, in 5.3.3's words; None when it is fine."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.match(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def is_legal_group(group: str) -> bool:
    """Whether a group name may be used as a key of our tables and in `%RETRY%` topics."""
    return len(group) <= GROUP_MAX_LENGTH and _LEGAL.match(group) is not None


def is_legal_derived_topic(topic: str) -> bool:
    """Whether a topic, or what Apache derives from topics and groups, may have this name."""
    return len(topic) <= DERIVED_TOPIC_MAX_LENGTH and _LEGAL_DERIVED.match(topic) is not None


def is_plain_name(name: str, max_length: int = BROKER_NAME_MAX_LENGTH) -> bool:
    """Whether a cluster, a broker or an address may be called so.

    Apache checks none of them. Host names and addresses, IPv6 with a zone too, are plain, and whatever topic Apache has
    ever let through.
    """
    return len(name) <= max_length and _PLAIN.match(name) is not None


def is_legal_client_id(client_id: str) -> bool:
    """Whether a client may be called so: any printable text, in any script."""
    return 0 < len(client_id) <= CLIENT_ID_MAX_LENGTH and client_id.isprintable()


def permission_text(perm: int) -> str:
    """6 -> "RW-". Source: `PermName.perm2String`."""
    pairs = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in pairs)


def is_word(text: str) -> bool:
    """Whether a text may be the name of one of Java's enums, or is empty."""
    return _WORD.match(text) is not None
