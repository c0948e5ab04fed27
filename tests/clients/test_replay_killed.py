"""Thousands of dead letters of an official consumer, replayed at a set rate; the server is killed in the middle."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import Agent
from tests.clients.conftest import create_topic, wait_for_clients
from tests.clients.full_house import PASSWORD, USER, Visitor
from tests.clients.messages import Message
from tests.support.effort import effort
from tests.support.server import Server

pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", ["java-5.3.3"], indirect=True)]

COUNT, RATE = effort(4_000, 10_000, 10_000), 1000
TOPIC, GROUP = "killed-orders", "killed-billing"
READY_S = 90


def test_a_killed_replay_goes_on_and_sends_nothing_twice(agent: Agent, tmp_path: Path) -> None:
    environment = {"ADMIN_USER": USER, "ADMIN_PASSWORD": PASSWORD}
    arguments = ("--flush", "async", "--http-port", "0")
    with Server(
        tmp_path / "data", *arguments, roles="broker,namesrv,console", environment=environment, log_file_mib=64
    ) as server:
        visitor = Visitor(server.ready["http"])
        create_topic(agent, server, TOPIC, queues=4)
        make_dead_letters(agent, server, visitor)
        server.restart()  # saves the group's offsets: a kill within 5 s of a commit brings the messages again
        visitor = Visitor(server.ready["http"])
        job = replay(visitor)
        wait_for_clients(lambda: visitor.json(f"/replays/{job}")["replayed"] > COUNT * 0.4, "the middle", READY_S)
        server.kill()
        before = time.monotonic()
        server.start()
        visitor = Visitor(server.ready["http"])
        with agent.push(server.namesrv, TOPIC, GROUP, sink=str(tmp_path / "given")) as healthy:
            found = finished(visitor, job)
            print(f"killed, started and done again in {time.monotonic() - before:.1f} s: {found}")
            assert (found["state"], found["replayed"]) == ("done", COUNT)
            adds_up(found)
            rows = results(visitor, job)
            assert [row["number"] for row in rows] == list(range(COUNT))
            assert Counter(row["result"] for row in rows) == {"replayed": COUNT}
            stored = visitor.json(f"/topics/%25RETRY%25{GROUP}/queues")["items"]
            assert sum(queue["max_offset"] - queue["min_offset"] for queue in stored) == COUNT, "one copy of each"
            given = tmp_path / "given"
            wait_for_clients(lambda: len(lines_of(given)) >= COUNT, "all were consumed", READY_S)
            time.sleep(1)
            bodies = Counter(line[-1] for line in lines_of(given))
            assert (len(bodies), bodies.total()) == (COUNT, COUNT), "each once"
            # Again, without a break: how exact the rate is.
            again = finished(visitor, replay(visitor))
            assert (again["state"], again["replayed"]) == ("done", COUNT)
            first, last = (stored_at_ms(visitor, offset) for offset in (COUNT, 2 * COUNT - 1))
            took = (last - first) / 1000
            behind_first = COUNT - RATE // 10  # the first batch is stored at once
            print(f"{COUNT} at {RATE} a second took {took:.2f} s: {behind_first / took:.1f} a second")
            # On a machine that stands still for a moment the first batch is stored late, and what is behind then goes
            # a quarter faster.
            assert behind_first / took <= RATE * 1.5
            healthy.stop()


def make_dead_letters(agent: Agent, server: Server, visitor: Visitor) -> None:
    with agent.producer(server.namesrv, group="killed-shop") as producer:
        for begin in range(0, COUNT, 1000):
            some = range(begin, begin + 1000)
            producer.send(TOPIC, [Message(b"order %d" % number, "paid", (f"order-{number}",)) for number in some])
    with agent.push(server.namesrv, TOPIC, GROUP, fail=-1, max_reconsume=0, sink="/dev/null"):
        wait_for_clients(lambda: letters(visitor) == COUNT, f"{COUNT} dead letters", READY_S)
        # What it has not committed comes again, to the next member.
        wait_for_clients(lambda: visitor.json(f"/groups/{GROUP}")["lag"] == 0, "all of it is committed", READY_S)


def letters(visitor: Visitor) -> int:
    return sum(row["count"] for row in visitor.json(f"/dead-letters?q={GROUP}")["items"])


def replay(visitor: Visitor) -> str:
    fields = {"target": "group", "rate": str(RATE), "max_replays": "5", "step": "apply"}
    place = visitor.fill_in(f"/dead-letters/{GROUP}/replay/", **fields)
    return place.rstrip("/").rpartition("/")[2]


def finished(visitor: Visitor, job: str) -> dict[str, Any]:
    def state() -> Any:
        found = visitor.json(f"/replays/{job}")
        adds_up(found)
        return found["state"] != "running" and found

    wait_for_clients(state, "the job ends", READY_S)
    return dict(visitor.json(f"/replays/{job}"))


def adds_up(job: dict[str, Any]) -> None:
    parts = ("replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_chosen", "not_reached")
    assert sum(job[part] for part in parts) == job["total"] == COUNT, job


def results(visitor: Visitor, job: str) -> list[dict[str, Any]]:
    """The whole file."""
    text = visitor.get(f"/replays/{job}/results/?format=ndjson").text
    return [json.loads(line) for line in text.splitlines()]


def stored_at_ms(visitor: Visitor, offset: int) -> int:
    """When a copy was stored."""
    return int(visitor.json(f"/messages/%25RETRY%25{GROUP}/0/{offset}")["stored_at_ms"])


def lines_of(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []
