"""Actors that look after the store: retention by hand during reads, and backups that are restored elsewhere."""

from __future__ import annotations

import copy
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.engine.backup import LogEnd, make_backup, restore_backup
from tests.support.peer import pull_fields, records
from tests.world.actors import producers
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.machine import ROOT, Machine
from tests.world.oracle import RESERVED_S, Violation, digest_of

if TYPE_CHECKING:
    from tests.world.world import World

PULL, QUERY_OFFSET, CLEAN_QUEUES, CLEAN_TOPICS, CLEAN_LOG = 11, 14, 306, 316, 329
FOUND = 0
#: Longer than messages are kept.
AWAY_S = RESERVED_S + 1800.0
#: Directory in memory, where the kernel offers one.
_IN_MEMORY = Path("/dev/shm")


# --- retention by hand


def _make_clean(chance: random.Random, before: list[Act]) -> Act:
    return {
        "away": chance.choice((0.0, 0.0, AWAY_S)), "pulls": chance.choice((0, 6, 30)),
        "topic": chance.choice(TOPICS[:2]),
        "codes": chance.choice(([CLEAN_LOG], [CLEAN_LOG, CLEAN_QUEUES], [CLEAN_TOPICS, CLEAN_LOG])),
    }  # fmt: skip


def _clean(world: World, act: Act) -> str:
    """Delete all old files at once, as an administrator does. A slow reader has asked for them before."""
    if act["away"]:
        if not world.stop():
            world.start()
            return "killed"
        world.scheduler.now += act["away"]
        world.oracle.grew_old(world.now)
        world.start()
        world.see_arrivals()
    if world.machine.killed:
        return ""
    topic = act["topic"]
    reader = world.machine.connect()
    reader._conn._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    reader.deaf = True
    asked = []
    for number in range(act["pulls"]):
        queue = number % max(1, world.oracle.topics.get(topic, 1))
        at = world.machine.broker.store.min_offset(topic, queue) + number // 4
        asked.append((queue, reader.ask(PULL, pull_fields(topic, queue, at, consumerGroup="WORLD"))))
    for code in act["codes"]:
        answer = world.ask(code, {})
        if answer is None:
            return "no answer"
        if answer.code != 0 and not world.has_faults:
            raise Violation("cleaning is refused", f"{act}: {answer.code} {answer.remark}")
    world.pass_time(3.0)
    reader.deaf = False
    until = world.now + 10.0
    while not all(one.ended for _, one in asked) and not world.machine.killed and world.now < until:
        reader.receive()
        world.machine.loop._poller.signal.set()
        world.machine.run(lambda: all(one.ended for _, one in asked), 0.05)
    if world.machine.killed:
        return ""
    for queue, one in asked:
        if one.command is not None and one.command.code == FOUND:
            for record in records(one.command.body):
                world.oracle.record(topic, queue, record, world.now)
        elif one.command is None and not one.lost:
            raise Violation("a request is not answered", f"{act}: a pull beside the cleaner")
    if not reader.closed:
        world.machine.hang_up(reader)
    world.look()
    return f"the log begins at {world.machine.broker.store.log.min_offset}"


# --- backups


class _Killed(Exception):
    """The broker died while it was copied."""


def _make_backup(chance: random.Random, before: list[Act]) -> Act:
    return {
        "messages": [producers.one(chance) for _ in range(3)], "after": chance.choice((0.0, 0.3, 6.0)),
        "more": chance.choice((0.0, 0.5, 3.0)),
    }  # fmt: skip


def _backup(world: World, act: Act) -> str:
    """Make a backup while the broker works, start a broker from it that no name server lists, and check it."""
    if world.has_faults or world.waits_for_slave:
        return "not now"
    world.see_arrivals()
    if world.machine.killed:
        return ""
    before = {key: copy.deepcopy(commits) for key, commits in world.oracle.commits.items()}
    for commits in before.values():
        commits.killed(min(world.now, world.oracle.trouble_since))
    store = world.machine.broker.store
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as scratch:
        place = Path(scratch)
        data, target, into = place / "data", place / "backup", place / "restored"
        world.machine.disk.copy_to(data, ROOT)

        def log_end() -> int:
            """Send more once progress is copied, then copy the disk again. Return the published end between the two."""
            producers.burst(world, act)
            world.pass_time(act["after"])
            end = -1 if world.machine.killed else store.published
            world.pass_time(act["more"])
            if world.machine.killed:
                raise _Killed
            world.machine.disk.copy_to(data, ROOT)
            return end

        try:
            made = make_backup(target, data / "store", data / "rocketbox", version="world", log_end=LogEnd(log_end))
        except _Killed:
            return "killed"
        world.look()
        if world.machine.killed or world.has_faults:
            return "not now"
        restore_backup(target, into)
        return _restored(world, into, made.manifest.begin_offset, made.manifest.end_offset, before)


