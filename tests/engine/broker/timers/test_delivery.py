"""Messages come at their own time, in order, once and whole; one that cannot be delivered does not block the others."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.processors.slave_tables import CLOCK_MS, SlaveTablesProcessor
from appliance.engine.broker.slave_sync import SlaveSync
from appliance.engine.broker.timers import schedule
from appliance.engine.broker.timers.apache_files import (
    MOST_PARTS,
    TIMERS_DONE,
    TIMERS_PARTS,
    Checkpoint,
    Done,
    Part,
    checkpoint_answer,
    checkpoint_path,
    copied_checkpoint,
    done_of_fields,
    read_checkpoint,
)
from appliance.engine.broker.timers.schedule import STATE
from appliance.engine.clock import Clock
from appliance.engine.disk import Disk
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.store.retention.deleted_topics import Deletion
from tests.support.clock import FakeClock
from tests.support.store import FailingDisk, StoreUnderTest
from tests.support.timers import TARGET, Timers

DAY_MS = 86_400_000


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path, disk=FailingDisk()).open()
    yield under_test
    under_test.disk.failing.clear()
    under_test.stop()


@pytest.fixture
def timers(under_test, clock):
    timers = Timers(under_test, clock)
    yield timers
    timers.close()


def again(under_test, timers, clean=True):
    """Return the timers of the next life over the same store."""
    if clean:
        timers.save()
    timers.close()
    return Timers(under_test, timers.clock)


def test_a_message_comes_at_its_time_and_not_before(timers, clock):
    timers.wait(b"x", 750)
    timers.rounds()
    clock.advance(749)
    timers.rounds()
    assert timers.arrived() == []
    clock.advance(1)
    timers.rounds()
    assert timers.arrived() == [b"x"]
    timers.pass_time(3000)
    assert timers.arrived() == [b"x"]
    assert (timers.delivery.delivered, timers.index.pending) == (1, 0 if timers.save() is None else -1)


def test_the_pause_ends_when_the_next_message_is_due(timers, clock):
    timers.wait(b"x", 300)
    timers.rounds()
    assert timers.delivery.round() == pytest.approx(0.3)
    timers.wait(b"later", 30_000)
    assert timers.rounds() == pytest.approx(0.3)
    clock.advance(300)
    timers.rounds()
    assert timers.delivery.round() == 0.5


def test_order_is_due_time_and_then_the_order_of_sending(timers, clock):
    at = clock.wall_ms() + 5000
    for n, due in enumerate((3, 1, 1, 0, 3, 2, 1)):
        timers.send(b"%d-%d" % (due, n), f"TIMER_DELIVER_MS\x01{at + due}\x02")
    timers.pass_time(6000, 1000)
    assert timers.arrived() == [b"0-3", b"1-1", b"1-2", b"1-6", b"2-5", b"3-0", b"3-4"]


def test_years_ahead(timers, clock):
    timers.send(b"far", "TIMER_DELAY_SEC\x0160000000\x02")
    timers.pass_time(59_999_999_000, 10_000_000_000)
    assert timers.arrived() == []
    clock.advance(1000)
    timers.rounds()
    assert timers.arrived() == [b"far"]


def test_a_batch_under_way_is_not_delivered_twice(timers, clock):
    for n in range(300):
        timers.wait(b"%d" % n, 100)
    timers.rounds()
    timers.hold = True
    clock.advance(200)
    timers.rounds(10)
    assert timers.arrived() == []
    timers.save()
    timers.run_calls()
    timers.rounds(10)
    timers.hold = False
    timers.rounds(10)
    timers.run_calls()
    timers.rounds(10)
    assert timers.arrived() == [b"%d" % n for n in range(300)]


def test_what_was_saved_does_not_come_again_and_what_was_not_does(under_test, timers, clock):
    for n in range(6):
        timers.wait(b"%d" % n, 1000 * (n + 1))
    timers.pass_time(2000)
    timers.save()
    timers.pass_time(1000)
    assert timers.arrived() == [b"0", b"1", b"2"]
    timers = again(under_test, timers, clean=False)
    timers.pass_time(3100)
    assert timers.arrived() == [b"0", b"1", b"2", b"2", b"3", b"4", b"5"]
    timers.close()


def test_a_copy_that_is_not_durable_is_not_passed(under_test, timers, clock):
    timers.durable = lambda: 0
    timers.wait(b"x", 100)
    timers.pass_time(200)
    assert timers.arrived() == [b"x"]
    timers.save()
    timers = again(under_test, timers, clean=False)
    timers.rounds()
    assert timers.arrived() == [b"x", b"x"]
    timers.close()


def test_what_was_sent_right_after_the_clock_was_set_waits_after_a_start_too(under_test, timers, clock):
    """The step is seen when the message is taken in, and the index is saved before the next round."""
    timers.rounds()
    clock.jump(600_000)
    timers.wait(b"young", 2500)
    timers.rounds(1)
    timers = again(under_test, timers, clean=True)
    timers.rounds()
    assert timers.arrived() == []
    timers.pass_time(3000)
    assert timers.arrived() == [b"young"]


def test_after_a_stop_nothing_comes_again(under_test, timers):
    for n in range(20):
        timers.wait(b"%d" % n, 100 * n + 1)
    timers.pass_time(1000)
    timers = again(under_test, timers)
    timers.pass_time(1100)
    assert timers.arrived() == [b"%d" % n for n in range(20)]
    timers.close()


@pytest.mark.parametrize("damage", ["missing", "damaged", "run missing", "run damaged"])
def test_a_lost_index_is_made_again_from_the_topic(under_test, timers, monkeypatch, damage):
    monkeypatch.setattr(schedule, "MOST_INLINE", 4)
    for n in range(30):
        timers.wait(b"%d" % n, 1000 + n)
    timers.rounds()
    timers.save()
    [run] = timers.directory.glob("run-*")
    timers.close()
    if damage == "missing":
        (timers.directory / STATE).unlink()
    elif damage == "damaged":
        (timers.directory / STATE).write_bytes(b"\1" * 400)
    elif damage == "run missing":
        run.unlink()
    else:
        data = bytearray(run.read_bytes())
        data[32 * 20 + 5] ^= 1
        run.write_bytes(data)
    timers = Timers(under_test, timers.clock)
    timers.pass_time(3000)
    assert timers.arrived() == [b"%d" % n for n in range(30)]
    timers.close()


def test_a_mark_cancels_whenever_it_comes(under_test, timers, clock):
    at = clock.wall_ms() + 5000
    for key in ("a", "b"):
        timers.send(key.encode(), f"TIMER_DELIVER_MS\x01{at}\x02")
    timers.rounds()
    timers.send(b"0", f"TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{TARGET}+a\x02")
    timers = again(under_test, timers)
    timers.pass_time(7000)
    assert timers.arrived() == [b"b"]
    assert timers.delivery.cancelled == 1
    timers.save()
    assert timers.index.pending == 0
    timers.close()


def test_a_mark_of_one_key_or_time_leaves_others_alone(timers, clock):
    at = clock.wall_ms() + 5000
    timers.send(b"a", f"TIMER_DELIVER_MS\x01{at}\x02")
    timers.send(b"0", f"TIMER_DELIVER_MS\x01{at + 1}\x02TIMER_DEL_UNIQKEY\x01{TARGET}+a\x02")
    timers.pass_time(7000)
    assert timers.arrived() == [b"a"]


def test_the_handle_of_an_apache_message_finds_it(timers, clock):
    """Apache rounds down to its second; its handle, used for the recall, names that and one millisecond."""
    out = (clock.wall_ms() + 5000) // 1000 * 1000
    waits = (
        "UNIQ_KEY\x01{}\x02TIMER_OUT_MS\x01{}\x02TIMER_DELAY_MS\x015400\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"
    )
    timers.put(b"a", waits.format("a", out))
    timers.put(b"b", waits.format("b", out))
    timers.send(b"0", f"TIMER_DELIVER_MS\x01{out + 1}\x02TIMER_DEL_UNIQKEY\x01{TARGET}+a\x02")
    timers.pass_time(out + 999 - clock.wall_ms())
    assert timers.arrived() == []
    timers.pass_time(1000, 1)
    assert timers.arrived() == [b"b"]


def test_what_waits_is_taken_for_granted_only_after_a_jump_is_taken_out(timers, clock):
    timers.wait(b"before", 10_000)
    timers.pass_time(1000)
    clock.jump(3_600_000)
    timers.pass_time(500)
    assert timers.arrived() == []
    timers.wait(b"after", 2000)
    timers.pass_time(1900)
    assert timers.arrived() == []
    timers.pass_time(200)
    assert timers.arrived() == [b"after"]
    timers.pass_time(6500)
    assert timers.arrived() == [b"after", b"before"]


def test_a_topic_that_is_gone_is_given_up_and_holds_nobody_up(timers):
    timers.send(b"x", "TIMER_DELAY_MS\x01100\x02", topic="Gone")
    timers.wait(b"y", 100)
    timers.pass_time(200)
    assert timers.arrived() == [b"y"]
    assert timers.delivery.given_up["no topic"] == 1


@pytest.mark.parametrize(
    "text", ["", "TIMER_OUT_MS\x01soon\x02", "TIMER_OUT_MS\x01-4\x02", "TIMER_OUT_MS\x01" + "9" * 30]
)
def test_a_record_without_a_time_is_given_up(timers, text):
    timers.put(b"x", f"{text}REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02")
    timers.wait(b"y", 100)
    timers.pass_time(300)
    assert timers.arrived() == [b"y"]
    assert timers.delivery.given_up["damaged"] == 1


def test_a_log_that_cannot_be_read_is_waited_for(under_test, timers, clock):
    timers.wait(b"x", 100)
    timers.rounds()
    clock.advance(200)
    under_test.disk.failing["pread"] = errno.EIO
    timers.rounds()
    assert timers.delivery.failure is not None
    under_test.disk.failing.clear()
    timers.pass_time(1500)
    assert timers.arrived() == [b"x"]
    assert timers.delivery.failure is None


def test_a_full_disk_stops_saving_and_nothing_else(under_test, timers):
    under_test.disk.failing["pwrite"] = errno.ENOSPC
    timers.index.add([], timers.index.indexed)
    timers.saver.save_now()
    assert timers.saver.failure is not None
    under_test.disk.failing.clear()
    timers.wait(b"x", 100)
    timers.pass_time(200)
    assert timers.arrived() == [b"x"]
    timers.save()


def test_many_lie_in_runs_that_are_merged(under_test, timers, clock, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 8)
    at = clock.wall_ms() + 100_000
    expected = []
    for n in range(600):
        due = at + n * 7919 % 1000
        expected.append((due, n))
        timers.send(b"%d" % n, f"TIMER_DELIVER_MS\x01{due}\x02")
        if n % 12 == 11:
            timers.rounds(1)
            timers.save()
    assert timers.index.run_count < 20
    assert len(list(timers.directory.glob("run-*"))) == timers.index.run_count
    timers = again(under_test, timers)
    timers.pass_time(100_300, 50_150)
    timers.save()
    timers = again(under_test, timers, clean=False)
    timers.pass_time(1000)
    assert timers.arrived() == [b"%d" % n for _, n in sorted(expected)]
    timers.close()


def test_rolled_it_comes_once(under_test, timers, clock):
    timers.wait(b"long", 10 * DAY_MS)
    timers.wait(b"short", 1000)
    timers.pass_time(2000)
    timers.roll.keep(under_test.store.log.written)
    timers.roll_on()
    rolled = under_test.records(TIMER_TOPIC, 0)[2]
    found = decode_properties(rolled.properties)
    assert (rolled.body, found["TIMER_ROLL_TIMES"], found["REAL_TOPIC"]) == (b"long", "1", TARGET)
    assert timers.roll.rolled == 1
    timers = again(under_test, timers)
    timers.pass_time(10 * DAY_MS, DAY_MS)
    assert timers.arrived() == [b"short", b"long"]
    copy = decode_properties(under_test.records(TARGET, 0)[1].properties)
    assert int(copy["TIMER_ENQUEUE_MS"]) == rolled.store_time_ms
    assert copy["ROCKETBOX_TIMER_OUT_MS"] == found["TIMER_OUT_MS"]
    assert not copy.keys() & {"ROCKETBOX_TIMER_FIRST", "TIMER_OUT_MS", "TIMER_DELAY_MS"}
    timers.close()


def test_what_was_rolled_after_its_topic_was_deleted_does_not_come_into_the_next_one(under_test, timers, clock):
    store = under_test.store
    timers.wait(b"old, rolled", DAY_MS)
    timers.rounds()
    store.files.deleted_topics.remember([Deletion(TARGET, store.log.written, {})], 0)
    timers.wait(b"new, rolled", DAY_MS)
    timers.rounds()
    timers.roll.keep(store.log.written)
    timers.roll_on()
    assert timers.roll.rolled == 2
    store.files.deleted_topics.remember([], store.log.written)  # its records have left the log
    assert store.files.deleted_topics.below(TARGET) == 0
    timers = again(under_test, timers)
    timers.pass_time(2 * DAY_MS, DAY_MS)
    assert timers.arrived() == [b"new, rolled"]
    assert timers.delivery.given_up["no topic"] == 1
    timers.close()


def test_age_rolls_by_itself_and_a_mark_with_it(under_test, timers, clock):
    at = clock.wall_ms() + 5 * DAY_MS
    for key in ("a", "b"):
        timers.send(key.encode(), f"TIMER_DELIVER_MS\x01{at}\x02")
    timers.send(b"0", f"TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{TARGET}+a\x02")
    timers.rounds()
    timers.roll_on(5)
    assert timers.roll.rolled == 0
    for _ in range(4):
        timers.clock.advance(26 * 3_600_000)
        timers.roll_on(60)
    assert timers.roll.rolled >= 9
    timers.pass_time(2 * DAY_MS, DAY_MS // 4)
    assert timers.arrived() == [b"b"]


def test_an_index_of_another_log_is_made_again(under_test, clock):
    """Its position names a record that is not in this log."""
    timers = Timers(under_test, clock)
    timers.wait(b"known", 1000)
    timers.rounds()
    index = timers.index
    indexed, skip = index.indexed, index.skip
    index.clear()
    index.start_at(indexed._replace(physical_offset=indexed.physical_offset + 1), skip)
    timers.save()
    timers.close()
    timers = Timers(under_test, clock)
    timers.pass_time(2000)
    assert timers.arrived() == [b"known"]
    timers.close()


@pytest.mark.parametrize("inline", [schedule.MOST_INLINE, 1], ids=["in memory", "in a run"])
def test_a_file_with_what_waits_stays_until_it_was_rolled(tmp_path, clock, monkeypatch, inline):
    monkeypatch.setattr(schedule, "MOST_INLINE", inline)
    under_test = StoreUnderTest(tmp_path, segment_bytes=8192, disk=Disk()).open()
    timers = Timers(under_test, clock)
    timers.wait(b"long", 3 * DAY_MS)
    timers.wait(b"longer", 3 * DAY_MS + 1000)
    timers.rounds()
    for n in range(60):
        timers.wait(b"%d" % n + b"." * 300, 10)
        timers.pass_time(20, 20)
    assert len(under_test.store.log.segments) > 2
    end = under_test.store.log.segments[0].end
    timers.save()
    assert (timers.index.run_count > 0) == (inline == 1)
    assert timers.roll.keep(end) is not None
    timers.roll_on()
    assert timers.roll.keep(end) is None
    under_test.store.log.remove_before(end)
    timers.save()
    timers.pass_time(3 * DAY_MS + DAY_MS // 2, DAY_MS // 2)
    assert timers.arrived()[-2:] == [b"long", b"longer"]
    assert timers.delivery.given_up["expired"] == 0
    timers.close()
    under_test.stop()


def test_a_file_may_go_when_its_messages_were_rolled_and_those_behind_it_cannot_be(tmp_path, clock):
    """As on a full disk: the copies of what waits in the next file get the room that this one leaves."""
    under_test = StoreUnderTest(tmp_path, segment_bytes=32768, disk=Disk()).open()
    timers = Timers(under_test, clock)
    for n in range(400):
        timers.wait(b"%d" % n, 2 * DAY_MS)
    timers.rounds()
    log = under_test.store.log
    first, end = log.segments[0].end, log.segments[2].end
    assert timers.roll.keep(end) is not None
    steps = 0
    while timers.roll.keep(first) is not None:
        timers.roll_on(1)
        steps += 1
        assert steps < 1000
    log.refuse("no room", "test")
    timers.roll_on(5)
    assert timers.roll.keep(first) is None
    assert timers.roll.keep(end) is not None
    timers = again(under_test, timers)
    timers.rounds()
    assert timers.roll.keep(end) is not None
    timers.roll_on(5)
    assert timers.roll.keep(first) is None, "in the next life too"
    log.remove_before(first)
    log.refuse(None, "test")
    timers.roll_on()
    assert timers.roll.keep(end) is None
    log.remove_before(end)
    timers.save()
    timers.pass_time(2 * DAY_MS, DAY_MS // 2)
    timers.rounds(20)
    assert sorted(map(int, timers.arrived())) == list(range(400))
    timers.close()
    under_test.stop()


def test_a_roll_that_was_interrupted_goes_on_and_loses_nothing(tmp_path, clock):
    under_test = StoreUnderTest(tmp_path, segment_bytes=32768, disk=Disk()).open()
    timers = Timers(under_test, clock)
    for n in range(300):
        timers.wait(b"%d" % n, 2 * DAY_MS)
    timers.rounds()
    end = under_test.store.log.segments[1].end
    assert timers.roll.keep(end) is not None
    while not timers.index.rolled_to:
        timers.roll_on(1)
    assert timers.roll.keep(end) is not None
    timers = again(under_test, timers)
    timers.rounds()
    assert timers.roll.keep(end) is not None
    timers.roll_on()
    assert timers.roll.keep(end) is None
    under_test.store.log.remove_before(end)
    timers.save()
    timers.pass_time(2 * DAY_MS, DAY_MS // 2)
    timers.rounds(20)
    assert sorted(map(int, timers.arrived())) == list(range(300))
    timers.close()
    under_test.stop()


def test_what_is_taken_while_runs_are_merged_does_not_come_again(timers, clock, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 4)
    for n in range(70):
        timers.wait(b"%d" % n, 1000 + n)
        if n % 10 == 9:
            timers.rounds(1)
            timers.save()
    assert timers.index.run_count == 7
    clock.advance(1030)

    def deliver() -> bool:
        timers.rounds(3)
        return True

    assert timers.index.merge(0, clock.wall_ms(), deliver, everything=True)
    assert len(timers.arrived()) == 31
    assert timers.index.run_count == 1
    timers.pass_time(1000)
    timers.rounds(5)
    assert timers.arrived() == [b"%d" % n for n in range(70)]


def lead_next(under_test, timers, done):
    """Return the timers of a member that never led: they only have what the leader sent."""
    timers.save()
    timers.close()
    answer = checkpoint_answer(0, 0, 0)
    checkpoint_path(under_test.store.paths.root).write_bytes(copied_checkpoint(answer, Done(*done)))
    return Timers(under_test, timers.clock)


def test_who_leads_next_delivers_what_the_leader_had_not(under_test, timers, clock):
    timers.wait(b"long", DAY_MS)
    timers.wait(b"done", 2000)
    timers.pass_time(8000)
    timers.wait(b"due soon", 1500)
    timers.rounds()
    assert timers.arrived() == [b"done"]
    timers.under_test.store.log.sync()
    done = timers.index.settled()
    assert done.queue_offset == 3
    timers.wait(b"not told of", 1)
    timers = lead_next(under_test, timers, done)
    timers.pass_time(8000)
    assert timers.arrived() == [b"done", b"not told of", b"due soon"]
    timers.pass_time(DAY_MS, 1000 * 3600)
    assert timers.arrived()[3:] == [b"long"]
    timers.close()


def test_what_was_taken_and_is_not_durable_was_not_delivered(timers, clock):
    timers.durable = lambda: 0
    timers.wait(b"x", 2000)
    timers.pass_time(9000)
    assert timers.arrived() == [b"x"]
    assert timers.index.settled().out_ms < clock.wall_ms() - 5000
    timers.durable = lambda: timers.store.log.written
    assert timers.index.settled().out_ms > clock.wall_ms()


def test_what_was_said_of_a_topic_that_is_shorter_now_does_not_pass_over_what_comes(under_test, timers, clock):
    timers = lead_next(under_test, timers, (1 << 62, 5))
    timers.wait(b"x", 2000)
    timers.pass_time(4000)
    assert timers.arrived() == [b"x"]
    timers.close()


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_who_leads_next_knows_what_was_delivered_under_each_clock(under_test, timers, clock, step_ms):
    early, late = (2000, 600_000) if step_ms < 0 else (600_000, 2000)
    timers.wait(b"early", early)
    timers.pass_time(300)
    clock.jump(step_ms)
    timers.pass_time(300)
    timers.wait(b"late", late)
    timers.pass_time(8000)
    came = timers.arrived()
    assert came == [b"early" if early == 2000 else b"late"]
    timers.store.log.sync()
    done = timers.index.settled()
    assert [end for _, end in done.parts] == [1, 2]
    timers = lead_next(under_test, timers, done)
    timers.store.clock_steps.set_while_appending(step_ms, 0, 0)
    timers.pass_time(2 * abs(step_ms), 60_000)
    assert sorted(timers.arrived()) == [b"early", b"late"]
    timers.close()


def test_a_mark_counts_while_its_message_may_not_have_been_delivered(under_test, timers, clock):
    """Nothing that is waited for lies in the mark's part of the topic, but it is for a message in another part."""
    at = clock.wall_ms() + 60_000
    timers.send(b"x", f"TIMER_DELIVER_MS\x01{at}\x02UNIQ_KEY\x01a\x02")
    timers.send(b"0", f"TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{TARGET}+a\x02")
    timers.rounds()
    timers = lead_next(under_test, timers, Done(0, 2, (Part(0, 1), Part(1 << 62, 2))))
    timers.pass_time(120_000, 1000)
    assert timers.arrived() == []
    timers.close()


