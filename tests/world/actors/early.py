"""Administrators who deliver a message that waits at once, or drop it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.broker.delays.early_batch import Chosen, Ended, Fate
from appliance.engine.broker.delays.settled import How
from appliance.engine.errors import AdminError
from tests.world.actors import producers
from tests.world.actors.kind import Act, Kind
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

#: After these nothing has happened. Of all others but DONE it is unknown.
_LEFT = (
    Fate.DELIVERED, Fate.HANDLED, Fate.TAKEN, Fate.GONE, Fate.ANOTHER, Fate.NO_RETRY, Fate.NO_TOPIC, Fate.REFUSED,
)  # fmt: skip


def _early(world: World, act: Act) -> str:
    message = producers.pick(world, act, "timer") or producers.pick(world, act, "delay")
    if message is None or message.arrived or message.fate:
        return "nothing that waits"
    machine, delivers = world.machine, act["delivers"]
    before = message.early_from
    if delivers:
        message.early_from = min(before, world.now)
    else:
        message.fate = "maybe"
    ended = world.act_on(lambda: _do(world, message, How.DELIVERED if delivers else How.DROPPED))
    if ended is None or isinstance(ended, AdminError):
        message.doubled = True
        return "no answer"
    if ended.fate in _LEFT and not world.has_faults:
        message.fate, message.early_from = "", before
        return f"{ended.fate}"
    if ended.fate is not Fate.DONE:
        message.doubled = True
        return f"{ended.fate} {ended.reason}"
    if not delivers:
        if message.arrived:
            raise Violation("a message comes that was dropped", f"act {message.act}")
        message.fate = "recalled"
        return "dropped"
    world.see_arrivals()
    if not (machine.killed or world.waits_for_slave or world.has_faults or message.arrived or message.may_be_lost):
        raise Violation("a message that was delivered at once does not come", f"act {message.act}: {ended}")
    return "delivered"


def _do(world: World, message: Message, how: How) -> Ended:
    """Act on the record that the message's answer named. On a thread of the broker."""
    broker = world.machine.broker
    found = broker.store.records.get(message.physical)
    if found is None:
        return Ended(Chosen(0, -1, -1, 0), Fate.GONE)
    record = found.record
    level = 0 if message.kind == "timer" else record.queue_id + 1
    chosen = Chosen(level, record.queue_offset, message.physical, record.size)
    acts = broker.delays.early_acts if level else broker.timers.early_acts
    [ended] = acts.act(how, [chosen])
    return ended


def _make(chance: random.Random, before: list[Act]) -> Act:
    return {
        "of": producers.earlier(chance, before, "timer deliver level"), "index": chance.randrange(12),
        "delivers": chance.random() < 0.7,
    }  # fmt: skip


KINDS = [Kind("administrators", "early", 3, _make, _early)]
