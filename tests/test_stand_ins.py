"""Stand-ins in tests have the methods and arguments of the parts that they stand for.

A stand-in that takes any name, or another number of arguments, keeps a test green over code that cannot work.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path

import pytest

from appliance.engine.broker.registration import Registration
from appliance.engine.broker.stats import BrokerStats
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.clock import Clock
from appliance.engine.disk import Disk
from appliance.engine.engine import Engine
from appliance.engine.failover.leader_store import LeaderStore
from appliance.engine.remoting.client import RemotingClient
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.dispatcher import WorkerPool
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.store.message_store import MessageStore
from appliance.engine.window.figures.live import LiveFrames
from appliance.engine.window.window import Window
from appliance.engine.wire_audit import WireAudit
from tests.console.reports import test_bad_day
from tests.console.test_live_feed import Frames
from tests.console.test_metrics import NAMES
from tests.crash import life
from tests.crash.recording_disk import RecordingDisk
from tests.engine import test_wire_gate as wire_gate
from tests.engine.access import test_quotas as quotas
from tests.engine.broker import conftest as broker
from tests.engine.broker import test_ends_of_queues as ends_of_queues
from tests.engine.broker import test_long_polling as long_polling
from tests.engine.broker import test_retention as retention
from tests.engine.failover import fakes as members
from tests.engine.namesrv import conftest as namesrv
from tests.engine.namesrv import test_registration as registration
from tests.engine.remoting import test_worker_pool as worker_pool
from tests.engine.tls import test_turns as turns
from tests.support import fakes, sending, store
from tests.support import serve_with_fake_engine as fake_process
from tests.support.clock import FakeClock
from tests.support.memory_store import MemoryCluster, MemoryStore
from tests.support.stand_ins import differences, methods_of, names_of, written_differences
from tests.world.disk import WorldDisk
from tests.world.network import _Client as WorldClient
from tests.world.sets import etcd

TESTS = Path(__file__).parent


def disk() -> RecordingDisk:
    return RecordingDisk()


#: (makes the stand-in, the part that it stands for, its names for tests only).
STAND_INS: dict[str, tuple[Callable[[], object], type, set[str]]] = {
    "a connection": (fakes.FakeConnection, Connection, {"answers", "notices", "noticed"}),
    "a connection that sends come from": (lambda: sending.NoPeer(bytes(8)), Connection, {"answers"}),
    "a connection of an administrator": (wire_gate.Conn, Connection, {"answers"}),
    "a connection that takes nothing": (worker_pool.FullPeer, Connection, {"put_off", "places", "pool_waits"}),
    "a connection of a user with quotas": (quotas.Line, Connection, {"answers", "flushed"}),
    "a pool": (fakes.InlinePool, WorkerPool, set()),
    "a pool without room": (wire_gate.FullPool, WorkerPool, set()),
    "a loop": (fakes.InlineLoop, EventLoop, {"timers"}),
    "a crash's loop": (life.Now, EventLoop, set()),
    "an audit": (wire_gate.Ear, WireAudit, {"acts"}),
    "a broker's store": (broker.FakeStore, MessageStore, {"min_offsets", "hot", "deleted", "error"}),
    "a copy's store": (ends_of_queues.FakeStore, MessageStore, {"there", "taken"}),
    "a broker's name servers": (broker.FakeNameServers, Registration, {"registered"}),
    "a broker's figures": (broker.FakeStats, BrokerStats, set()),
    "the loop of a thread with turns": (turns.Loop, EventLoop, {"soon", "tick"}),
    "long polling's loop": (long_polling.Clock, EventLoop, {"calls", "tick"}),
    "a name server's server": (namesrv.QuietServer, RemotingServer, {"listeners"}),
    "registration's topics": (registration.Topics, TopicConfigManager, {"table", "announce", "put"}),
    "the store's loop": (store.Inline, EventLoop, set()),
    "a disk's fill": (retention.Gauge, Disk, {"percent", "freed"}),
    "a disk's fill on a bad day": (test_bad_day.Gauge, Disk, {"others", "log"}),
    "a disk that fails": (store.FailingDisk, Disk, {"failing", "synced_paths"}),
    "a disk that records": (
        disk,
        Disk,
        {"directories", "during_sync", "fault", "files", "kinds", "mark", "open_count", "record"},
    ),
    "the world's disk": (
        lambda: WorldDisk(lambda: 0.0, lambda: None),
        Disk,
        {
            "copy_from",
            "copy_to",
            "directories",
            "during_sync",
            "fault",
            "files",
            "kinds",
            "mark",
            "open_count",
            "record",
            "close_all",
            "crash",
            "dead",
            "fail",
            "has_failed",
            "heal",
            "kill_in",
            "next_life",
            "slow_s",
            "used",
        },
    ),
    "the frames of a feed": (lambda: Frames([]), LiveFrames, {"frames", "asked"}),
    "a process's engine": (lambda: fake_process.Engine(None), Engine, set()),
    "a process's window": (fake_process.Window, Window, set()),
    "a process's audit": (fake_process.WireAudit, WireAudit, set()),
    "a leader store of one thread's tests": (
        members.FakeStore,
        LeaderStore,
        {"broken", "changed", "closed", "down", "keys", "lose", "name", "revision", "write"},
    ),
    "a leader store": (lambda: MemoryStore(MemoryCluster()), LeaderStore, set()),
    "a leader store of the world": (lambda: etcd.Client(etcd.Etcd(), None, None), LeaderStore, set()),
    "a clock": (FakeClock, Clock, {"jump", "advance"}),
}


#: Parts that have stand-ins in tests.
PARTS = sorted({real for _, real, _ in STAND_INS.values()}, key=lambda part: part.__name__)

#: Common method names: a class is not a stand-in because it has one of these.
COMMON = frozenset(("close", "get", "open", "put", "read", "run", "send", "size", "start", "stop", "wait", "write"))

#: Classes that share method names with a part but stand for none.
NAMESAKES = {
    "engine/failover/fakes.py:FakeStore": "a leader store of the tests' own, run by the real service",
    "clients/test_mixed_groups.py:Sender": "messages for all queues, sent by a client that is real",
    "support/sending.py:HostileSend": "a request, in the bytes that a stranger sends",
    "client/core/test_client_core.py:Left": "a part of the client",
    "bench/responder.py:Responder": "a small broker, for the load generator",
    "engine/failover/stores/test_hostile.py:Server": "a leader store's server, in the bytes of a stranger",
    "world/older/parts.py:_JournalCalls": "calls of an older engine, which has them otherwise",
    "world/older/parts.py:_WholeFiles": "calls of an older engine, which has them otherwise",
    "world/threads.py:SimpleQueue": "a queue of Python's, whose users wait on the world's clock",
    "rig/relay.py:_Flow": "one direction of a connection that is relayed",
    "rig/rounds.py:Clients": "official clients",
    "clients/agents.py:Client": "an official client",
    "crash/own_appends_life.py:Waiting": "the tests' own clock, which is compared itself",
    "spark_reports/run/test_counted_again.py:Runs": "runs of reports over a store that is really written",
    "spark_reports/facts/made.py:MadeDeliveries": "a ring that is really written",
    "clients/full_house.py:FullHouse": "a real broker with official clients",
    "support/apache.py:ApacheRocketMQ": "a real broker and name server",
    "support/client_steps.py:SetClock": "the clock of the client, which has two methods",
    "support/serve_counted.py:Counted": "a real server of pages",
    "support/serve_impatient.py:Impatient": "a real server of pages",
    "browser/furniture.py:Furniture": "sends messages into a server",
    "engine/test_figures.py:Mover": "a row of a table",
    "engine/store/index/test_index_lag.py:ModelledIndex": "the index itself, whose work takes time",
    "engine/namesrv/conftest.py:LiveNamesrv": "a real name server",
    "support/web_socket.py:WebSocket": "a client of a real server",
    "engine/namesrv/test_with_apache.py:OurBroker": "a real broker",
    "client/test_dedup.py:Redis": "a client of Redis",
    "fuzz/test_hostile_frames.py:Honest": "a client",
    "spark_reports/network/test_sink.py:Flaky": "a producer of the client",
    "fuzz/test_hostile_frames.py:Stranger": "a client",
}


def parts_of(node: ast.ClassDef) -> list[type]:
    """Return the parts that a class in a test stands for: it derives from them, or at least half of its methods are
    theirs; in that case only the parts that share most of them."""
    bases = {ast.unparse(base) for base in node.bases}
    derived = [part for part in PARTS if part.__name__ in bases]
    if derived:
        return derived
    methods = set(methods_of(node))
    shared = {part: methods & names_of(part) for part in PARTS}
    alike = {
        part: len(names)
        for part, names in shared.items()
        if 2 * len(names) >= len(methods) and (len(names) > 1 or names - COMMON)
    }
    return [part for part, count in alike.items() if count == max(alike.values())]


def classes_of_tests() -> Iterator[tuple[str, ast.ClassDef, bool]]:
    """Yield (file:name, the class, True if other modules can make it)."""
    for path in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{path.relative_to(TESTS)}:{node.name}", node, node in tree.body


def test_the_world_s_client_is_constructed_like_the_real_one() -> None:
    """The world puts its client in the place of the class: callers construct it."""
    assert list(signature(WorldClient).parameters) == list(signature(RemotingClient).parameters)


def test_every_stand_in_is_compared() -> None:
    """A class with a part's methods is in the table above, or derives from the part and takes the same arguments."""
    compared = set()
    for make, _, _ in STAND_INS.values():
        kind = type(make())
        file = sys.modules[kind.__module__].__file__ or ""
        if Path(file).is_relative_to(TESTS):
            compared.add(f"{Path(file).relative_to(TESTS)}:{kind.__name__}")
    wrong, known = [], set()
    for name, node, makeable in classes_of_tests():
        parts = parts_of(node)
        if not parts:
            continue
        known.add(name)
        unlike = [written_differences(node, part) for part in parts]
        bases = [ast.unparse(base) for base in node.bases]
        file = name.partition(":")[0]
        # Derived from a part, or from a compared stand-in in the same file.
        derived = any(base == part.__name__ for base in bases for part in parts) or any(
            f"{file}:{base}" in compared for base in bases
        )
        if name in NAMESAKES:
            continue
        if all(unlike):
            wrong += [f"{name}: {sentence}" for sentence in unlike[0]]
        elif makeable and not derived and name not in compared:
            wrong.append(f"{name} looks like {parts[0].__name__}: say what it stands for in STAND_INS")
    assert not wrong
    assert set(NAMESAKES) <= known, "a namesake is gone"


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_like_what_it_stands_for(name: str) -> None:
    make, real, own = STAND_INS[name]
    assert differences(make(), real, frozenset(own)) == []


