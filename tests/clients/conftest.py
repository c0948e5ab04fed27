"""The server under test and the clients.

By default the server is RocketBox. ROCKETBOX_TEST_AGAINST=apache-5.3.3 (or apache-4.9.7) runs the same tests against
Apache RocketMQ: what fails there is a fault of the test. Tests marked `own` then stay out: they ask for what only
RocketBox does. RocketBox answers as 5.3.3 does, so eight cases fail against 4.9.7: it does not know requests 351 and
361 of 5.x clients, finds other offsets by time, and has no runtime figures in its first minute.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from tests.clients.agents import Agent, ClientFailed, start_cpp, start_go, start_java, start_python
from tests.clients.programs import JAVA_VERSIONS
from tests.clients.stage import LEVELS, AllAtOnce, Clients
from tests.support.apache import ApacheRocketMQ
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

AGAINST = os.environ.get("ROCKETBOX_TEST_AGAINST", "rocketbox")

JAVA = [f"java-{version}" for version in JAVA_VERSIONS]
BINARY = [f"{name}-rocketmq" for name in JAVA]
EVERY = [*JAVA, *BINARY, "go"]
#: With this project's own.
EVERY_AND_PYTHON = [*EVERY, "python"]


def newest_first(*kinds: str) -> list[Any]:
    """The newest Java and Go, and the other kinds at night: for what takes each of them many seconds of waiting."""
    newest = (JAVA[-1], "go")
    return [kind if kind in newest else pytest.param(kind, marks=pytest.mark.nightly) for kind in kinds]


_TOPICS = itertools.count(1)


class Target(Protocol):
    """The server under test."""

    namesrv: str
    broker: str


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own: asks for what RocketBox does and Apache RocketMQ does not")
    config.addinivalue_line("markers", "at_once: goes on beside the others of its file, see tests/clients/stage.py")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that goes on beside others reports how it went."""
    if not pyfuncitem.get_closest_marker("at_once"):
        return None
    pyfuncitem.funcargs["stage"].outcome(pyfuncitem)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if AGAINST == "rocketbox":
        return
    own = [item for item in items if item.get_closest_marker("own")]
    if own:
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """One server for all tests that do not stop it; each test has topics and groups of its own."""
    scratch = shared_directory(request, "server")
    if AGAINST == "rocketbox":
        with Server(scratch / "data", log_file_mib=None) as server:
            yield server
    else:
        with ApacheRocketMQ(AGAINST.removeprefix("apache-"), heap="256m") as apache:
            yield apache


@pytest.fixture(scope="session")
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """The client process named by the test's parameter; one at a time, kept as long as tests want the same."""
    running = start(request.param, request)
    yield running
    running.close()


@pytest.fixture(scope="package")
def shared_quick(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A server whose delay levels last seconds; no test stops it."""
    scratch = shared_directory(request, "quick")
    if AGAINST == "rocketbox":
        with Server(scratch / "data", environment={"ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": LEVELS}) as server:
            yield server
    else:
        config = {"messageDelayLevel": LEVELS, "recallMessageEnable": "true", "enablePropertyFilter": "true"}
        with ApacheRocketMQ(AGAINST.removeprefix("apache-"), heap="256m", config=config) as apache:
            yield apache


@pytest.fixture(scope="module")
def quick(shared_quick: Target) -> Target:
    """The server of a file's tests marked `at_once`; a file may have another one."""
    return shared_quick


@pytest.fixture(scope="package")
def clients(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """One client process of each kind."""
    running = Clients(lambda kind: start(kind, request))
    yield running
    running.close()


def marked_at_once(request: pytest.FixtureRequest, early: bool) -> list[pytest.Item]:
    """Return the tests of the run marked `at_once` that start early, or those that do not."""
    marked = [(item, item.get_closest_marker("at_once")) for item in request.session.items]
    return [item for item, mark in marked if mark is not None and mark.kwargs.get("early", False) is early]


@pytest.fixture(scope="package")
def early(request: pytest.FixtureRequest, clients: Clients) -> Iterator[AllAtOnce | None]:
    """The tests that are marked `at_once(early=True)`, of any file, all of them under way; None without any."""
    chosen = marked_at_once(request, True)
    if not chosen:
        yield None
        return
    target = request.getfixturevalue("shared_quick")
    running = AllAtOnce(chosen, target, clients, shared_directory(request, "early"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def all_at_once(request: pytest.FixtureRequest, quick: Target, clients: Clients) -> Iterator[AllAtOnce]:
    """The other tests of the file that are marked `at_once`, all of them under way."""
    here = [item for item in marked_at_once(request, False) if item.path == request.path]
    running = AllAtOnce(here, quick, clients, shared_directory(request, "at-once"))
    yield running
    running.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest, kind: str, early: AllAtOnce | None, all_at_once: AllAtOnce) -> AllAtOnce:
    """AllAtOnce that runs a test marked `at_once`: it calls the test with a Stage."""
    return early if early is not None and request.node in early else all_at_once


def start(name: str, request: pytest.FixtureRequest) -> Agent:
    """A client process by its name: java-VERSION, java-VERSION-rocketmq, go, cpp or python."""
    scratch = shared_directory(request, name)
    if name == "go":
        return start_go(scratch)
    if name == "cpp":
        return start_cpp(scratch)
    if name == "python":
        return start_python(scratch)
    _, version, *codec = name.split("-")
    return start_java(version, codec[0] if codec else "json", scratch)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses; it does not exist yet."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.originalname)
    return f"{name[5:60]}_{next(_TOPICS)}"


@pytest.fixture
def group(topic: str) -> str:
    """A group name no other test uses."""
    return f"g_{topic}"


@pytest.fixture
def new_topic(agent: Agent, target: Target, topic: str) -> Callable[..., str]:
    """new_topic(queues=4, ...) creates the test's topic and waits until the name server routes it."""
    return lambda queues=4, **settings: create_topic(agent, target, topic, queues=queues, **settings)


def create_topic(agent: Agent, target: Target, topic: str, **settings: Any) -> str:
    agent.do("admin.create_topic", namesrv=target.namesrv, broker=target.broker, topic=topic, **settings)
    wait_for_clients(lambda: topic in agent.do("admin.topics", namesrv=target.namesrv), f"{topic} is routed")
    return topic


def wait_for_clients(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Until `holds()`; a client's failure on the way counts as not yet."""
    wait_for(holds, what, seconds, every=0.02, not_yet=(ClientFailed,))
