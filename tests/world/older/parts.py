"""What of today's world meets the engine in another way in the old one: how a broker is made, and its disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import appliance.engine.broker.broker as broker_module
import appliance.engine.broker.deliveries.ring as ring_module
import appliance.engine.broker.transactions.resolved as resolved_module
from appliance.engine.disk import DiskUsage
from appliance.engine.json_file import OS_FILE_CALLS, OWN_FILE_CALLS
from appliance.engine.remoting.event_loop import READABLE
from tests.world import machine as machine_module
from tests.world import network as network_module
from tests.world.disk import CAPACITY, WorldDisk
from tests.world.machine import Machine
from tests.world.older import sets
from tests.world.oracle import Oracle
from tests.world.sets.oracle import SetOracle
from tests.world.threads import _InPlaceOf, engine_modules

_JOURNAL_CALLS = (
    "exists", "make_directory", "pwrite", "truncate", "fdatasync", "forget_cached", "close", "rename", "sync_directory",
)  # fmt: skip
_WHOLE_FILE_CALLS = ("fsync", "link", "rename", "unlink", "sync_directory", "close")


def translate() -> None:
    """Have the world's parts know the old engine."""
    todays_seams, todays_network = machine_module.seams, network_module.seams
    machine_module.seams = lambda disk: _there(todays_seams(disk)) + _seams(disk)
    network_module.seams = lambda network: _there(todays_network(network))
    Machine._make_broker = _make_broker  # type: ignore[method-assign]
    Machine.accept = _accept  # type: ignore[method-assign]
    Machine.has_users = property(lambda machine: False, lambda machine, value: None)  # type: ignore[assignment]
    WorldDisk.usage = _usage  # type: ignore[method-assign]
    sets.translate()


def _there(names: list[tuple[object, str, object]]) -> list[tuple[object, str, object]]:
    """What the old engine has of it."""
    return [one for one in names if hasattr(one[0], one[1])]


def _make_broker(machine: Machine, options: Any, sock: Any, ties: object) -> Any:
    network = broker_module.Network(machine.address, machine.ha_address, (), sock)
    broker = broker_module.Broker(options, machine.loop, machine.server, machine.pools, network, machine.loop.clock)
    broker.delays = SimpleNamespace(early_acts=broker.early_acts)
    broker.timers.early_acts = broker.early_timer_acts
    return broker


def _accept(machine: Machine, conn: Any) -> None:
    machine.loop.watch(conn.fd, READABLE, machine.server._watcher(conn))
    machine.server.connections[conn.fd] = conn


def begin_anew() -> None:
    """Allow what the old engine said of itself: the queues of a topic that is made again begin at 0."""
    deleted, removed = Oracle.deleted, SetOracle.removed

    def deleted_then_free(oracle: Oracle, topic: str, sure: bool) -> None:
        deleted(oracle, topic, sure)
        for place in [place for place in oracle.given if place.topic == topic]:
            del oracle.given[place]

    def removed_then_free(oracle: SetOracle, topic: str, sure: bool, below: dict[int, int] | None = None) -> None:
        removed(oracle, topic, sure, below)
        oracle._gone.clear()
        for place in [place for place in oracle.shown if place.topic == topic]:
            del oracle.shown[place]

    Oracle.deleted = deleted_then_free  # type: ignore[method-assign]
    SetOracle.removed = removed_then_free  # type: ignore[method-assign]


# --- the disk


def _usage(disk: WorldDisk, path: Path) -> DiskUsage:
    return DiskUsage(CAPACITY, disk.used, CAPACITY - disk.used)


def _read(disk: WorldDisk, path: Path) -> bytes:
    fd = disk.open(path, read_only=True)
    try:
        return disk.pread(fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def _seams(disk: Callable[[], WorldDisk]) -> list[tuple[object, str, object]]:
    """Journals and files that are saved whole had their own ways to the disk."""
    names: list[tuple[object, str, object]] = [(broker_module, "Disk", lambda private=None: disk())]
    names += [
        (module, "OsJournalCalls", lambda: _JournalCalls(disk()))
        for module in engine_modules()
        if hasattr(module, "OsJournalCalls")
    ]
    for module in (ring_module, resolved_module):
        names.append((module, "os", _InPlaceOf(module.os, scandir=lambda path: _scandir(disk(), path))))
    whole = _WholeFiles(disk)
    for calls in (OS_FILE_CALLS, OWN_FILE_CALLS):
        names += [(calls, name, getattr(whole, name)) for name in ("read", "size", "open", "write", *_WHOLE_FILE_CALLS)]
    return names


@contextmanager
def _scandir(disk: WorldDisk, path: Path) -> Iterator[list[SimpleNamespace]]:
    yield [
        SimpleNamespace(name=name, is_file=lambda follow_symlinks=True: True) for name in sorted(disk.file_names(path))
    ]


class _JournalCalls:
    """`config_journal.OsJournalCalls`, through the disk of the machine that makes it."""

    def __init__(self, disk: WorldDisk) -> None:
        self._disk = disk
        for name in _JOURNAL_CALLS:
            setattr(self, name, getattr(disk, name))

    def read(self, path: Path) -> bytes:
        return _read(self._disk, path)

    def open(self, path: Path) -> int:
        return self._disk.open(path, create=True)


class _WholeFiles:
    """`json_file.OsFileCalls`, through the disk of the machine on which this runs."""

    def __init__(self, disk: Callable[[], WorldDisk]) -> None:
        self._disk = disk
        self._position: dict[int, int] = {}
        for name in _WHOLE_FILE_CALLS:
            setattr(self, name, lambda *args, name=name: getattr(disk(), name)(*args))

    def read(self, path: Path) -> bytes:
        return _read(self._disk(), path)

    def size(self, path: Path) -> int:
        return len(self.read(path))

    def open(self, path: Path) -> int:
        fd = self._disk().open(path, create=True)
        self._disk().truncate(fd, 0)
        self._position[fd] = 0
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        count = self._disk().pwrite(fd, data, self._position[fd])
        self._position[fd] += count
        return count
