"""Producers of transactions that are asked what became of them: they decide, or say nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.record import decode_record
from tests.world.actors.kind import Act, Kind
from tests.world.actors.producers import COMMIT, END_TRANSACTION, ROLL_BACK
from tests.world.machine import Peer
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

HEART_BEAT, CHECK = 34, 39
#: `transactionTimeOut` and `transactionCheckInterval`, and a little.
ASKED_S = 6.0 + 30.0 + 4.0
MOST_CHECKS = 14
#: When all that are open have been asked about, who is asked wrongly has so long; in each fourth act the whole time.
SOON_S, LONG_EACH = 6.0, 4


def _answer_for(world: World, act: Act) -> str:
    """All connections are producers of the group for a while: who has not decided is asked."""
    asked: dict[int, Message] = {}
    #: With the time at which each came: while decisions take long, it waits to be answered here.
    questions: list[tuple[Peer, RemotingCommand, float]] = []
    for number in range(len(world.peers)):
        peer = world.peer(number)
        peer.listens = True
        peer.on_question = lambda question, peer=peer: questions.append((peer, question, world.now))  # type: ignore[misc]
        body = {"clientID": f"p{number}", "producerDataSet": [{"groupName": "PG"}], "consumerDataSet": []}
        if world.ask(HEART_BEAT, {}, json.dumps(body).encode(), peer) is None:
            return "no answer"
    began, failed = world.now, world.machine.log_failed
    open_halves = [one for one in world.oracle.messages if _is_open(one)]
    until = began + (SOON_S if act["n"] % LONG_EACH else ASKED_S)
    while not world.machine.killed and (
        world.now < until
        or (world.now < began + ASKED_S and any(id(one) not in asked and _is_open(one) for one in open_halves))
    ):
        world.pass_time(2.0)
        while questions and not world.machine.killed:
            peer, question, came = questions.pop(0)
            if question.code == CHECK:
                _asked(world, act, asked, peer, question, came)
    for peer in world.peers:
        peer.listens = False
    if world.waits_for_slave:
        return "the master waits for its slave"
    if world.machine.killed or failed or world.machine.log_failed:
        return "killed"
    for message in open_halves:
        if id(message) not in asked and _is_open(message):
            raise Violation("of a transaction that is open nobody is asked", f"act {message.act}")
    return f"{len(asked)} asked"


def _is_open(message: Message) -> bool:
    """True if the producers of this half message must be asked. If its log file has gone, it was stored again."""
    return (
        message.kind == "half" and message.state == "acknowledged" and message.fate == "" and not message.may_be_lost
        and message.asked < MOST_CHECKS
    )  # fmt: skip


def _asked(
    world: World, act: Act, asked: dict[int, Message], peer: Peer, question: RemotingCommand, came: float
) -> None:
    record = decode_record(question.body)
    same = [one for one in world.oracle.messages if one.body == record.body and one.kind == "half"]
    if not same:
        raise Violation("somebody is asked about what nobody sent", f"{record.body[:60]!r}")
    message = same[0]
    asked[id(message)] = message
    message.asked += 1
    if message.fate in ("committed", "rolled back") and message.decided_at < came - 3.0:
        raise Violation("somebody is asked about what is decided", f"act {message.act}: {message.fate}")
    if act["decision"] == 0 or message.fate != "":
        return
    message.fate, message.due_s = "maybe", world.now
    fields = question.ext_fields | {
        "producerGroup": "PG", "commitOrRollback": act["decision"], "fromTransactionCheck": "true",
    }  # fmt: skip
    answer = world.ask(END_TRANSACTION, fields, b"", peer)
    if answer is not None and answer.code == 0:
        message.fate = "committed" if act["decision"] == COMMIT else "rolled back"
        message.due_s = message.decided_at = world.now
    elif answer is not None and answer.code not in (1, 2, 14):
        message.fate = ""


KINDS = [
    Kind(
        "producers",
        "answer for",
        0.7,
        lambda chance, before: {"decision": chance.choice((0, COMMIT, COMMIT, ROLL_BACK))},
        _answer_for,
    )
]
