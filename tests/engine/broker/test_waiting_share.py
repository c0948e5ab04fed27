"""Waiting messages have a share of the disk; beyond it sends that would wait are refused with 14, and only these."""

import time
from contextlib import closing

import pytest

from appliance.engine.broker.timers.recall import mark_of
from appliance.engine.broker.waiting_share import WaitingShare
from appliance.engine.disk import DiskUsage
from appliance.engine.protocol.recall_handle import encode_recall_handle
from appliance.engine.store.log.commit_log import CommitLog
from tests.support.clock import FakeClock
from tests.support.delays import Delays
from tests.support.engine import Peer, send_fields, start_engine
from tests.support.store import StoreUnderTest
from tests.support.timers import TARGET, WAITING, Timers

MIB = 1 << 20
#: A disk with room for some megabytes of log below its last stage.
SMALL = DiskUsage(84 * MIB, 16 * MIB)


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path, segment_bytes=16 * MIB).open()
    yield under_test
    under_test.stop()


def test_what_waits_is_measured_at_levels_for_a_time_and_of_halves(under_test):
    clock = FakeClock()
    timers, delays = Timers(under_test, clock), Delays(under_test, clock)
    halves: list[tuple[int | None, int]] = [(None, 0)]
    share = WaitingShare(
        under_test.store, lambda: timers.index.bytes, delays.delivery.levels, delays.progress.of, lambda: halves[0]
    )
    share.look(SMALL, 0.9)
    assert (share.bytes, share.refusing) == (0, None)
    timers.wait(b"x" * MIB, 60_000, UNIQ_KEY="a")
    timers.rounds()
    share.look(SMALL, 0.9)
    assert MIB < share.bytes < MIB + 1000
    assert share.refusing is None
    for _ in range(2):
        delays.delay(1, b"x" * MIB)
    delays.rounds()
    share.look(SMALL, 0.9)
    assert 3 * MIB < share.bytes < 3 * MIB + 3000
    assert share.refusing is not None
    assert share.refusing_retries is None
    delays.pass_time(2000)
    timers.pass_time(60_000, 10_000)
    share.look(SMALL, 0.9)
    assert (share.bytes, share.refusing) == (0, None)
    share.close()
    timers.close()


def test_what_is_stored_once_more_counts_once_and_a_state_says_it(under_test):
    clock = FakeClock()
    timers = Timers(under_test, clock)
    for number in range(5):
        timers.wait(b"x" * 1000, 86_400_000, UNIQ_KEY=str(number))
    timers.rounds()
    before = timers.index.bytes
    assert 5000 < before < 7000
    timers.roll.keep(under_test.store.log.written)
    timers.roll_on(20)
    assert before < timers.index.bytes < before * 1.3
    rolled = timers.index.bytes
    timers.save()
    timers.close()
    timers = Timers(under_test, clock)
    timers.rounds()
    assert timers.index.bytes == timers.index._sum() == rolled
    timers.pass_time(90_000_000, 10_000_000)
    assert timers.index.bytes == 0
    timers.close()


def test_recalls_count_until_their_time_stored_once_more_or_not(under_test):
    """There need be no such messages, and a recall is kept for as long as its message would be."""
    clock = FakeClock()
    timers = Timers(under_test, clock)
    due_ms = clock.wall_ms() + 86_400_000
    for number in range(5):
        mark = mark_of(TARGET, f"{number}".ljust(1000, "x"), due_ms, clock.wall_ms())
        timers.put(mark.body, mark.properties, WAITING)
    timers.rounds()
    before = timers.index.bytes
    assert 5 * 2000 < before < 5 * 3000
    timers.roll.keep(under_test.store.log.written)
    timers.roll_on(20)
    assert timers.roll.rolled == 5
    assert before <= timers.index.bytes < before * 1.3
    rolled = timers.index.bytes
    timers.save()
    timers.close()
    timers = Timers(under_test, clock)
    timers.rounds()
    assert timers.index.bytes == timers.index._sum() == rolled
    timers.wait(b"later", 172_800_000, UNIQ_KEY="later")
    timers.pass_time(90_000_000, 10_000_000)
    timers.rounds(20)
    assert 0 < timers.index.bytes < 1000, "the later message only"
    timers.close()


