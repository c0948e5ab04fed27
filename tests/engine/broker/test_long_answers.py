"""Questions of a few bytes whose answers would be endless: they cost at most as much as an answer that clients read."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine import fastjson
from appliance.engine.broker.processors import admin_clients, admin_progress, query
from appliance.engine.remoting import peer_requests
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path)
    yield found
    found.stop()


def test_a_topic_that_a_question_names_many_times_is_looked_at_once(running):
    """256 KiB of names of the topic with 1024 queues that every broker has would be an answer of gigabytes."""
    peer = running.peer()
    once = peer.ask(208, {"consumerGroup": "G", "topicList": "BenchmarkTest"})
    often = peer.ask(208, {"consumerGroup": "G", "topicList": "BenchmarkTest;" * 100})
    assert len(fastjson.loads(once.body)["offsetTable"]) == 1024
    assert often.body == once.body


def test_what_no_client_reads_is_refused_while_it_is_made(running, monkeypatch):
    peer = running.peer()
    offsets = running.engine.broker.offsets
    for number in range(5):
        assert peer.ask(17, {"topic": f"T{number}", "readQueueNums": 100, "writeQueueNums": 1, "perm": 6}).code == 0
        assert peer.ask(200, {}, b'{"groupName":"G%d"}' % number).code == 0
        for group in range(5):
            offsets.commit(f"G{group}", f"T{number}", 0, 0)
    looked_at = []
    time_before = admin_progress.AdminProgressProcessor._time_before
    monkeypatch.setattr(
        admin_progress.AdminProgressProcessor,
        "_time_before",
        lambda self, *queue: looked_at.append(queue) or time_before(self, *queue),
    )
    assert peer.ask(317, {"isOrder": "false"}).code == 0
    assert len(looked_at) == 2500, "each queue once for each group"
    monkeypatch.setattr(query, "MAX_BODY_BYTES", 40_000)
    for code, fields, most in ((317, {"isOrder": "false"}, 700), (208, {"consumerGroup": "G1"}, 450)):
        looked_at.clear()
        answer = peer.ask(code, fields)
        assert (answer.code, answer.remark[:25]) == (1, "the answer is longer than")
        assert len(looked_at) < most
    assert peer.ask(208, {"consumerGroup": "G1", "topic": "T1"}).code == 0


def test_lists_of_members_are_made_by_the_pool(running, monkeypatch):
    """There may be 2,000 groups of each connection."""
    peer = running.produce_as("c", "P")
    running.join("member", "G", "T")
    threads = []
    listed = admin_clients._success
    monkeypatch.setattr(
        admin_clients, "_success", lambda value: threads.append(threading.current_thread().name) or listed(value)
    )
    for code, fields in ((203, {"consumerGroup": "G"}), (204, {"producerGroup": "P"}), (328, {})):
        assert peer.ask(code, fields).code == 0
    assert threads == ["pool-query"] * 3
    monkeypatch.setattr(query, "MAX_BODY_BYTES", 50)
    assert peer.ask(328).code == 1


def test_members_are_asked_in_slices(running, monkeypatch):
    """223 asks every member of a group, and any client may send it."""
    asked = []
    ticks = []
    monkeypatch.setattr(
        peer_requests.PeerRequests,
        "ask",
        lambda self, conn, command, timeout_s, done: (asked.append(conn), done(None)),
    )
    monkeypatch.setattr("appliance.engine.broker.processors.admin_clients._ASKED_A_TICK", 2, raising=False)
    loop = running.engine.broker._loop
    call_soon = loop.call_soon
    members = [running.join(f"c{number}", "G", "T") for number in range(5)]
    monkeypatch.setattr(loop, "call_soon", lambda job: (ticks.append(len(asked)), call_soon(job)))
    assert running.peer().ask(223, {"group": "G", "topic": "T"}).code == 0
    wait_for(lambda: len(asked) == len(members), "every member is asked")
    assert {2, 4} <= set(ticks)
