"""Modules that a start loads, and those that it leaves until they are needed, to save memory and time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from appliance.engine.hotpath import COMPILED
from tests.support.server import ROOT

#: Each costs 1 to 20 MB, and most servers never need it.
LATER = {
    "authlib", "requests", "yaml", "segno", "pyotp", "channels", "sqlite_utils", "cryptography", "click", "smtplib",
    "unittest", "django.test", "pip", "setuptools", "wsgiref.simple_server", "lib2to3", "doctest", "pdb",
    "xml.etree.ElementTree", "spark_reports.reports.capacity",
    "numpy", "pandas", "pyarrow", "pyspark", "py4j",
}  # fmt: skip
#: Modules that the console loads on demand: to make reports, to send notices.
ON_DEMAND = {
    "spark_reports", "appliance.console.reports.runner", "appliance.console.reports.published",
    "appliance.console.alerts.sending", "appliance.console.alerts.book",
}  # fmt: skip
#: ninja takes a signal from Django's test kit, which loads the others: 2 MB.
NINJAS = ["django.test", "unittest", "wsgiref.simple_server"]
IN_THE_WORKER = (
    "import appliance.http_server, appliance.http_worker, appliance.engine_process, appliance.asgi, "
    "appliance.console.start, appliance.console.serving.threads, appliance.urls"
)


def loaded(statement: str, directory: os.PathLike[str]) -> set[str]:
    """Run the statement in a new process; return the modules that are loaded after it."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "appliance.settings", "ROCKETBOX_DATA_DIR": str(directory)}
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


#: Most modules of the console that are loaded before it is asked for anything, and classes that they make with
#: `dataclass`, a millisecond each.
MOST_OF_THE_CONSOLE, MOST_SLOW_IN_THE_CONSOLE = 73, 5
LOOK = """
import dataclasses, sys, typing
own = [module for name, module in sorted(sys.modules.items()) if name.startswith("appliance.")]
made = [value for one in own for value in vars(one).values() if getattr(value, "__module__", "") == one.__name__]
slow = (c for c in made if isinstance(c, type) and "__dataclass_fields__" in vars(c) and c.__dataclass_params__.init)
print(*sorted({f"dataclass:{c.__module__}.{c.__name__}" for c in slow}))
print(*(f"typing:{one.__name__}" for one in own if vars(one).get("NamedTuple") is typing.NamedTuple))
"""


@pytest.mark.parametrize("more", ["", ", appliance.api.urls"], ids=["start", "with the API"])
def test_the_start_leaves_alone_what_few_need(more, tmp_path):
    names = loaded(f"{IN_THE_WORKER}{more}\n{LOOK}", tmp_path)
    own = sorted(name for name in names if f"{name}.".startswith("appliance.console."))
    assert more or len(own) <= MOST_OF_THE_CONSOLE, f"{len(own)} modules, one of them is new here: {own}"
    slow = sorted(name for name in names if name.startswith("dataclass:appliance.console."))
    assert more or len(slow) <= MOST_SLOW_IN_THE_CONSOLE, f"take dataclass from appliance.engine.lazy_dataclass: {slow}"
    assert sorted(names & LATER) == (NINJAS if more else [])
    assert more or not names & ON_DEMAND
    assert ("ninja" in names) == bool(more)


FIRST_PAGE = """
from django import setup
setup()
from django.urls import get_resolver, resolve, reverse
from appliance.console.acts import ACTS
assert "orders" in reverse("topic", args=["orders"])
import sys
assert not [name for name in sys.modules if name.startswith("appliance.console.") and name.endswith("views")]
assert resolve("/topics/").func.__wrapped__ is sys.modules["appliance.console.topics.views"].topics
pages = next(one for one in get_resolver().url_patterns if str(one.pattern) == "").url_patterns
assert all(callable(page.view()) for page in pages) and len(pages) > 100
"""


def test_the_view_of_a_page_is_imported_when_the_page_is_asked_for(tmp_path):
    assert "appliance.console.system.definition_views" in loaded(FIRST_PAGE, tmp_path)