def test_recalls_are_refused_with_14_beyond_the_larger_share(tmp_path):
    engine = start_engine(tmp_path / "data")
    try:
        with closing(Peer(engine.broker_address)) as peer:
            assert peer.ask(310, send_fields("T"), b"x").code == 0
            handle = encode_recall_handle("T", "broker-a", time.time_ns() // 1_000_000 + 60_000, "key")
            fields = {"topic": "T", "recallHandle": handle, "producerGroup": "P"}
            engine.broker.waiting_share.refusing = "more than its share"
            assert peer.ask(370, fields).code == 0
            engine.broker.waiting_share.refusing_recalls = "more than its share"
            answer = peer.ask(370, fields)
            assert (answer.code, answer.remark) == (14, "recall failed, more than its share")
    finally:
        engine.stop()


def test_sends_that_are_to_wait_are_refused_with_14_and_others_are_taken(tmp_path):
    engine = start_engine(tmp_path / "data")
    try:
        with closing(Peer(engine.broker_address)) as peer:
            assert peer.ask(310, send_fields("T"), b"x").code == 0
            engine.broker.waiting_share.refusing = "what waits has more than its share"
            for properties in (
                "UNIQ_KEY\x01a\x02DELAY\x013\x02",
                "UNIQ_KEY\x01a\x02TIMER_DELAY_SEC\x0160\x02",
                "UNIQ_KEY\x01a\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02",
            ):
                answer = peer.ask(310, send_fields("T", properties=properties), b"x")
                assert (answer.code, answer.remark) == (14, "what waits has more than its share")
            assert peer.ask(310, send_fields("T", properties="UNIQ_KEY\x01a\x02"), b"x").code == 0
    finally:
        engine.stop()


def test_what_comes_between_two_looks_is_taken_up_to_what_was_left(under_test):
    clock, asked = FakeClock(), []
    timers, delays = Timers(under_test, clock), Delays(under_test, clock)
    share = WaitingShare(
        under_test.store,
        lambda: timers.index.bytes,
        delays.delivery.levels,
        delays.progress.of,
        lambda: (None, 0),
        lambda: asked.append(under_test.store.log.written),
        clock,
    )
    share.look(SMALL, 0.9)
    left = share._left[0]
    assert 2 * MIB < left < 3 * MIB
    taken = []
    while share.refusal_of_sends() is None:
        taken.append(share.refusal_of_recalls())
        timers.wait(b"x" * (MIB // 4), 60_000, UNIQ_KEY=str(len(taken)))
        clock.advance(50)
    assert left < under_test.store.log.written < left + MIB
    assert taken == [None] * len(taken)
    assert share.refusal_of_retries() is None
    assert left / 2 < asked[0] < left, "a look was asked for before"
    assert len(asked) < len(taken) / 2
    timers.rounds()
    written = under_test.store.log.written
    share.look(DiskUsage(84 * MIB + written, 16 * MIB - written), 0.9)
    assert share.refusing is not None
    timers.pass_time(61_000, 10_000)
    share.look(SMALL, 0.9)
    assert share.refusal_of_sends() is None
    share.close()
    timers.close()


def test_a_burst_of_delayed_messages_cannot_fill_the_disk_between_two_rounds_of_the_cleaner(tmp_path, monkeypatch):
    """A round comes each ten seconds by default; here none comes by itself."""
    store = {"clean_resource_interval_ms": 3_600_000, "mapped_file_size_commit_log": MIB, "max_message_size": 65_536}
    monkeypatch.setattr(CommitLog, "usage", lambda log: DiskUsage(84 * MIB, 16 * MIB))
    engine = start_engine(tmp_path / "data", store=store | {"disk_space_warning_level_ratio": 90})
    try:
        with closing(Peer(engine.broker_address)) as peer:
            codes = {}
            for number in range(200):
                properties = f"UNIQ_KEY\x01{number}\x02DELAY\x0118\x02"
                code = peer.ask(310, send_fields("T", properties=properties), b"x" * 60_000).code
                codes[code] = codes.get(code, 0) + 1
            assert codes.keys() == {0, 14}
            assert codes[0] * 60_000 < 5 * MIB, "more than a third of what the log can have"
            assert peer.ask(310, send_fields("T", properties="UNIQ_KEY\x01a\x02"), b"x").code == 0
    finally:
        engine.stop()
