"""Clients of a set: producers of all kinds of message, transactions, and a group's offsets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.support.peer import send_fields
from tests.world.oracle import Place, Violation
from tests.world.sets.kind import MOST_QUEUES, QUEUES, TOPICS, Act, Kind, new_topic
from tests.world.sets.oracle import Sent

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

SEND, QUERY_OFFSET, COMMIT_OFFSET, END_TRANSACTION, RECALL = 310, 14, 15, 37, 370
COMMIT, ROLL_BACK, HALF = 8, 12, 4
#: `messageDelayLevel`, its first ones.
LEVELS_S = (1.0, 5.0)
TIMERS_MS = (700, 3000, 8000)
#: The longest of both.
LONGEST_S = 8.0
#: Until then a half message is asked about, and not set aside.
HALF_S = 250.0
#: Answers that promise nothing.
PERHAPS = (1, 2, 10, 11, 12, 14)
GROUP = "CG"


def _send(world: SetWorld, act: Act) -> str:
    leader = world.master(act["topic"]) if act.get("by route") else world.leader()
    if leader is None:
        world.pass_time(1.0)
        return "nobody leads"
    return send_to(world, leader, act, b"%d " % act["n"])


def send_to(world: SetWorld, leader: Member, act: Act, name: bytes) -> str:
    body = name + b"x" * act.get("size", 0)
    kind, delay, text = "plain", 0.0, ""
    if "level" in act:
        kind, delay, text = "delay", LEVELS_S[act["level"] - 1], f"DELAY\x01{act['level']}\x02"
    elif "timer" in act:
        kind, delay, text = "timer", act["timer"] / 1000, f"TIMER_DELAY_MS\x01{act['timer']}\x02"
    elif "half" in act:
        kind, text = "half", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    message = Sent(act["n"], act["topic"], body, world.now, delay, 0, kind)
    world.oracle.send(message)
    world.by_act[act["n"]] = message
    fields = send_fields(act["topic"], act["queue"], text, **({"f": HALF} if kind == "half" else {}))
    answer = world.ask(leader, SEND, fields, body)
    if answer is None or answer.code != 0:
        return "no answer" if answer is None else f"{leader.name} refuses with {answer.code}"
    found = answer.ext_fields
    message.unique, message.handle = found.get("transactionId", ""), found.get("recallHandle", "")
    message.half_offset, message.physical = int(found["queueOffset"]), int(found["msgId"][16:], 16)
    if not world.oracle.is_async:
        world.oracle.topics.setdefault(act["topic"], QUEUES)
    world.oracle.acknowledged(message, Place(act["topic"], int(found["queueId"]), int(found["queueOffset"])))
    return f"{leader.name} {kind} at {found['queueId']}:{found['queueOffset']}"


def _burst(world: SetWorld, act: Act) -> str:
    """Several large ones, so that log files fill up."""
    outcome = ""
    for number in range(act["count"]):
        leader = world.leader()
        if leader is None:
            return f"{outcome} nobody leads"
        outcome = send_to(world, leader, act, b"%d.%d " % (act["n"], number))
    return outcome


def _look(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    return f"{leader.name} {sum(world.read(leader, act['topic'], queue) for queue in range(MOST_QUEUES))}"


# --- what waits


def _waiting(world: SetWorld, act: Act, kind: str) -> Sent | None:
    """The youngest ones are likelier."""
    found = [one for one in world.by_act.values() if one.kind == kind and one.fate == "acknowledged"]
    return found[-1 - act["back"] % len(found)] if found else None


def _recall(world: SetWorld, act: Act) -> str:
    message, leader = _waiting(world, act, "timer"), world.leader()
    if message is None or leader is None or not message.handle:
        return "nothing to take back"
    before = message.end
    message.end = "maybe" if before == "" else before
    fields = {"topic": message.topic, "recallHandle": message.handle, "producerGroup": "PG"}
    answer = world.ask(leader, RECALL, fields)
    if answer is None:
        return "no answer"
    if answer.code != 0:
        if answer.code not in PERHAPS:
            message.end = before
        return f"act {message.act} refused with {answer.code} {answer.remark}"
    # It may have come before, unseen.
    if all(world.read(leader, message.topic, queue) for queue in range(MOST_QUEUES)) and not message.arrived:
        message.end = "taken back"
    return f"act {message.act} taken back at {leader.name}"


def _end(world: SetWorld, act: Act) -> str:
    message, leader = _waiting(world, act, "half"), world.leader()
    if message is None or leader is None:
        return "nothing to end"
    before, epoch = message.end, leader.broker.role.epoch
    message.end = "maybe" if before == "" else before
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": message.half_offset, "commitLogOffset": message.physical,
        "commitOrRollback": act["decision"], "fromTransactionCheck": "false", "msgId": message.unique,
        "transactionId": message.unique,
    }  # fmt: skip
    answer = world.ask(leader, END_TRANSACTION, fields)
    if answer is None:
        return "no answer"
    end = "committed" if act["decision"] == COMMIT else "rolled back"
    if answer.code == 0:
        if before in ("committed", "rolled back") and before != end:
            raise Violation("a transaction is ended twice", f"act {message.act}: {before}, then {end}")
        message.end = end
        return f"act {message.act} {end} at {leader.name}"
    young = world.now - message.sent_at < HALF_S and message.fate == "acknowledged"
    same = leader.serves and leader.broker.role.epoch == epoch and not leader.broker.is_fenced
    same = same and not world.is_behind(leader)
    if before == "" and young and same and answer.code not in PERHAPS[1:] and message.topic in world.oracle.topics:
        raise Violation(
            "a half message that was acknowledged cannot be ended",
            f"act {message.act} at {leader.name}: {answer.code} {answer.remark}",
        )
    return f"act {message.act} refused with {answer.code} {answer.remark}"


# --- offsets


def _commit(world: SetWorld, act: Act) -> str:
    leader, oracle = world.leader(), world.oracle
    topic, queue = act["topic"], act["queue"]
    if leader is None or topic not in oracle.topics:
        return "nobody leads, or no topic"
    low, high = leader.broker.store.offset_range(topic, queue)
    offset = low + int((high - low) * act["where"])
    known = oracle.offsets.get((topic, queue))
    # Until the set was together it is unknown which of them other members have.
    oracle.offsets[topic, queue] = (known or {-1}) | {offset}
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "commitOffset": offset}
    answer = world.ask(leader, COMMIT_OFFSET, fields)
    return "no answer" if answer is None else f"{leader.name} {answer.code} {offset} of {low}-{high}"


def _offset(world: SetWorld, act: Act) -> str:
    leader, topic, queue = world.leader(), act["topic"], act["queue"]
    if leader is None or topic not in world.oracle.topics:
        return "nobody leads, or no topic"
    found = ask_offset(world, leader, topic, queue)
    return f"{leader.name} {found}"


def ask_offset(world: SetWorld, leader: Member, topic: str, queue: int) -> int | None:
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
    answer = world.ask(leader, QUERY_OFFSET, fields)
    if answer is None or not leader.serves or answer.code not in (0, 22):
        return None
    found = int(answer.ext_fields["offset"]) if answer.code == 0 else -1
    world.oracle.offset(topic, queue, found, leader.broker.store.max_offset(topic, queue), leader.name)
    return found


# --- thinking up


def _queue(chance: random.Random) -> int:
    return chance.randrange(QUEUES if chance.random() < 0.9 else MOST_QUEUES)


def _new_send(chance: random.Random) -> Act:
    act: Act = {"topic": chance.choice(TOPICS), "queue": _queue(chance), "pick": chance.randrange(2)}
    kind = chance.random()
    if kind < 0.15:
        act["level"] = chance.randint(1, len(LEVELS_S))
    elif kind < 0.3:
        act["timer"] = chance.choice(TIMERS_MS)
    elif kind < 0.42:
        act["half"] = True
    if chance.random() < 0.2:
        act["size"] = chance.choice((300, 2000, 9000))
    if chance.random() < 0.3:
        act["by route"] = True
    return act


def _new_burst(chance: random.Random) -> Act:
    return {
        "topic": chance.choice(TOPICS), "queue": chance.randrange(QUEUES), "pick": chance.randrange(2),
        "size": chance.choice((9000, 14_000)), "count": chance.choice((3, 6, 9)),
    }  # fmt: skip


def _new_queue(chance: random.Random) -> Act:
    return new_topic(chance) | {"queue": chance.randrange(QUEUES)}


KINDS = [
    Kind("send", 30, _new_send, _send),
    Kind("burst", 1.5, _new_burst, _burst),
    Kind("look", 5, new_topic, _look),
    Kind("recall", 2.5, lambda chance: {"back": int(chance.expovariate(0.7)), "pick": chance.randrange(2)}, _recall),
    Kind(
        "end",
        3.5,
        lambda chance: {
            "back": int(chance.expovariate(0.7)), "pick": chance.randrange(2),
            "decision": chance.choice((COMMIT, COMMIT, ROLL_BACK)),
        },
        _end,
    ),
    Kind("commit", 4, lambda chance: _new_queue(chance) | {"where": round(chance.random(), 3)}, _commit),
    Kind("offset", 3, _new_queue, _offset),
]  # fmt: skip
