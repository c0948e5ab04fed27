"""Topics take turns: a crowd of one topic that is due at one millisecond holds up no other topic's messages."""

import errno
import json
from zlib import crc32

import pytest

from appliance.engine.broker.timers import delivery, schedule
from appliance.engine.broker.timers.runs import ENTRY_BYTES, LANES, RunFile, lane_of, pack_entry, unpack_entry
from appliance.engine.broker.timers.schedule import STATE, Indexed, TimerIndex
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.disk import Disk
from tests.support.timers import Timers

CROWD, OTHERS = "Crowd", ("Other1", "Other2", "Other3")
COUNT = 700


@pytest.fixture
def under_test(timers):
    return timers.under_test


def with_topics(timers):
    for name in (CROWD, *OTHERS):
        timers.topics[name] = new_topic(name, 4, 6)
    return timers


def again(under_test, timers):
    timers.close()
    return with_topics(Timers(under_test, timers.clock))


def at(due_ms):
    return f"TIMER_DELIVER_MS\x01{due_ms}\x02"


def mark_for(key, due_ms):
    return f"{at(due_ms)}TIMER_DEL_UNIQKEY\x01{key}\x02"


def places(under_test, topic):
    return [record.physical_offset for record in under_test.records(topic, 0)]


@pytest.fixture(params=["in memory", "in runs", "in runs that were merged"])
def kept(request, monkeypatch):
    if request.param != "in memory":
        monkeypatch.setattr(schedule, "MOST_INLINE", 32)
    if request.param == "in runs":
        monkeypatch.setattr(schedule, "_MERGED_AT", 1000)
    return request.param


def crowd_and_others(timers, send_crowd):
    """Send a crowd, saved in pieces, and one message of each other topic behind it, all due at one time."""
    due_ms = timers.clock.wall_ms() + 60_000
    for n in range(COUNT):
        send_crowd(n, due_ms)
        if n % 50 == 49:
            timers.rounds(1)
            timers.save()
    for topic in OTHERS:
        timers.send(topic.encode(), at(due_ms), topic)
    timers.rounds()
    timers.save()
    timers.clock.advance(60_000)


def test_messages_of_others_are_among_the_first(under_test, timers, kept):
    with_topics(timers)
    crowd_and_others(timers, lambda n, due_ms: timers.send(b"%d" % n, at(due_ms), CROWD))
    timers.rounds(20)
    crowd = places(under_test, CROWD)
    assert len(crowd) == COUNT
    for topic in OTHERS:
        [place] = places(under_test, topic)
        assert sum(one < place for one in crowd) < delivery.MOST_MESSAGES
    assert [record.body for record in under_test.records(CROWD, 0)] == [b"%d" % n for n in range(COUNT)]


def test_messages_of_others_do_not_wait_for_the_marks_of_a_crowd(under_test, timers, kept):
    with_topics(timers)
    crowd_and_others(timers, lambda n, due_ms: timers.send(b"0", mark_for(f"{CROWD}+{n}", due_ms), CROWD))
    timers.rounds(1)
    assert [timers.arrived(topic=topic) for topic in OTHERS] == [[topic.encode()] for topic in OTHERS]
    assert timers.index.pending > delivery.MOST_MESSAGES


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_an_end_between_two_turns_loses_nothing(under_test, timers, kept, monkeypatch, is_killed):
    """After a stop no message comes twice; after a kill only those under way when the index was saved do."""
    monkeypatch.setattr(delivery, "MOST_BATCHES", 1)
    with_topics(timers)
    crowd_and_others(timers, lambda n, due_ms: timers.send(b"%d" % n, at(due_ms), CROWD))
    for life in range(1, 4):
        timers.rounds(1)
        if not is_killed:
            timers.delivery.stop()
        timers.save()
        timers = again(under_test, timers)
        assert timers.arrived(topic=CROWD)[-1] == b"%d" % (128 - 3 + (0 if is_killed else 128 * (life - 1)) - 1)
    timers.rounds(20)
    timers.save()
    timers = again(under_test, timers)
    timers.rounds(5)
    for topic in (CROWD, *OTHERS):
        expected = [b"%d" % n for n in range(COUNT)] if topic == CROWD else [topic.encode()]
        came = timers.arrived(topic=topic)
        assert list(dict.fromkeys(came)) == expected
        assert is_killed or len(came) == len(expected)
    assert sum(timers.delivery.given_up.values()) == 0
    timers.save()
    assert timers.index.pending == 0
    assert list(timers.directory.glob("run-*")) == []
    timers.close()


