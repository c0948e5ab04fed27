"""Machines whose threads do not run for a while, as virtual machines that are moved; slaves with a slow disk."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING

from tests.crash.replayer import MODES
from tests.world.actors import producers
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.actors.members import HEART_BEAT, LOCK, MEMBERS, beat, beat_body
from tests.world.actors.replicas import start_slave
from tests.world.machine import Answers, Peer
from tests.world.oracle import OFFSETS_SAVED_S, Violation

if TYPE_CHECKING:
    from tests.world.world import World

GROUP = "ST"
#: Clients send a heartbeat, and ask for their locks again, so often.
BEATS_S = 20.0
#: Messages are sent so long before the machine goes on: their time counts from there.
BEFORE_S = 3.0


def _make_still(chance: random.Random, before: list[Act]) -> Act:
    return {
        "who": chance.choice(("master", "master", "slave")), "for": chance.choice((1.0, 4.0, 8.0, 40.0, 130.0)),
        "topic": chance.choice(TOPICS[:2]), "messages": [producers.one(chance) for _ in range(3)],
        "then": chance.choice(("", "", "", "", "all", "none", "some")),
    }  # fmt: skip


def _still(world: World, act: Act) -> str:
    if act["who"] == "slave":
        return _slave_still(world, act)
    return _master_still(world, act)


def _master_still(world: World, act: Act) -> str:
    """Clients go on asking. They are still there when the machine is."""
    oracle, machine, scheduler = world.oracle, world.machine, world.scheduler
    world.see_arrivals()
    if machine.killed:
        return ""
    trouble, oracle.trouble_since = oracle.trouble_since, min(oracle.trouble_since, world.now)
    members = [("s1", machine.connect()), ("s2", machine.connect())]
    for who, peer in members:
        if not beat(world, peer, who, GROUP, act["topic"], "CLUSTERING"):
            return "no answer"
    oracle.unsynced_since = world.now
    until = world.now + act["for"]
    scheduler.stand_still(machine, act["for"])
    asked: list[Answers] = []
    while world.now < until - BEFORE_S:
        machine.run(lambda: False, min(BEATS_S, until - BEFORE_S - world.now))
        for who, peer in members:
            asked.append(peer.ask(HEART_BEAT, {}, beat_body(who, GROUP, act["topic"], "CLUSTERING")))
            asked.append(peer.ask(LOCK, {}, _lock_body(who, act["topic"])))
    if act["then"]:
        world.kill(act["then"])
        world.look()
        return "killed"
    outcome = producers.burst(world, act)
    if machine.killed:
        return outcome
    oracle.flows_since = max(oracle.flows_since, world.now)
    world.lost_each_other()
    machine.run(lambda: all(one.ended for one in asked), 10.0)
    if not machine.killed:
        _judge(world, act, members)
    world.pass_time(OFFSETS_SAVED_S)
    if not machine.killed:
        oracle.trouble_since, oracle.unsynced_since = trouble, math.inf
        for _, peer in members:
            if not peer.closed:
                machine.hang_up(peer)
    return outcome


def _lock_body(who: str, topic: str) -> bytes:
    rows = [{"topic": topic, "brokerName": "broker-a", "queueId": 0}]
    return json.dumps({"consumerGroup": GROUP, "clientId": who, "mqSet": rows}).encode()


def _judge(world: World, act: Act, members: list[tuple[str, Peer]]) -> None:
    for who, peer in members:
        if peer.closed:
            raise Violation("a client is hung up on though it goes on asking", f"{act}: {who}")
    answer = world.ask(MEMBERS, {"consumerGroup": GROUP}, b"", members[0][1])
    there = json.loads(answer.body)["consumerIdList"] if answer is not None and answer.code == 0 else []
    if answer is not None and sorted(there) != [who for who, _ in members]:
        raise Violation("a group has other members than are there", f"{act}: {there}")


def _slave_still(world: World, act: Act) -> str:
    """A master that waits for its slave acknowledges nothing meanwhile."""
    slave = world.slave
    if slave is None or not slave.running:
        return "no slave"
    world.see_slave()
    seconds = min(act["for"], 40.0)
    until = world.now + seconds
    world.scheduler.stand_still(slave, seconds)
    outcome = producers.burst(world, act)
    if world.machine.killed:
        return outcome
    world.see_slave()
    if act["then"]:
        slave.kill(act["then"], world.chance)
        start_slave(world)
    world.pass_time(max(0.0, until - world.now))
    world.lost_each_other()
    return outcome


def _slow_slave(world: World, act: Act) -> str:
    """Each sync of the slave takes long, and then it may lose its power in one."""
    slave = world.slave
    if slave is None or not slave.running:
        return "no slave"
    world.see_slave()
    slave.disk.slow_s = act["sync"]
    outcome = producers.burst(world, act)
    if world.machine.killed:
        slave.disk.slow_s = 0.0
        return outcome
    world.see_slave()
    if act["then"]:
        slave.kill(act["then"], world.chance)
        start_slave(world)
    slave.disk.slow_s = 0.0
    world.pass_time(act["sync"])
    world.lost_each_other()
    return outcome


KINDS = [
    Kind("operators", "stand still", 0.7, _make_still, _still),
    Kind(
        "replicas",
        "slow slave",
        0.7,
        lambda chance, before: {
            "sync": chance.choice((0.3, 2.0, 7.0)),
            "then": chance.choice(("", *MODES)),
            "messages": [producers.one(chance) for _ in range(4)],
        },
        _slow_slave,
    ),
]
