"""Where records of another broker's log go in their queues: topics made again, and records without a place."""

import pytest

from appliance.engine.hotpath import RecordWalk
from appliance.engine.store import replica
from appliance.engine.store.replica import CannotPlace, Incoming, ReplicaAppender
from appliance.engine.store.retention.deleted_topics import Begin, Deletion
from tests.crash.life import GONE
from tests.crash.test_found import a_life, crash, delete, disk_of, settle, write


@pytest.fixture(params=["pure", "compiled"], autouse=True)
def twin(request, monkeypatch):
    if request.param == "pure":
        monkeypatch.setattr(replica, "RecordWalk", None)
    elif RecordWalk is None:
        pytest.skip("nothing was compiled")


def copy(master, life):
    """What of the master's log is not in the copy."""
    store, log = life.store, master.store.log
    incoming = Incoming(store.settings.segment_bytes)
    begin = store.log.written
    incoming.begin(begin)
    appender = ReplicaAppender(store)
    for segment in log.segments:
        at = max(begin, segment.start)
        if at < min(segment.end, log.written):
            incoming.feed(at, memoryview(log.read(at, min(segment.end, log.written) - at)))
            while (piece := incoming.take()) is not None:
                appender.append(piece)
                store.end_tick()
    store.end_tick()


def as_apache(master, topic):
    """The topic is deleted, and begins at 0 again."""
    delete(master, topic)
    master.store.queues.begins.clear()


def test_a_queue_begins_anew_where_an_apache_broker_made_its_topic_again_and_the_others_stay():
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1")
    write(master, "A", b"other 0", b"other 1", queue_id=1)
    as_apache(master, "A")
    write(master, "A", b"new")
    copy(master, life)
    wanted = {("A", 0): [b"new"], ("A", 1): [b"other 0", b"other 1"]}
    assert life.recovered() == wanted
    settle(life)
    assert a_life(disk_of(life)).recovered() == wanted


def test_records_of_a_deleted_topic_that_come_late_have_no_entry():
    """The copy heard of the deletion before it had all of the topic."""
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1")
    copy(master, life)
    write(master, "A", b"2", b"3")
    end = master.store.log.written
    delete(master, "A")
    life.store._take_deletion(Deletion("A", end, {0: Begin(4, end)}))
    assert life.store._flush_queues.delete_topics()
    write(master, "A", b"new 0", b"new 1")
    copy(master, life)
    wanted = {("A", 0): [GONE] * 4 + [b"new 0", b"new 1"]}
    assert life.recovered() == wanted == master.recovered()
    settle(life)
    assert a_life(disk_of(life)).recovered() == wanted


def test_a_deletion_that_is_heard_of_late_takes_what_came_before_it():
    """The copy has messages of the topic that was made again."""
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1")
    write(master, "A", b"other", queue_id=1)
    delete(master, "A")
    end = master.store.log.written
    write(master, "A", b"new")
    copy(master, life)
    assert life.recovered() == {("A", 0): [b"0", b"1", b"new"], ("A", 1): [b"other"]}
    life.store._take_deletion(Deletion("A", end, {0: Begin(2, end), 1: Begin(1, end)}))
    assert life.store._flush_queues.delete_topics()
    wanted = {("A", 0): [GONE, GONE, b"new"], ("A", 1): [GONE]}
    assert life.recovered() == wanted
    settle(life)
    for image in (disk_of(life), crash(life, "all")):
        assert a_life(image).recovered() == wanted
    image = disk_of(life)
    del image["/rocketbox/recovery-position"]  # all of the log is read
    assert a_life(image).recovered() == wanted


def test_a_record_that_goes_back_has_no_place_and_what_is_before_it_counts():
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1", b"2")
    copy(master, life)
    write(master, "B", b"kept")
    queue = master.store.queues.find("A", 0)
    queue.next_offset = queue.max_offset = queue.tail_base = 1
    del queue.tail[:]
    odd = master.store.log.written
    write(master, "A", b"1 again")
    with pytest.raises(CannotPlace, match=rf"the record at {odd} cannot be placed: it is number 1 of A-0") as found:
        copy(master, life)
    assert found.value.physical_offset == odd
    life.store.end_tick()
    assert life.store.log.written == odd
    assert life.recovered() == {("A", 0): [b"0", b"1", b"2"], ("B", 0): [b"kept"]}