def test_many_steps_of_the_clock_leave_the_newest_parts(timers, clock):
    for n in range(MOST_PARTS + 10):
        timers.wait(b"%d" % n, DAY_MS)
        timers.pass_time(300)
        clock.jump(5000)
        timers.pass_time(300)
    parts = timers.index.settled().parts
    assert len(parts) == MOST_PARTS
    assert parts[-1].end == timers.index.indexed.queue_offset
    assert done_of_fields(timers.index.settled().fields()) == timers.index.settled()


DONE = Done(9000, 9, (Part(7000, 4), Part(1 << 62, 9)))


@pytest.mark.parametrize("done", [DONE, Done(9000, 9)])
def test_what_was_delivered_is_kept_whole_or_not_at_all(under_test, timers, done):
    """A bound that is damaged would have a waiting message left out."""
    path = checkpoint_path(under_test.store.paths.root)
    whole = copied_checkpoint(checkpoint_answer(5000, 7, 1), done)
    path.write_bytes(whole)
    assert read_checkpoint(under_test.disk, under_test.store.paths.root).done == done
    size = len(whole.rstrip(b"\0")) + 8
    for at in range(56, size):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_checkpoint(under_test.disk, under_test.store.paths.root).done in (None, done), at
    for at in range(56, size):
        path.write_bytes(whole[:at])
        assert read_checkpoint(under_test.disk, under_test.store.paths.root).done in (None, done, Done(9000, 9)), at


