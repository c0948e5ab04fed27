"""Who does what: each module has the acts of one kind of actor, and `ACTORS` has all of them by name."""

from __future__ import annotations

from tests.world.actors import administrators, consumers, operators, producers
from tests.world.actors.kind import GROUPS, Kind

ACTORS: dict[str, Kind] = {
    kind.name: kind for module in (producers, consumers, administrators, operators) for kind in module.KINDS
}

__all__ = ["ACTORS", "GROUPS", "Kind"]
