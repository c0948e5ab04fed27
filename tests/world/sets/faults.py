"""Faults of a set: members that die, stand still or are replaced, clocks, the network, the store, the name
server."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.failover.decision import Wish
from tests.world.sets import name_server
from tests.world.sets.etcd import NAME as STORE
from tests.world.sets.kind import Act, Kind, someone

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

MODES = ("all", "all", "none", "some", "torn")


def _kill(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    world.hurt(member)
    if not member.running:
        world.start(member)
        return f"{member.name} starts"
    member.kill(act["mode"], world.chance)
    world.pass_time(act["away"])
    if not act["stays"]:
        world.start(member)
    return f"{member.name} dies"


def _kill_soon(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    if member.running:
        member.disk.kill_in = act["changes"]
    return member.name


def _restart(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    world.hurt(member)
    if member.running:
        member.stop()
    world.pass_time(act["away"])
    if not member.running:
        world.start(member)
    return f"{member.name} again"


def _replace(world: SetWorld, act: Act) -> str:
    """A member's machine is replaced by an empty one, when all have all."""
    member = world.who(act["who"])
    if world.replaced or world.network.cuts or world.together() is None:
        return "not now"
    world.replaced = True
    world.hurt(member)
    if act.get("power"):
        world.network.vanish(member)
    member.kill("none" if act.get("power") else "all", world.chance)
    member.be_new()
    world.pass_time(act["away"])
    world.start(member)
    return member.name


def _cut(world: SetWorld, act: Act) -> str:
    names = [*(member.name for member in world.members), STORE, name_server.NAME]
    leader = world.leader()
    chosen = set()
    for one, other in act["pairs"]:
        one, other = (
            (leader.name if leader is not None else "m0") if name == "leader" else names[name % len(names)]
            for name in (one, other)
        )
        chosen.add(f"{one}>{other}")
    if act["late"]:
        world.network.lates, world.network.delay_s = frozenset(chosen), act["late"]
    else:
        world.network.cuts |= chosen
    world.hurt()
    world.pass_time(act["for"])
    if not act["stays"]:
        world.network.heal()
    world.hurt()
    return " ".join(sorted(chosen))


def _heal(world: SetWorld, act: Act) -> str:
    """Nothing is cut any more. starts: members that are down come back."""
    world.network.heal()
    world.hurt()
    back = [member for member in world.members if act.get("starts") and not member.running]
    for member in back:
        world.hurt(member)
        world.start(member)
    return " ".join(member.name for member in back)


def _store(world: SetWorld, act: Act) -> str:
    """The store does not answer for a while, takes no writes, or is put back to what it was before."""
    etcd = world.etcd
    world.hurt()
    if act["how"] == "copy":
        etcd.copy()
    elif act["how"] == "restore":
        if world.network.cuts or not all(member.role for member in world.members) or not etcd.restore():
            return "not now"
        # Soon: else one may be elected that lacks what another acknowledged alone, and a person has to choose.
        world.pass_time(min(act["for"], 0.5))
        return adopt(world)
    else:
        setattr(etcd, act["how"], True)
        world.pass_time(act["for"])
        setattr(etcd, act["how"], False)
    world.hurt()
    return ""


def adopt(world: SetWorld) -> str:
    """An operator has the member with the newest epoch begin the set anew, of those one that leads, or has the longest
    log; then the others that do not believe the store."""
    able = [one for one in world.members if one.running and one.service is not None and one.seat.broker is not None]
    if not able:
        return "nobody is there"
    best = max(able, key=_fitness)
    if len(able) < len(world.members):
        return "not now"
    answer = _adopt(world, best)
    if answer is None:  # it may lead still: whoever is adopted now would lead beside it
        return f"{best.name} does not answer"
    told = [f"{best.name} adopts: {answer}"]
    told += [f"{one.name}, too: {_adopt(world, one)}" for one in able if one is not best and _is_astray(one)]
    return ", ".join(told)


def _fitness(member: Member) -> tuple[int, bool, int]:
    assert member.service is not None
    return member.service.status.seen, member.serves, member.broker.store.log.written


