"""Administrators of a set: topics, and what retention takes by hand or with time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.errors import AdminError
from tests.world.actors.administrators import CREATE_TOPIC, DELETE_TOPIC, topic_fields
from tests.world.actors.purges import purges_of
from tests.world.disk import CAPACITY
from tests.world.oracle import RESERVED_S, Violation
from tests.world.schemas import NAMES, name_at, put, schemas_of
from tests.world.sets import clients
from tests.world.sets.clients import then
from tests.world.sets.kind import MOST_QUEUES, QUEUES, Act, Kind, new_topic, someone

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

CLEAN_LOG = 329
#: Longer than messages are kept.
AWAY_S = RESERVED_S + 1800.0


def _make(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    there = leader.broker.topics.get(act["topic"])
    count = max(act.get("queues", QUEUES), there.read_queue_nums if there is not None else 0)
    answer = world.ask(leader, CREATE_TOPIC, topic_fields(act["topic"], count))
    if answer is not None and answer.code == 0:
        if not world.oracle.is_async:
            world.oracle.topics[act["topic"]] = count
        if act.get("send") and leader.serves:
            message = {"topic": act["topic"], "queue": count - 1, "n": act["n"], "pick": act["pick"]}
            clients.send_to(world, leader, message, b"%d " % act["n"])
        then(world, leader, act)
        return f"{leader.name} made it, with {count} queues"
    return "no answer" if answer is None else f"refused with {answer.code} {answer.remark}"


def _delete(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    answer = world.ask(leader, DELETE_TOPIC, {"topic": act["topic"]})
    sure = answer is not None and answer.code == 0
    world.oracle.removed(act["topic"], sure)
    if sure:
        then(world, leader, act)
    return f"{leader.name} deleted it" if sure else "no answer" if answer is None else f"refused with {answer.code}"


def _purge(world: SetWorld, act: Act) -> str:
    leader, topic = world.leader(), act["topic"]
    if leader is None:
        return "nobody leads"
    if not all(world.read(leader, topic, queue) for queue in range(MOST_QUEUES)) or not leader.serves:
        return "it does not serve"
    broker = leader.broker
    ends = {queue: broker.store.max_offset(topic, queue) for queue in range(MOST_QUEUES)}
    purges = purges_of(broker, leader.pools)
    answer = world.act_on(leader, lambda: purges.purge(topic, force=True))
    if answer is None or isinstance(answer, AdminError):
        world.oracle.removed(topic, False, dict.fromkeys(range(MOST_QUEUES), 1 << 60))
        return "no answer" if answer is None else f"refused: {answer}"
    world.oracle.removed(topic, True, ends)
    then(world, leader, act)
    return f"{leader.name} purged it: {ends}"


def _schema(world: SetWorld, act: Act) -> str:
    leader, topic, name = world.leader(), act["topic"], act["name"]
    if leader is None or topic not in world.oracle.topics:
        return "nobody leads, or no topic"
    schemas = schemas_of(leader.broker, leader.pools, leader.config)
    answer = world.act_on(leader, lambda: [put(schemas, topic, name)()])
    # Until the set was together it is unknown which of them other members have.
    world.oracle.schemas[topic] = world.oracle.schemas.get(topic, {""}) | {name}
    if isinstance(answer, list):
        then(world, leader, act)
        return f"{leader.name} took it"
    return "no answer" if answer is None else f"refused: {answer}"


def compare_schemas(world: SetWorld, leader: Member) -> None:
    """When the set is together all members show the leader's, one of those that were given."""
    for topic in world.oracle.topics:
        found = {one.name: name_at(schemas_of(one.broker, one.pools, one.config), topic) for one in world.members}
        ours, allowed = found[leader.name], world.oracle.schemas.get(topic, {""})
        if ours not in allowed and not world.oracle.is_async:
            raise Violation("a topic has another schema", f"{topic}: {ours!r} at {leader.name}, not {allowed}")
        if set(found.values()) != {ours}:
            raise Violation("a member has another schema", f"{topic}: {found}, {leader.name} leads")
        world.oracle.schemas[topic] = {ours}


# --- retention


def _clean(world: SetWorld, act: Act) -> str:
    """Have all members delete old files at once. away: they are down for hours before."""
    if act["away"]:
        for member in world.members:
            world.hurt(member)
            if member.running:
                member.stop()
        world.oracle.may_go_unread(world.now)
        world.scheduler.now += AWAY_S
        for member in world.members:
            if not member.running:
                world.start(member)
        for message in world.oracle.sent.values():
            if message.kind == "half" and message.end == "":
                message.fate = "doubtful"  # it may be too old to be asked about
        world.run(lambda: world.leader() is not None, 30.0)
    for member in world.members:
        world.ask(member, CLEAN_LOG, {})
    world.pass_time(3.0)
    there = [one for one in world.members if one.role and one.seat.broker is not None]
    return str({one.name: one.broker.store.log.min_offset for one in there})


def _fill(world: SetWorld, act: Act) -> str:
    """The disk of one member is so full for a while that log files go before their time."""
    member = world.who(act["who"])
    if not member.running:
        return "it is down"
    world.oracle.was_full = True
    member.disk.used = int(CAPACITY * 0.93)
    world.pass_time(act["for"])
    world.oracle.may_go_unread(world.now)
    member.disk.used = CAPACITY // 10
    begin = member.broker.store.log.min_offset if member.role and member.seat.broker is not None else -1
    return f"{member.name}, its log begins at {begin}"


def _new_make(chance: random.Random) -> Act:
    return _new_removal(chance) | {
        "queues": chance.choice((QUEUES, QUEUES, MOST_QUEUES)), "send": chance.random() < 0.5,
    }  # fmt: skip


def _new_removal(chance: random.Random) -> Act:
    return new_topic(chance) | {"then": chance.choice(("", "", "all", "none"))}


KINDS = [
    Kind("make", 1, _new_make, _make),
    Kind("delete", 1.5, _new_removal, _delete),
    Kind("purge", 1.5, _new_removal, _purge),
    Kind("schema", 1, lambda chance: _new_removal(chance) | {"name": chance.choice(NAMES)}, _schema),
    Kind("clean", 0.5, lambda chance: {"away": chance.random() < 0.6}, _clean),
    Kind("fill", 0.5, lambda chance: {"who": someone(chance), "for": chance.choice((3.0, 8.0))}, _fill),
]
