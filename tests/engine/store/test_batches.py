"""A batch lies in one file, at consecutive offsets, or nowhere."""

import itertools
import random

import pytest

from appliance.engine.errors import MessageTooLarge, StoreBroken
from appliance.engine.protocol.message_id import encode_host
from tests.support.batches import put_batch
from tests.support.store import BORN, StoreUnderTest


@pytest.fixture(params=[False, True], ids=["async", "sync"])
def store(request, tmp_path):
    under_test = StoreUnderTest(tmp_path, synchronous=request.param).open()
    yield under_test
    under_test.stop()


def put(store: StoreUnderTest, topic: str, bodies: list[bytes], born: bytes = BORN) -> list[int]:
    queue = store.store.queues.get_or_create(topic, 0)
    field = bytes((len(topic),)) + topic.encode()
    found = put_batch(store.store, queue, field, [(body, b"UNIQ_KEY\x01K\x02") for body in bodies], born)
    store.store.tick.acks.append(bodies)
    return found


def test_batches_and_single_messages_follow_each_other_over_many_files(store):
    chance = random.Random(7)
    sent, places = [], []
    for _ in range(60):
        bodies = [chance.randbytes(chance.randrange(2000)) for _ in range(chance.randrange(1, 20))]
        places.append((put(store, "T", bodies, chance.choice((BORN, encode_host("fd00::1", 5000)))), len(bodies)))
        sent += bodies
        if chance.random() < 0.5:
            store.put("T", 0, b"single")
            sent.append(b"single")
        if chance.random() < 0.4:
            store.tick()
    store.tick()
    store.wait_acked(60 + sent.count(b"single"))
    records = store.records("T", 0)
    assert [record.body for record in records] == sent
    assert [record.queue_offset for record in records] == list(range(len(sent)))
    sizes = {record.physical_offset: record.size for record in records}
    file_bytes = store.settings.segment_bytes
    assert records[-1].physical_offset > 5 * file_bytes
    for found, count in places:
        assert len(found) == count
        assert all(after == before + sizes[before] for before, after in itertools.pairwise(found))
        assert found[0] // file_bytes == (found[-1] + sizes[found[-1]] - 1) // file_bytes, "all in one file"


def test_a_batch_that_no_file_takes_leaves_nothing_behind(store):
    put(store, "T", [b"before"])
    with pytest.raises(MessageTooLarge):
        put(store, "T", [bytes(30_000)] * 3)
    put(store, "T", [b"after"])
    store.tick()
    store.wait_acked(2)
    assert [record.body for record in store.records("T", 0)] == [b"before", b"after"]


def test_a_refused_batch_leaves_nothing_behind(store):
    put(store, "T", [b"before"])
    store.store.log.refuse("no room", "test")
    with pytest.raises(StoreBroken):
        put(store, "T", [b"refused"] * 3)
    store.store.log.refuse(None, "test")
    put(store, "T", [b"after"])
    store.tick()
    store.wait_acked(2)
    assert [record.body for record in store.records("T", 0)] == [b"before", b"after"]
