"""A set comes together when nothing is in the way; then all is read, and members are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.world.machine import LOG_FILE_BYTES
from tests.world.oracle import Violation
from tests.world.sets import users
from tests.world.sets.clients import LONGEST_S, ask_offset
from tests.world.sets.faults import adopt, waits_for_operator
from tests.world.sets.kind import MOST_QUEUES, TOPICS, Act, Kind

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

#: When nothing is in the way a set has come together, and a leader serves, within so many seconds.
TOGETHER_S = 60.0
#: The name server knows of it so much later.
KNOWN_S = 15.0
#: Members copy tables each second, and save offsets each five.
COPIED_S = 7.0


def _settle(world: SetWorld, act: Act) -> str:
    """Nothing is in the way; then the set comes together, and has all."""
    world.network.heal()
    for member in world.members:
        member.disk.kill_in = -1
        if not member.running:
            world.start(member)
    until = world.now + TOGETHER_S
    adopted = ""
    while not world.run(lambda: world.together() is not None, 5.0):
        if any(waits_for_operator(member) for member in world.members):
            adopted = adopt(world)
        for member in world.members:
            if not member.running:
                world.start(member)
        if world.now > until:
            why = {one.name: one.service and (one.service.status.role, one.service.status.why) for one in world.members}
            raise Violation("a set does not come together", f"{why} {adopted}")
    world.pass_time(LONGEST_S + 5.0)
    leader = None
    for _ in range(20):
        leader = world.together()
        if leader is not None:
            break
        world.pass_time(1.0)
    if leader is None:
        raise Violation("a set falls apart though nothing is in the way")
    if not _read_all(world, leader):
        return "it does not serve"
    world.oracle.late()
    world.pass_time(COPIED_S)
    if world.together() is leader:
        _compare(world, leader)
        users.compare(world, leader)
        _routes(world, leader)
    if world.together() is leader:
        world.oracle.together()
    return f"{leader.name} leads"


def _read_all(world: SetWorld, leader: Member) -> bool:
    """All messages, and where the group is: from now on an older offset would be a wrong one."""
    for topic in TOPICS:
        for queue in range(MOST_QUEUES):
            if not world.read(leader, topic, queue):
                return False
            if (topic, queue) in world.oracle.offsets:
                found = ask_offset(world, leader, topic, queue)
                if found is None:
                    return False
                world.oracle.offsets[topic, queue] = {found}
    return True


def _routes(world: SetWorld, leader: Member) -> None:
    """The name server's route names the leader as the master, and no stranger."""
    until = world.now + KNOWN_S
    for topic in world.oracle.topics:
        while True:
            route = world.route(topic)
            if route is not None and route.brokers.get(0) == leader.address:
                break
            if world.together() is not leader:
                return
            if world.now > until:
                raise Violation("a route does not name the leader", f"{topic}: {route}, {leader.name} leads")
            world.pass_time(1.0)
        strange = set(route.brokers.values()) - {member.address for member in world.members}
        config = leader.broker.topics.get(topic)
        if strange or config is None or route.queues != config.read_queue_nums:
            raise Violation("a route is another one", f"{topic}: {route}")


def _compare(world: SetWorld, leader: Member) -> None:
    store = leader.broker.store
    for topic in world.oracle.topics:
        if leader.broker.topics.get(topic) is None:
            raise Violation("a topic is gone", topic)
    for member in world.members:
        theirs = member.broker.store
        at, end = max(store.log.min_offset, theirs.log.min_offset), store.log.written
        while at < end:
            size = min(LOG_FILE_BYTES - at % LOG_FILE_BYTES, end - at)
            if store.log.read(at, size) != theirs.log.read(at, size):
                raise Violation("a member's log is another one", f"{member.name} within {size} bytes from {at}")
            at += size
        for topic in TOPICS:
            if (leader.broker.topics.get(topic) is None) != (member.broker.topics.get(topic) is None):
                raise Violation("a member has other topics", f"{member.name}: {topic}")
            for queue in range(MOST_QUEUES):
                ours, other = store.offset_range(topic, queue), theirs.offset_range(topic, queue)
                same = ours == other or (store.log.min_offset != theirs.log.min_offset and ours[1] == other[1])
                if not same and ours[0] < ours[1]:
                    raise Violation(
                        "a member's queue is another one", f"{member.name} {topic}-{queue} {other}, not {ours}"
                    )


KINDS = [Kind("settle", 0.6, lambda chance: {}, _settle)]
