"""The journal of administrators' decisions about transactions."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from appliance.engine.broker.transactions.admin_journal import (
    DONE,
    KEPT_MS,
    REFUSED,
    Act,
    DecisionJournal,
    Ended,
)
from appliance.engine.disk import Disk
from tests.support.clock import FakeClock


class Failing(Disk):
    def __init__(self) -> None:
        self.fails = ""
        self.synced = 0

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.fails == "pwrite":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        if self.fails == "fdatasync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced += 1
        super().fdatasync(fd)


def act(number: int, at_ms: int = 0, reason: str = "the order was paid") -> Act:
    return Act(number, "commit", "alice", reason, at_ms, number, number * 100, f"K{number}", 1, "Orders", "PG")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rocketbox" / "transactions" / "decisions.journal"


def test_what_is_not_over_is_known_after_a_restart(path):
    journal = DecisionJournal(path, FakeClock())
    journal.append([act(1), act(2), act(3)])
    journal.end([Ended(1, DONE), Ended(3, REFUSED, "no such topic")])
    journal.close()
    again = DecisionJournal(path, FakeClock())
    assert again.unfinished() == [act(2)]
    assert again.of(100) == act(1)
    assert again.of(300) is None, "it was refused: it decided nothing"
    assert again.newest(2) == [(act(3), Ended(3, REFUSED, "no such topic")), (act(2), None)]
    again.close()


def test_an_act_is_synced_before_it_is_known(path):
    disk = Failing()
    journal = DecisionJournal(path, FakeClock(), disk)
    before = disk.synced
    journal.append([act(1)])
    assert disk.synced == before + 1
    for fails in ("pwrite", "fdatasync"):
        disk.fails = fails
        with pytest.raises(OSError, match=r"No space|Input/output"):
            journal.append([act(2)])
        assert journal.failure
        disk.fails = ""
    assert journal.unfinished() == [act(1)]
    journal.append([act(4)])
    assert journal.failure is None
    journal.close()
    assert DecisionJournal(path, FakeClock()).unfinished() == [act(1), act(4)]


def test_torn_and_damaged_lines_cost_what_they_hit(path):
    journal = DecisionJournal(path, FakeClock())
    journal.append([act(1), act(2), act(3)])
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"alice", b"mallo")
    path.write_bytes(b"".join(lines) + b"0000 {half a li")
    again = DecisionJournal(path, FakeClock())
    assert again.unfinished() == [act(1), act(3)]
    again.close()
    assert len(path.read_bytes().splitlines()) == 2


def test_it_stays_small_and_keeps_what_is_not_over(path):
    clock = FakeClock()
    journal = DecisionJournal(path, clock, most_bytes=20_000)
    journal.append([act(1, clock.wall_ms())])
    for number in range(2, 300):
        journal.append([act(number, clock.wall_ms())])
        journal.end([Ended(number, DONE)])
        assert path.stat().st_size <= 20_000
    assert journal.unfinished()[0].id == 1
    newest = [one.id for one, _ in journal.newest(10)]
    assert newest == list(range(299, 289, -1))
    journal.close()


def fill(journal: DecisionJournal, path: Path) -> None:
    """Have the next write make the file anew, which has far fewer bytes then."""
    while path.stat().st_size <= 10_000:
        journal.end([Ended(1, DONE)])


def test_what_is_too_old_goes(path):
    clock = FakeClock()
    journal = DecisionJournal(path, clock, most_bytes=20_000)
    journal.append([act(1, clock.wall_ms())])
    clock.advance(KEPT_MS - 1)
    fill(journal, path)
    journal.append([act(2, clock.wall_ms())])
    assert [one.id for one, _ in journal.newest(9)] == [2, 1]
    fill(journal, path)
    clock.advance(1)
    journal.append([act(3, clock.wall_ms())])
    assert [one.id for one, _ in journal.newest(9)] == [3, 2]
    journal.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_forward_for_a_while_drops_no_act(path, is_restarted):
    clock = FakeClock()
    journal = DecisionJournal(path, clock, most_bytes=20_000)
    journal.append([act(1, clock.wall_ms())])
    fill(journal, path)
    clock.jump(3 * KEPT_MS)
    if is_restarted:
        journal.close()
        journal = DecisionJournal(path, clock, most_bytes=20_000)
    journal.append([act(2, clock.wall_ms())])
    assert path.stat().st_size < 10_000
    assert [one.id for one, _ in journal.newest(9)] == [2, 1]
    fill(journal, path)
    clock.advance(3_600_000)
    journal.append([act(3, clock.wall_ms())])
    assert [one.id for one, _ in journal.newest(9)] == [3, 2], "it has stayed so"
    journal.close()


def test_ids_grow_over_restarts_and_when_the_clock_goes_back(path):
    clock = FakeClock()
    journal = DecisionJournal(path, clock)
    [first] = journal.next_ids(1)
    journal.append([msgspec.structs.replace(act(1), id=first)])
    journal.close()
    again = DecisionJournal(path, clock)
    assert again.next_ids(2)[0] > first
    assert again.next_ids(1)[0] > first + 2
    again.close()


def test_nothing_is_written_behind_the_end(path):
    journal = DecisionJournal(path, FakeClock())
    journal.close()
    with pytest.raises(OSError, match="stopping"):
        journal.append([act(1)])
