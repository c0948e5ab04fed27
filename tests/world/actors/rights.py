"""A user of the wire with rights that change: entries for some topics, or the account goes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.access.book import Account
from appliance.engine.access.policies import checked_entry
from tests.crash.replayer import MODES
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.actors.signed import TAKEN_S, change, secret_of, send, take
from tests.world.oracle import Violation

if TYPE_CHECKING:
    from tests.world.world import World

USER = "limited"
NO_PERMISSION = 16


def _account(act: Act) -> Account:
    if act["topics"] is None:
        return Account(USER, gone=True)
    custom = [checked_entry(f"Topic:{topic}", ["Pub"], [], "Allow") for topic in act["topics"]]
    custom += [checked_entry(f"Topic:{topic}", ["Pub"], [], "Deny") for topic in act["denied"]]
    default = [checked_entry("Topic:*", ["Pub"], [], "Allow")] if act["others"] else []
    return Account(USER, (secret_of(USER),), custom=tuple(custom), default=tuple(default))


def may_send(account: Account, topic: str) -> bool:
    """What a custom entry says of the topic counts, else a default one."""
    if account.gone:
        return False
    decisions = [entry.decision for entry in account.custom if entry.resource == f"Topic:{topic}"]
    return "Deny" not in decisions if decisions else bool(account.default)


def _rights(world: World, act: Act) -> str:
    oracle, machine, wanted = world.oracle, world.machine, _account(act)
    before = set(oracle.rights)
    oracle.rights.add(wanted)
    changed = change(world, wanted)
    if changed is False and machine.access is None:
        oracle.rights.discard(wanted)
        return "no users"
    if changed:
        oracle.rights = {wanted}
    if machine.killed:
        return ""
    if act["then"]:
        world.kill(act["then"])
        world.look()
    told = f"{len(before)} before, {changed}: "
    return told + _try(world, act) if not machine.killed and machine.access is not None else told


def _try(world: World, act: Act) -> str:
    """Send to each topic."""
    machine, oracle = world.machine, world.oracle
    world.pass_time(TAKEN_S)
    told = []
    for index, topic in enumerate(TOPICS):
        if machine.killed:
            break
        peer = machine.connect(signs=True)
        said = {"topic": topic, "queue": 0, "size": 10}
        message, asked = send(world, act, peer, USER, index, said)
        world.sent.setdefault(act["n"], []).append(message)
        if not machine.run(lambda: asked.answers.ended, 30.0) and not machine.killed:  # noqa: B023
            raise Violation("a request is not answered", "one of a user")
        take(world, message, asked)
        may = {may_send(account, topic) for account in oracle.rights}
        if asked.code == NO_PERMISSION and may == {True}:
            raise Violation("a user may not do what it was given the right to", f"{topic}: {oracle.rights}")
        if asked.code == 0 and may == {False}:
            raise Violation("a user may do what it has no right to", f"{topic}: {oracle.rights}")
        if not machine.killed and not peer.closed:
            machine.hang_up(peer)
        told.append(str(asked.code))
    return " ".join(told)


def _make(chance: random.Random, before: list[Act]) -> Act:
    gone = chance.random() < 0.15
    return {
        "topics": None if gone else sorted(chance.sample(TOPICS, chance.randrange(3))),
        "denied": sorted(chance.sample(TOPICS, chance.choice((0, 0, 1)))), "others": chance.random() < 0.3,
        "then": chance.choice(("", "", "", "all", *MODES)),
    }  # fmt: skip


KINDS = [Kind("users", "rights", 0.7, _make, _rights)]
