"""One Spark for all tests of this directory: a session costs 7 s and 600 MB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.clients.agents import start_go, start_java
from tests.clients.messages import Message
from tests.clients.programs import JAVA_VERSIONS
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.spark import end_java, environment, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session at local[2] that keeps everything below a directory of its own; its JVM ends with it.

    Tests share it: a test that registers or sets something takes it back. Times are UTC in Spark; `collect()` gives
    them in this process's time zone, so compare in Spark, or by `toArrow()`. A test that needs another master starts
    another process.
    """
    place = shared_directory(request, "spark")
    before = dict(os.environ)
    os.environ.update(environment(place))
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in settings(place).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    finally:
        # Java has read the environment by now, and other tests need the usual one.
        os.environ.clear()
        os.environ.update(before)
    try:
        yield session
    finally:
        end_java(session)


@pytest.fixture
def own_settings(spark: SparkSession) -> Iterator[SparkSession]:
    """The session for a test that changes settings: they are restored afterwards."""
    before = dict(spark.conf.getAll)
    yield spark
    for name in set(spark.conf.getAll) - set(before):
        spark.conf.unset(name)
    for name, value in before.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)


#: Contents of `server`: topic -> bytes of its messages' bodies.
SIZES = {"Orders": [10] * 90 + [1000] * 10, "Refunds": [50] * 7}


@pytest.fixture(scope="package")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running broker to which official clients have sent messages."""
    scratch = shared_directory(request, "traffic")
    with Server(scratch / "data") as running:
        java = start_java(JAVA_VERSIONS[-1], "json", scratch / "java")
        go = start_go(scratch / "go")
        for agent, topic in ((java, "Orders"), (go, "Refunds")):
            messages = [
                Message(b"x" * size, tags="paid", keys=(f"customer-{number % 3}", "all"))
                for number, size in enumerate(SIZES[topic])
            ]
            with agent.producer(running.namesrv) as producer:
                producer.send(topic, messages)
            agent.close()
        yield running
