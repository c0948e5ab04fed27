"""Operators who make the slave the master by hand: its settings say so from its next start on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.world.actors.kind import Act, Kind
from tests.world.actors.replicas import compare

if TYPE_CHECKING:
    from tests.world.world import World

#: A slave asks for tables each three seconds; what came since may come again.
_TABLES_S = 12.0


def _promote(world: World, act: Act) -> str:
    """The slave has all of the log when the master goes for good."""
    slave = world.slave
    if slave is None:
        return "no slave"
    compare(world, act)
    world.pass_time(_TABLES_S)
    log, copy, until = world.machine.broker.store.log, slave.broker.store.log, world.now + 5.0
    while not world.machine.killed and not log.written == copy.durable == log.durable and world.now < until:
        world.pass_time(0.01)
    if world.machine.killed or world.machine.log_failed:
        return ""
    if not log.written == copy.durable == log.durable or copy.min_offset > log.min_offset:
        return "not now"
    world.promote(act["mode"], _TABLES_S)
    world.look()
    return f"its log ends at {world.machine.log_at_start}"


KINDS = [
    Kind(
        "operators",
        "promote",
        0.5,
        lambda chance, before: {"mode": chance.choice(("", "all", "none", "torn"))},
        _promote,
    )
]
