"""Consumers whose groups filter: what a client told last counts, whatever its clock shows.

A subscription has a version, its client's clock in ms. Pulls here name no expression, so the broker takes the group's.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.actors.members import HEART_BEAT, SIGN_OFF
from tests.world.actors.readers import FILTERS, judge_filter
from tests.world.machine import Peer

if TYPE_CHECKING:
    from tests.world.world import World

GROUP = "SUB"
#: How far the client's clock is ahead when it subscribes first, before it is set right.
AHEAD_MS = (0, 1, 3_600_000, 86_400_000)


def _subscribe(world: World, act: Act) -> str:
    """A client subscribes in one way, then in another one, and pulls."""
    topic, queue, version = act["topic"], act["queue"], world.wall_ms
    if world.has_faults or queue >= world.oracle.topics.get(topic, 0):
        return "not now"
    if not _beat(world, world.peer(), topic, act["first"], version + act["ahead"]):
        return "no answer"
    if act["then"]:
        world.kill(act["then"])
        world.look()
    if world.machine.killed or world.has_faults or not _beat(world, world.peer(), topic, act["filter"], version):
        return "no answer"
    outcome = judge_filter(world, act, {"consumerGroup": GROUP, "sysFlag": 0, "subVersion": version})
    if not world.machine.killed:
        world.ask(SIGN_OFF, {"clientID": "sub", "consumerGroup": GROUP}, b"")
    return outcome


def _beat(world: World, peer: Peer, topic: str, name: str, version: int) -> bool:
    """Tell the broker of the filter of this name."""
    tags = name.split(" || ") if FILTERS[name][0] == "TAG" and name != "*" else []
    wanted = {
        "topic": topic, "subString": name, "expressionType": FILTERS[name][0], "subVersion": version,
        "tagsSet": tags, "codeSet": [_java_hash(tag) for tag in tags],
    }  # fmt: skip
    member = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [wanted],
    }  # fmt: skip
    body = json.dumps({"clientID": "sub", "producerDataSet": [], "consumerDataSet": [member]}).encode()
    answer = world.ask(HEART_BEAT, {}, body, peer)
    return answer is not None and answer.code == 0


def _java_hash(text: str) -> int:
    value = 0
    for letter in text:
        value = (value * 31 + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _make(chance: random.Random, before: list[Act]) -> Act:
    first, then = chance.sample(sorted(FILTERS), 2)
    return {
        "topic": chance.choice(TOPICS[:2]), "queue": chance.randrange(4), "first": first, "filter": then, "many": 32,
        "ahead": chance.choice(AHEAD_MS), "then": chance.choice(("", "", "", "all")),
    }  # fmt: skip


KINDS = [Kind("consumers", "subscribe", 1.5, _make, _subscribe)]
