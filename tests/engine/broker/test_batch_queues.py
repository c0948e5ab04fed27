"""Topics that Apache 5.x made with queue.type=BatchCQ: refused with a sentence, and their messages left as they are."""

import json

import pytest

from appliance.engine.protocol.record import SYS_INNER_BATCH
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.store import BORN, StoreUnderTest

SENTENCE = (
    "topic[Batches] has batch queues of Apache RocketMQ 5.x (queue.type=BatchCQ), which this broker does not serve"
)


@pytest.fixture
def engine(tmp_path):
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    topics = {
        name: {
            "attributes": attributes,
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }
        for name, attributes in (("Batches", {"queue.type": "BatchCQ"}), ("Plain", {"queue.type": "SimpleCQ"}))
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))
    engine = start_engine(tmp_path)
    yield engine
    engine.stop()


def test_sends_and_pulls_are_refused_with_a_sentence(engine):
    peer = Peer(engine.broker_address)
    for _ in range(2):  # a refusal is no route that is kept
        sent = peer.ask(310, send_fields("Batches", 0, ""), b"x")
        assert (sent.code, sent.remark) == (29, SENTENCE)
    pulled = peer.ask(11, pull_fields("Batches", 0, 0))
    assert (pulled.code, pulled.remark) == (29, SENTENCE)
    assert engine.broker.store.log.written == 0
    assert peer.ask(310, send_fields("Plain", 0, ""), b"x").code == 0
    assert peer.ask(11, pull_fields("Plain", 0, 0)).code == 0
    peer.close()


def test_a_batch_in_the_log_gets_no_entry_of_the_plain_kind(tmp_path):
    """One record with many messages would be taken for one message, and the next batch's offset for a gap."""
    store = StoreUnderTest(tmp_path).open()
    batch = store.store.queues.get_or_create("Batches", 0)
    for base in (0, 5):
        batch.next_offset = base
        store.store.put(batch, b"\x07Batches", b"five", b"INNER_NUM\x015\x02", 0, 0, SYS_INNER_BATCH, 1, BORN, 0)
        store.write("Plain", 0, b"%d" % base)
    store.stop()
    for path in sorted((tmp_path / "store" / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    for path in (tmp_path / "rocketbox").rglob("*"):
        if path.is_file():
            path.unlink()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("Plain", 0) == [b"0", b"5"]
    assert store.store.find_queue("Batches", 0) is None
    store.stop()