def test_what_an_older_version_kept_of_what_was_delivered_counts(under_test, timers):
    path = checkpoint_path(under_test.store.paths.root)
    path.write_bytes(copied_checkpoint(checkpoint_answer(5000, 7, 1), Done(9000, 9))[:84].ljust(4096, b"\0"))
    assert read_checkpoint(under_test.disk, under_test.store.paths.root).done == Done(9000, 9)


def test_a_master_of_a_version_before_says_less_and_nonsense_is_refused():
    assert done_of_fields({TIMERS_DONE: "9000:9"}) == Done(9000, 9)
    assert done_of_fields(DONE.fields()) == DONE
    assert done_of_fields({}) is None
    for parts in ("7000", "x:1", "1:5;1:4", ";".join(["1:1"] * (MOST_PARTS + 1)), "1:-1", f"{1 << 63}:1"):
        with pytest.raises(ValueError):
            done_of_fields({TIMERS_DONE: "9000:9", TIMERS_PARTS: parts})
    for one in ("-1:9", f"9000:{1 << 63}", "9000"):
        with pytest.raises(ValueError):
            done_of_fields({TIMERS_DONE: one})


def test_a_checkpoint_that_apache_wrote_since_says_no_more_than_apache_does(under_test, timers):
    path = checkpoint_path(under_test.store.paths.root)
    path.write_bytes(copied_checkpoint(checkpoint_answer(5000, 7, 1), Done(9000, 9)))
    assert read_checkpoint(under_test.disk, under_test.store.paths.root).done == Done(9000, 9)
    with path.open("r+b") as file:
        file.write(checkpoint_answer(6000, 8, 2))
    assert read_checkpoint(under_test.disk, under_test.store.paths.root) == Checkpoint(6000, 8, False)


