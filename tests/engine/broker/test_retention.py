"""Old messages go and a disk fills up while clients are connected: the answers to producers, consumers and tools."""

import os
import threading
import time

import pytest

from appliance.engine.clock import Clock
from appliance.engine.disk import Disk, DiskUsage
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.window.health import disk_room
from tests.support.clock import FakeClock
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

from .test_recorded_tables import conversation

SEGMENT_BYTES = 256 * 1024
GIB = 1 << 30
BODY = bytes(range(256)) * 32  # 8 KiB


class Gauge:
    """Reported usage of the engine's disk of 20 log files; it falls by `freed` percent with each deleted file."""

    def __init__(self):
        self.percent, self.freed = 50.0, 0.0

    def usage(self, path):
        size = 20 * SEGMENT_BYTES
        used = int(self.percent / 100 * size)
        return DiskUsage(used, size - used)


@pytest.fixture
def gauge(monkeypatch):
    gauge = Gauge()
    real = Disk.unlink

    def unlink(self, path):
        real(self, path)
        if path.parent.name == "commitlog":
            gauge.percent -= gauge.freed

    monkeypatch.setattr(Disk, "usage", lambda self, path: gauge.usage(path))
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: GIB)
    monkeypatch.setattr(disk_room, "disk_usage", gauge.usage)
    monkeypatch.setattr(Disk, "unlink", unlink)
    return gauge


@pytest.fixture
def engine(tmp_path, gauge):
    engine = start_engine(
        tmp_path,
        store={
            "mapped_file_size_commit_log": SEGMENT_BYTES,
            "max_message_size": 64 * 1024,
            "disk_max_used_space_ratio": 75,
            "disk_space_clean_forcibly_ratio": 85,
            "disk_space_warning_level_ratio": 90,
            "clean_resource_interval_ms": 100,
            "delete_commit_log_files_interval_ms": 0,
        },
    )
    yield engine
    engine.stop()


@pytest.fixture
def store(engine):
    return engine.broker.store


def fill(peer, files, topic="T"):
    """Fill so many log files with messages of queue 0. Return the number of messages."""
    count = files * SEGMENT_BYTES // (len(BODY) + 200) + 1
    for _ in range(count):
        assert peer.ask(310, send_fields(topic), BODY).code == 0
    return count


def wait(condition, what, seconds=60.0):
    wait_for(condition, what, seconds)


def wait_flushed(store):
    wait(
        lambda: (p := store.files.recovery_position.position) and p.offset == store.published,
        "the queue files were not written",
    )


def free_front(store, gauge, files=1):
    """Report a full disk until so many log files are deleted."""
    wait_flushed(store)
    begin = store.log.min_offset
    for _ in range(files):
        old = store.log.min_offset
        gauge.freed, gauge.percent = 5.0, 86.0
        store.cleaner.wakeup()
        wait(lambda old=old: store.log.min_offset > old and gauge.percent < 85, "nothing was deleted")
    queues = [queue for queue in store.queues.all() if queue.max_offset]
    wait(lambda: any(queue.min_offset for queue in queues), "the queues did not follow")
    assert store.log.min_offset - begin >= files * SEGMENT_BYTES


