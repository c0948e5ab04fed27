"""One kind of act: how often it is done, how it is thought up, and how it is done."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.world.world import World

TOPICS = ("A", "B", "C")
GROUPS = ("CG", "CH")
Act = dict[str, Any]


class Kind(NamedTuple):
    """make: (chance, acts before it) -> what the act says; `do` gets that and returns its outcome in a few words."""

    actor: str
    name: str
    weight: float
    make: Callable[[random.Random, list[Act]], Act]
    do: Callable[[World, Act], str | None]