DISK_FULL = "the broker's disk is full"


def test_a_timer_in_a_file_that_has_to_go_is_stored_once_more_though_the_disk_is_full(tmp_path, clock):
    under_test = StoreUnderTest(tmp_path, segment_bytes=8192, disk=Disk()).open()
    timers = Timers(under_test, clock)
    timers.wait(b"far", 3 * DAY_MS)
    due_ms = 1000
    timers.wait(b"due", due_ms)
    timers.rounds()
    for n in range(40):
        timers.wait(b"%d" % n + b"." * 300, 1)
        timers.pass_time(5, 5)
    end = under_test.store.log.segments[0].end
    under_test.store.log.refuse(DISK_FULL)
    timers.pass_time(2 * due_ms)
    assert b"due" not in timers.arrived()
    for _ in range(5):
        timers.roll.keep(end)
        timers.roll_on(20)
        clock.advance(300)
    assert timers.roll.keep(end) is None
    under_test.store.log.remove_before(end)
    timers.save()
    under_test.store.log.refuse(None)
    timers.pass_time(3000)
    assert timers.arrived().count(b"due") == 1
    timers.pass_time(4 * DAY_MS, DAY_MS)
    assert timers.arrived().count(b"far") == timers.arrived().count(b"due") == 1
    assert sum(timers.delivery.given_up.values()) == 0
    timers.close()
    under_test.stop()


