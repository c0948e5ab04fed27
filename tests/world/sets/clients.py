"""Clients of a set: producers of all kinds of message, transactions, and a group's offsets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.protocol.command import RemotingCommand
from tests.support.peer import send_fields
from tests.world.actors.readers import offsets_in
from tests.world.oracle import Place, Violation
from tests.world.sets.kind import MOST_QUEUES, QUEUES, TOPICS, Act, Kind, new_topic
from tests.world.sets.oracle import Sent

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

SEND, QUERY_OFFSET, COMMIT_OFFSET, END_TRANSACTION, RECALL = 310, 14, 15, 37, 370
RESET_OFFSET, MAKE_GROUP = 222, 200
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
#: Members copy tables each second, and save offsets each five.
COPIED_S, TABLES_S = 7.0, 2.0


def _send(world: SetWorld, act: Act) -> str:
    leader = world.master(act["topic"]) if act.get("by route") else world.leader()
    if leader is None:
        world.pass_time(0.3)
        return "nobody leads"
    return send_to(world, leader, act, b"%d " % act["n"])


def send_to(world: SetWorld, leader: Member, act: Act, name: bytes) -> str:
    message, fields = new_message(world, act, name)
    return answered(world, leader, message, world.ask(leader, SEND, fields, message.body))


def new_message(world: SetWorld, act: Act, name: bytes) -> tuple[Sent, dict[str, object]]:
    """A message that is sent now, and the fields of its request."""
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
    return message, send_fields(act["topic"], act["queue"], text, **({"f": HALF} if kind == "half" else {}))


def answered(world: SetWorld, leader: Member, message: Sent, answer: RemotingCommand | None) -> str:
    if answer is None or answer.code != 0:
        return "no answer" if answer is None else f"{leader.name} refuses with {answer.code}"
    found, topic = answer.ext_fields, message.topic
    message.unique, message.handle = found.get("transactionId", ""), found.get("recallHandle", "")
    message.half_offset, message.physical = int(found["queueOffset"]), int(found["msgId"][16:], 16)
    if not world.oracle.is_async:
        world.oracle.topics.setdefault(topic, QUEUES)
    world.oracle.acknowledged(message, Place(topic, int(found["queueId"]), int(found["queueOffset"])))
    return f"{leader.name} {message.kind} at {found['queueId']}:{found['queueOffset']}"


def _wakes(world: SetWorld, act: Act) -> str:
    """A leader stands still until another one leads and has taken messages; then it goes on, and finds others that were
    sent to it meanwhile."""
    old = world.leader()
    if old is None:
        return "nobody leads"
    world.hurt(old, act["for"])
    world.scheduler.stand_still(old, act["for"])
    until = world.now + act["for"]

    def another() -> Member | None:
        return next((member for member in world.members if member is not old and member.serves), None)

    if not world.run(lambda: another() is not None, act["for"] - 0.5) or (new := another()) is None:
        return f"{old.name} stands still, and no other leads"
    acts = [{"n": act["n"], "topic": act["topic"], "queue": queue} for queue in range(QUEUES)]
    for one in acts:
        send_to(world, new, one, b"%d.%d " % (act["n"], one["queue"]))
    if old.running and world.now < until:
        world.pass_time(until - world.now - 0.001)
    asked = [new_message(world, one, b"%d.%d to the old one " % (act["n"], one["queue"])) for one in acts]
    answers = world.ask_all(old, [(SEND, fields, message.body) for message, fields in asked])
    told = [answered(world, old, message, answer) for (message, _), answer in zip(asked, answers, strict=True)]
    return f"{new.name} led meanwhile; {', '.join(told)}"


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
    world.oracle.offset(topic, queue, found, leader.broker.store.offset_range(topic, queue), leader.name)
    return found


def _move(world: SetWorld, act: Act) -> str:
    """An administrator moves the group to where a topic's queues begin or end."""
    leader, oracle, topic = world.leader(), world.oracle, act["topic"]
    if leader is None or topic not in oracle.topics:
        return "nobody leads, or no topic"
    made = world.ask(leader, MAKE_GROUP, {}, b'{"groupName":"%b"}' % GROUP.encode())
    if made is not None and made.code == 0 and not oracle.is_async:
        oracle.groups.add(GROUP)
    fields = {"topic": topic, "group": GROUP, "timestamp": act["to"], "isForce": "true"}
    spans = {queue: leader.broker.store.offset_range(topic, queue) for queue in range(MOST_QUEUES)}
    answer = world.ask(leader, RESET_OFFSET, fields)
    moved = {} if answer is None or answer.code != 0 else offsets_in(answer.body)
    for queue in range(MOST_QUEUES):
        if queue in moved:
            before = oracle.offsets.get((topic, queue), {-1}) if oracle.is_async else set()
            oracle.offsets[topic, queue] = before | {moved[queue]}
        elif answer is None or "here, and not all members" in (answer.remark or ""):  # it is unknown where to
            low, high = spans[queue]
            oracle.offsets[topic, queue] = oracle.offsets.get((topic, queue), {-1}) | {low, *range(high, high + 100)}
    if answer is None or answer.code != 0:
        return "no answer" if answer is None else f"refused with {answer.code} {answer.remark}"
    then(world, leader, act)
    told = _come_back(world, leader, topic) if act.get("back") and leader.serves else ""
    return f"{leader.name} moved it: {moved}{told}"


def _come_back(world: SetWorld, mover: Member, topic: str) -> str:
    """The leader that moved the group gives its office up, the group goes on at another one, which gives it up, too."""
    world.pass_time(TABLES_S)
    _give_up(world, mover)
    other = world.leader()
    if other is None or other is mover:
        return "; no other leads"
    low, high = other.broker.store.offset_range(topic, 0)
    offset = low if ask_offset(world, other, topic, 0) == high else high
    world.oracle.offsets[topic, 0] = world.oracle.offsets.get((topic, 0), {-1}) | {offset}
    world.ask(other, COMMIT_OFFSET, {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "commitOffset": offset})
    world.pass_time(COPIED_S)
    if world.together() is not other or ask_offset(world, other, topic, 0) != offset:
        return f"; {other.name} led"
    world.oracle.offsets[topic, 0] = {offset}
    _give_up(world, other)
    last = world.leader()
    found = None if last is None else ask_offset(world, last, topic, 0)
    return f"; {other.name} led, the group went on at {offset}; then {last and last.name}, at {found}"


def _give_up(world: SetWorld, leader: Member) -> None:
    """A leader ends as it should and starts again; another one leads, if it can."""
    world.hurt(leader)
    if leader.running:
        leader.stop()
    world.run(lambda: any(member.serves for member in world.members), 12.0)
    if not leader.running:
        world.start(leader)
    world.run(lambda: world.together() is not None, 12.0)


def then(world: SetWorld, leader: Member, act: Act) -> None:
    """The leader dies as soon as it has answered."""
    if act.get("then") and leader.running:
        world.hurt(leader)
        leader.kill(act["then"], world.chance)


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
    Kind("wake", 0.7, lambda chance: new_topic(chance) | {"for": chance.choice((12.0, 16.0))}, _wakes),
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
    Kind(
        "move",
        1.5,
        lambda chance: (
            new_topic(chance)
            | {
                "to": chance.choice((0, -1)),
                "then": chance.choice(("", "", "all", "none")),
                "back": chance.random() < 0.3,
            }
        ),
        _move,
    ),
]  # fmt: skip
