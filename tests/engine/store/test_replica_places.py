"""Places in their queues of records of another broker's log: topics made again, and records without a place."""

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
    """Append the part of the master's log that the copy lacks."""
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
    """Delete the topic as Apache does: it begins at 0 again."""
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
    """The copy heard of the deletion before it had all records of the topic."""
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


def second_and_third_life(master, life, heard_first):
    """A copy that has two lives of a topic in memory only when it hears of the deletion between them."""
    write(master, "A", b"0", b"1", b"2")
    copy(master, life)
    settle(life)
    first = delete_at(master)
    if heard_first:
        hear(life, first)
    write(master, "A", b"3", b"4")
    copy(master, life)
    second = delete_at(master)
    write(master, "A", b"5", b"6")
    copy(master, life)
    if not heard_first:
        hear(life, first)
    hear(life, second)


def delete_at(master):
    end = master.store.log.written
    ends = {queue.queue_id: Begin(queue.next_offset, end) for queue in master.store.queues.of_topic("A")}
    delete(master, "A")
    return Deletion("A", end, ends)


def hear(life, deletion):
    life.store._take_deletion(deletion)
    assert life.store._flush_queues.delete_topics()


@pytest.mark.parametrize("heard_first", [True, False])
def test_a_topic_made_again_twice_before_its_entries_are_in_files_is_whole(heard_first):
    master, life = a_life(), a_life()
    second_and_third_life(master, life, heard_first)
    wanted = {("A", 0): [GONE] * 5 + [b"5", b"6"]}
    assert life.recovered() == wanted == master.recovered()
    settle(life)
    assert not life.store.queues.find("A", 0).broken
    assert life.recovered() == wanted
    image = disk_of(life)
    bare = {path: data for path, data in image.items() if path != "/rocketbox/recovery-position"}
    for after in (a_life(image), a_life(bare), a_life(crash(life, "all"))):
        assert not after.store.queues.find("A", 0).broken
        assert after.recovered() == wanted
        write(master, "A", b"7")
        copy(master, after)
        assert after.recovered() == master.recovered()
        settle(after)
        assert a_life(disk_of(after)).recovered() == master.recovered()


def test_what_is_in_a_file_stays_there_when_a_deletion_ends_at_it():
    """A deletion may be taken back when the set went on without it."""
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1", b"2")
    copy(master, life)
    settle(life)
    before = life.store.queues.read_entries(life.store.queues.find("A", 0), 0, 3)
    first = delete_at(master)
    write(master, "A", b"3")
    copy(master, life)
    hear(life, first)
    settle(life)
    assert life.store.queues.find("A", 0).min_offset == 3
    assert life.store.queues.files.read("A", 0, 0, 3) == before
    assert life.recovered() == {("A", 0): [GONE] * 3 + [b"3"]}


@pytest.mark.parametrize("created", ["not", "by a reader", "behind a deleted topic"])
def test_a_queue_without_an_entry_begins_with_its_first_record_where_the_log_begins_in_its_middle(created):
    """The first file of the master's log is gone, with three messages of the queue."""
    master, life = a_life(), a_life()
    write(master, "A", b"0", b"1", b"2")
    while len(master.store.log.segments) < 2:
        write(master, "B", b"other" * 20)
    write(master, "A", b"3", b"4")
    queues = life.store.queues
    if created == "behind a deleted topic":
        queues.take_begins({"A": {0: Begin(1, 0)}})
    before = None if created == "not" else queues.get_or_create("A", 0)
    ReplicaAppender(life.store).begin_at(master.store.log.segments[1].start)
    copy(master, life)
    queue = queues.find("A", 0)
    assert (queue.min_offset, queue.max_offset) == (3, 5)
    assert before in (None, queue)  # pulls that wait there are woken
    settle(life)
    assert a_life(disk_of(life)).recovered()["A", 0] == [GONE] * 3 + [b"3", b"4"]
