"""SIGKILL under load: every acknowledged message is there, unaltered, in its place, and consumers got nothing else.

Java and Go producers write down every acknowledgement as it arrives; a Java consumer writes down every message it is
given. The server is killed at a random moment of each round and started again on its directory and ports; in every
third round a start is killed, too, while it recovers.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from tests.clients.agents import Agent
from tests.clients.conftest import create_topic, start, wait_for_clients
from tests.clients.messages import assert_delivered, assert_handed_over, places, plain
from tests.support.effort import effort
from tests.support.server import Server

pytestmark = pytest.mark.own

#: Rounds of each flush mode; `make torture` has more.
ROUNDS = {"sync": effort(5, 24, 240), "async": effort(2, 8, 60)}
QUEUES = 4
# Acknowledged by each client before the round's clock starts, so that no round kills an idle server.
WARM_UP = 20

Place = tuple[int, int]
Record = tuple[str, str]  # message id ("-" where the client has none), SHA-256 of the body


@pytest.fixture(scope="module")
def agents(request: pytest.FixtureRequest) -> Iterator[dict[str, Agent]]:
    """A Java 5.3.3, a Java 4.9.8 and a Go client."""
    names = ("java-5.3.3", "java-4.9.8", "go")
    with ExitStack() as stack:
        running = {}
        for name in names:
            running[name] = start(name, request)
            stack.callback(running[name].close)
        yield running


@pytest.mark.parametrize(("flush", "rounds"), ROUNDS.items())
def test_kill_under_load_loses_and_alters_nothing(
    agents: dict[str, Agent], tmp_path: Path, flush: str, rounds: int
) -> None:
    """A killed process takes nothing with it that it has written, so asynchronous flush must pass as well."""
    seed = int(os.environ.get("ROCKETBOX_TEST_SEED") or random.randrange(1 << 31))
    print(f"ROCKETBOX_TEST_SEED={seed}")
    chance = random.Random(seed)
    topic = "under_load"
    java = agents["java-5.3.3"]
    files = {name: tmp_path / f"acknowledged-{name}" for name in agents}
    given = tmp_path / "given"
    with Server(tmp_path / "data", "--flush", flush, log_file_mib=None) as server:
        create_topic(java, server, topic, queues=QUEUES)
        with java.push(server.namesrv, topic, "watchers", sink=str(given)):
            for name, agent in agents.items():
                group = "load_" + name.replace(".", "_")
                agent.do(
                    "load.start", name="load", namesrv=server.namesrv, group=group, topic=topic, file=str(files[name]),
                    threads=2, retries=0, timeout_ms=1000, seed=seed,
                )  # fmt: skip
            restarts = []
            for number in range(rounds):
                everyone_goes_on(agents, f"round {number}, seed {seed}")
                time.sleep(chance.uniform(0.0, 0.6))
                server.kill()
                for _ in range(chance.choice((0, 0, 1, 2)) if number % 3 == 0 else 0):
                    server.launch()
                    time.sleep(chance.uniform(0.05, 0.5))
                    server.kill()
                begin = time.monotonic()
                server.start()
                restarts.append(time.monotonic() - begin)
            everyone_goes_on(agents, f"after the last round, seed {seed}")
            totals = {name: agent.do("load.stop", name="load") for name, agent in agents.items()}
            acknowledged = {name: records(file) for name, file in files.items()}
            stored = read_everything(java, server, topic, tmp_path / "stored")
            places_given = set().union(*map(set, acknowledged.values()))
            wait_for_clients(lambda: places_given <= set(records(given)), "the consumer caught up")
    print({name: (total["acknowledged"], total["failures"]) for name, total in totals.items()})
    print(f"{rounds} rounds, restarts: median {median(restarts):.2f} s, longest {max(restarts):.2f} s")
    for name, its in acknowledged.items():
        assert len(its) == totals[name]["acknowledged"], f"{name} was acknowledged one place twice"
        assert_kept(its, stored, f"acknowledged to {name}, seed {seed}")
    # D1: a consumer must not see what a crash can take back.
    assert_kept(records(given, repeats=True), stored, f"given to a consumer, seed {seed}")


def everyone_goes_on(agents: dict[str, Agent], when: str) -> None:
    """Wait until each producer has new acknowledgements."""
    with ThreadPoolExecutor() as pool:
        futures = {
            name: pool.submit(agent.do, "load.progress", name="load", more=WARM_UP, timeout_ms=60_000)
            for name, agent in agents.items()
        }
        for name, future in futures.items():
            try:
                future.result(90)
            except Exception as stuck:
                raise AssertionError(f"{name} does not go on, {when}") from stuck


def read_everything(agent: Agent, server: Server, topic: str, file: Path) -> dict[Place, Record]:
    """Every queue from its minimum to its maximum; checks that the offsets are dense."""
    with agent.client("pull", namesrv=server.namesrv, group="readers") as client:
        bounds = client("dump", topic=topic, file=str(file))
    stored = records(file)
    assert len(bounds) == QUEUES
    for bound in bounds:
        offsets = sorted(offset for queue_id, offset in stored if queue_id == bound["queue_id"])
        assert bound["min"] == 0
        assert offsets == list(range(bound["max"])), f"queue {bound['queue_id']} has gaps below {bound['max']}"
    return stored


def records(file: Path, repeats: bool = False) -> dict[Place, Record]:
    """Record lines by place. A place may come again only with `repeats`, and then with the same content."""
    table: dict[Place, Record] = {}
    whole_lines, _, _ = file.read_text().rpartition("\n")
    for line in whole_lines.splitlines():
        _, queue_id, offset, message_id, sha256 = line.split("\t")
        place, record = (int(queue_id), int(offset)), (message_id, sha256)
        if place in table:
            assert repeats or "given" in file.name, f"{file.name}: {place} twice"
            assert table[place] == record, f"{file.name}: {place} with two contents: {table[place]}, {record}"
        table[place] = record
    return table


def assert_kept(claimed: dict[Place, Record], stored: dict[Place, Record], what: str) -> None:
    """Every claimed place holds the claimed message."""
    missing = sorted(place for place in claimed if place not in stored)
    assert not missing, f"{what}: {len(missing)} of {len(claimed)} are gone: {missing[:10]}"
    other = sorted(
        place
        for place, (message_id, sha256) in claimed.items()
        if stored[place][1] != sha256 or message_id not in ("-", stored[place][0])
    )
    assert not other, f"{what}: {len(other)} places hold something else: {other[:10]}"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_topics_groups_offsets_and_messages_outlive_the_process(
    agents: dict[str, Agent], tmp_path: Path, how: str
) -> None:
    java, go = agents["java-5.3.3"], agents["go"]
    before, after = plain(40), plain(20, seed=1)
    with Server(tmp_path / "data", log_file_mib=None) as server:
        address = {"namesrv": server.namesrv, "broker": server.broker}
        topic = create_topic(java, server, "outlives", queues=3)
        with java.producer(server.namesrv) as producer:
            acks = producer.send(topic, before)
        with java.push(server.namesrv, topic, "kept") as consumer:
            consumer.wait_for(len(before))
        # Acknowledged a moment before the end: neither may wait for a file that is written now and then.
        java.do("admin.create_group", **address, group="last_group", retries=7)
        java.do("admin.create_topic", **address, topic="last_topic", queues=5)
        getattr(server, how)()
        server.start()
        assert java.do("admin.group", **address, group="last_group")["retries"] == 7
        assert java.do("admin.topic", **address, topic="last_topic")["read_queues"] == 5
        assert java.do("admin.topic", **address, topic=topic)["read_queues"] == 3
        with go.producer(server.namesrv) as producer:
            later = producer.send(topic, after)
        with go.push(server.namesrv, topic, "everything") as reader:
            reader.wait_for(len(before) + len(after))
            reader.stop()
            assert_delivered(before + after, acks + later, reader.received)
        if how == "stop":  # a kill may take what was committed since the last save
            with go.push(server.namesrv, topic, "kept") as reader:
                wait_for_clients(lambda: set(places(later)) <= set(places(reader.received)), "what was sent since")
                reader.stop()
                assert_handed_over(before + after, acks + later, consumer.received, reader.received, repeats=4)