def test_what_is_taken_of_one_lane_while_runs_are_merged_does_not_come_again(under_test, timers, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 16)
    monkeypatch.setattr(schedule, "_MERGED_AT", 1000)
    with_topics(timers)
    due_ms = timers.clock.wall_ms() + 1000
    for n in range(60):
        timers.send(b"%d" % n, at(due_ms + 10 * n), CROWD)
        timers.send(b"%d" % n, at(due_ms + (10 * n if n % 2 else 100_000 + n)), OTHERS[0])
        if n % 10 == 9:
            timers.rounds(1)
            timers.save()
    timers.clock.advance(1305)

    def deliver():
        timers.rounds(3)
        return True

    assert timers.index.merge(0, timers.clock.wall_ms(), deliver, everything=True)
    timers.save()
    assert (len(timers.arrived(topic=CROWD)), len(timers.arrived(topic=OTHERS[0]))) == (31, 15)
    timers = again(under_test, timers)
    timers.pass_time(200_000, 1000)
    assert timers.arrived(topic=CROWD) == [b"%d" % n for n in range(60)]
    odd_first = sorted(range(60), key=lambda n: (n % 2 == 0, n))
    assert timers.arrived(topic=OTHERS[0]) == [b"%d" % n for n in odd_first]
    timers.close()


def test_what_was_taken_before_the_disk_failed_is_delivered_and_the_rest_later(under_test, timers, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 16)
    with_topics(timers)
    due_ms = timers.clock.wall_ms() + 1000
    for n in range(100):
        timers.send(b"%d" % n, at(due_ms), CROWD)
    timers.rounds()
    timers.save()
    timers.clock.advance(1000)
    read = RunFile.read

    def fails_later(file, begin, count):
        if begin:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, begin, count)

    monkeypatch.setattr(RunFile, "read", fails_later)
    timers.rounds(5)
    assert 0 < len(timers.arrived(topic=CROWD)) < 100
    monkeypatch.setattr(RunFile, "read", read)
    timers.pass_time(5000)
    assert timers.arrived(topic=CROWD) == [b"%d" % n for n in range(100)]
    timers.save()
    assert timers.index.pending == 0


@pytest.fixture
def index(tmp_path):
    made = TimerIndex(tmp_path / "timers", Disk(), lambda: 1 << 60, lambda physical: True)
    made.load(0)
    yield made
    made.close()


def files_in(index):
    return sorted(path.name for path in index._directory.glob("run-*"))


@pytest.mark.parametrize("then", ["joined", "taken", "made again"])
def test_what_a_failed_save_wrote_does_not_stay(index, monkeypatch, then):
    monkeypatch.setattr(schedule, "MOST_INLINE", 2)

    def full(disk, path, data):
        raise OSError(errno.ENOSPC, "no space")

    index.add([entry(n, 1) for n in range(5)], Indexed())
    with monkeypatch.context() as patched:
        patched.setattr(Disk, "replace", full)
        with pytest.raises(OSError, match="no space"):
            index.save()
    assert len(files_in(index)) == 1
    if then == "taken":
        for _, one in index.take(1000, 10):
            index.done(one)
        assert index.pending == 0
    elif then == "made again":
        index.clear()
    index.add([entry(10 + n, 2) for n in range(5)], Indexed())
    index.save()
    assert files_in(index) == sorted(file.path.name for file in index._files())
    assert len(files_in(index)) == 1


def entry(queue_offset, lane, size=100, due_ms=1000):
    return unpack_entry(pack_entry(schedule.TimerEntry(due_ms, False, queue_offset, 1000 * queue_offset, size, lane)))


def lanes_of(taken):
    return [unpack_entry(one).lane for _, one in taken]


def test_lanes_that_found_no_room_are_served_first_the_next_time(index):
    index.add([entry(10 * lane + n, lane) for lane in range(1, 7) for n in range(2)], Indexed())
    assert lanes_of(index.take(1000, 4)) == [1, 2, 3, 4]
    assert lanes_of(index.take(1000, 4)) == [1, 2, 5, 6]
    assert lanes_of(index.take(1000, 4)) == [3, 4, 5, 6]
    assert index.take(1000, 4) == []


def test_a_long_message_does_not_hold_up_the_short_ones_of_others_and_has_its_turn(index):
    index.add([entry(n, 1, 5000) for n in range(3)] + [entry(10 + n, 2, 100) for n in range(20)], Indexed())
    taken = [lanes_of(index.take(1000, 8, 1000)) for _ in range(5)]
    assert taken == [[1], [2] * 8, [1], [2] * 8, [1]]


