"""Stand-ins that tests use are like what they stand for.

A stand-in that takes any name, or another number of arguments, keeps a test green over code that cannot work.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engine.broker.registration import Registration
from appliance.engine.broker.stats import BrokerStats
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.clock import Clock, FakeClock
from appliance.engine.config_journal import OsJournalCalls
from appliance.engine.engine import Engine
from appliance.engine.json_file import OsFileCalls
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.dispatcher import WorkerPool
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.store.disk import Disk
from appliance.engine.store.message_store import MessageStore
from appliance.engine.window import EngineAdmin
from tests.console.test_live_feed import Window
from tests.console.test_metrics import NAMES
from tests.crash.recording_disk import RecordingDisk
from tests.crash.tables import FilesOnDisk, JournalOnDisk
from tests.engine.broker import conftest as broker
from tests.engine.broker import test_long_polling as long_polling
from tests.engine.namesrv import conftest as namesrv
from tests.engine.namesrv import test_registration as registration
from tests.support import serve_with_fake_engine as fake_process
from tests.support import store
from tests.support.stand_ins import differences

TESTS = Path(__file__).parent


def disk() -> RecordingDisk:
    return RecordingDisk()


#: (makes the stand-in, what it stands for, what it has for tests only).
STAND_INS: dict[str, tuple[Callable[[], object], type, set[str]]] = {
    "a broker's peer": (broker.Peer, Connection, {"answers", "notices", "noticed"}),
    "a broker's pool": (broker.InlinePool, WorkerPool, set()),
    "a broker's store": (broker.FakeStore, MessageStore, {"min_offsets", "hot", "deleted", "error"}),
    "a broker's name servers": (broker.FakeNameServers, Registration, {"registered"}),
    "a broker's figures": (broker.FakeStats, BrokerStats, set()),
    "long polling's loop": (long_polling.Clock, EventLoop, {"calls", "tick"}),
    "a name server's peer": (namesrv.Peer, Connection, {"answers"}),
    "a name server's pool": (namesrv.InlinePool, WorkerPool, set()),
    "a name server's server": (namesrv.QuietServer, RemotingServer, {"listeners"}),
    "a name server's loop": (namesrv.QuietLoop, EventLoop, {"timers"}),
    "registration's topics": (registration.Topics, TopicConfigManager, {"table", "announce", "put"}),
    "the store's loop": (store.Inline, EventLoop, set()),
    "a disk that fails": (store.FailingDisk, Disk, {"failing", "synced_paths"}),
    "a disk that records": (
        disk,
        Disk,
        {"directories", "during_sync", "fault", "files", "kinds", "link", "mark", "open_count", "record"},
    ),
    "the journal's disk": (lambda: JournalOnDisk(disk()), OsJournalCalls, set()),
    "the tables' disk": (lambda: FilesOnDisk(disk()), OsFileCalls, set()),
    "the window of a feed": (lambda: Window([]), EngineAdmin, {"frames", "asked"}),
    "a process's engine": (lambda: fake_process.Engine(None), Engine, set()),
    "a process's window": (fake_process.Admin, EngineAdmin, set()),
    "a clock": (FakeClock, Clock, {"jump", "advance"}),
}


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_like_what_it_stands_for(name: str) -> None:
    make, real, own = STAND_INS[name]
    assert differences(make(), real, frozenset(own)) == []


def test_a_process_that_pretends_counts_what_engines_count() -> None:
    assert set(fake_process.Admin().metrics()) <= NAMES


def test_no_stand_in_takes_any_name_there_is() -> None:
    """`__getattr__` in a test's class, and mocks, say yes to everything; unless it only hands on to what is real."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
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
