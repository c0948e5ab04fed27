"""Crashes the replayer found a store to fail at, each as short as it gets."""

import random

import pytest

from appliance.engine.store.queues.flush_queues import TopicDeletion
from tests.crash.crashes import nothing
from tests.crash.life import GONE, Life, properties_of
from tests.crash.replayer import CrashedDisk
from tests.crash.services_life import ServicesLife


def a_life(image=None, synchronous=False):
    life = Life("found", image, synchronous, nothing)
    life.open()
    return life


def write(life, topic, *bodies, queue_id=0):
    for body in bodies:
        queue = life.store.queues.get_or_create(topic, queue_id)
        life.store.put(
            queue, bytes((len(topic),)) + topic.encode(), body, properties_of(body), 0, 0, 0, 1, b"\0" * 8, 0
        )
        life.store.end_tick()


def settle(life):
    life._sync()
    assert life.store._flush_queues.work(running=False)


def delete(life, topic):
    deletion = TopicDeletion(topic)
    life.store.forget_topic(deletion)
    assert life.store._flush_queues.delete_topics()


def crash(life, mode, at=None):
    """The disk after a crash: `mode` as in MODES, before operation `at` of the record."""
    crashed = CrashedDisk(None, life.disk.kinds)
    for operation in life.disk.record[:at]:
        crashed.follow(operation)
    return crashed.image(mode, random.Random(1))


def test_a_deletion_that_outlived_the_log_before_it_takes_no_later_message():
    life = a_life()
    write(life, "A", b"old")
    settle(life)
    write(life, "B", b"never synced" * 20)
    delete(life, "A")
    life = a_life(crash(life, "none"))
    assert life.recovered() == {("A", 0): [GONE]}
    write(life, "A", b"new 1", b"new 2")
    life._sync()
    life = a_life(disk_of(life))
    assert life.recovered() == {("A", 0): [GONE, b"new 1", b"new 2"]}


def disk_of(life):
    """Return the files as the process sees them, which a kill leaves."""
    found = {}

    def walk(node, prefix):
        for name, child in life.disk.directories[node].items():
            path = f"{prefix}/{name}"
            if child in life.disk.directories:
                found[path] = None
                walk(child, path)
            else:
                found[path] = bytes(life.disk.files[child])

    walk(0, "")
    return found


def test_a_queue_file_made_and_not_written_is_no_remains_of_a_deleted_topic():
    life = a_life()
    write(life, "A", b"old")
    settle(life)
    delete(life, "A")
    write(life, "A", b"new 1", b"new 2")
    settle(life)
    image = disk_of(life)
    image["/store/consumequeue/A/1"] = None
    image["/store/consumequeue/A/1/" + "0" * 20] = bytes(400)
    life = a_life(image)
    assert life.recovered() == {("A", 0): [GONE, b"new 1", b"new 2"]}


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_deletion_cut_off_is_finished(synchronous):
    life = a_life(synchronous=synchronous)
    write(life, "A", b"old 1", b"old 2")
    write(life, "B", b"kept")
    settle(life)
    begin = len(life.disk.record)
    delete(life, "A")
    seen = set()
    for at in range(begin, len(life.disk.record) + 1):
        found = a_life(crash(life, "all", at)).recovered()
        assert found.pop(("B", 0)) == [b"kept"]
        assert found in ({("A", 0): [b"old 1", b"old 2"]}, {("A", 0): [GONE, GONE]})
        seen.add(found["A", 0] == [GONE, GONE])
    assert seen == {True, False}


def test_a_directory_whose_sync_failed_is_synced_before_it_is_relied_on():
    life = a_life(synchronous=True)
    write(life, "A", b"1", b"2")
    life._sync()
    failed = []

    def fault(call, path):
        if call == "sync_directory" and path.endswith("consumequeue/A") and not failed:
            failed.append(path)
            raise OSError(5, "Input/output error")

    life.disk.fault = fault
    assert not life.store._flush_queues.work(running=False)
    assert failed
    assert life.store._flush_queues.work(running=False)
    image = crash(life, "none")
    assert "/store/consumequeue/A/0/" + "0" * 20 in image
    assert a_life(image).recovered() == {("A", 0): [b"1", b"2"]}


def test_what_a_failed_sync_left_in_the_page_cache_is_not_believed():
    """A process that comes back reads from the disk, or a reader sees what the next power cut takes back."""
    life = a_life(synchronous=True)
    write(life, "A", b"durable")
    life._sync()
    write(life, "A", b"never stored")

    def fault(call, path):
        if call == "fdatasync":
            raise OSError(5, "Input/output error")

    life.disk.fault = fault
    life._sync()
    assert life.store.log.broken
    life.disk.fault = lambda call, path: None
    life.leave()
    life.open()
    seen = life.recovered()
    assert a_life(crash(life, "none")).recovered() == seen == {("A", 0): [b"durable"]}


def test_a_log_file_that_a_dying_process_made_is_not_used_before_its_name_is_durable():
    life = a_life(synchronous=True)
    write(life, "A", b"x" * 700)
    life._sync()

    def fault(call, path):
        if call in ("sync_directory", "unlink"):
            raise OSError(5, "Input/output error")

    life.disk.fault = fault
    write(life, "A", *[b"y" * 700] * 3)  # half of the file: the next one is asked for
    assert not life.store.log._allocator.make_wanted()
    life.disk.fault = lambda call, path: None
    life._sync()
    life.leave()
    life.open()
    bodies = [b"x" * 700, *[b"y" * 700] * 3, *[b"z" * 700] * 3]
    write(life, "A", *bodies[4:])
    life._sync()
    assert len(life.disk.names("/store/commitlog")) == 2
    assert a_life(crash(life, "none")).recovered() == {("A", 0): bodies}