@pytest.mark.parametrize("name", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
def test_tools_that_clean_are_answered_as_they_were_by_apache(peer, engine, name):
    codes = {"cleanExpiredCQ": 306, "cleanUnusedTopic": 316, "deleteExpiredCommitLog": 329}
    fill(peer, 1)
    asked = 0
    for _, request, theirs in conversation(f"mqadmin-{name}"):
        if request.code == codes[name]:
            ours = peer.ask(request.code, request.ext_fields, request.body)
            assert (ours.code, ours.remark, ours.ext_fields, ours.body) == (
                theirs.code,
                theirs.remark,
                theirs.ext_fields,
                theirs.body,
            )
            asked += 1
    assert asked
    assert peer.ask(11, pull_fields("T", 0, 0)).code == 0


def test_a_consumer_below_the_minimum_is_told_where_to_go_on(peer, store, gauge):
    fill(peer, 3)
    free_front(store, gauge)
    low = store.find_queue("T", 0).min_offset
    answer = peer.ask(11, pull_fields("T", 0, 0))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
    assert (int(answer.ext_fields["nextBeginOffset"]), int(answer.ext_fields["minOffset"])) == (low, low)
    answer = peer.ask(11, pull_fields("T", 0, low))
    assert records(answer.body)[0].queue_offset == low
    assert int(peer.ask(31, {"topic": "T", "queueId": 0}).ext_fields["offset"]) == low


def test_a_slow_reader_gets_all_of_a_file_that_is_gone(peer, store, gauge, engine):
    fill(peer, 3)
    expected = peer.ask(11, pull_fields("T", 0, 0)).body
    slow = Peer(engine.broker_address)
    opaques = [slow.send(11, pull_fields("T", 0, 0)) for _ in range(100)]  # 25 MB, more than the socket takes
    time.sleep(0.3)
    fd = os.dup(store.log.segments[0].fd)
    free_front(store, gauge)
    assert os.fstat(fd).st_nlink == 0, "the file is there still"
    os.close(fd)
    answers = [slow.receive() for _ in opaques]
    whole = [answer for answer in answers if answer.code == 0]
    assert len(whole) > 1
    assert {answer.body for answer in whole} == {expected}
    assert {answer.code for answer in answers} <= {0, ResponseCode.PULL_OFFSET_MOVED}
    slow.close()


def test_a_cold_pull_that_meets_the_removal_gets_what_is_left(peer, store, gauge, monkeypatch):
    count = fill(peer, 3)
    wait_flushed(store)
    log = store.log
    reading, go_on = threading.Event(), threading.Event()
    real = log.read

    def slowly(offset, size):
        if threading.current_thread().name == "pool-pull-cold":
            reading.set()
            go_on.wait(60)
        return real(offset, size)

    monkeypatch.setattr(log, "read_nowait", lambda offset, buffer: False)
    monkeypatch.setattr(log, "resident", lambda offset, size: None)
    monkeypatch.setattr(log, "read", slowly)
    border = next(n for n in range(count) if physical_of(store, n) < SEGMENT_BYTES <= physical_of(store, n + 1))
    opaque = peer.send(11, pull_fields("T", 0, border - 2))
    assert reading.wait(60)
    free_front(store, gauge)
    go_on.set()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (opaque, 0)
    offsets = [r.queue_offset for r in records(answer.body)]
    assert offsets
    assert offsets[0] == border + 1
    assert int(answer.ext_fields["nextBeginOffset"]) == offsets[-1] + 1


def physical_of(store, offset):
    queue = store.find_queue("T", 0)
    files = store.queues.new_files(4)
    try:
        return int.from_bytes(store.queues.read_entries(queue, offset, 1, files)[:8], "big")
    finally:
        files.close()


def test_a_full_disk_refuses_sends_and_nothing_else_and_comes_back(peer, store, gauge, engine):
    count = fill(peer, 1)
    object.__setattr__(store.cleaner.options, "clean_file_forcibly_enable", False)
    gauge.percent = 93.0
    wait(lambda: store.log.refused, "sends are taken still")
    answer = peer.ask(310, send_fields("T"), BODY)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == (
        "service not available now: the broker's disk is full [CL:  0.93 CQ:  0.93 INDEX:  0.93], "
        "more than 90% of it is in use"
    )
    assert "MSG_REGION" in answer.ext_fields, "Java reads it without a null check"
    batch = peer.ask(320, send_fields("T", m="true"), b"\0\0\0\x17" + bytes(12) + b"\0\0\0\x01x\0\0")
    assert batch.code == ResponseCode.SERVICE_NOT_AVAILABLE

    offset, bodies = 0, []
    while offset < count:
        answer = peer.ask(11, pull_fields("T", 0, offset))
        assert answer.code == 0
        bodies += [r.body for r in records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert bodies == [BODY] * count
    assert peer.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": count}).code == 0
    assert int(peer.ask(14, {"consumerGroup": "CG", "topic": "T", "queueId": 0}).ext_fields["offset"]) == count
    fields = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    assert peer.ask(17, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}).code == 0
    assert b'"commitLogDiskRatio":"0.9' in peer.ask(28).body
    said = {check.name: check for check in engine.window.checks()}
    assert said["disk"].level == "failed"
    assert str(said["disk"].sentence) == "The disk is 93.0 % full: sends are refused until it is below 90 %."
    assert all(check["ok"] for check in engine.health().values()), "it serves its consumers"

    gauge.percent = 90.0
    wait(lambda: store.log.refused is None, "sends are refused still")
    assert peer.ask(310, send_fields("T"), BODY).code == 0


def test_a_full_disk_that_holds_old_files_frees_itself(peer, store, gauge):
    fill(peer, 4)
    wait_flushed(store)
    gauge.percent, gauge.freed = 93.0, 5.0
    store.cleaner.wakeup()
    wait(lambda: gauge.percent <= 85 and store.log.refused is None, "it stays full")
    assert store.log.min_offset == 2 * SEGMENT_BYTES, "no more than had to go"
    assert peer.ask(310, send_fields("T"), BODY).code == 0


def test_queues_without_a_topic_go_when_a_tool_asks_for_it(peer, store, engine):
    fill(peer, 1, "Gone")
    fill(peer, 1, "Kept")
    wait_flushed(store)
    end = store.find_queue("Gone", 0).next_offset
    assert end
    engine.broker.topics.delete("Gone")
    assert peer.ask(306).code == 0
    assert store.find_queue("Gone", 0) is not None, "its messages have not expired"
    assert peer.ask(316).code == 0
    assert store.find_queue("Gone", 0) is None
    assert not (store.paths.consume_queues / "Gone").exists()
    assert peer.ask(11, pull_fields("Kept", 0, 0)).code == 0
    anew = peer.ask(310, send_fields("Gone"), b"anew")
    assert anew.code == 0
    assert anew.ext_fields["queueOffset"] == str(end), "it goes on behind what was deleted"
    behind = peer.ask(11, pull_fields("Gone", 0, 0))
    assert (behind.code, behind.ext_fields["nextBeginOffset"]) == (21, str(end))
    assert [r.body for r in records(peer.ask(11, pull_fields("Gone", 0, end)).body)] == [b"anew"]


def test_a_topics_reserve_time_is_set_by_a_tool_and_kept(peer, store, engine):
    assert peer.ask(310, send_fields("Short", d=1), b"old").code == 0
    assert peer.ask(310, send_fields("Long", d=1), b"old").code == 0
    fields = {
        "topic": "Short", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": "+reserve.time=2",
    }  # fmt: skip
    assert peer.ask(17, fields).code == 0
    assert engine.broker.topics.reserve_hours() == {"Short": 2}
    cleaner = store.cleaner
    cleaner.request_stop()
    cleaner._thread.join(60)
    cleaner.stopped = False  # the test does its work by hand from here on
    for hours, kept in ((1, [b"old"]), (3, [])):
        cleaner.clock = FakeClock(Clock().wall_ms() + hours * 3_600_000)
        cleaner._prepare()
        cleaner.look()
        assert [r.body for r in records(peer.ask(11, pull_fields("Short", 0, 0)).body)] == kept
    assert [r.body for r in records(peer.ask(11, pull_fields("Long", 0, 0)).body)] == [b"old"]
    fields["attributes"] = "+reserve.time=soon"
    assert peer.ask(17, fields).code == 1


def test_reading_and_writing_go_on_while_files_go(engine, store, gauge):
    """Three readers, one of them always far behind, while every round deletes; each sees order and no gap but at 21."""
    gauge.percent = 85.1  # it stays so: each round deletes a file
    failures, seen, moved = [], [0, 0, 0], [0, 0, 0]
    enough = threading.Event()

    def write():
        peer = Peer(engine.broker_address)
        while not enough.is_set():
            code = peer.ask(310, send_fields("T"), BODY).code
            if code != 0:
                failures.append(("sent", code))
        peer.close()

    def read(number, behind):
        peer, offset = Peer(engine.broker_address), 0
        while not enough.is_set():
            answer = peer.ask(11, pull_fields("T", 0, offset))
            following = int(answer.ext_fields.get("nextBeginOffset", offset))
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                if following <= offset and offset:
                    failures.append(("moved back", offset, following))
                moved[number] += 1
            elif answer.code == 0:
                got = [r.queue_offset for r in records(answer.body)]
                if got != list(range(following - len(got), following)):
                    failures.append(("gap", offset, got, following))
                seen[number] += len(got)
            elif answer.code not in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, 17):
                failures.append(("code", answer.code))
            offset = max(following, offset)
            time.sleep(0.8 if behind else 0)
        peer.close()

    threads = [threading.Thread(target=write)]
    threads += [threading.Thread(target=read, args=(n, n == 2)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait(lambda: failures or store.cleaner.status.log_files_deleted > 4, "files to go")
        wait(lambda: failures or seen[0] > 200, "the first to read on")
        wait(lambda: failures or moved[2], "the slow one to be overtaken")
    finally:
        enough.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert store.cleaner.status.failure is None


def test_what_goes_before_a_group_had_it_is_noted(peer, engine, store, gauge):
    """From a full disk to the record: only messages below the group's offset count as consumed."""
    count = fill(peer, 6)
    engine.broker.groups.find("CG")
    commit = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 3}
    assert peer.ask(15, commit).code == 0
    free_front(store, gauge, 2)
    queue = store.queues.find("T", 0)

    def is_whole():
        rows = engine.broker.deleted_unread.rows
        return bool(rows) and rows[-1].end == queue.min_offset

    wait(is_whole, "the note of all that went")
    rows = engine.broker.deleted_unread.rows  # one, or two when an hour ends meanwhile
    assert {(row.group, row.topic, row.queue_id) for row in rows} == {("CG", "T", 0)}
    assert rows[0].begin == 3
    assert 0 < sum(row.messages for row in rows) == queue.min_offset - 3 < count