def test_a_process_that_pretends_counts_what_engines_count() -> None:
    assert set(fake_process.Window().metrics()) <= NAMES


def test_no_stand_in_takes_any_name_there_is() -> None:
    """`__getattr__` in a test's class, and mocks, accept any name. Allowed if it only forwards to the real object."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not any(word in source for word in ("__getattr", "mock", "unittest")):
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.FunctionDef)
                and node.name in ("__getattr__", "__getattribute__")
                and "getattr(self." not in ast.unparse(node)
            ):
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}: {node.name}")
            names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
            if any(name.name.partition(".")[0] in ("unittest", "mock") for name in names) or (
                isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest")
            ):
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}: mock")
    assert not found


class Part:
    size: int

    def __init__(self) -> None:
        self.count = 0

    def take(self, what: str, often: int = 1) -> None: ...


class Alike:
    def __init__(self) -> None:
        self.size, self.count, self.taken = 0, 0, ""

    def take(self, what: str, often: int = 2) -> None: ...


class Unlike:
    def take(self, what: str) -> None: ...

    def give(self) -> None: ...


def test_what_is_unlike_is_said() -> None:
    assert differences(Alike(), Part, frozenset({"taken"})) == []
    assert differences(Alike(), Part) == ["Part has no taken"]
    assert differences(Unlike(), Part) == ["Part has no give", "Part.take takes (what, often=), the stand-in (what)"]
