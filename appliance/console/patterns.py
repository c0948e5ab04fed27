"""Names of topics and groups that users and tokens are kept to: two shell patterns each, "*" for every name.

A token is kept to its own patterns and to its owner's. A name of which it is not said whether it is a topic's or a
group's has to fit both. Retry topics and dead letters go with their group.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

EVERY = "*"
# RocketMQ's, of topics that belong to the group whose name follows.
_OF_A_GROUP = ("%RETRY%", "%DLQ%")
# RocketMQ's, in which messages of all topics wait or are told of: nobody is kept to some names by them.
_OF_ALL = ("SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_", "RMQ_SYS_")


@dataclass(frozen=True, slots=True)
class Names:
    """Which names somebody may access: each of the patterns has to fit."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def is_every(self) -> bool:
        """Whether nothing is kept back."""
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
        """Whether the name may be accessed, be it a topic's or a group's."""
        return self.has_topic(name) and self.has_group(name)

    def __str__(self) -> str:
        """For a refusal: "topics orders-*, groups *"."""
        return f"topics {' and '.join(self.topics) or EVERY}, groups {' and '.join(self.groups) or EVERY}"


def names_of(*holders: Any) -> Names:
    """The names that all of these (users, tokens) may access."""
    return Names(
        tuple(dict.fromkeys(one.topic_pattern for one in holders if one.topic_pattern != EVERY)),
        tuple(dict.fromkeys(one.group_pattern for one in holders if one.group_pattern != EVERY)),
    )
