"""The servers that tests of reading run against: RocketBox and both generations of Apache RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.agents import Agent, start_java
from tests.spark_reports.network.servers import Target
from tests.support.apache import ApacheRocketMQ
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

KINDS = ("rocketbox", "apache-4.9.7", "apache-5.3.3")


@pytest.fixture(scope="package", params=KINDS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Each kind of server in turn."""
    kind = request.param
    if kind == "rocketbox":
        engine = RunningEngine(shared_directory(request, "engine"))
        try:
            assert engine.engine.namesrv_address is not None
            assert engine.engine.broker_address is not None
            yield Target(kind, engine.engine.namesrv_address, engine.engine.broker_address)
        finally:
            engine.stop()
    else:
        with ApacheRocketMQ(kind.removeprefix("apache-"), heap="256m") as apache:
            yield Target(kind, apache.namesrv, apache.broker)


@pytest.fixture(scope="package")
def java(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """Apache's Java client."""
    running = start_java("5.3.3", "json", shared_directory(request, "java"))
    yield running
    running.close()


@pytest.fixture
def engine(tmp_path) -> Iterator[RunningEngine]:
    """A server of the test's own."""
    running = RunningEngine(tmp_path)
    yield running
    running.stop()
