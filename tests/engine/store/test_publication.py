"""Ticks are published up to the least of the watermarks, in order, whichever watermark came last."""

from appliance.engine.store.publication import Publication
from tests.support.offline import damage
from tests.support.store import StoreUnderTest


def test_the_limit_is_the_least_of_the_watermarks():
    marks = {"written": 30, "durable": 20}
    publication = Publication({name: lambda name=name: marks[name] for name in marks})
    assert publication.limit() == 20
    marks["durable"] = 40
    assert publication.limit() == 30


def test_one_more_watermark_is_all_that_replication_needs(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    try:
        copied = 0
        store.store.publication.watermarks["replicated"] = lambda: copied
        store.write("T", 0, b"one", b"two")
        first, end = store.store.pending[0].end, store.store.log.written
        assert store.acked == []
        assert store.bodies("T", 0) == []
        copied = first
        store.store._publish_durable()
        assert store.bodies("T", 0) == [b"one"], "a replica has the first tick only"
        copied = end
        store.store._publish_durable()
        assert store.bodies("T", 0) == [b"one", b"two"]
        assert len(store.acked) == 2
        assert store.store.published == end
    finally:
        store.stop()


def test_a_tick_never_passes_one_that_waits_before_it(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    try:
        publication = store.store.publication
        publication.watermarks["replicated"] = lambda: 0
        store.write("T", 0, b"one")
        del publication.watermarks["replicated"]
        store.write("T", 0, b"two")
        assert [body for _, _, body in store.acked] == [b"one", b"two"]
    finally:
        store.stop()


def test_a_stop_before_others_confirmed_all_leaves_the_store_unfinished(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"one")
    confirmed = store.store.log.written
    store.store.publication.watermarks["replicated"] = lambda: confirmed
    store.write("T", 0, b"two", b"three")
    store.stop()
    assert damage(tmp_path) == []
    assert (tmp_path / "store" / "abort").exists()
    store.open()
    assert store.bodies("T", 0) == [b"one", b"two", b"three"]
    store.stop()
    assert damage(tmp_path) == []
    assert not (tmp_path / "store" / "abort").exists(), "all of it was published"
