"""mqadmin's column of messages in flight moves with what a group pulls and commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import mqadmin
from tests.clients.agents import Agent
from tests.clients.conftest import Target, create_topic, wait_for_clients
from tests.support.engine import Peer, pull_fields, send_fields

pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", ["java-5.3.3"], indirect=True)]


@pytest.fixture
def peer(target: Target) -> Iterator[Peer]:
    peer = Peer(target.broker)
    yield peer
    peer.close()


def test_what_is_pulled_and_not_committed_is_in_flight(
    agent: Agent, target: Target, topic: str, group: str, peer: Peer
) -> None:
    create_topic(agent, target, topic, queues=1)
    create_topic(agent, target, f"%RETRY%{group}", queues=1)  # where mqadmin looks for the group's brokers
    for _ in range(10):
        assert peer.ask(310, send_fields(topic), b"text").code == 0
    assert peer.ask(200, {}, b'{"groupName":"%b"}' % group.encode()).code == 0

    def commit(offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
        assert peer.ask(15, fields).code == 0

    def pull(offset: int, count: int) -> None:
        assert peer.ask(11, pull_fields(topic, 0, offset, consumerGroup=group, maxMsgNums=count)).code == 0

    def printed() -> tuple[list[str], str]:
        """(broker offset, consumer offset, diff, in flight), and the sum of the last."""
        text = mqadmin.run(agent, target.namesrv, f"consumerProgress -g {group}")
        [row] = [row for row in mqadmin.rows(text) if row[0] == topic]
        return row[3:7], text.rpartition("Consume Inflight Total:")[2].strip()

    commit(2)
    wait_for_clients(lambda: printed() == (["10", "2", "8", "0"], "0"), "nothing was pulled yet")
    pull(2, 5)
    assert printed() == (["10", "2", "8", "5"], "5")
    commit(4)
    assert printed() == (["10", "4", "6", "3"], "3")
    pull(7, 3)
    assert printed() == (["10", "4", "6", "6"], "6")
    commit(10)
    assert printed() == (["10", "10", "0", "0"], "0")