@pytest.mark.parametrize("first", ["roll", "delivery"])
def test_what_a_refused_roll_held_up_over_its_time_comes_once(timers, clock, under_test, first):
    """The roll was on its way before the message was due, and goes on when the disk has room again. first: which of the
    two acts first then."""
    timers.wait(b"x", 20_000)
    timers.rounds()
    under_test.store.log.refuse("another reason than the disk", "in sync")
    timers.roll.keep(under_test.store.log.written)
    timers.roll_on(10)
    timers.pass_time(25_000, 1000)
    assert timers.arrived() == []
    under_test.store.log.refuse(None, "in sync")
    if first == "delivery":
        timers.pass_time(1000, 500)
    for _ in range(30):
        timers.roll_on(1)
        timers.pass_time(1000, 500)
    assert timers.arrived() == [b"x"]
    timers.pass_time(10_000, 1000)
    assert timers.arrived() == [b"x"]


def test_what_falls_due_while_its_copy_is_on_its_way_comes_once(timers, clock, under_test):
    """The full disk takes the roll's copy. Until that is in the log, delivery must leave the record alone: otherwise
    the message would come now, and again from the copy."""
    timers.wait(b"x", 20_000)
    timers.rounds()
    timers.roll.keep(under_test.store.log.written)
    timers.hold = True
    for _ in range(50):
        if timers.calls:
            break
        timers.roll_on(1)
    assert timers.calls, "the copy is handed over, and not stored yet"
    timers.pass_time(25_000, 1000)
    timers.hold = False
    timers.run_calls()
    for _ in range(30):
        timers.roll_on(1)
        timers.pass_time(1000, 500)
    assert timers.roll.rolled == 1
    assert timers.arrived() == [b"x"]


