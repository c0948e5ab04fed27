"""Messages in flight: delivered by pulls, and not yet committed (208, 317)."""

from __future__ import annotations

import pytest

from appliance.engine import fastjson
from appliance.engine.broker import pull_offsets
from appliance.engine.broker.pull_offsets import PullOffsets
from appliance.engine.store.queues.consume_queue import ConsumeQueue
from tests.support.engine import Peer, pull_fields, send_fields, start_engine

TOPIC, GROUP = "InFlight", "CG"


@pytest.fixture
def engine(tmp_path):
    running = start_engine(tmp_path / "data")
    yield running
    running.stop()


@pytest.fixture
def filled(engine, peer):
    """Ten messages in queue 0, of which the group has committed two."""
    for _ in range(10):
        assert peer.ask(310, send_fields(TOPIC), b"text").code == 0
    peer.ask(200, {}, b'{"groupName":"CG"}')
    commit(peer, 2)
    return peer


def commit(peer, offset):
    assert peer.ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}).code == 0


def pull(peer, offset, **changes):
    return peer.ask(11, pull_fields(TOPIC, 0, offset, **changes))


def row(peer, queue_id=0, topic=TOPIC):
    table = fastjson.loads(peer.ask(208, {"consumerGroup": GROUP, "topic": topic}).body)["offsetTable"]
    [found] = [row for key, row in table.items() if fastjson.loads(key)["queueId"] == queue_id]
    return found["consumerOffset"], found["pullOffset"]


def total_in_flight(peer):
    return fastjson.loads(peer.ask(317, {"isOrder": "false"}).body)["totalInflightDiff"]


@pytest.mark.parametrize("code", [11, 361])
@pytest.mark.parametrize("said", [None, "", "-1", "1"])
def test_a_pull_that_says_no_offset_to_commit_moves_the_group_nowhere(filled, code, said):
    """Twice: the compiled twin takes pulls like one that was admitted before."""
    fields = pull_fields(TOPIC, 0, 2, sysFlag=5, commitOffset=said)
    if said is None:
        del fields["commitOffset"]
    for _ in range(2):
        filled.ask(code, fields)
        assert row(filled)[0] == (1 if said == "1" else 2)


def test_what_was_pulled_and_not_committed_is_in_flight(filled):
    assert row(filled) == (2, 2)
    assert total_in_flight(filled) == 0
    assert pull(filled, 2, maxMsgNums=5).code == 0
    assert row(filled) == (2, 7)
    assert total_in_flight(filled) == 5
    commit(filled, 4)
    assert row(filled) == (4, 7)
    assert total_in_flight(filled) == 3
    commit(filled, 7)
    assert row(filled) == (7, 7)
    assert total_in_flight(filled) == 0


def test_a_group_that_commits_beyond_what_it_pulled_has_nothing_in_flight(filled):
    assert pull(filled, 0, maxMsgNums=1).code == 0
    assert row(filled) == (2, 2)
    assert total_in_flight(filled) == 0


def test_a_held_pull_says_how_far_its_group_is(engine, filled):
    """After a restart of the broker a consumer that has taken everything only waits for more."""
    held = Peer(engine.broker_address)
    held.send(11, pull_fields(TOPIC, 0, 10, sysFlag=6, suspendTimeoutMillis=20_000))
    assert held.is_silent()
    assert row(filled) == (2, 10)
    assert filled.ask(310, send_fields(TOPIC), b"text").code == 0
    assert held.receive().code == 0
    assert row(filled) == (2, 11)
    held.close()


def test_each_group_and_queue_has_its_own(filled):
    assert filled.ask(310, send_fields(TOPIC, 1), b"text").code == 0
    assert pull(filled, 0, consumerGroup="Another").code == 0
    assert row(filled) == (2, 2)
    assert filled.ask(11, pull_fields(TOPIC, 1, 0)).code == 0
    assert (row(filled), row(filled, 1)) == ((2, 2), (0, 1))


def test_a_reset_group_has_nothing_in_flight(filled):
    assert pull(filled, 2).code == 0
    assert row(filled) == (2, 10)
    assert filled.ask(222, {"group": GROUP, "topic": TOPIC, "timestamp": -1, "queueId": 0, "offset": 1}).code == 0
    assert row(filled) == (1, 1)


def test_it_leaves_with_the_topic_and_with_the_group(engine, filled):
    pulled = engine.broker.offsets.pulled
    assert pull(filled, 2).code == 0
    assert len(pulled) == 1
    assert filled.ask(215, {"topic": TOPIC}).code == 0
    assert len(pulled) == 0
    assert filled.ask(310, send_fields("Other"), b"text").code == 0
    assert filled.ask(11, pull_fields("Other", 0, 0)).code == 0
    assert len(pulled) == 1
    assert filled.ask(207, {"groupName": GROUP}).code == 0
    assert len(pulled) == 0


def test_nothing_of_it_is_in_the_file(engine, filled):
    assert pull(filled, 2).code == 0
    offsets = engine.broker.offsets
    assert offsets.pulled.get(GROUP, engine.broker.store.find_queue(TOPIC, 0)) == 10
    assert fastjson.loads(offsets.document())["offsetTable"][f"{TOPIC}@{GROUP}"] == {"0": 2}


def test_beyond_the_bound_everything_is_forgotten(monkeypatch):
    monkeypatch.setattr(pull_offsets, "MOST_ENTRIES", 3)
    pulled, queues = PullOffsets(), [ConsumeQueue("T", number) for number in range(4)]
    for queue in queues[:3]:
        pulled.note("G", queue, 1)
    pulled.trim(lambda group: group)
    assert len(pulled) == 3
    pulled.note("G", queues[3], 1)
    pulled.trim(lambda group: group)
    assert len(pulled) == 0
    pulled.note("G", queues[0], 5)
    assert pulled.get("G", queues[0]) == 5


def test_a_group_that_is_gone_does_not_stay_for_a_pull_answered_after_its_end():
    pulled, queue = PullOffsets(), ConsumeQueue("T", 0)
    pulled.note("Gone", queue, 1)
    pulled.note("There", queue, 1)
    pulled.trim({"There": 1}.get)
    assert (pulled.get("Gone", queue), pulled.get("There", queue)) == (-1, 1)
