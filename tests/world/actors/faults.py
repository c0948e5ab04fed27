"""The disk and other settings: syncs that fail or take long, no room, restarts that change what is synced when."""

from __future__ import annotations

import errno
import math
import random
from typing import TYPE_CHECKING

from tests.world.actors import administrators, producers
from tests.world.actors.kind import TOPICS, Act, Kind

if TYPE_CHECKING:
    from tests.world.world import World

#: (call, part of the path)
PLACES = (
    ("fdatasync", "commitlog"), ("pwrite", "commitlog"), ("fdatasync", "commitlog"), ("fdatasync", "consumequeue"),
    ("pwrite", "consumequeue"), ("syncfs", ""), ("pwrite", "index"), ("fdatasync", "rocketbox"),
    ("pwrite", "rocketbox"), ("pwrite", "config"), ("sync_directory", ""), ("create", ""),
    ("truncate", ""), ("rename", ""),
)  # fmt: skip


def _make_error(chance: random.Random, before: list[Act]) -> Act:
    call, part = chance.choice(PLACES)
    return {
        "call": call, "part": part, "after": chance.choice((0, 0, 1, 3)), "times": chance.choice((1, 1, 3, 1000)),
        "error": chance.choice(("EIO", "EIO", "ENOSPC")), "messages": [producers.one(chance) for _ in range(4)],
        "also": chance.choice(("", "", "make")), "topic": chance.choice(TOPICS), "queues": chance.randint(1, 4),
        "for": chance.choice((0.0, 1.0, 6.0)), "then": chance.choice(("restart", "kill", "kill", "go on")),
        "mode": chance.choice(("all", "none", "some", "torn", "last")),
    }  # fmt: skip


def _error(world: World, act: Act) -> str:
    """Some calls fail. Then the machine goes on, ends as it should, or dies."""
    disk = world.machine.disk
    world.oracle.trouble_since = min(world.oracle.trouble_since, world.now)
    disk.fail(act["call"], act["part"], act["after"], act["times"], getattr(errno, act["error"]))
    outcome = producers.burst(world, act)
    if not world.machine.killed and act["also"]:
        outcome += ", " + administrators.make(world, act)
    if not world.machine.killed:
        world.pass_time(act["for"])
    disk.heal()
    if world.machine.killed:
        return outcome
    if act["then"] == "kill":
        world.kill(act["mode"])
        world.look()
    elif act["then"] == "restart" or world.machine.log_failed:
        world.stop()
        world.start()
        world.look()
    return outcome


def _slow(world: World, act: Act) -> str:
    """Each sync takes long for a while."""
    world.machine.disk.slow_s = act["sync"]
    world.oracle.trouble_since = min(world.oracle.trouble_since, world.now)
    world.oracle.unsynced_since = world.now
    outcome = producers.burst(world, act)
    if not world.machine.killed and act.get("then"):  # the power goes while a sync is under way
        world.kill(act["then"])
        world.look()
        return outcome
    world.machine.disk.slow_s = 0.0
    if not world.machine.killed:
        world.pass_time(act["sync"] + 1.0)  # the sync that is under way, and the next one
    if not world.machine.killed:
        world.oracle.unsynced_since = math.inf
    return outcome


def _settings(world: World, act: Act) -> str:
    """A restart with other settings."""
    world.stop()
    store = dict(act["store"])
    if world.slave is not None:  # with flushes now and then a master may lose what its slave has
        store["flush_disk_type"] = "SYNC_FLUSH"
    world.machine.configure(act["broker"], store)
    world.start()
    world.look()
    return ""


def _make_settings(chance: random.Random, before: list[Act]) -> Act:
    return {
        "store": {
            "flush_disk_type": chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
            "max_transfer_count_on_message_in_memory": chance.choice((32, 32, 3)),
        },
        "broker": {
            "default_topic_queue_nums": chance.choice((1, 4, 4)),
            "long_polling_enable": chance.random() < 0.6,
        },
    }


KINDS = [
    Kind("operators", "error", 0.7, _make_error, _error),
    Kind(
        "operators",
        "slow",
        0.5,
        lambda chance, before: {
            "sync": chance.choice((0.3, 2.0, 7.0)),
            "then": chance.choice(("", "none", "some")),
            "messages": [producers.one(chance) for _ in range(4)],
        },
        _slow,
    ),
    Kind("operators", "settings", 0.5, _make_settings, _settings),
]
