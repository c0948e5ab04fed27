"""Cases beyond friendly messages: bodies of megabytes due at once, unexpected records, damage on the way."""

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.sending.outcome import PutOutcome
from appliance.engine.broker.timers import delivery, schedule
from appliance.engine.broker.timers.claims import Claims
from appliance.engine.broker.timers.look import ScheduleLook
from appliance.engine.broker.timers.recall import Asked, RecallPath, mark_of
from appliance.engine.broker.timers.spans import SpanReader
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.protocol.recall_handle import encode_recall_handle
from appliance.engine.window.figures.measures import Budget
from appliance.engine.window.waiting.timers import TimedPlace, TimedWalk, WaitingTimers
from tests.support.clock import FakeClock
from tests.support.store import FailingDisk, StoreUnderTest
from tests.support.timers import TARGET, Timers


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path, disk=FailingDisk(), segment_bytes=64 << 20).open()
    yield under_test
    under_test.disk.failing.clear()
    under_test.stop()


@pytest.fixture
def timers(under_test, clock):
    timers = Timers(under_test, clock)
    yield timers
    timers.close()


def test_large_bodies_due_at_once_are_not_all_read_at_once(timers, clock):
    bodies = [b"%d" % n + b"x" * 400_000 for n in range(40)]
    for body in bodies:
        timers.wait(body, 1000, UNIQ_KEY=body[:2].decode())
    timers.rounds()
    clock.advance(1000)
    timers.hold = True
    timers.rounds(1)
    held = [message for batch in timers.delivery._waiting if (message := batch[2]) is not None]
    assert sum(len(message.body) for message in held) <= delivery.MOST_BYTES + 400_002
    timers.hold = False
    timers.run_calls()
    timers.pass_time(5000)
    assert timers.arrived() == bodies


def test_a_record_that_nobody_can_copy_holds_up_nobody(timers, clock, monkeypatch):
    made = delivery.due_copy

    def due_copy(found: Any, *rest: Any) -> Any:
        if found.record.body == b"1":
            raise RuntimeError("nobody thought of it")
        return made(found, *rest)

    monkeypatch.setattr(delivery, "due_copy", due_copy)
    for n in range(4):
        timers.wait(b"%d" % n, 1000 + n)
    timers.pass_time(20_000)
    assert timers.arrived() == [b"0", b"2", b"3"]
    assert timers.delivery.given_up["damaged"] == 1
    timers.save()
    assert (timers.delivery.failure, timers.index.pending) == (None, 0)


def test_damage_that_a_merge_meets_has_the_index_made_again(timers, clock, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 4)
    for n in range(70):
        timers.wait(b"%d" % n, 100_000 + n)
        if n % 10 == 9:
            timers.rounds(1)
            timers.save()
    runs = sorted(timers.directory.glob("run-*"))
    assert len(runs) == 7
    with runs[3].open("r+b") as file:
        file.seek(32 * 6 + 5)
        file.write(b"\xff")
    for n in range(70, 80):
        timers.wait(b"%d" % n, 100_000 + n)
    timers.rounds(1)
    timers.store.log.sync()
    timers.saver.save_now()
    assert "damaged entry" in timers.saver.failure
    timers.rounds(3)
    timers.save()
    assert timers.index.pending == 80
    assert timers.index.run_count == 1
    timers.pass_time(101_000, 1000)
    assert timers.arrived() == [b"%d" % n for n in range(80)]


def test_a_merge_that_fails_leaves_no_file(under_test, timers, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 4)
    monkeypatch.setattr(schedule, "_MERGED_AT", 3)
    for n in range(30):
        timers.wait(b"%d" % n, 100_000 + n)
        if n == 29:
            timers.rounds(1)
            timers.store.log.sync()
            assert timers.index.save()
        elif n % 10 == 9:
            timers.rounds(1)
            timers.save()
    assert timers.index.run_count == 3
    before = sorted(timers.directory.iterdir())
    under_test.disk.failing["fdatasync"] = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(OSError):
            timers.index.merge(0, timers.clock.wall_ms(), lambda: True)
    assert sorted(timers.directory.iterdir()) == before
    under_test.disk.failing.clear()
    assert timers.index.merge(0, timers.clock.wall_ms(), lambda: True)
    timers.pass_time(101_000, 1000)
    assert timers.arrived() == [b"%d" % n for n in range(30)]


@pytest.mark.parametrize("apart_ms", [0, 1, 100, 1500])
def test_a_walk_without_time_gets_to_the_end_all_the_same(under_test, timers, clock, apart_ms):
    """Whatever was taken out, the walk must reach the messages that are due behind it."""
    recalled = [b"%d" % n for n in range(60)]
    dues = {body: timers.wait(body, 100_000 + n * apart_ms) for n, body in enumerate(recalled)}
    for body, due in dues.items():
        if body not in (b"20", b"40"):
            mark = mark_of(TARGET, body.decode(), due - 1, clock.wall_ms())
            timers.put(mark.body, mark.properties)
    for n in range(40):  # marks of unknown messages
        mark = mark_of(TARGET, "unknown", 10_000 + clock.wall_ms() + 700 * n, clock.wall_ms())
        timers.put(mark.body, mark.properties)
    timers.wait(b"last", 300_000)
    timers.rounds()
    found: list[int] = []
    walker = WaitingTimers(
        timers.store,
        lambda: ScheduleLook(timers.index, under_test.disk, timers.store.log, lambda: 1000),
        lambda: timers.index.pending,
        lambda: 1000,
        lambda: timers.index.indexed.queue_offset,
    )
    place = TimedPlace()
    for _ in range(150):
        with walker.look() as look:
            walk = TimedWalk(walker, look, place, 0, 1 << 62, None, Budget(0))
            while (entry := walk.next()) is not None:
                found.append(entry.queue_offset)
            assert walk.ended or walk.standing > place
            place = walk.standing
        if walk.ended:
            break
    assert found == [20, 40, 158]