def test_what_delivery_has_taken_is_not_stored_once_more(timers, clock, under_test):
    """Its file has to go while its copy is on its way to its topic: a second copy would be delivered, too."""
    timers.wait(b"x", 20_000)
    timers.rounds()
    timers.roll.keep(under_test.store.log.written)
    timers.hold = True
    timers.pass_time(25_000)
    assert len(timers.calls) == 1, "delivery has handed it over, and it is not stored yet"
    timers.roll_on(10)
    assert len(timers.calls) == 1
    timers.hold = False
    timers.run_calls()
    for _ in range(30):
        timers.roll_on(1)
        timers.pass_time(1000, 500)
    assert timers.roll.rolled == 0
    assert timers.arrived() == [b"x"]


def copying_slave(root, disk, log, tell):
    """Return a plain slave's copying. Its master's log ends at 1000, and `tell` answers 60."""

    def answer(address, request):
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return RemotingCommand.response(0, body=b'{"table": {"commitLogMaxOffset": "1000"}}')
        return tell(request)

    no_tables: Any = SimpleNamespace(topics=None, groups=None, offsets=None)
    loop: Any = SimpleNamespace(clock=Clock(), call_soon=lambda call: call())
    store: Any = SimpleNamespace(paths=SimpleNamespace(root=root, own=root), disk=disk, log=log)
    sync = SlaveSync(lambda: "", lambda: None, no_tables, loop, store)
    sync._invoke = answer
    return sync


