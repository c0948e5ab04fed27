"""Dead letters of official consumers, replayed: they arrive at the group as they came the first time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAYED
from tests.clients.agents import Agent
from tests.clients.conftest import JAVA, newest_first, wait_for_clients
from tests.clients.messages import Message, assert_same
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

#: The broker replays, whoever receives it: one client in every run.
GO = pytest.param("go", marks=pytest.mark.nightly)
pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", [*newest_first(*JAVA), GO], indirect=True)]

READY_S = 90
MESSAGES = [
    Message(b"dead %d" % number, tags="apples", keys=(f"order-{number}",), properties={"city": "Zürich"})
    for number in range(5)
]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    """The jobs are asked for by the window, so the broker is in this process."""
    found = RunningEngine(shared_directory(request, "replay"), store={"flush_disk_type": "SYNC_FLUSH"})
    yield found
    found.stop()


def test_dead_letters_come_again_to_the_failed_group_only(
    agent: Agent, running: RunningEngine, topic: str, group: str
) -> None:
    window, namesrv = running.window, running.engine.namesrv_address
    topic, group, other = (f"{name}_{agent.name}".replace(".", "_") for name in (topic, group, f"{group}_b"))
    window.topic_commands.create(topic, read_queues=2, write_queues=2)
    window.group_commands.create(group)  # with its retry topic: a client that asked in vain asks again after 30 s
    dead = f"%DLQ%{group}"

    def letters() -> int:
        return running.engine.broker.store.offset_range(dead, 0)[1]

    with agent.producer(namesrv) as producer, agent.push(namesrv, topic, other) as bystander:
        with agent.push(namesrv, topic, group, fail=-1, max_reconsume=0) as failing:
            failing.wait_for_queues(2, READY_S)
            producer.send(topic, MESSAGES)
            wait_for_clients(lambda: letters() == 5, "5 dead letters", READY_S)
            page = window.dead_letters.page(group)
            assert {(row.origin_topic, row.times_replayed) for row in page.rows} == {(topic, 0)}
            # It fails again: the copy is dead again, and names its origin.
            job = window.replay_commands.start(group, offsets=[(0, 0)], by="ann").job
            wait_for_clients(lambda: letters() == 6, "the copy is dead, too", READY_S)
            newest = window.dead_letters.page(group, limit=1).rows[0]
            assert (newest.times_replayed, newest.came_by_job, newest.origin_topic) == (1, job.id, topic)
            # The healthy one receives what the failing one has not committed.
            wait_for_clients(lambda: window.groups.detail(group).lag == 0, "all of it is committed", READY_S)
        bystander.wait_for(5, READY_S)
        with agent.push(namesrv, topic, group) as healthy:
            healthy.wait_for_queues(2, READY_S)
            offsets = [(0, offset) for offset in range(1, 6)]
            job = window.replay_commands.start(group, offsets=offsets, rate=50, by="ann").job
            came = healthy.wait_for(5, READY_S)
            wait_for_clients(lambda: window.replays.job(job.id).state == "done", "the job is done", READY_S)
            assert window.replays.job(job.id).replayed == 5
            for one in came:
                message = next(message for message in MESSAGES if message.sha256 == one["body_sha256"])
                assert_same(message, one)
                assert (one["topic"], one["reconsume_times"]) == (topic, 0)
                assert one["properties"][REPLAY_JOB] == job.id
            assert len({one["body_sha256"] for one in came}) == 5
            assert sorted(one["properties"][REPLAYED] for one in came) == ["1", "1", "1", "1", "2"]
        assert len(bystander.received) == 5, "the other group got nothing again"