def _adopt(world: SetWorld, member: Member) -> object:
    return world.act_on(member, lambda: member.service and member.service.ask(Wish("adopt"), 10.0))


def _is_astray(member: Member) -> bool:
    return member.service is not None and member.service.status.astray


def acknowledged_alone(member: Member) -> bool:
    """True if it froze since the set lacks what it acknowledged: a person may adopt there, or empty its store."""
    return not _is_astray(member) and waits_for_operator(member)


def waits_for_operator(member: Member) -> bool:
    return _is_astray(member) or (member.service is not None and member.service.status.role == "frozen")


def _name_server(world: SetWorld, act: Act) -> str:
    """It dies, and knows nothing when it is there again."""
    server = world.name_server
    server.kill("all", world.chance)
    world.pass_time(act["away"])
    failure = server.start()
    assert failure is None, failure
    return ""


def _still(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    world.hurt(member, act["for"])
    world.scheduler.stand_still(member, act["for"])
    return member.name


def _clock(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    member.wall.step(act["ms"])
    world.oracle.clocks_moved = True
    world.oracle.age_off_s += abs(act["ms"]) / 1000
    return member.name


def _wait(world: SetWorld, act: Act) -> str:
    world.pass_time(act["seconds"])
    return ""


def _new_cut(chance: random.Random) -> Act:
    places = ("leader", 0, 1, 2, 3, 4)
    pairs = [[one, other] for one, other in (chance.sample(places, 2) for _ in range(chance.choice((1, 1, 2, 4))))]
    if chance.random() < 0.4:  # the leader alone, or in one direction
        others = [place for place in places[1:] if chance.random() < 0.8]
        pairs = [["leader", place] for place in others]
        if chance.random() < 0.6:
            pairs += [[place, "leader"] for place in others]
    return {
        "pairs": pairs, "for": chance.choice((0.3, 2.0, 8.0, 15.0)), "stays": chance.random() < 0.5,
        "late": chance.choice((0.0, 0.0, 0.0, 0.3, 2.0)),
    }  # fmt: skip


def _new_replace(chance: random.Random) -> Act:
    return {"who": someone(chance), "away": chance.choice((0.0, 0.0, 8.0)), "power": chance.random() < 0.5}


KINDS = [
    Kind(
        "kill",
        2.5,
        lambda chance: {
            "who": someone(chance), "mode": chance.choice(MODES), "away": chance.choice((0.0, 1.0, 8.0)),
            "stays": chance.random() < 0.3,
        },
        _kill,
    ),
    Kind(
        "kill soon",
        1.5,
        lambda chance: {"who": someone(chance), "changes": int(chance.expovariate(1 / 15))},
        _kill_soon,
    ),
    Kind("restart", 1, lambda chance: {"who": someone(chance), "away": chance.choice((0.0, 3.0))}, _restart),
    Kind("replace", 0.6, _new_replace, _replace),
    Kind("cut", 3, _new_cut, _cut),
    Kind("heal", 3, lambda chance: {"starts": chance.random() < 0.7}, _heal),
    Kind(
        "store",
        1,
        lambda chance: {
            "how": chance.choice(("down", "full", "copy", "copy", "restore")), "for": chance.choice((0.5, 3.0, 9.0)),
        },
        _store,
    ),
    Kind("name server", 0.5, lambda chance: {"away": chance.choice((0.0, 1.0, 8.0))}, _name_server),
    Kind("stand still", 1, lambda chance: {"who": someone(chance), "for": chance.choice((0.5, 3.0, 20.0))}, _still),
    Kind(
        "clock",
        0.5,
        lambda chance: {"who": someone(chance), "ms": chance.choice((-3_600_000, -3000, 300, 3000, 600_000))},
        _clock,
    ),
    Kind("wait", 6, lambda chance: {"seconds": chance.choice((0.05, 0.3, 1.0, 1.0, 3.0, 6.0))}, _wait),
]  # fmt: skip