FIRST_CALL = """
import asyncio, sys, threading
from appliance import asgi

real, threads = asgi.import_module, {}

def seen(name):
    threads[name] = threading.current_thread()
    return real(name)

asgi.import_module = seen

async def receive():
    if whole:
        await asyncio.sleep(3600)
    whole.append(True)
    return {"type": "http.request", "body": b""}

async def send(message):
    answers.append(message)

async def ask(path):
    whole.clear()
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    await asgi.application(scope | {"scheme": "http", "http_version": "1.1", "extensions": {}}, receive, send)

from appliance.console.start import prepare
prepare({})
answers, whole = [], []
asyncio.run(ask("/static/nothing.css"))
assert not threads and "ninja" not in sys.modules
asyncio.run(ask("/api/v1/topics"))
assert [one["status"] for one in answers if "status" in one] == [404, 401], answers
assert threads["appliance.api.urls"] is not threading.main_thread(), "the loop stands meanwhile"
"""


def test_the_first_call_loads_the_api_beside_the_loop(tmp_path):
    (tmp_path / "rocketbox").mkdir()
    names = loaded(FIRST_CALL, tmp_path)
    assert "appliance.api.urls" in names
    # An empty settings database is made of the models: the migrations take a fifth of a second of one processor.
    assert "django.db.migrations" not in names


def test_the_arbiter_holds_no_code_that_serves(tmp_path):
    names = loaded("import appliance.main, appliance.command_line, appliance.http_server", tmp_path)
    assert not names & {"asyncio", "django", "gunicorn.asgi.protocol", "appliance.engine.engine", "sqlite3"}


def test_the_version_is_told_without_an_engine(tmp_path):
    names = loaded("import appliance.main; appliance.main.main(['--version'])", tmp_path)
    assert not names & {"appliance.engine.engine", "django", "gunicorn", "asyncio", "argparse"}


ENGINE = """
from pathlib import Path
from appliance.engine.config import EngineConfig, StoreConfig
from appliance.engine.engine import Engine
small = StoreConfig(mapped_file_size_commit_log=1 << 20, disk_max_used_space_ratio=95)
config = EngineConfig(
    data_dir=Path({directory!r}), roles=frozenset({roles!r}), broker_port=0, namesrv_port=0, store=small
)
engine = Engine(config)
engine.start()
{look}
engine.stop()
"""
#: Most own modules that a start without a console may load: each one costs half a millisecond and 35 KB.
#: "": all of them; else those of one package below `appliance.engine`.
MOST_MODULES = {
    ("broker", "namesrv"): {
        "": 262, "broker": 131, "store": 52, "protocol": 13, "namesrv": 12, "remoting": 9, "hotpath": 6, "filter": 5,
        "window": 3, "replication": 3, "failover": 0,
    },
    ("broker",): {"": 250, "namesrv": 0, "replication": 3, "failover": 0},
    ("namesrv",): {"": 65, "broker": 0, "store": 0, "replication": 2, "failover": 0, "filter": 0},
}  # fmt: skip
#: Classes that these starts make with `dataclass`, a millisecond each: the configuration's, and ones that are compared.
MOST_DATACLASSES = 8
#: Most bytes that Python's memory holds for these starts, by role, of Python 3.11 with the compiled part: what modules
#: make as they are loaded, and buffers that are made once. They hardly differ from one start to the next.
MOST_BYTES = {("broker", "namesrv"): 17_000_000, ("broker",): 16_600_000, ("namesrv",): 7_700_000}
TRACE = "import _tracemalloc; _tracemalloc.start(1)"
BYTES = """
held = {}
for trace in _tracemalloc._get_traces():
    held[trace[2][0][0]] = held.get(trace[2][0][0], 0) + trace[1]
print(f"held:{sum(held.values())}")
print(*(f"bytes:{size}:{name.replace(' ', '_')}" for name, size in sorted(held.items(), key=lambda one: -one[1])[:12]))
"""
#: Modules that an engine without a console uses rarely or never; hashlib alone loads OpenSSL's 4 MB.
RARE = LATER | {
    "hashlib", "hmac", "secrets", "ssl", "ctypes", "encodings.idna", "asyncio", "argparse", "tomllib",
    "sqlite3", "http", "email", "appliance.engine.broker.replay", "appliance.engine.filter.sql92",
    "appliance.engine.broker.delays.early_batch", "appliance.engine.broker.clean_up",
    "appliance.engine.broker.deliveries.history", "appliance.engine.broker.slave_side",
    "appliance.engine.broker.master_side", "appliance.engine.tls", "appliance.engine.remoting.proxy_door",
    "appliance.engine.protocol.proxy_header",
}  # fmt: skip


