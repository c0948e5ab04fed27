"""The actors: each module has the acts of one kind of actor, and `ACTORS` has all of them by name."""

from __future__ import annotations

from tests.world.actors import (
    administrators,
    checks,
    consumers,
    crowds,
    early,
    faults,
    hogs,
    keepers,
    members,
    operators,
    producers,
    promotions,
    purges,
    quotas,
    readers,
    replays,
    replicas,
    rights,
    schemas,
    stalls,
    subscribers,
)
from tests.world.actors.kind import GROUPS, Kind

_MODULES = (
    producers, checks, consumers, readers, members, administrators, keepers, hogs, operators, faults, replicas,
    stalls, purges, promotions, quotas, crowds, rights, schemas, replays,
    subscribers, early,
)  # fmt: skip
ACTORS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}

__all__ = ["ACTORS", "GROUPS", "Kind"]
