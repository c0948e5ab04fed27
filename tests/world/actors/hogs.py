"""Hogs: each uses up one bounded resource, and the other clients are served nevertheless. Two administrators at
once."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING

from tests.support.peer import pull_fields, send_fields
from tests.world.actors.administrators import CREATE_TOPIC, DELETE_TOPIC, topic_fields
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

PULL, QUERY, COMMIT_OFFSET, HEART_BEAT, SEND, TOPICS_OF, LOCK, UNLOCK, MAKE_GROUP = 11, 12, 15, 34, 310, 21, 41, 42, 200
WAYS = ("polls", "partial", "deaf", "groups", "queries", "beats", "lists", "leases")
#: Number of requests or connections of a hog.
TIMES = {"polls": 200, "partial": 4, "deaf": 400, "groups": 300, "queries": 60, "beats": 40, "lists": 60, "leases": 20}
#: Other clients get their answers within this time.
BESIDE_S = 5.0


def _hog(world: World, act: Act) -> str:
    way, topic = act["way"], act["topic"]
    hog = world.machine.connect()
    high = world.machine.broker.store.max_offset(topic, 0)
    for number in range(TIMES[way]):
        if hog.closed or world.machine.killed:
            break
        if way == "partial":
            other = world.machine.connect()
            other.sock.send(struct.pack(">ii", 8 << 20, 100) + b'{"code":310' + b" " * 60_000)
            world.machine.loop._poller.signal.set()
        elif way == "polls":
            fields = pull_fields(topic, 0, high, consumerGroup="HOG", sysFlag=6, suspendTimeoutMillis=15_000)
            hog.ask(PULL, fields)
        elif way == "deaf":
            hog.ask(PULL, pull_fields(topic, number % 4, 0, consumerGroup="HOG"))
        elif way == "groups":
            fields = {"consumerGroup": f"HOG{act['n']}.{number}", "topic": topic, "queueId": 0, "commitOffset": 0}
            hog.ask(COMMIT_OFFSET, fields)
        elif way == "queries":
            fields = {"topic": topic, "key": f"k{number}", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
            hog.ask(QUERY, fields)
        elif way == "lists":
            hog.ask(TOPICS_OF, {})
        elif way == "leases":
            world.ask(MAKE_GROUP, {}, b'{"groupName":"HOG%d"}' % number)
            hog.ask(LOCK, {}, _lock_body(f"HOG{number}", "hog", TOPICS))
        else:
            body = {
                "clientID": f"hog{number}",
                "producerDataSet": [{"groupName": f"HOG{number}"}],
                "consumerDataSet": [],
            }
            hog.ask(HEART_BEAT, {}, json.dumps(body).encode())
    hog.deaf = True
    began = world.now
    message = Message(act["n"], topic, b"%d.0 beside" % act["n"], "plain", {}, world.now)
    is_there = topic in world.oracle.topics
    if is_there:
        world.oracle.sent(message)
        answer = world.ask(SEND, send_fields(topic, 0), message.body)
        if answer is not None and answer.code == 0:
            offset, physical = int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16)
            world.oracle.acknowledged(message, int(answer.ext_fields["queueId"]), offset, physical, world.now)
    if not world.machine.killed:
        world.ask(PULL, pull_fields(topic, 0, 0, consumerGroup="WORLD"))
    if world.now - began > BESIDE_S and not world.machine.killed:
        raise Violation("beside a hog others wait", f"{act}: {world.now - began:.1f} s")
    if way == "leases" and is_there and not world.machine.killed:
        body = _lock_body("HOG", "beside", (topic,))
        answer = world.ask(LOCK, {}, body)
        if answer is not None and (answer.code != 0 or not json.loads(answer.body)["lockOKMQSet"]):
            raise Violation("beside a hog nobody gets a queue in order", f"{act}: {answer.code} {answer.remark}")
        if not world.machine.killed:
            world.ask(UNLOCK, {}, body)
    if not world.machine.killed and not act["stays"]:
        world.machine.hang_up(hog)
    return "stays" if act["stays"] else ""


def _lock_body(group: str, who: str, topics: tuple[str, ...]) -> bytes:
    rows = [{"topic": topic, "brokerName": "broker-a", "queueId": queue} for topic in topics for queue in range(4)]
    return json.dumps({"consumerGroup": group, "clientId": who, "mqSet": rows}).encode()


def _make_pair(chance: random.Random, before: list[Act]) -> Act:
    ways = [chance.choice(("make", "delete", "make", "send")) for _ in range(2)]
    return {"topic": chance.choice(TOPICS), "ways": ways, "queues": [chance.randint(1, 4), chance.randint(1, 4)]}


def _pair(world: World, act: Act) -> str:
    """Two acts on one topic at once: one comes first, whichever."""
    topic, oracle = act["topic"], world.oracle
    world.see_arrivals()
    if world.machine.killed:
        return ""
    before = oracle.topics.get(topic)
    questions: list[tuple[int, dict[str, object], bytes]] = []
    messages: list[Message] = []
    for index, (way, queues) in enumerate(zip(act["ways"], act["queues"], strict=True)):
        if way == "make":
            questions.append((CREATE_TOPIC, topic_fields(topic, queues), b""))
        elif way == "delete":
            questions.append((DELETE_TOPIC, {"topic": topic}, b""))
        else:
            message = Message(act["n"], topic, b"%d.%d at once" % (act["n"], index), "plain", {}, world.now)
            message.may_be_lost = True  # it may have come before the topic was deleted
            oracle.sent(message)
            messages.append(message)
            questions.append((SEND, send_fields(topic, 0), message.body))
    oracle.unsure.add(topic)
    answers = world.ask_all(questions)
    deletes = "delete" in act["ways"]
    if any(answer is None for answer in answers):
        if deletes:
            oracle.deleted(topic, False)
        return "no answer"
    codes = [answer.code for answer in answers if answer is not None]
    if world.machine.killed:
        return "no answer"
    refused = [code for way, code in zip(act["ways"], codes, strict=True) if way != "send" and code != 0]
    if refused and not world.has_faults:
        raise Violation("of two administrators one is refused", f"{act}: {codes}")
    if deletes:
        oracle.deleted(topic, True)
        oracle.narrowed(topic)
    oracle.unsure.discard(topic)
    config = world.machine.broker.topics.get(topic)
    made = [queues for way, queues in zip(act["ways"], act["queues"], strict=True) if way == "make"]
    if config is None:
        if before is not None and not deletes:
            raise Violation("two administrators leave what neither wanted", f"{act}: no topic")
        oracle.topics.pop(topic, None)
        return "no topic"
    count = config.read_queue_nums
    if made and not deletes and count not in made:
        raise Violation("two administrators leave what neither wanted", f"{act}: {count} queues")
    if before is not None and count < before:
        oracle.narrowed(topic)
    if "send" in act["ways"] and topic not in oracle.topics:
        oracle.made_by_send[topic] = world.now
    oracle.topics[topic] = count
    return f"{count} queues"


KINDS = [
    Kind(
        "hogs",
        "hog",
        0.7,
        lambda chance, before: {
            "way": chance.choice(WAYS),
            "topic": chance.choice(TOPICS[:2]),
            "stays": chance.random() < 0.5,
        },
        _hog,
    ),
    Kind("administrators", "pair", 1.5, _make_pair, _pair),
]
