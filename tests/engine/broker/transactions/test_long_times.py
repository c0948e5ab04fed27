"""Hours of open transactions in a whole engine whose clock the test moves, and a wall clock that is set meanwhile."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.transactions.check import CheckTransactions
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.engine.broker.transactions.test_put_back import leave
from tests.engine.broker.transactions.test_transactions import (
    ASIDE,
    COMMIT,
    GROUP,
    HALF,
    end,
    question,
    send_half,
    stored,
)
from tests.support.engine import ROOMY, RunningEngine
from tests.support.figures import SkippingClock
from tests.support.waiting import wait_for

S, M, H = 1000, 60_000, 3_600_000
#: Time between two looks at the oldest half messages, or at those that are due.
REVIEW_MS = 10_100
#: A connection without a heartbeat for two minutes is closed.
HEARTBEAT = json.dumps({"clientID": "p", "consumerDataSet": [], "producerDataSet": [{"groupName": GROUP}]}).encode()


class Moved(RunningEngine):
    """An engine with default settings, but messages are kept for an hour or two."""

    def __init__(self, data_dir: Path, clock: SkippingClock, hours: int) -> None:
        self.data_dir, self.clock, self.hours = data_dir, clock, hours
        self.peers, self._own = [], None
        self.begin()

    def begin(self) -> None:
        store = StoreConfig(**ROOMY, mapped_file_size_commit_log=8 << 20, file_reserved_time_hours=self.hours)
        broker = BrokerConfig(broker_name="broker-a")
        self.engine = Engine(
            EngineConfig(data_dir=self.data_dir, broker_port=0, namesrv_port=0, broker=broker, store=store),
            clock=self.clock,
        )
        self.engine.start()

    def restart(self) -> None:
        self.stop()
        self.begin()

    def open_count(self) -> int:
        assert self.engine.broker is not None
        return self.engine.broker.transactions.open_halves.count

    def fresh_producer(self):
        """Connect a new producer: idle connections are closed over hours."""
        self.hang_up()
        return self.produce_as("p", GROUP)


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def running(tmp_path: Path, clock: SkippingClock) -> Iterator[Moved]:
    found = Moved(tmp_path, clock, 2)
    yield found
    found.stop()


def times(frame) -> str:
    return decode_properties(decode_record(frame.body).properties)["TRANSACTION_CHECK_TIMES"]


def test_fifteen_checks_and_then_it_is_set_aside(running: Moved, clock: SkippingClock) -> None:
    producer = running.produce_as("p", GROUP)
    half = send_half(producer, "K")
    clock.skipped_ms += 6 * S
    for number in range(1, 16):
        asked = question(producer)
        assert times(asked) == str(number)
        assert asked.ext_fields["commitLogOffset"] == half["commitLogOffset"], "checks store nothing"
        assert producer.ask(34, {}, HEARTBEAT).code == 0
        clock.skipped_ms += 30 * S + 100
    [aside] = wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")
    assert decode_properties(aside.properties)["TRANSACTION_CHECK_TIMES"] == "15"
    assert len(stored(running.peer(), HALF)) == 1
    assert end(running.peer(), half, COMMIT).code == 1


def test_what_nobody_is_there_to_be_asked_about_is_set_aside_in_the_end(running: Moved, clock: SkippingClock) -> None:
    send_half(running.peer(), "K")
    clock.skipped_ms += 1 * H
    running.hang_up()
    send_half(running.peer(), "younger")
    clock.skipped_ms += 1 * H + REVIEW_MS
    running.hang_up()
    [aside] = wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")
    assert decode_properties(aside.properties)["UNIQ_KEY"] == "K"
    assert running.open_count() == 1


@pytest.mark.parametrize("has_producer", [False, True], ids=["nobody is there", "nobody may be asked"])
def test_what_was_stored_once_more_is_not_younger_for_that(
    running: Moved, clock: SkippingClock, has_producer: bool
) -> None:
    """On a busy broker or a full disk it is stored again each few minutes."""
    send_half(running.peer(), "K")
    for _ in range(2):
        clock.skipped_ms += 50 * M
        running.hang_up()
        leave(running)
        running.restart()
    assert stored(running.peer(), ASIDE) == []
    assert running.engine.broker is not None
    running.engine.broker.transactions.check.may_be_asked = lambda conn, topic: False
    clock.skipped_ms += 20 * M + REVIEW_MS
    running.hang_up()
    if has_producer:
        running.produce_as("p", GROUP)
    [aside] = wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")
    assert decode_properties(aside.properties)["UNIQ_KEY"] == "K"
    wait_for(lambda: running.open_count() == 0, "none is open")


def test_one_that_cannot_be_set_aside_on_a_full_disk_lets_its_file_go(
    running: Moved, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic for it is made with the first one, which takes room in the journal that only the file's end makes."""
    send_half(running.peer(), "K")
    tried: list[None] = []
    assert running.engine.broker is not None

    def no_space(*_: Any) -> None:
        tried.append(None)
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(running.engine.broker.topics, "create_retry_topic", no_space)
        clock.skipped_ms += 2 * H + REVIEW_MS
        running.hang_up()
        leave(running)
        assert (running.open_count(), stored(running.peer(), ASIDE)) == (1, [])
        at_first = len(tried)
        clock.skipped_ms += REVIEW_MS
        wait_for(lambda: len(tried) > at_first, "it is tried again")
    assert caplog.text.count("cannot be made") == 1, "it is said once, however often it is tried"
    clock.skipped_ms += REVIEW_MS
    [aside] = wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")
    assert decode_properties(aside.properties)["UNIQ_KEY"] == "K"