def of_rocketbox(timers):
    told = SlaveTablesProcessor(
        bytes,
        lambda: checkpoint_answer(0, 0, 0),
        lambda: timers.index.settled().fields(),
        timers.clock.wall_ms,
    )
    return lambda request: told.handle_timers(request, None)


def test_a_promoted_plain_slave_delivers_nothing_again_behind_the_oldest_that_waits(under_test, timers, clock):
    timers.wait(b"long", DAY_MS)
    timers.wait(b"done", 2000)
    timers.pass_time(8000)
    timers.store.log.sync()
    timers.save()
    timers.close()
    root = under_test.store.paths.root
    copying_slave(root, under_test.disk, SimpleNamespace(durable=1000), of_rocketbox(timers))._take_timers("master")
    timers = Timers(under_test, clock)
    timers.pass_time(8000)
    assert timers.arrived() == [b"done"]
    timers.pass_time(DAY_MS, 1000 * 3600)
    assert timers.arrived() == [b"done", b"long"]
    timers.close()


def test_a_plain_slave_notes_as_delivered_what_it_has_itself(tmp_path, timers, monkeypatch):
    """The log of a slave that lags has no copy yet of a message that the next master would pass over."""
    monkeypatch.setattr("appliance.engine.broker.slave_sync.RIPE_S", 0.0)
    (tmp_path / "config").mkdir()
    timers.rounds()
    log = SimpleNamespace(durable=999)
    sync = copying_slave(tmp_path, Disk(), log, of_rocketbox(timers))
    sync._take_timers("master")
    assert not checkpoint_path(tmp_path).exists()
    log.durable = 1000
    sync._take_timers("master")
    assert read_checkpoint(Disk(), tmp_path).done == Done(*timers.index.settled())


def test_a_plain_slave_keeps_what_it_knows_while_its_master_starts_and_takes_what_an_apache_master_says(tmp_path):
    (tmp_path / "config").mkdir()
    fields = {CLOCK_MS: "1", TIMERS_DONE: "9000:9"}
    sync = copying_slave(
        tmp_path,
        Disk(),
        SimpleNamespace(durable=1000),
        lambda request: RemotingCommand.response(0, None, fields, body=checkpoint_answer(5000, 7, 1)),
    )
    sync._take_timers("master")
    assert read_checkpoint(Disk(), tmp_path) == Checkpoint(5000, 7, False, Done(9000, 9))
    fields = {CLOCK_MS: "1"}
    sync._take_timers("master")
    assert read_checkpoint(Disk(), tmp_path).done == Done(9000, 9)
    fields = {}
    sync._take_timers("an Apache broker")
    assert read_checkpoint(Disk(), tmp_path) == Checkpoint(5000, 7, False)
