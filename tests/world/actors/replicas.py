"""A slave beside the broker, sync or async, and a network that delays and cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.engine.access.book import Account
from tests.crash.replayer import MODES
from tests.world.actors.kind import Act, Kind
from tests.world.machine import Machine
from tests.world.oracle import Violation

if TYPE_CHECKING:
    from tests.world.world import World

#: When both can reach each other a slave has all of the log within so many seconds, and the tables.
CATCHES_UP_S = 15.0
_CHUNK = 1 << 16
#: Directions that let nothing through.
CUTS: tuple[list[str], ...] = ([], ["to master"], ["to slave"], ["to master", "to slave"])


def _replicate(world: World, act: Act) -> str:
    """A slave comes, or the master begins or ceases to wait for it."""
    world.stop()
    role = "SYNC_MASTER" if act["sync"] else "ASYNC_MASTER"
    world.machine.configure({}, {"broker_role": role, "ha_listen_port": 10912, "flush_disk_type": "SYNC_FLUSH"})
    world.is_sync = act["sync"]
    world.machine.has_users = True
    world.start()
    if world.slave is None:
        world.slave = slave = Machine(
            world.scheduler, world.broker_settings, world.store_settings, world.machine.network, world.next_port()
        )
        slave.has_users = True
        slave.configure({"broker_id": 1}, {"broker_role": "SLAVE", "ha_master_address": world.machine.ha_address})
    if not world.slave.running:
        start_slave(world)
    return role


def start_slave(world: World) -> None:
    assert world.slave is not None
    failure = world.slave.start()
    if failure is not None:
        raise Violation("a slave does not start", failure)
    if world.slave.running and world.oracle.on_slave >= world.slave.log_at_start:
        raise Violation(
            "a slave lost what its sync master had acknowledged",
            f"{world.oracle.on_slave}, its log ends at {world.slave.log_at_start}",
        )


def _network(world: World, act: Act) -> str:
    if world.slave is None:
        return "no slave"
    network = world.machine.network
    network.cuts = set(act["cuts"])
    network.delay_s, network.late = act["delay"], act.get("late", "")
    world.pass_time(act["for"])
    if not act["stays"]:
        network.heal()
    world.lost_each_other()
    return ""


def _kill_slave(world: World, act: Act) -> str:
    slave = world.slave
    if slave is None:
        return "no slave"
    if slave.running:
        slave.kill(act["mode"], world.chance)
    world.pass_time(act["away"])
    start_slave(world)
    world.lost_each_other()
    return f"its log ends at {slave.log_at_start}"


def _other_ends(world: World, slave: Machine) -> list[str]:
    """Return which queues of the slave end elsewhere than the master's, and where."""
    found = []
    for topic, queues in world.oracle.topics.items():
        for queue in range(queues):
            ours, theirs = (one.broker.store.max_offset(topic, queue) for one in (world.machine, slave))
            low = world.machine.broker.store.min_offset(topic, queue)
            if ours != theirs and low < ours:  # of an empty one the log says nothing
                found.append(f"{topic}-{queue} at {theirs}, not at {ours}")
    return found


def compare(world: World, act: Act) -> str:
    """They can reach each other; then the slave has what the master has."""
    slave = world.slave
    if slave is None:
        return "no slave"
    if not slave.running:
        start_slave(world)
    world.machine.network.heal()
    log, copy = world.machine.broker.store.log, slave.broker.store.log
    until = max(world.now, world.scheduler.still_until(slave)) + CATCHES_UP_S
    while world.now < until and not world.machine.killed:
        world.pass_time(0.25)
        # What was stored this moment is in the queues a moment later.
        if log.durable == copy.written == copy.durable == log.written and not _other_ends(world, slave):
            break
    if world.machine.killed or world.machine.log_failed:
        return ""
    if copy.written < log.min_offset:  # it was too slow: what it lacks has left the log
        return "too far behind"
    if copy.written != log.written:
        raise Violation(
            "a slave does not come to the end of its master's log",
            f"{copy.written} of {log.written}: {slave.broker.follower.follower.status.why_not}",  # type: ignore[union-attr]
        )
    _same_log(world, max(log.min_offset, copy.min_offset), log.written)
    if ends := _other_ends(world, slave):
        raise Violation("a queue of a slave ends elsewhere", ends[0])
    until = world.now + CATCHES_UP_S
    sync = slave.broker.follower.sync  # type: ignore[union-attr]
    while world.now < until and not world.machine.killed and sync.failure is not None:
        world.pass_time(0.25)
    failure = sync.failure
    if failure is not None and not world.machine.killed:
        raise Violation("a slave does not take over its master's tables", failure)
    until = world.now + CATCHES_UP_S
    while world.now < until and not world.machine.killed and _users(slave) != _users(world.machine):
        world.pass_time(0.25)
    if not world.machine.killed and _users(slave) != _users(world.machine):
        raise Violation("a slave has other users than its master", f"{_users(slave)}, not {_users(world.machine)}")
    return f"{copy.written} bytes"


def _users(machine: Machine) -> dict[str, Account]:
    return {} if machine.access is None else {account.name: account for account in machine.access.book}


def _same_log(world: World, at: int, end: int) -> None:
    assert world.slave is not None
    log, copy = world.machine.broker.store.log, world.slave.broker.store.log
    while at < end:
        size = min(_CHUNK, end - at, _CHUNK - at % _CHUNK)
        if log.read(at, size) != copy.read(at, size):
            raise Violation("a slave's log is another one", f"within {size} bytes from {at}")
        at += size


KINDS = [
    Kind("replicas", "replicate", 0.3, lambda chance, before: {"sync": chance.random() < 0.6}, _replicate),
    Kind(
        "replicas",
        "network",
        1,
        lambda chance, before: {
            "cuts": chance.choice(CUTS),
            "delay": chance.choice((0.0005, 0.0005, 0.05, 1.0)),
            "late": chance.choice(("", "to master", "to slave")),
            "for": chance.choice((0.0, 0.3, 2.0, 8.0)),
            "stays": chance.random() < 0.3,
        },
        _network,
    ),
    Kind(
        "replicas",
        "kill slave",
        0.7,
        lambda chance, before: {"mode": chance.choice(("all", *MODES)), "away": chance.choice((0.0, 1.0, 6.0))},
        _kill_slave,
    ),
    Kind("replicas", "compare", 1, lambda chance, before: {}, compare),
]
