"""Administrators: they make topics, give them more queues or fewer, delete them, and touch what is the broker's own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.oracle import Violation

if TYPE_CHECKING:
    from tests.world.world import World

CREATE_TOPIC, DELETE_TOPIC, RESET_OFFSET, CLONE_OFFSET = 17, 215, 222, 314
CHECK_GROUP, HALF_TOPIC = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"


def topic_fields(topic: str, count: int) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": count, "writeQueueNums": count, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip


def make(world: World, act: Act) -> str:
    topic, count = act["topic"], act["queues"]
    fields = topic_fields(topic, count)
    world.oracle.unsure.add(topic)
    answer = world.ask(CREATE_TOPIC, fields)
    if answer is None:
        return "no answer"
    if answer.code != 0:
        if world.has_faults:  # it could not be saved; until a start it is unknown what is
            world.oracle.narrowed(topic)
            world.learn_topics()
            world.oracle.doubtful.add(topic)
            return f"refused with {answer.code}"
        raise Violation("a topic is not made", f"{act}: {answer.code} {answer.remark}")
    world.oracle.unsure.discard(topic)
    if count < world.oracle.topics.get(topic, 0):
        world.oracle.narrowed(topic)
    world.oracle.topics[topic] = count
    return "made"


def _delete(world: World, act: Act) -> str:
    topic = act["topic"]
    world.see_arrivals()
    if world.machine.killed:
        return ""
    world.oracle.unsure.add(topic)
    answer = world.ask(DELETE_TOPIC, {"topic": topic})
    if answer is None:
        world.oracle.deleted(topic, False)
        return "no answer"
    if answer.code != 0 and world.has_faults:
        world.oracle.deleted(topic, False)
        world.learn_topics()
        world.oracle.doubtful.add(topic)
        return f"refused with {answer.code}"
    world.oracle.unsure.discard(topic)
    if answer.code != 0:
        raise Violation("a topic is not deleted", f"{act}: {answer.code} {answer.remark}")
    world.oracle.deleted(topic, True)
    return "deleted"


def _make_system(chance: random.Random, before: list[Act]) -> Act:
    return {"way": chance.choice(("reset", "reset to an offset", "clone"))}


def _system(world: World, act: Act) -> str:
    """Offsets that are the broker's own."""
    if act["way"] == "clone":
        fields = {"srcGroup": "CG", "destGroup": CHECK_GROUP, "topic": HALF_TOPIC, "offline": "true"}
        answer = world.ask(CLONE_OFFSET, fields)
    else:
        fields = {"topic": HALF_TOPIC, "group": CHECK_GROUP, "timestamp": -1, "isForce": "true"}
        if act["way"] != "reset":
            fields |= {"queueId": 0, "offset": world.machine.broker.store.max_offset(HALF_TOPIC, 0)}
        answer = world.ask(RESET_OFFSET, fields)
    return "no answer" if answer is None else f"{answer.code} {answer.remark}"


KINDS = [
    Kind(
        "administrators",
        "make",
        2,
        lambda chance, before: {"topic": chance.choice(TOPICS), "queues": chance.randint(1, 4)},
        make,
    ),
    Kind("administrators", "delete", 1.5, lambda chance, before: {"topic": chance.choice(TOPICS)}, _delete),
    Kind("administrators", "system", 0.5, _make_system, _system),
]