def test_a_message_and_its_marks_have_one_lane():
    assert {lane_of(f"T{n}") for n in range(3000)} == set(range(1, LANES + 1))
    assert lane_of("Orders+a+b") == lane_of("Orders")


# --- what an older version left


def without_lanes(directory):
    """Make a saved index look as a version before lanes left it."""

    def bare(data):
        ones = [unpack_entry(data[at : at + ENTRY_BYTES])._replace(lane=0) for at in range(0, len(data), ENTRY_BYTES)]
        return b"".join(sorted(map(pack_entry, ones)))

    title, line, rest = (directory / STATE).read_bytes().split(b"\n", 2)
    assert title == b"rocketbox timers 2"
    state = json.loads(line)
    rows = {}
    for number, end, begin, physical, offset, _ in state["runs"]:
        old = rows.get(number, (number, 0, begin, physical, offset))
        rows[number] = (number, max(old[1], end), min(old[2], begin), min(old[3], physical), min(old[4], offset))
    state["runs"] = list(rows.values())
    for path in directory.glob("run-*"):
        data = path.read_bytes()
        path.write_bytes(data[:ENTRY_BYTES] + bare(data[ENTRY_BYTES:]))
    text = b"rocketbox timers 1\n" + json.dumps(state).encode() + b"\n" + bare(rest[:-4])
    (directory / STATE).write_bytes(text + crc32(text).to_bytes(4, "big"))


@pytest.fixture(params=["in memory", "in a run"])
def inline(request, monkeypatch):
    if request.param == "in a run":
        monkeypatch.setattr(schedule, "MOST_INLINE", 1)


@pytest.fixture
def one_at_a_time(monkeypatch):
    """Deliver one message at a time. Otherwise all due ones are taken at once, and marks are looked at first."""
    monkeypatch.setattr(delivery, "MOST_MESSAGES", 1)
    monkeypatch.setattr(delivery, "MOST_BATCHES", 1)


def saved_by_an_older_version(under_test, timers):
    timers.rounds()
    timers.save()
    without_lanes(timers.directory)
    timers = again(under_test, timers)
    timers.rounds(1)
    return timers


def test_what_an_older_version_left_comes_once(under_test, timers, inline, caplog):
    with_topics(timers)
    due_ms = timers.clock.wall_ms() + 5000
    for n in range(8):
        timers.send(b"%d" % n, at(due_ms + n), (CROWD, *OTHERS)[n % 4])
    timers = saved_by_an_older_version(under_test, timers)
    assert "damaged" not in caplog.text
    assert timers.index.pending == 8
    timers.save()
    timers = again(under_test, timers)
    timers.pass_time(6000)
    came = [timers.arrived(topic=topic) for topic in (CROWD, *OTHERS)]
    assert came == [[b"%d" % n, b"%d" % (n + 4)] for n in range(4)]
    assert sum(timers.delivery.given_up.values()) == 0
    timers.close()


def test_a_mark_made_since_takes_out_what_an_older_version_left(under_test, timers, inline, one_at_a_time):
    with_topics(timers)
    due_ms = timers.clock.wall_ms() + 5000
    for n in range(4):
        timers.send(b"%d" % n, at(due_ms), CROWD)
    timers = saved_by_an_older_version(under_test, timers)
    for n in range(20):
        timers.send(b"before %d" % n, at(due_ms - 1), CROWD)
    for n in (1, 3):
        timers.send(b"0", mark_for(f"{CROWD}+{n}", due_ms), CROWD)
    timers.pass_time(6000)
    timers.rounds(60)
    assert sorted(timers.arrived(topic=CROWD)) == sorted([b"0", b"2", *(b"before %d" % n for n in range(20))])
    timers.close()


def test_a_mark_that_an_older_version_left_takes_out_what_was_stored_once_more_since(
    under_test, timers, inline, one_at_a_time
):
    with_topics(timers)
    due_ms = timers.clock.wall_ms() + 50_000_000
    for n in range(3):
        timers.send(b"%d" % n, at(due_ms), CROWD)
    rolled_to = under_test.store.log.written
    timers.send(b"0", mark_for(f"{CROWD}+1", due_ms), CROWD)
    for _ in range(20):
        timers.send(b"before the mark", at(due_ms - 1), OTHERS[0])
    timers = saved_by_an_older_version(under_test, timers)
    timers.roll.keep(rolled_to)
    timers.roll_on(30)
    assert timers.roll.rolled == 3
    timers.pass_time(51_000_000, 10_000_000)
    timers.rounds(60)
    assert timers.arrived(topic=CROWD) == [b"0", b"2"]
    assert len(timers.arrived(topic=OTHERS[0])) == 20
    timers.close()