def test_a_key_of_any_length_is_kept_short(timers, clock):
    key = "x" * 15_000
    due = timers.wait(b"gone", 2000, UNIQ_KEY=key)
    timers.wait(b"stays", 2000, UNIQ_KEY=key + "y")
    mark = mark_of(TARGET, key, due - 1, clock.wall_ms())
    timers.put(mark.body, mark.properties)
    timers.pass_time(2000)
    assert timers.arrived() == [b"stays"]
    [(_, kept)] = timers.delivery._marks
    assert len(kept) < 200


def test_properties_without_room_do_not_stop_a_roll(timers, clock):
    """An Apache broker accepts properties up to the very limit."""
    filler = "x" * (delivery.MAX_PROPERTIES_BYTES - 100)
    for n in range(2):
        due = clock.wall_ms() + 10 * 86_400_000
        found = {"UNIQ_KEY": str(n), "TIMER_OUT_MS": str(due - 1), "REAL_TOPIC": TARGET, "REAL_QID": "0"}
        room = delivery.MAX_PROPERTIES_BYTES - len(encode_properties(found | {"F": ""}).encode())
        timers.put(b"%d" % n, encode_properties(found | {"F": filler[:room].ljust(room, "y") if n == 0 else ""}))
    timers.rounds()
    timers.save()
    assert timers.roll.keep(timers.store.published) is not None
    timers.roll_on(60)
    assert timers.roll.rolled == 2
    assert timers.roll.rolled_physical > 0


def test_a_recall_that_fails_in_a_way_nobody_thought_of_claims_nothing(timers, clock, monkeypatch):
    claims = Claims()

    def put(message: Any, reply_to: Any) -> None:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(timers.appends, "put", put)
    config = EngineConfig(Path("/data"), store=StoreConfig(timer_max_delay_sec=10**6))
    path = RecallPath(timers.appends, claims, timers.topics.get, lambda: config, clock.wall_ms)
    out_ms = clock.wall_ms() + 5000
    handle = encode_recall_handle(TARGET, BrokerConfig().broker_name, out_ms, "k")
    with pytest.raises(RuntimeError):
        path.recall(Asked(TARGET, handle, "P", b""), None)
    claims.indexed(0, 0)
    assert claims.enter(f"{TARGET}+k", out_ms), "delivery waits for it for ever"


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_what_was_refused_once_is_not_late_by_what_the_clock_was_set(timers, clock, jump_s):
    timers.wait(b"x", 1000)
    timers.wait(b"y", 1500)
    timers.rounds()
    clock.advance(500)
    clock.jump(jump_s * 1000)
    timers.pass_time(400)
    timers.wait(b"z", 50_000)  # the index learns of the jump by this one
    timers.rounds()
    assert timers.arrived() == []
    timers.hold = True
    clock.advance(200)
    timers.rounds(1)
    batch = timers.delivery._batches[0]
    timers.calls.clear()
    batch.future.set_result([PutOutcome(ResponseCode.SERVICE_NOT_AVAILABLE, reason="not now")] * len(batch.entries))
    timers.hold = False
    timers.pass_time(3000)
    assert timers.arrived() == [b"x", b"y"]
    assert timers.delivery.delivered == 2


@pytest.mark.parametrize("is_state_there", [True, False])
def test_what_somebody_left_in_the_directory_holds_up_nobody(under_test, timers, clock, monkeypatch, is_state_there):
    monkeypatch.setattr(schedule, "MOST_INLINE", 4)
    for n in range(10):
        timers.wait(b"%d" % n, 1000 + n)
    timers.rounds()
    timers.save()
    timers.close()
    (timers.directory / "lost+found").mkdir()
    (timers.directory / "run-0000000000000099").write_bytes(b"of a merge that a crash ended")
    if not is_state_there:
        (timers.directory / "state").unlink()
    after = Timers(under_test, clock)
    after.rounds()
    names = {path.name for path in after.directory.iterdir()}
    assert names == {"lost+found"} | ({"state", "run-0000000000000001"} if is_state_there else set())
    after.pass_time(3000)
    assert (after.arrived(), after.delivery.failure) == ([b"%d" % n for n in range(10)], None)
    after.close()


def test_neighbours_are_read_together(under_test, timers, clock):
    reads: list[int] = []
    pread = under_test.disk.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        reads.append(size)
        return pread(fd, size, position)

    for n in range(100):
        timers.wait(b"%d" % n, 1000)
    timers.rounds()
    clock.advance(1000)
    under_test.disk.pread = counted
    timers.rounds(1)
    del under_test.disk.pread
    assert len(timers.arrived()) == 100
    assert len(reads) < 20


def test_a_span_gives_what_the_log_gives(tmp_path):
    """For any expected size, also at the end of a file."""
    under_test = StoreUnderTest(tmp_path, segment_bytes=64 * 1024).open()
    for n in range(300):
        under_test.put("T", 0, b"%d" % n + b"x" * (n * 7 % 900))
        under_test.tick()
    log = under_test.store.log
    end = log.written
    assert end > 2 * 64 * 1024
    chance = random.Random(7)
    for _ in range(50):
        places = [(chance.randrange(-100, end + 100), chance.choice((0, 1, 300, 5000, 40_000))) for _ in range(30)]
        reader = SpanReader(log)
        reader.expect(places)
        for physical, size in places + [(at + 1, size // 2) for at, size in places]:
            assert reader.read(physical, size) == log.read(physical, size)
    under_test.stop()
