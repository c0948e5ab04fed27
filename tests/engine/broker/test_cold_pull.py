"""Pulls of entries or records that are not in the page cache, or where that cannot be found out: one round through the
pool, whatever happens."""

import errno
import os
import threading
import time

import pytest

from appliance.engine.broker.pulling.cold_pulls import COLD_PULL_BYTES
from appliance.engine.disk import NO_SUCH_READ
from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.remoting import outbox
from appliance.engine.store.log import commit_log
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.page_cache import refuse_reads_that_never_wait
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
COUNT = 120
BODIES = [b"%d" % i * 30 for i in range(COUNT)]


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"))
    yield engine
    engine.stop()


@pytest.fixture
def topic(request, engine, peer):
    """A topic with COUNT messages whose entries lie in files."""
    name = "T_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]
    for body in BODIES:
        assert peer.ask(310, send_fields(name, 0, UNIQ), body).code == 0
    wait_for(lambda: engine.broker.store.find_queue(name, 0).tail_base == COUNT, "the entries were never written")
    return name


@pytest.fixture
def jobs(engine, monkeypatch):
    """The jobs that were handed to the pool."""
    pool = engine.broker.pull._cold._pool
    found = []
    real = pool.submit

    def submit(job, size=0, conn=None, answered=True):
        found.append(job)
        return real(job, size, conn, answered)

    monkeypatch.setattr(pool, "submit", submit)
    return found


@pytest.fixture
def hold(engine):
    """Keep the pool's thread busy until this event is set."""
    go_on, busy = threading.Event(), threading.Event()
    pool = engine.broker.pull._cold._pool
    type(pool).submit(pool, lambda: (busy.set(), go_on.wait(60)))
    assert busy.wait(60)
    yield go_on
    go_on.set()


@pytest.fixture
def cold(engine, monkeypatch):
    """Make every read miss the page cache."""
    disk = engine.broker.store.disk
    monkeypatch.setattr(disk, "reads_without_waiting", True, raising=False)
    monkeypatch.setattr(disk, "is_resident", lambda fd, position, size: False, raising=False)
    refuse_reads_that_never_wait(monkeypatch, errno.EAGAIN)


def pull(peer, topic, offset, **changes):
    return peer.ask(11, pull_fields(topic, 0, offset, **changes))


