"""Producers: messages of every kind, alone, many at once, in batches; they take back, commit and roll back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from appliance.engine.protocol.command import RemotingCommand
from tests.support.batches import encode_member
from tests.support.peer import send_fields
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

SEND, SEND_BATCH, END_TRANSACTION, RECALL = 310, 320, 37, 370
COMMIT, ROLL_BACK = 8, 12
#: `messageDelayLevel`, its first ones.
LEVELS_S = (1, 5, 10, 30)
#: Keys that repeat, with blanks; two of them begin alike.
UNIQUE_KEYS = ("order", "order 17", "order 18", "0A0000011234ABCD0001")
TAGS = ("x", "y", "x y")
#: `KEYS`: several, with blanks between.
KEYS = ("k1", "k2", "k1 k3", "k3 k2 k4")
#: Names that only a broker should write, which a producer may have got from a message that it consumed.
BROKERS_NAMES = (
    "TIMER_ROLL_TIMES", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "ROCKETBOX_TIMER_FIRST", "ROCKETBOX_TIMER_OF",
    "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "ROCKETBOX_FIRST_HALF", "ROCKETBOX_WAITED_MS",
    "ROCKETBOX_REPLAYED",
)  # fmt: skip
#: Age in s from which the broker may have set aside a half message that was neither committed nor rolled back.
HALF_S = 250.0


def _topic(chance: random.Random) -> str:
    return chance.choices(TOPICS, (5, 3, 1))[0]


def one(chance: random.Random) -> Act:
    """A message, as an act says it."""
    said: Act = {"topic": _topic(chance), "queue": chance.randrange(4)}
    kind = chance.choices(("plain", "delay", "timer", "deliver", "half"), (10, 2, 3, 2, 2))[0]
    if kind == "delay":
        said["level"] = chance.randint(1, len(LEVELS_S))
    elif kind in ("timer", "deliver"):
        said[kind] = chance.choice((1, 700, 1000, 2500, 5000, 20_000, 40_000, 600_000, 1_800_000))
    elif kind == "half":
        said["half"] = True
    if chance.random() < 0.3:
        said["size"] = chance.choice((1, 300, 2000, 9000))
    if chance.random() < 0.2:
        said["key"] = chance.choice(UNIQUE_KEYS)
    if chance.random() < 0.4:
        said["number"] = chance.randrange(10)
    if chance.random() < 0.4:
        said["tag"] = chance.choice(TAGS)
    if chance.random() < 0.4:
        said["keys"] = chance.choice(KEYS)
    if chance.random() < 0.15:
        said["odd"] = chance.choice(("nul", "blank", "umlaut", "brokers"))
    return said


def new_message(world: World, act: Act, said: Act, index: int) -> tuple[Message, str]:
    """A new message and its properties as a text. Bodies are all different: the oracle knows messages by them."""
    body = b"%d.%d " % (act["n"], index)
    if said.get("odd") == "nul":
        body += b"\0" * 40
    body += b"x" * said.get("size", 0)
    properties: dict[str, str] = {}
    marks: dict[str, str] = {}
    kind, due = "plain", 0.0
    if "key" in said:
        properties["UNIQ_KEY"] = said["key"]
    if "number" in said:
        properties["n"] = str(said["number"])
    if "tag" in said:
        properties["TAGS"] = said["tag"]
    if "keys" in said:
        properties["KEYS"] = said["keys"]
    if said.get("odd") == "blank":
        properties |= {"KEYS": "a  b ", "mine": " "}
    if said.get("odd") == "umlaut":
        properties |= {"TAGS": "Größe", "KEYS": "日本"}
    if said.get("odd") == "brokers":
        name = BROKERS_NAMES[act["n"] % len(BROKERS_NAMES)]
        marks[name] = ("1", "0:0:1", "17", "0")[act["n"] % 4]
    if "level" in said:
        kind, due = "delay", LEVELS_S[said["level"] - 1]
        marks["DELAY"] = str(said["level"])
    elif "timer" in said:
        kind, due = "timer", said["timer"] / 1000
        marks["TIMER_DELAY_MS"] = str(said["timer"])
    elif "deliver" in said:
        # A time of day, often the same one for several.
        at = (world.wall_ms + said["deliver"] + 999) // 1000 * 1000
        kind, due = "timer", (at - world.scheduler.wall_ms) / 1000
        marks["TIMER_DELIVER_MS"] = str(at)
    elif "half" in said:
        kind = "half"
        marks |= {"TRAN_MSG": "true", "PGROUP": "PG"}
    now = world.now
    message = Message(act["n"], said["topic"], body, kind, properties, now, now + due if due else 0.0)
    message.names_time = "deliver" in said
    text = "".join(f"{name}\x01{value}\x02" for name, value in (properties | marks).items())
    return message, text


def request_of(message: Message, said: Act, text: str) -> tuple[int, dict[str, Any], bytes]:
    fields = send_fields(message.topic, said["queue"], text)
    if message.kind == "half":
        fields["f"] = 4
    return SEND, fields, message.body


def answered(world: World, message: Message, answer: RemotingCommand | None) -> str:
    if answer is None:
        return "no answer"
    if answer.code == 0 and world.machine.log_failed:
        raise Violation("a broken log acknowledges", f"act {message.act}")
    if answer.code != 0:
        # 10, 11 and 12 say that it was stored and that nothing is promised; 14 and others, that it was not.
        message.state = "unknown" if answer.code in (10, 11, 12, 1, 14, 2) else "refused"
        return f"refused with {answer.code} {(answer.remark or '')[:60]}"
    fields = answer.ext_fields
    queue, offset = int(fields["queueId"]), int(fields["queueOffset"])
    physical = int(fields["msgId"].split(",")[0][16:], 16)
    message.unique = fields.get("transactionId", "")
    message.handle = fields.get("recallHandle", "")
    if message.topic not in world.oracle.topics:  # made by this send
        config = world.machine.broker.topics.get(message.topic)
        if config is not None:
            world.oracle.topics[message.topic] = config.read_queue_nums
            world.oracle.made_by_send[message.topic] = world.now
    world.oracle.acknowledged(message, queue, offset, physical, world.now)
    return f"at {queue}:{offset}"


def _send(world: World, act: Act) -> str:
    message, text = new_message(world, act, act, 0)
    world.oracle.sent(message)
    world.sent[act["n"]] = [message]
    unsure(world, message.topic)
    answer = world.ask(*request_of(message, act, text))
    sure(world, message.topic, answer)
    return f"{message.kind} {answered(world, message, answer)}"


def unsure(world: World, topic: str) -> None:
    """Before a send that may make its topic."""
    if topic not in world.oracle.topics:
        world.oracle.unsure.add(topic)


def sure(world: World, topic: str, answer: RemotingCommand | None) -> None:
    if answer is not None:
        world.oracle.unsure.discard(topic)


def _make_burst(chance: random.Random, before: list[Act]) -> Act:
    return {"messages": [one(chance) for _ in range(chance.choice((3, 6, 12)))]}


def burst(world: World, act: Act) -> str:
    messages = [new_message(world, act, said, index) for index, said in enumerate(act["messages"])]
    for message, _ in messages:
        world.oracle.sent(message)
        unsure(world, message.topic)
    world.sent[act["n"]] = [message for message, _ in messages]
    answers = world.ask_all(
        [request_of(message, said, text) for (message, text), said in zip(messages, act["messages"], strict=True)]
    )
    told = []
    for (message, _), answer in zip(messages, answers, strict=True):
        sure(world, message.topic, answer)
        told.append(answered(world, message, answer))
    return ", ".join(told)


def _make_batch(chance: random.Random, before: list[Act]) -> Act:
    return {"topic": _topic(chance), "queue": chance.randrange(4), "count": chance.randint(1, 6)}


def _batch(world: World, act: Act) -> str:
    messages = [new_message(world, act, {"topic": act["topic"]}, index)[0] for index in range(act["count"])]
    for message in messages:
        world.oracle.sent(message)
    world.sent[act["n"]] = messages
    unsure(world, act["topic"])
    body = b"".join(encode_member(message.body, b"a\x01b\x02") for message in messages)
    answer = world.ask(SEND_BATCH, send_fields(act["topic"], act["queue"], m="true"), body)
    sure(world, act["topic"], answer)
    if answer is None or answer.code != 0:
        for message in messages:
            answered(world, message, answer)
        return "no answer" if answer is None else f"refused with {answer.code}"
    queue, offset = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
    ids = answer.ext_fields["msgId"].split(",")
    if len(ids) != len(messages):
        raise Violation("a batch is answered with other ids", f"{len(ids)} of {len(messages)}")
    config = world.machine.broker.topics.get(act["topic"])
    if act["topic"] not in world.oracle.topics and config is not None:
        world.oracle.topics[act["topic"]] = config.read_queue_nums
        world.oracle.made_by_send[act["topic"]] = world.now
    for index, (message, one) in enumerate(zip(messages, ids, strict=True)):
        world.oracle.acknowledged(message, queue, offset + index, int(one[16:], 16), world.now)
    return f"at {queue}:{offset}"


def _make_twins(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": _topic(chance), "queue": chance.randrange(4), "key": chance.choice(UNIQUE_KEYS),
        "deliver": chance.choice((3000, 10_000, 40_000)), "count": 2,
    }  # fmt: skip


def _twins(world: World, act: Act) -> str:
    """One message object, sent twice: the same key, topic and time."""
    told: list[str] = []
    first_text = ""
    world.sent[act["n"]] = []
    for index in range(act["count"]):
        message, text = new_message(world, act, act, index)
        if index:  # the time that the first one named
            first = world.sent[act["n"]][0]
            text = first_text
            message.due_s = first.due_s
        else:
            first_text = text
        world.oracle.sent(message)
        world.sent[act["n"]].append(message)
        unsure(world, message.topic)
        answer = world.ask(*request_of(message, act, text))
        sure(world, message.topic, answer)
        told.append(answered(world, message, answer))
        if world.machine.killed:
            break
    return ", ".join(told)


def earlier(chance: random.Random, before: list[Act], wanted: str) -> int:
    """An earlier act that sent such messages, the younger the likelier; -1 without one."""
    for act in reversed(before[-200:]):
        found = any(name in said for said in (act, *act.get("messages", ())) for name in wanted.split())
        if found and "act" in act and act["act"] in ("send", "burst", "twins") and chance.random() < 0.4:
            return int(act["n"])
    return -1


def _make_recall(chance: random.Random, before: list[Act]) -> Act:
    return {"of": earlier(chance, before, "timer deliver"), "index": chance.randrange(12)}


def pick(world: World, act: Act, kind: str) -> Message | None:
    """Return a message of this kind that an earlier act sent."""
    found = [one for one in world.sent.get(act["of"], ()) if one.kind == kind and one.state == "acknowledged"]
    return found[act["index"] % len(found)] if found else None


def _recall(world: World, act: Act) -> str:
    message = pick(world, act, "timer")
    if message is None or not message.handle:
        return "nothing to take back"
    twins = [
        one
        for one in world.oracle.messages
        if one.handle == message.handle and one.topic == message.topic and one.state != "refused"
    ]
    came = {one.act: len(one.arrived) for one in twins}
    before = [(one, one.fate) for one in twins if not one.arrived]
    for one, fate in before:
        if fate == "":
            one.fate = "maybe"
    answer = world.ask(RECALL, {"topic": message.topic, "recallHandle": message.handle, "producerGroup": "PG"})
    if answer is None:
        return "no answer"
    world.see_arrivals()
    if answer.code == 0:
        if message.arrived and came[message.act]:
            return "taken back, though it had come"
        for one, _ in before:
            if not one.arrived:
                one.fate = "recalled"
        return "taken back"
    for one, fate in before:
        if one.fate == "maybe" and answer.code not in (1, 10, 11, 12, 14):
            one.fate = fate
    if "delivered" in (answer.remark or "") and not message.arrived and not message.fate:
        world.oracle.too_late[act["n"]] = (message, world.now)
    return f"refused with {answer.code} {answer.remark}"


def _make_regret(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": _topic(chance), "queue": chance.randrange(4), "timer": chance.choice((15_000, 40_000, 600_000)),
        "after": chance.choice((0.0, 0.02, 1.5)), "index": 0,
    }  # fmt: skip


def _regret(world: World, act: Act) -> str:
    """A producer changes its mind: it takes back what it has only just sent."""
    sent = _send(world, act)
    if not world.machine.killed:
        world.pass_time(act["after"])
    if world.machine.killed:
        return sent
    return f"{sent}, {_recall(world, act | {'of': act['n']})}"


def _make_end(chance: random.Random, before: list[Act]) -> Act:
    return {
        "of": earlier(chance, before, "half"), "index": chance.randrange(12),
        "decision": chance.choice((COMMIT, COMMIT, ROLL_BACK)),
    }  # fmt: skip


def _end(world: World, act: Act) -> str:
    message = pick(world, act, "half")
    if message is None:
        return "nothing to decide"
    commits = act["decision"] == COMMIT
    fate = message.fate
    if fate == "":
        message.fate = "maybe"
        message.due_s = world.now
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": message.half_offset, "commitLogOffset": message.physical,
        "commitOrRollback": act["decision"], "fromTransactionCheck": "false", "msgId": message.unique,
        "transactionId": message.unique,
    }  # fmt: skip
    answer = world.ask(END_TRANSACTION, fields)
    if answer is None:
        return "no answer"
    if answer.code == 0:
        if fate in ("committed", "rolled back") and fate != ("committed" if commits else "rolled back"):
            raise Violation("a transaction is ended twice", f"act {message.act}: {fate}, then {act['decision']}")
        message.fate = "committed" if commits else "rolled back"
        message.due_s = message.decided_at = world.now
        return message.fate
    if fate == "" and answer.code not in (2, 10, 11, 12, 14) and not world.waits_for_slave:
        young = world.now - message.sent_at < HALF_S and not message.may_be_lost
        there = message.topic in world.oracle.topics
        if young and there:  # though its log file may have gone: then it was stored again
            raise Violation(
                "a half message that was acknowledged cannot be ended",
                f"act {message.act}: {answer.code} {answer.remark}",
            )
    if fate == "":
        message.fate = "maybe" if answer.code in (1, 2, 10, 11, 12, 14) else ""
    return f"refused with {answer.code} {answer.remark}"


KINDS = [
    Kind("producers", "send", 30, lambda chance, before: one(chance), _send),
    Kind("producers", "burst", 5, _make_burst, burst),
    Kind("producers", "batch", 3, _make_batch, _batch),
    Kind("producers", "twins", 1, _make_twins, _twins),
    Kind("producers", "recall", 4, _make_recall, _recall),
    Kind("producers", "regret", 1.5, _make_regret, _regret),
    Kind("producers", "end", 4, _make_end, _end),
]
