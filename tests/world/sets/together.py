"""A set comes together when nothing is in the way; then all is read, and members are compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.world.machine import LOG_FILE_BYTES
from tests.world.oracle import Violation
from tests.world.sets import administrators, users
from tests.world.sets.clients import COPIED_S, LONGEST_S, ask_offset
from tests.world.sets.faults import acknowledged_alone, adopt, waits_for_operator
from tests.world.sets.kind import MOST_QUEUES, TOPICS, Act, Kind

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

ALL_GROUPS = 201
#: When nothing is in the way a set has come together, and a leader serves, within so many seconds.
TOGETHER_S = 60.0
#: A message that waits is looked for after its time: soon, and at the latest.
SOON_S, LATE_S = 0.5, 5.0
#: The name server has it this much later.
KNOWN_S = 35.0


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
        if world.now > until and world.etcd.restored and any(acknowledged_alone(one) for one in world.members):
            return "a person has to choose whose messages go"
        if world.now > until:
            why = {one.name: one.service and (one.service.status.role, one.service.status.why) for one in world.members}
            raise Violation("a set does not come together", f"{why} {adopted}")
    is_long = act.get("long", True)
    world.pass_time(LONGEST_S + LATE_S if is_long else max(0.0, world.oracle.waits_until() + SOON_S - world.now))
    leader = None
    for _ in range(20):
        leader = world.together()
        if leader is not None:
            break
        world.pass_time(1.0)
    if leader is None:
        raise Violation("a set falls apart though nothing is in the way")
    until = max(world.now, world.oracle.waits_until()) + LATE_S  # a leader may have begun just now
    if not _read_all(world, leader):
        return "it does not serve"
    while not is_long and world.now < until and world.oracle.waits_until() > 0:
        world.pass_time(1.0)
        if not _read_all(world, leader):
            return "it does not serve"
    world.oracle.late()
    if is_long:
        _know_offsets(world, leader)
        world.pass_time(COPIED_S)
    until = world.now if is_long else world.now + COPIED_S
    while world.together() is leader:
        try:
            _compare(world, leader)
            users.compare(world, leader)
            administrators.compare_schemas(world, leader)
            if not is_durable(world) and world.now < until:
                world.pass_time(0.5)
                continue
        except Violation:
            if world.now >= until:
                raise
            world.pass_time(0.5)
            continue
        _routes(world, leader)
        break
    if world.together() is leader and is_durable(world):
        world.oracle.together()
    return f"{leader.name} leads"


def _read_all(world: SetWorld, leader: Member) -> bool:
    return all(world.read(leader, topic, queue) for topic in TOPICS for queue in range(MOST_QUEUES))


def _know_offsets(world: SetWorld, leader: Member) -> None:
    """See that the groups are there, and where the group is: members have copied and saved it COPIED_S later, and from
    then on an older offset would be a wrong one."""
    answer = world.ask(leader, ALL_GROUPS, {})
    if answer is not None and leader.serves:
        missing = world.oracle.groups - json.loads(bytes(answer.body))["subscriptionGroupTable"].keys()
        if missing:
            raise Violation("a group that was made is gone", f"{missing} at {leader.name}")
    for topic, queue in list(world.oracle.offsets):
        found = ask_offset(world, leader, topic, queue)
        if found is not None:
            world.oracle.offsets[topic, queue] = {found}


def is_durable(world: SetWorld) -> bool:
    """True if all members have all of their logs on their disks."""
    return all(one.broker.store.log.durable == one.broker.store.log.written for one in world.members)


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


#: A long one waits for what members do now and then, and tells then where the group is.
KINDS = [Kind("settle", 0.8, lambda chance: {"long": chance.random() < 0.3}, _settle)]
