"""Names of topics and groups: what is legal, and the ones with a meaning.

Source: RocketMQ `TopicValidator`, `MixAll`. A legal name never leaves its directory: it holds no dot and no slash.
"""

from __future__ import annotations

import re

TOPIC_MAX_LENGTH = 127
#: The broker's own bound for groups; Apache's client allows 255.
GROUP_MAX_LENGTH = 255

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
TEMPLATE_TOPIC = "TBW102"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

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

PERM_WRITE = 2
PERM_READ = 4

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z", re.ASCII)


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
