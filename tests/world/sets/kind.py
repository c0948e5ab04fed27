"""One kind of act in the story of a set, and the names that its acts share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.world.sets.world import SetWorld

Act = dict[str, Any]
TOPICS = ("A", "B")
#: Queues of a topic that a send makes; an administrator may add some, up to the other number.
QUEUES, MOST_QUEUES = 4, 6


class Kind(NamedTuple):
    """make: what the act says; `do` gets that and returns its outcome in a few words."""

    name: str
    weight: float
    make: Callable[[random.Random], Act]
    do: Callable[[SetWorld, Act], str]


def new_topic(chance: random.Random) -> Act:
    return {"topic": chance.choice(TOPICS), "pick": chance.randrange(2)}


def someone(chance: random.Random) -> str:
    return chance.choice(("leader", "leader", "0", "1", "2"))