def _restored(world: World, into: Path, begin: int, end: int, before: dict[tuple[str, str, int], object]) -> str:
    machine = Machine(world.scheduler, world.broker_settings, world.store_settings, world.machine.network, 30911)
    machine.disk.copy_from(into, ROOT)
    try:
        failure = machine.start()
        if failure is not None:
            assert not world.machine.killed, failure
            raise Violation("a restored backup does not start", failure)
        _compare(world, machine, begin, end, before)
    except Violation:
        raise
    except AssertionError:  # no answer: nothing runs once the broker is dead, the restored one neither
        if world.machine.killed:
            return "killed"
        raise
    finally:
        if machine.running:
            machine.kill("all", world.chance)
        del world.machine.network.machines[machine.address]
        machine.disk.close_all()
    return f"of {begin}-{end}"


def _compare(world: World, machine: Machine, begin: int, end: int, before: dict[tuple[str, str, int], object]) -> None:
    log = machine.broker.store.log
    if log.written < end:
        raise Violation("a backup lacks the end of the log", f"{log.written} of {end}")
    begin = max(begin, world.machine.broker.store.log.min_offset)
    peer = machine.connect()
    for topic, queues in world.oracle.topics.items():
        config = machine.broker.topics.get(topic)
        if config is None or config.read_queue_nums != queues:
            raise Violation("a backup has another topic", f"{topic}: {config}, not {queues}")
        for queue in range(queues):
            found = _read(machine, peer, topic, queue)
            shown = world.oracle.shown.get((topic, queue), {})
            for offset, one in shown.items():
                if begin <= one.physical < end and offset not in found:
                    raise Violation("a backup lacks a message", f"act {one.message.act} at {topic}-{queue}-{offset}")
            for offset, (digest, physical) in found.items():
                if offset in shown and shown[offset].physical < end and shown[offset].digest != digest:
                    raise Violation("a backup has another message", f"{topic}-{queue}-{offset}")
                if begin <= physical < end and offset not in shown:
                    raise Violation("a backup shows what the broker does not", f"{topic}-{queue}-{offset}")
    for (group, topic, queue), commits in before.items():
        if queue >= world.oracle.topics.get(topic, 0) or not (allowed := commits.allowed()):  # type: ignore[attr-defined]
            continue
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
        answers = peer.ask(QUERY_OFFSET, fields)
        machine.run(lambda answers=answers: answers.ended, 30.0)  # type: ignore[misc]
        assert answers.command is not None, "a restored broker does not answer"
        offset = int(answers.command.ext_fields["offset"]) if answers.command.code == 0 else -1
        if offset not in allowed:
            raise Violation(
                "a backup has another offset", f"{group} {topic}-{queue}: {offset}, not of {sorted(allowed)}"
            )


def _read(machine: Machine, peer: object, topic: str, queue: int) -> dict[int, tuple[bytes, int]]:
    """Offset -> what a consumer is given there, and where it lies in the log."""
    found: dict[int, tuple[bytes, int]] = {}
    at, high = machine.broker.store.offset_range(topic, queue)
    patience = 20
    while at < high:
        answers = peer.ask(PULL, pull_fields(topic, queue, at, consumerGroup="WORLD"))  # type: ignore[attr-defined]
        machine.run(lambda answers=answers: answers.ended, 30.0)  # type: ignore[misc]
        assert answers.command is not None, "a restored broker does not answer"
        if answers.command.code == FOUND:
            for record in records(answers.command.body):
                found[record.queue_offset] = digest_of(record), record.physical_offset
        after = int(answers.command.ext_fields["nextBeginOffset"])
        if after <= at:
            patience -= 1
            if patience <= 0:
                raise Violation("a restored queue cannot be read", f"{topic}-{queue} at {at}: {answers.command.code}")
            machine.run(lambda: False, 0.5)
        at = max(at, after)
    return found


KINDS = [
    Kind("administrators", "clean", 0.5, _make_clean, _clean),
    Kind("operators", "backup", 0.3, _make_backup, _backup),
]
