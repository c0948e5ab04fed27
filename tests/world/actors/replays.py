"""Administrators who send dead letters to their group again, by a job that survives restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.engine.broker.replay.job import TO_GROUP, JobSpec, spans_of
from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAY_SEQ
from appliance.engine.broker.replay.service import Refused, new_job_id
from tests.crash.replayer import MODES
from tests.support.peer import send_fields
from tests.world.actors.kind import GROUPS, Act, Kind
from tests.world.actors.producers import SEND, answered
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

#: Messages a second, and how often one may be sent again.
RATE, MOST = 100, 1000
#: A job of a few messages has ended so soon.
_ENDS_S = 2.0


def _replay(world: World, act: Act) -> str:
    oracle, machine, group = world.oracle, world.machine, act["group"]
    letters, target = f"%DLQ%{group}", f"%RETRY%{group}"
    if letters not in oracle.topics or target not in oracle.topics:
        return "no dead letters"
    for queue in range(oracle.topics[letters]):
        if world.look_at(letters, queue) is None:
            return "no answer"
    shown = {
        (queue, offset): one.message
        for queue in range(oracle.topics[letters])
        for offset, one in sorted(oracle.shown.get((letters, queue), {}).items())
    }
    chosen = [place for index, place in enumerate(shown) if index % act["every"] == 0]
    if not chosen:
        return "no dead letters"
    spec = JobSpec(
        new_job_id(world.wall_ms), group, TO_GROUP, target, spans_of(chosen), RATE, MOST, "world", world.wall_ms
    )
    now, well = world.now, not (world.has_faults or world.waits_for_slave)
    copies = [
        Message(act["n"], target, one.body, "replay", one.properties, now, now)
        for one in map(shown.__getitem__, chosen)
    ]
    for copy in copies:
        oracle.sent(copy)

    def start() -> str:
        try:
            machine.broker.replays.start_job(spec)
        except Refused as refused:
            return refused.why.code
        return ""

    refused = world.act_on(start)
    if refused is None:
        return "no answer"
    if refused:
        if well and not world.has_faults and refused != "replay_under_way":
            raise Violation("dead letters are not sent again", f"{act}: {refused}")
        for copy in copies:
            copy.state = "refused"
        return f"refused: {refused}"
    for copy in copies:
        oracle.copied(copy, world.now)
    # Of a group that consumes in order, what is sent to its retry topic becomes a dead letter.
    if act.get("forged") and not any(lease[0] == group for lease in oracle.leases):
        _forge(world, act, spec.id, target, len(copies))
    if act["then"] and not machine.killed:
        world.pass_time(act["after"])
        if not machine.killed:
            world.kill(act["then"])
            world.look()
    if not machine.killed:
        world.pass_time(_ENDS_S)
    return f"{len(copies)} of {len(shown)}, {sum(bool(one.arrived) for one in copies)} have come"


def _forge(world: World, act: Act, job: str, topic: str, count: int) -> None:
    """A stranger sends messages that say that they are the job's copies."""
    questions, messages = [], []
    for number in range(count):
        message = Message(act["n"], topic, b"%d.%d forged" % (act["n"], number), "plain", {}, world.now)
        world.oracle.sent(message)
        messages.append(message)
        text = f"{REPLAY_JOB}\x01{job}\x02{REPLAY_SEQ}\x01{number}\x02"
        questions.append((SEND, send_fields(topic, 0, text), message.body))
    for message, answer in zip(messages, world.ask_all(questions), strict=True):
        answered(world, message, answer)


KINDS = [
    Kind(
        "administrators",
        "replay",
        1,
        lambda chance, before: {
            "group": chance.choice(GROUPS),
            "every": chance.choice((1, 1, 2)),
            "then": chance.choice(("", "", "all", "all", *MODES)),
            "after": chance.choice((0.0, 0.001, 0.01, 0.1)),
            "forged": chance.random() < 0.5,
        },
        _replay,
    )
]