def pull_all(peer, topic):
    found, offset = [], 0
    while offset < COUNT:
        answer = pull(peer, topic, offset)
        assert answer.code == 0
        found += [r.body for r in records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
    return found


@pytest.mark.parametrize("number", sorted({errno.EAGAIN, *NO_SUCH_READ}), ids=errno.errorcode.get)
def test_what_no_read_finds_in_the_page_cache_is_read_by_the_pool_once(peer, topic, engine, monkeypatch, jobs, number):
    """With tmpfs, network file systems, FUSE or short memory the pull would go round between loop and pool."""
    disk = engine.broker.store.disk
    monkeypatch.setattr(disk, "reads_without_waiting", True, raising=False)
    monkeypatch.setattr(disk, "is_resident", lambda fd, position, size: False, raising=False)
    refuse_reads_that_never_wait(monkeypatch, number)
    assert pull_all(peer, topic) == BODIES
    pulls = -(-COUNT // 32)
    # Jobs read the entries of each pull; and its records, if the file system can say whether they are cached.
    assert len(jobs) == (2 * pulls if number == errno.EAGAIN else pulls)
    assert disk.reads_without_waiting is (number == errno.EAGAIN)


def test_what_is_there_at_times_only_is_answered_all_the_same(peer, topic, engine, monkeypatch, jobs):
    """When memory is short, a page that was read is evicted again, or appears in between."""
    disk = engine.broker.store.disk
    asked = []

    def at_times(fd, buffer, position):
        asked.append(position)
        if len(asked) % 3:
            raise BlockingIOError
        data = os.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    monkeypatch.setattr(disk, "reads_without_waiting", True, raising=False)
    monkeypatch.setattr(disk, "read_nowait", at_times, raising=False)
    assert pull_all(peer, topic) == BODIES
    assert 0 < len(jobs) < len(asked)


def test_tags_are_filtered_in_what_the_pool_read(peer, engine, cold):
    for i in range(40):
        properties = UNIQ + f"TAGS\x01{'AB'[i % 2]}\x02"
        assert peer.ask(310, send_fields("ColdTags", 0, properties), b"%d" % i).code == 0
    wait_for(lambda: engine.broker.store.find_queue("ColdTags", 0).tail_base == 40, "never written")
    answer = pull(peer, "ColdTags", 0, subscription="B")
    assert [r.body for r in records(answer.body)] == [b"%d" % i for i in range(1, 40, 2)]
    assert answer.ext_fields["nextBeginOffset"] == "40"
    assert pull(peer, "ColdTags", 0, subscription="C").code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_only_what_is_recent_is_read_on_the_io_thread_where_nobody_can_tell(peer, topic, engine, monkeypatch, jobs):
    """D2: everything behind the last 64 MiB of the log goes to the pool."""
    disk, log = engine.broker.store.disk, engine.broker.store.log
    monkeypatch.setattr(disk, "reads_without_waiting", False, raising=False)
    monkeypatch.setattr(disk, "is_resident", lambda fd, position, size: True, raising=False)
    assert pull(peer, topic, 0).code == 0
    assert len(jobs) == 1, "the queue's entries; the records are recent"
    physical = records(pull(peer, topic, COUNT - 1).body)[0].physical_offset
    del jobs[:]
    monkeypatch.setattr(commit_log, "RECENT_BYTES", log.written - physical)
    assert log.resident(physical, 100) is not None
    assert log.resident(physical - 1, 100) is None
    assert log.read_nowait(physical, memoryview(bytearray(100)))
    assert not log.read_nowait(physical - 1, memoryview(bytearray(100)))
    assert [r.body for r in records(pull(peer, topic, 0).body)] == BODIES[:32]
    assert len(jobs) == 2, "entries and records"


def test_a_tail_in_memory_is_served_without_the_pool(peer, engine, monkeypatch, jobs):
    monkeypatch.setattr(engine.broker.store.disk, "reads_without_waiting", False, raising=False)
    assert peer.ask(310, send_fields("Tail", 0, UNIQ), b"a").code == 0
    answer = pull(peer, "Tail", 0)
    assert [r.body for r in records(answer.body)] == [b"a"]
    assert len(jobs) <= 1, "unless it was written to its file in between"


def test_a_pull_whose_client_has_gone_is_dropped(topic, engine, cold, jobs, hold, monkeypatch):
    """Such a pull once went on for ever."""
    going = Peer(engine.broker_address)
    going.send(11, pull_fields(topic, 0, 0))
    wait_for(lambda: len(jobs) == 1, "the pull never came to the pool")
    read = []
    monkeypatch.setattr(engine.broker.pull._cold._reader, "entries", lambda *args: read.append(args) or b"")
    before = len(engine.server.connections)
    going.close()
    wait_for(lambda: len(engine.server.connections) < before, "the broker did not see it go")
    hold.set()
    done = threading.Event()
    engine.broker.pull._cold._pool.submit(done.set)
    assert done.wait(60)
    assert not read, "nothing is read without a reader"
    assert len(jobs) == 2, "the pull's one job and this test's"


def test_a_queue_that_is_deleted_while_the_pool_reads_is_answered_as_gone(peer, topic, engine, cold, jobs, hold):
    opaque = peer.send(11, pull_fields(topic, 0, 5))
    wait_for(lambda: len(jobs) == 1, "the pull never came to the pool")
    other = Peer(engine.broker_address)
    assert other.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    hold.set()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (opaque, ResponseCode.PULL_OFFSET_MOVED)
    assert (answer.remark, answer.ext_fields["nextBeginOffset"]) == ("NO_MATCHED_LOGIC_QUEUE", "0")
    assert len(jobs) == 1
    other.close()


def test_a_queue_that_begins_later_by_then_says_so(peer, topic, engine, cold, jobs, hold):
    """Retention moved its beginning: the messages that were read are not served."""
    queue = engine.broker.store.find_queue(topic, 0)
    peer.send(11, pull_fields(topic, 0, 5))
    wait_for(lambda: len(jobs) == 1, "the pull never came to the pool")
    queue.min_offset = 10
    hold.set()
    answer = peer.receive()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_a_queue_that_is_built_anew_by_then_is_asked_for_once_more(peer, topic, engine, cold, jobs, hold):
    """The answer keeps the offset: nothing is passed over."""
    queue = engine.broker.store.find_queue(topic, 0)
    peer.send(11, pull_fields(topic, 0, 5))
    wait_for(lambda: len(jobs) == 1, "the pull never came to the pool")
    queue.broken = True
    hold.set()
    answer = peer.receive()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "5")
    queue.broken = False
    assert [r.body for r in records(pull(peer, topic, 5).body)] == BODIES[5:37]


def test_rounds_are_bounded_even_when_no_read_is_ever_an_answer(peer, topic, engine, cold, jobs, monkeypatch):
    """Each round finds a changed queue: the client is asked to come back."""
    monkeypatch.setattr(engine.broker.store, "get", lambda *args: None)
    answer = pull(peer, topic, 0)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert len(jobs) == 3


@pytest.mark.parametrize("what", ["entries", "records"])
def test_a_disk_that_fails_in_the_pool_is_an_answer(peer, topic, engine, cold, what, monkeypatch):
    """Without an answer the client would wait for its timeout."""
    disk = engine.broker.store.disk
    real = disk.pread

    def pread(fd, size, position):
        if threading.current_thread().name == "pool-pull-cold" and (what == "entries") is (size % 20 == 0):
            raise OSError(errno.EIO, "bad sector")
        return real(fd, size, position)

    monkeypatch.setattr(disk, "pread", pread, raising=False)
    answer = pull(peer, topic, 0, maxMsgNums=1)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the messages cannot be read")
    monkeypatch.setattr(disk, "pread", real, raising=False)
    assert [r.body for r in records(pull(peer, topic, 0).body)] == BODIES[:32]


@pytest.mark.parametrize("what", ["entries", "records"])
def test_an_error_of_ours_in_the_pool_closes_the_connection(peer, topic, engine, cold, what, monkeypatch, caplog):
    """Without that the client would wait for its timeout, 30 s."""

    owner = engine.broker.pull._cold._reader if what == "entries" else engine.broker.store.log
    name = "entries" if what == "entries" else "read"
    real = getattr(owner, name)

    def fail(*args):
        if threading.current_thread().name == "pool-pull-cold":
            raise KeyError("planted")
        return real(*args)

    with monkeypatch.context() as planted:
        planted.setattr(owner, name, fail)
        going = Peer(engine.broker_address)
        going.send(11, pull_fields(topic, 0, 0))
        with pytest.raises(ConnectionError):
            going.receive()
    assert "planted" in caplog.text
    assert [r.body for r in records(pull(peer, topic, 0).body)] == BODIES[:32], "others are served"


def test_an_error_of_ours_behind_the_pool_closes_the_connection(peer, topic, engine, cold, monkeypatch, caplog):
    def fail(request, code, result):
        raise KeyError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(engine.broker.pull._answers, "found", fail)
        going = Peer(engine.broker_address)
        going.send(11, pull_fields(topic, 0, 0))
        with pytest.raises(ConnectionError):
            going.receive()
    assert "planted" in caplog.text
    assert [r.body for r in records(pull(peer, topic, 0).body)] == BODIES[:32], "others are served"


def test_one_peer_has_its_share_of_the_pool_and_no_more(peer, topic, engine, hold, monkeypatch):
    """One connection once took all 10,000 places of the pool."""
    monkeypatch.setattr(engine.broker.store.queues.files, "read_nowait", lambda *args: None)
    monkeypatch.setattr(outbox, "MAX_CONNECTION_WAITING_BYTES", 10 * COLD_PULL_BYTES)
    greedy = Peer(engine.broker_address)
    sent = [greedy.send(11, pull_fields(topic, 0, n)) for n in range(15)]
    refused = [greedy.receive() for _ in range(5)]
    assert [answer.opaque for answer in refused] == sent[10:]
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
    opaque = peer.send(11, pull_fields(topic, 0, 0))
    hold.set()
    assert [greedy.receive().opaque for _ in range(10)] == sent[:10]
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (opaque, 0)
    assert pull(greedy, topic, 0).code == 0, "its share is free again"
    greedy.close()


def test_more_messages_than_an_answer_may_hold_are_not_looked_for(peer, topic, engine, cold, monkeypatch):
    """A pull may ask for a million: once all their entries were read, on the I/O thread."""
    asked = []
    real = engine.broker.store.queues.read_entries

    def read_entries(queue, offset, count, files=None):
        asked.append(count)
        return real(queue, offset, count, files)

    monkeypatch.setattr(engine.broker.store.queues, "read_entries", read_entries)
    assert len(records(pull(peer, topic, 0, maxMsgNums=1_000_000).body)) == 32
    assert pull(peer, topic, 0, maxMsgNums=1_000_000, subscription="none").code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert asked == [32, 800]


def test_the_engine_stops_while_pulls_wait_for_the_pool(tmp_path, monkeypatch):
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    for body in BODIES:
        assert peer.ask(310, send_fields("T", 0, UNIQ), body).code == 0
    wait_for(lambda: engine.broker.store.find_queue("T", 0).tail_base == COUNT, "the entries were never written")
    refuse_reads_that_never_wait(monkeypatch, errno.EAGAIN)
    go_on = threading.Event()
    engine.broker.pull._cold._pool.submit(lambda: go_on.wait(60))
    for _ in range(20):
        peer.send(11, pull_fields("T", 0, 0))
    stopper = threading.Thread(target=engine.stop)
    stopper.start()
    time.sleep(0.2)
    go_on.set()
    stopper.join(60)
    assert not stopper.is_alive()
    peer.close()