#: Most modules of `engine.window` that a console loads before it is asked for anything, with its samples and checks.
MOST_OF_THE_WINDOW = 52
#: Classes that these make with `dataclasses`.
MOST_SLOW_IN_THE_WINDOW = 2
SAMPLED = "list(engine.window.measurements.take(30)), engine.window.overview.snapshot(), engine.window.checks()"
#: Subjects that no sample needs, below `appliance.engine`.
ASKED_FOR = (
    "window.dead_letters.views window.groups.diagnosis window.messages.views window.messages.search "
    "window.offsets.commands window.topics.commands window.topics.views window.waiting.views "
    "window.figures.upstream_metrics broker.replay filter.query broker.slave_side"
)


def started(roles: tuple[str, ...], directory: os.PathLike[str], look: str = "") -> set[str]:
    text = ENGINE.format(directory=str(directory), roles=roles, look=look)
    return loaded(f"{TRACE}\n{text}" if BYTES in look else text, directory)


@pytest.mark.parametrize("roles", MOST_MODULES, ids="+".join)
def test_an_engine_alone_loads_and_makes_little(roles, tmp_path):
    names = started(roles, tmp_path, f"{LOOK}\n{BYTES}")
    assert {name for name in names if name.startswith("appliance.engine.window.")} <= {
        "appliance.engine.window.options", "appliance.engine.window.sentences",
    }  # fmt: skip
    # The pure twin asks the kernel for cached pages with it.
    assert sorted(names & RARE) == ([] if COMPILED else ["ctypes"])
    for package, most in MOST_MODULES[roles].items():
        prefix = f"appliance.engine.{package}".rstrip(".") + "." if package else "appliance."
        own = sorted(name for name in names if f"{name}.".startswith(prefix))
        assert len(own) <= most, f"{len(own)} modules of {prefix}, one of them is new here: {own}"
    slow = sorted(word for word in names if word.startswith("dataclass:"))
    assert len(slow) <= MOST_DATACLASSES, f"make a msgspec.Struct or a NamedTuple of one: {slow}"
    typings = sorted(word for word in names if word.startswith("typing:"))
    assert not typings, f"import NamedTuple from appliance.engine.named_tuple: {typings}"
    held = next(int(word.removeprefix("held:")) for word in names if word.startswith("held:"))
    largest = sorted(word for word in names if word.startswith("bytes:"))
    if COMPILED and sys.version_info[:2] == (3, 11):
        assert held <= MOST_BYTES[roles], f"{held} bytes, most of them made in: {largest}"


def test_an_engine_with_replay_jobs_loads_what_works_them_off(tmp_path):
    jobs = tmp_path / "rocketbox" / "replay"
    jobs.mkdir(parents=True)
    (jobs / "0.job").write_bytes(b"")
    assert "appliance.engine.broker.replay.service" in started(("broker", "namesrv"), tmp_path)


def test_a_console_loads_a_subject_of_the_broker_when_it_is_asked_for(tmp_path):
    names = started(("broker", "namesrv"), tmp_path / "samples", f"{SAMPLED}\n{LOOK}")
    assert not names & {f"appliance.engine.{name}" for name in ASKED_FOR.split()}
    window = sorted(name for name in names if name.startswith("appliance.engine.window."))
    assert len(window) <= MOST_OF_THE_WINDOW, f"{len(window)} modules, one of them is new here: {window}"
    slow = sorted(name for name in names if name.startswith("dataclass:appliance.engine.window."))
    assert len(slow) <= MOST_SLOW_IN_THE_WINDOW, f"take dataclass from appliance.engine.lazy_dataclass: {slow}"
    names = started(("broker", "namesrv"), tmp_path / "question", "engine.window.dead_letters, engine.window.search")
    assert {"appliance.engine.window.dead_letters.views", "appliance.engine.window.messages.views"} <= names
