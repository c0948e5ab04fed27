"""Number of checks sent to producers, over restarts."""

from __future__ import annotations

import random
from pathlib import Path

from appliance.engine.broker.transactions.check_counts import CheckCounts, CheckCountsFile, decode, encode
from appliance.engine.broker.transactions.open_halves import PAGE, OpenHalves
from appliance.engine.disk import Disk
from tests.engine.broker.transactions.test_transactions import GROUP, question, send_half
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for


def page(*states: tuple[int, int]) -> bytes:
    found = bytearray(PAGE)
    for at, state in states:
        found[at] = state
    return bytes(found)


def test_what_is_written_is_read(tmp_path: Path):
    file = CheckCountsFile(tmp_path / "own" / "checks", Disk())
    assert file.load() is None
    asked = page((3, 4), (4095, 255))
    file.save(7, 4711, [(0, page((1, 1))), (5, asked)])
    assert file.load() == CheckCounts(7, 4711, [(5, asked)])  # without a check nothing is kept
    file.save(8, 4712, [])
    assert file.load() == CheckCounts(8, 4712, [])


def test_damaged_bytes_are_no_counts():
    data = encode(CheckCounts(7, 4711, [(5, page((3, 4)))]))
    assert decode(data) is not None
    some = random.Random(1)
    for _ in range(200):
        at = some.randrange(len(data))
        assert decode(data[:at] + bytes((data[at] ^ 1 << some.randrange(8),)) + data[at + 1 :]) is None
        assert decode(data[:at]) is None


def test_only_open_ones_take_it_over():
    halves = OpenHalves()
    halves.adopt([PAGE + 1, PAGE + 2], 0)
    halves.restore(1, page((1, 5), (2, 1), (3, 9)))
    halves.restore(7, page((1, 5)))
    assert [halves.checks(PAGE + at) for at in (1, 2, 3)] == [4, 0, None]
    assert halves.count == 2


def test_counts_of_another_half_queue_are_none(tmp_path: Path):
    """The log lost its end, and now other half messages have the offsets."""
    running = RunningEngine(tmp_path)
    half = send_half(running.peer(), "K")
    records = running.engine.broker.transactions.records
    physical = int(half["commitLogOffset"])
    for last, at, kept in ((0, physical, 1), (0, physical + 1, 0), (5, physical, 0)):
        records._counts.save(last, at, [(0, page((0, 4)))])
        assert len(records.remembered()) == kept
    running.stop()


def test_they_survive_a_restart(tmp_path: Path):
    often = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 50, "transaction_check_max": 254}
    running = RunningEngine(tmp_path, broker=often)
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    for _ in range(3):
        question(producer)
    running.hang_up()
    before = running.engine.broker.transactions.open_halves.checks(0)
    assert before is not None
    assert before >= 3
    running.restart()
    checks = running.engine.broker.transactions.check
    wait_for(lambda: checks.ready, "the open halves")
    after = running.engine.broker.transactions.open_halves.checks(0)
    assert after is not None
    assert after >= before
    running.stop()