def test_a_clock_that_is_set_forward_sets_nothing_aside(running: Moved, clock: SkippingClock) -> None:
    half = send_half(running.peer(), "K")
    clock.set_by_ms += 1000 * H
    clock.skipped_ms += REVIEW_MS
    producer = running.fresh_producer()
    assert times(question(producer)) == "1", "its immunity is over by the steady clock"
    assert stored(running.peer(), ASIDE) == []
    assert end(producer, half, COMMIT).code == 0


def test_a_start_with_a_clock_that_is_years_ahead_sets_nothing_aside_at_once(
    running: Moved, clock: SkippingClock
) -> None:
    half = send_half(running.peer(), "K")
    running.stop()
    clock.set_by_ms += 20_000 * H
    running.begin()
    producer = running.fresh_producer()
    clock.skipped_ms += REVIEW_MS
    assert times(question(producer)) == "1"
    assert stored(running.peer(), ASIDE) == []
    assert end(producer, half, COMMIT).code == 0
    send_half(running.peer(), "K2")
    running.stop()
    clock.set_by_ms += 20_000 * H
    running.begin()
    clock.skipped_ms += 1 * H + REVIEW_MS  # by now that clock is believed
    assert wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")


@pytest.mark.parametrize(
    ("asks", "immunity_s", "after_ms"), [("_act_on", 5, 6 * S), ("_act_on_oldest", 600, REVIEW_MS)]
)
def test_a_clock_that_is_set_back_while_halves_are_looked_at_makes_none_older(
    running: Moved, clock: SkippingClock, asks: str, immunity_s: int, after_ms: int
) -> None:
    broker = running.engine.broker
    assert broker is not None
    ages, steps, looks = broker.transactions.check._ages, broker.store.clock_steps, broker.delays.deliver._time
    look, seen = ages.now_ms, threading.Event()

    def now_ms() -> int:
        found = look()
        if sys._getframe(1).f_code.co_name == asks and not seen.is_set():
            clock.set_by_ms -= 1000 * H
            wait_for(lambda: steps.spans, "the step to be seen")
            seen.set()
        return found

    half = send_half(running.peer(), "K", f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{immunity_s}\x02")
    before_ms = clock.wall_ms()
    wait_for(lambda: looks._wall >= before_ms, "the clocks to be looked at")
    ages.now_ms = now_ms  # type: ignore[method-assign]
    producer = running.produce_as("p", GROUP)
    clock.skipped_ms += after_ms
    assert seen.wait(60)
    assert end(producer, half, COMMIT).code == 0
    assert stored(running.peer(), ASIDE) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_back_holds_up_no_question(running: Moved, clock: SkippingClock, restarted: bool) -> None:
    send_half(running.peer(), "K")
    send_half(running.peer(), "long", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0120\x02")
    clock.set_by_ms -= 1000 * H
    if restarted:
        running.restart()
        clock.skipped_ms += 200
        wait_for(lambda: running.open_count() == 2, "the open halves are found")
    producer = running.fresh_producer()
    clock.skipped_ms += 6 * S + 200
    assert question(producer).ext_fields["msgId"] == "K"
    clock.skipped_ms += 20 * S + 200
    assert question(producer).ext_fields["msgId"] == "long"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_forward_ends_no_long_immunity(
    running: Moved, clock: SkippingClock, restarted: bool
) -> None:
    long = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02"
    send_half(running.peer(), "long", long)
    looks = running.engine.broker.delays.deliver._time  # type: ignore[union-attr]
    before_ms = clock.wall_ms()
    wait_for(lambda: looks._wall >= before_ms, "the clocks to be looked at")
    clock.set_by_ms += 1 * H
    wait_for(lambda: looks.jumps_ms, "the step to be seen")
    if restarted:
        running.restart()
    clock.skipped_ms += 61 * S
    half = send_half(running.peer(), "K")
    producer = running.fresh_producer()
    clock.skipped_ms += 6 * S + 200
    assert question(producer).ext_fields["msgId"] == "K"
    assert end(producer, half, COMMIT).code == 0
    clock.skipped_ms += 540 * S
    assert question(running.fresh_producer()).ext_fields["msgId"] == "long"


@pytest.mark.parametrize(
    ("immunity", "asked_after_ms"),
    [("", 6 * S), ("-1", 6 * S), ("x", 6 * S), ("0", 0), ("3", 3 * S), ("7200000000", None), ("110", 110 * S)],
)
def test_immunity(running: Moved, clock: SkippingClock, immunity: str, asked_after_ms: int | None) -> None:
    """From the property, or else `transactionTimeOut`; a long one is waited for in pieces."""
    producer = running.produce_as("p", GROUP)
    sent_at = clock.monotonic()
    send_half(producer, "K", f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{immunity}\x02" if immunity else "")
    assert running.engine.broker is not None
    checks = running.engine.broker.transactions.check
    if asked_after_ms != 0:
        clock.skipped_ms += (asked_after_ms or H) - 1500
        time.sleep(0.4)
        asked, passed_ms = checks.asked, (clock.monotonic() - sent_at) * 1000
        assert asked == 0 or passed_ms >= (asked_after_ms or 2 * H), "it is asked too early"
    if asked_after_ms is not None:
        clock.skipped_ms += 1700
        assert times(question(producer)) == "1"


def test_a_long_immunity_does_not_begin_anew_where_a_half_is_stored_once_more(
    running: Moved, clock: SkippingClock
) -> None:
    long = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01150\x02"
    send_half(running.peer(), "K", long, g=str(clock.wall_ms()))
    for _ in range(4):
        clock.skipped_ms += 40 * S
        leave(running)
    clock.skipped_ms += 60 * S
    assert times(question(running.fresh_producer())) == "1"


def test_a_start_that_stores_a_half_once_more_first_does_not_end_its_immunity(
    running: Moved, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = CheckTransactions._begin_work

    def begin_with_a_file_to_go(self: CheckTransactions, found: Any) -> None:
        self._leaving_end = self._store.log.written
        begin(self, found)

    monkeypatch.setattr(CheckTransactions, "_begin_work", begin_with_a_file_to_go)
    send_half(running.peer(), "K", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0150\x02", g=str(clock.wall_ms()))
    running.restart()
    broker = running.engine.broker
    assert broker is not None
    halves, now_ms = broker.transactions.open_halves, broker.transactions.check.now_ms
    wait_for(
        lambda: halves.open_parked(GROUP)[0] or halves.due_times({1}).get(1, 0) > now_ms() + 9 * S, "it was looked at"
    )
    assert halves.open_parked(GROUP)[0] == 0, "its producers would be asked at once"
