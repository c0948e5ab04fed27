"""The topics and groups that users and tokens may access: two shell patterns each, "*" for every name.

For a token both its own patterns and its owner's count. A name that may be a topic's or a group's has to match both
kinds of patterns. Retry topics and dead letters go with their group.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

EVERY = "*"
# RocketMQ's prefixes of topics that belong to the group whose name follows.
_OF_A_GROUP = ("%RETRY%", "%DLQ%")
# RocketMQ's topics that hold messages, or reports about messages, of all topics: only for callers without patterns.
_OF_ALL = ("SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_", "RMQ_SYS_")


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a caller may access: a name has to match all patterns of its kind."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def is_every(self) -> bool:
        """True if every name may be accessed."""
        return not self.topics and not self.groups

    def has_topic(self, name: str) -> bool:
        for prefix in _OF_A_GROUP:
            if name.startswith(prefix):
                return self.has_group(name[len(prefix) :])
        if name.startswith(_OF_ALL) and not self.is_every:
            return False
        return all(fnmatchcase(name, pattern) for pattern in self.topics)

    def has_group(self, name: str) -> bool:
        return all(fnmatchcase(name, pattern) for pattern in self.groups)

    def has(self, name: str) -> bool:
        """True if the name may be accessed both as a topic's and as a group's."""
        return self.has_topic(name) and self.has_group(name)

    def __str__(self) -> str:
        """Return the patterns as text for a refusal: "topics orders-*, groups *"."""
        return f"topics {' and '.join(self.topics) or EVERY}, groups {' and '.join(self.groups) or EVERY}"


def names_of(*holders: Any) -> Names:
    """Return the names that all of these users and tokens may access."""
    return Names(
        tuple(dict.fromkeys(one.topic_pattern for one in holders if one.topic_pattern != EVERY)),
        tuple(dict.fromkeys(one.group_pattern for one in holders if one.group_pattern != EVERY)),
    )
