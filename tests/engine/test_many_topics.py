"""Topics made one after the other, a message in each queue, one route query of each; all exist after a restart."""

import os
from pathlib import Path

import msgspec
import pytest

from appliance.engine.store.queues.consume_queue_table import DESCRIPTORS
from tests.support.effort import effort
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

# More queues than there may be descriptors for.
TOPICS, QUEUES = effort((500, 4), (500, 4), (10_000, 10))
CREATE, SEND, PULL, ROUTE = 17, 310, 11, 105
WINDOW = 50
FLUSHED_S = 30 + TOPICS * QUEUES / 500


def name_of(number):
    return f"many-{number:06d}"


def ask_all(peer, questions):
    """Send many (code, header, body), WINDOW of them under way at a time; return the answers in order."""
    for begin in range(0, len(questions), WINDOW):
        part = questions[begin : begin + WINDOW]
        opaques = [peer.send(*question) for question in part]
        answers = {}
        while len(answers) < len(part):
            answer = peer.receive()
            if answer.is_response:
                answers[answer.opaque] = answer
        yield from (answers[opaque] for opaque in opaques)


def check_routes(engine):
    peer = Peer(engine.namesrv_address)
    for answer in ask_all(peer, [(ROUTE, {"topic": name_of(n)}) for n in range(TOPICS)]):
        assert answer.code == 0, answer.remark
        (queues,) = msgspec.json.decode(answer.body)["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"]) == (QUEUES, QUEUES)
    peer.close()


def check_messages(engine):
    peer = Peer(engine.broker_address)
    places = [(n, queue_id) for n in range(TOPICS) for queue_id in range(QUEUES)]
    pulls = [(PULL, pull_fields(name_of(n), queue_id, 0)) for n, queue_id in places]
    for place, answer in zip(places, ask_all(peer, pulls), strict=True):
        assert answer.code == 0, (place, answer.remark)
        assert [record.body for record in records(answer.body)] == [b"%d-%d" % place]
    peer.close()


def wait_flushed(store):
    wait_for(
        lambda: not any(queue.max_offset > queue.tail_base for queue in store.queues.all()),
        "the queue files to be written",
        FLUSHED_S,
    )


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors")
def test_many_topics_made_one_after_the_other_survive_a_restart(tmp_path):
    files = open_files()
    engine = start_engine(tmp_path, store={"mapped_file_size_commit_log": 64 << 20})
    try:
        broker, namesrv = Peer(engine.broker_address), Peer(engine.namesrv_address)
        for n in range(TOPICS):
            fields = {
                "topic": name_of(n), "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            assert broker.ask(CREATE, fields).code == 0
            assert namesrv.ask(ROUTE, {"topic": name_of(n)}).code == 0, "a topic that was acknowledged has a route"
            for queue_id in range(QUEUES):
                broker.send(SEND, send_fields(name_of(n), queue_id), b"%d-%d" % (n, queue_id))
            for _ in range(QUEUES):
                assert broker.receive().code == 0
        wait_flushed(engine.broker.store)
        check_messages(engine)
        assert open_files() - files < 2 * DESCRIPTORS + 200
        sampler = engine.window._parts.sampler
        ringed = [moves for moves in sampler.topics.values() if moves.ring is not None]
        assert len(ringed) < TOPICS / 10, "a topic that had a few messages has no place for ten minutes of them"
        broker.close()
        namesrv.close()
    finally:
        engine.stop()
    engine = start_engine(tmp_path, store={"mapped_file_size_commit_log": 64 << 20})
    try:
        check_routes(engine)
        check_messages(engine)
        assert open_files() - files < 2 * DESCRIPTORS + 200
    finally:
        engine.stop()