def test_a_record_whose_properties_were_not_written_is_a_torn_tail():
    """Its body and its topic are whole, and the CRC says nothing of what follows them."""
    life = a_life(synchronous=True)
    write(life, "A", b"whole")
    life._sync()
    end = life.store.log.written
    queue = life.store.queues.get_or_create("A", 0)
    filler = b"x" * (512 - (end + 91 + 1 + 6) % 512)
    properties = b"KEYS\x01k\x02"
    life.store.put(queue, b"\x01A", filler, properties, 0, 0, 0, 1, b"\0" * 8, 0)
    life.store.end_tick()
    image = disk_of(life)
    path = "/store/commitlog/" + "0" * 20
    begin = life.store.log.written - len(properties)
    data = bytearray(image[path])
    sector = begin - begin % 512 + 512
    assert begin < sector < begin + len(properties) or begin % 512 == 0
    cut = sector if begin % 512 else begin
    data[cut : cut + 512] = bytes(len(data[cut : cut + 512]))
    life = a_life({**image, path: bytes(data)}, synchronous=True)
    assert life.recovered() == {("A", 0): [b"whole"]}


def test_an_index_cut_with_the_log_is_not_believed_when_the_log_has_grown_again():
    life = ServicesLife("index", None, False, nothing)
    life.open()
    life._sync()
    write(life, "A", *[b"lost in the cut %d" % number for number in range(5)])
    life.store.index._prepare()
    while life.store.index.work():
        pass
    life.store.index.checkpoint()
    life = ServicesLife("index", crash(life, "none"), False, nothing)
    life.open()
    assert life.store.published == 0
    write(life, "A", *[b"in its place, and of another size %d" % number for number in range(5)])
    life = ServicesLife("index", disk_of(life), False, nothing)
    life.open()
    assert len(life.recovered()["A", 0]) == 5  # and each is found by its key


@pytest.mark.parametrize("missing", [1, 5, 9])
def test_a_record_whose_write_ended_in_its_properties_is_a_torn_tail(missing):
    life = a_life(synchronous=True)
    write(life, "A", b"whole")
    life._sync()
    write(life, "A", b"cut short")
    image = disk_of(life)
    path = "/store/commitlog/" + "0" * 20
    data, end = bytearray(image[path]), life.store.log.written
    data[end - missing : end] = bytes(missing)
    assert a_life({**image, path: bytes(data)}, synchronous=True).recovered() == {("A", 0): [b"whole"]}


def test_an_index_whose_last_write_failed_is_not_believed_after_a_clean_stop():
    life = ServicesLife("index", None, True, nothing)
    life.open()
    bodies = [b"%d" % number for number in range(12)]
    write(life, "A", *bodies)
    life._sync()
    index = life.store.index
    index._prepare()
    while index.work():
        pass
    index._hold_slots()
    write(life, "A", b"the last")
    life._sync()
    index.work()

    def fault(call, path):
        if call == "pwrite" and "/index/" in path:
            raise OSError(28, "No space left on device")

    life.disk.fault = fault
    life.store.stop()
    life.disk.fault = lambda call, path: None
    assert "/store/abort" not in disk_of(life)
    life = ServicesLife("index", disk_of(life), True, nothing)
    life.open()
    assert life.recovered() == {("A", 0): [*bodies, b"the last"]}  # and each is found by its key


def test_no_log_file_is_deleted_while_the_queues_live_by_it():
    """Before the first recovery position entries are in memory: a crash would have the queue begin at 0 again."""
    life = ServicesLife("retention", None, True, nothing)
    life.open()
    write(life, "A", b"the only one")
    for number in range(12):
        write(life, "B", b"%d" % number + b"x" * 700)
        life._sync()
    assert len(life.store.log.segments) > 1
    life._expire()
    life = ServicesLife("retention", disk_of(life), True, nothing)
    life.open()
    assert len(life.recovered()["A", 0]) == 1


def lives_after(life):
    """The store after a kill now, without its recovery position, and after one more stop."""
    image = disk_of(life)
    yield a_life(image)
    yield a_life({path: data for path, data in image.items() if path != "/rocketbox/recovery-position"})
    again = a_life(image)
    settle(again)
    yield a_life(disk_of(again))


def during(life, call, action):
    """Do something once, when the flush thread is about to do `call` with the entries of a queue."""
    original = getattr(life.store.queues, call)

    def first(*arguments):
        setattr(life.store.queues, call, original)
        action()
        return original(*arguments)

    setattr(life.store.queues, call, first)


def test_a_topic_deleted_a_second_time_while_its_entries_are_on_the_way_to_files():
    """The queue of its third life is no part of that, and goes on behind both."""
    life = a_life()
    write(life, "A", b"0", b"1", b"2")
    settle(life)
    delete(life, "A")
    write(life, "A", b"3", b"4")
    life._sync()
    deletion = TopicDeletion("A")

    def delete_and_make_again():
        life.store.forget_topic(deletion)
        write(life, "A", b"5")
        life._sync()

    during(life, "write_entries", delete_and_make_again)
    life.store._flush_queues.work(running=False)
    queue = life.store.queues.find("A", 0)
    assert not queue.broken
    assert life.store._flush_queues.delete_topics()
    write(life, "A", b"6")
    settle(life)
    wanted = {("A", 0): [GONE] * 5 + [b"5", b"6"]}
    assert life.recovered() == wanted
    for after in lives_after(life):
        assert not after.store.queues.find("A", 0).broken
        assert after.recovered() == wanted
        write(after, "A", b"7")
        assert after.recovered() == {("A", 0): [GONE] * 5 + [b"5", b"6", b"7"]}
