"""The file of administrative acts: numbers without gaps, floods counted, sizes bounded, nothing given out twice."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path

import pytest

from appliance.engine import wire_audit
from appliance.engine.clock import FakeClock
from appliance.engine.wire_audit import (
    ALL_REFUSED_IN_FULL,
    DONE_IN_FULL,
    MANY_ADDRESSES,
    MAX_COUNTS,
    MAX_OLD_FILES,
    MAX_WAITING,
    REFUSED_IN_FULL,
    OsAuditCalls,
    WireAct,
    WireAudit,
)

NAME = "wire-audit.jsonl"


class FailingCalls(OsAuditCalls):
    """Fails what `fails` names; a write that fails has written half of it."""

    def __init__(self) -> None:
        self.fails = ""

    def write(self, fd: int, data: bytes) -> int:
        if self.fails == "write":
            super().write(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        if self.fails == "sync":
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)


class House:
    """An audit file whose thread is the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.calls = FailingCalls()
        self.all: list[WireAudit] = []
        self.audit = self.opened()

    def opened(self) -> WireAudit:
        audit = WireAudit(self.directory, self.clock, self.calls)
        audit.open()
        self.all.append(audit)
        return audit

    def restart(self) -> None:
        """As after SIGKILL: what was not written is gone."""
        self.audit = self.opened()

    def do(
        self,
        target: str = "T",
        host: str = "10.0.0.5",
        result: str = "done",
        action: str = "topic.set",
        after: dict[str, str] | None = None,
    ) -> None:
        """after: what an act that was done has changed; something by itself, {} for nothing."""
        changed = {"queues": "8"} if after is None and result == "done" else after or None
        act = WireAct(at_ms=1, host=host, port=4711, action=action, target=target, result=result, after=changed)
        self.audit.record(act)

    def acts(self, series: str = "", n: int = 0) -> list[WireAct]:
        """All behind n, asked for as the console does."""
        found: list[WireAct] = []
        while True:
            series, more = self.audit.after(series or self.audit.series, n)
            if not more:
                return found
            found += more
            n = more[-1].n


@pytest.fixture
def house(tmp_path):
    found = House(tmp_path / "rocketbox")
    yield found
    for audit in found.all:
        audit.stop()


def test_acts_come_back_in_order_with_numbers_that_grow_over_restarts(house):
    house.do("A")
    house.do("B")
    house.audit.work()
    series = house.audit.series
    house.restart()
    house.do("C")
    house.audit.work()
    assert [(act.n, act.target) for act in house.acts()] == [(1, "A"), (2, "B"), (3, "C")]
    assert house.audit.series == series
    assert [act.target for act in house.acts(series, 2)] == ["C"]


def test_the_file_is_for_its_owner_only_whatever_the_umask(house):
    assert stat.S_IMODE((house.directory / NAME).stat().st_mode) == 0o600
    (house.directory / NAME).chmod(0o644)
    house.restart()
    assert stat.S_IMODE((house.directory / NAME).stat().st_mode) == 0o600


def test_what_is_not_synced_is_not_handed_out(house):
    house.calls.fails = "sync"
    house.do("A")
    house.audit.work()
    assert house.acts() == []
    assert house.audit.failure == "Input/output error"
    house.calls.fails = ""
    house.audit.work()
    assert [(act.n, act.target) for act in house.acts()] == [(1, "A")]
    assert house.audit.failure is None


def test_a_full_disk_loses_nothing_and_leaves_no_half_line(house):
    house.do("A")
    house.audit.work()
    house.calls.fails = "write"
    house.do("B")
    house.audit.work()
    house.do("C")
    house.calls.fails = ""
    house.audit.work()
    house.audit.work()
    assert [(act.n, act.target) for act in house.acts()] == [(1, "A"), (2, "B"), (3, "C")]
    assert all(json.loads(line) for line in (house.directory / NAME).read_text().splitlines())


def test_a_torn_tail_is_cut_and_its_number_given_again(house):
    house.do("A")
    house.audit.work()
    with open(house.directory / NAME, "ab") as file:
        file.write(b'{"n":2,"at_ms":1,"ho')
    house.restart()
    house.do("B")
    house.audit.work()
    assert [(act.n, act.target) for act in house.acts()] == [(1, "A"), (2, "B")]


def test_a_file_that_is_not_ours_is_set_aside_and_another_series_begins(house):
    series = house.audit.series
    (house.directory / NAME).write_bytes(b"not ours\n")
    house.restart()
    house.do("A")
    house.audit.work()
    assert (house.directory / "wire-audit.damaged").read_bytes() == b"not ours\n"
    assert house.audit.series != series
    assert [act.target for act in house.acts(series, 500)] == ["A"]


def test_another_series_is_read_from_its_beginning(house):
    house.do("A")
    house.audit.work()
    series, acts = house.audit.after("older", 99)
    assert (series, [act.target for act in acts]) == (house.audit.series, ["A"])


# --- floods


def test_refused_requests_beyond_so_many_a_minute_are_counted_in_one_entry(house):
    for number in range(REFUSED_IN_FULL + 500):
        house.do(f"T{number}", result="refused")
    house.audit.work()
    acts = house.acts()
    assert len(acts) == REFUSED_IN_FULL
    assert acts[-1].after == {"counted_from_here": True}
    house.clock.advance(60_000)
    house.audit.work()
    (total,) = house.acts(n=REFUSED_IN_FULL)
    assert (total.more, total.host, total.action, total.result) == (500, "10.0.0.5", "topic.set", "refused")
    house.do("again", result="refused")
    house.audit.work()
    assert house.acts()[-1].target == "again"


def test_hundreds_of_changes_that_were_made_show_whole(house):
    for number in range(DONE_IN_FULL):
        house.do(f"T{number}")
    house.audit.work()
    assert [act.target for act in house.acts()] == [f"T{number}" for number in range(DONE_IN_FULL)]


def test_a_flood_of_acts_that_change_nothing_hides_none_that_does(house):
    for number in range(1000):
        house.do(f"Nothing{number}", action="topic.delete", after={})
    house.do("Orders", action="topic.delete")
    house.audit.work()
    acts = house.acts()
    assert acts[-1].target == "Orders"
    assert len(acts) == 20 + 1


def test_one_peers_flood_hides_nobody_elses_acts(house):
    for _ in range(1000):
        house.do(host="10.0.0.5", result="refused")
    house.do("mine", host="127.0.0.1")
    house.audit.work()
    assert [act.target for act in house.acts() if act.host == "127.0.0.1"] == ["mine"]


def test_a_flood_from_many_addresses_is_bounded_and_counted_whole(house):
    for number in range(5000):
        house.do(host=f"2001:db8::{number:x}", result="refused")
    house.clock.advance(60_000)
    house.audit.work()
    acts = house.acts()
    full = [act for act in acts if not act.more]
    sums = [act for act in acts if act.more]
    assert len(full) == ALL_REFUSED_IN_FULL
    assert full[-1].after == {"counted_from_here": True}
    assert len(sums) == MAX_COUNTS + 1
    assert len(full) + sum(act.more for act in sums) == 5000
    assert max(sums, key=lambda act: act.more).host == MANY_ADDRESSES


def test_counts_are_written_at_the_stop(house):
    for _ in range(REFUSED_IN_FULL + 7):
        house.do(result="refused")
    house.audit.stop()
    house.restart()
    assert [act.more for act in house.acts() if act.more] == [7]


def test_a_disk_that_hangs_bounds_what_waits_and_counts_the_rest(house, monkeypatch):
    monkeypatch.setattr(wire_audit, "DONE_IN_FULL", 10**6)
    for number in range(MAX_WAITING + 300):
        house.do(f"T{number}")
    assert len(house.audit._waiting) == MAX_WAITING
    house.clock.advance(60_000)
    for _ in range(3):
        house.audit.work()
    acts = house.acts()
    assert len([act for act in acts if not act.more]) == MAX_WAITING
    assert [act.more for act in acts if act.more] == [300]


# --- sizes


def files(house: House) -> list[str]:
    return sorted(path.name for path in house.directory.iterdir())


def fill(house: House, count: int) -> None:
    """So many files' worth, an act a file."""
    for number in range(count):
        house.do(f"F{number}")
        house.audit.work()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(wire_audit, "MAX_FILE_BYTES", 150)


def test_files_roll_and_are_read_over_all_of_them(house, small):
    fill(house, 5)
    assert len(files(house)) > 2
    assert [act.target for act in house.acts()] == [f"F{n}" for n in range(5)]
    assert [act.target for act in house.acts(house.audit.series, 3)] == ["F3", "F4"]
    house.restart()
    fill(house, 1)
    assert [act.n for act in house.acts()] == [1, 2, 3, 4, 5, 6]


def test_without_a_console_the_newest_files_stay_and_it_is_said_how_many_went(house, small, caplog):
    fill(house, 40)
    house.audit.work()
    assert len(files(house)) <= MAX_OLD_FILES + 1
    acts = house.acts()
    dropped = [act for act in acts if act.action == "wire_audit.drop"]
    assert dropped
    lost = acts[0].n - 1
    assert sum(act.after["entries"] for act in dropped) <= lost
    assert "no console took them" in caplog.text


def test_what_the_console_took_goes_without_a_word(house, small):
    fill(house, 5)
    house.audit.taken(house.audit.series, 3)
    assert [act.n for act in house.acts()][-2:] == [4, 5]
    assert len(files(house)) <= 3
    fill(house, 60)
    for _ in range(60):
        house.audit.taken(house.audit.series, house.audit.last)
        fill(house, 1)
    assert not [act for act in house.acts() if act.action == "wire_audit.drop" and act.n > 70]


def test_a_kill_between_two_files_goes_on_with_the_next_number(house, small):
    fill(house, 3)
    (house.directory / NAME).rename(house.directory / f"wire-audit-{house.audit._first:020d}.jsonl")
    series = house.audit.series
    house.restart()
    fill(house, 1)
    assert (house.audit.series, [act.n for act in house.acts()]) == (series, [1, 2, 3, 4])


def test_every_act_is_in_the_log_too(house, caplog):
    caplog.set_level("INFO")
    house.do("T", result="done")
    house.do("T", result="refused")
    house.audit.work()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "wire admin: topic.set T by=10.0.0.5:4711: refused" in caplog.text


def test_recording_waits_for_no_disk(house):
    """On remoting-io: a record is memory only, and 100,000 of them take less than 2 s of it."""
    import time

    house.calls.fails = "sync"
    begin = time.thread_time()
    for _ in range(100_000):
        house.do(result="refused")
    assert time.thread_time() - begin < 2
    assert house.audit.last == 0


# --- files that are not what the reader saw last


def actions(found: tuple[str, list[WireAct]]) -> list[str]:
    return [act.action for act in found[1]]


def life(house: House, *names: str) -> int:
    """One run of the engine, which records acts of these names; the number of the last one."""
    house.audit = house.opened()
    for name in names:
        house.audit.record(WireAct(at_ms=1, host="127.0.0.1", action=name))
    house.audit.work()
    return house.audit.last


def test_what_is_done_after_an_older_copy_was_put_back_reaches_a_reader_who_knows_of_more(house):
    house.audit.stop()
    life(house, "a", "b")
    house.audit.stop()
    older = (house.directory / NAME).read_bytes()
    known = life(house, "c", "d", "e")
    assert actions(house.audit.after(house.audit.series, 2)) == ["c", "d", "e"]
    house.audit.stop()
    (house.directory / NAME).write_bytes(older)
    life(house, "f", "g")
    series, acts = house.audit.after(house.audit.series, known)
    assert [act.action for act in acts] == ["f", "g"]
    assert house.audit.after(series, acts[-1].n) == (series, [])
    house.audit.record(WireAct(at_ms=1, host="127.0.0.1", action="h"))
    house.audit.work()
    assert actions(house.audit.after(series, acts[-1].n)) == ["h"]


def test_the_number_of_a_damaged_line_is_not_given_again(house):
    house.audit.stop()
    known = life(house, "a", "b")
    house.audit.stop()
    path = house.directory / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b"\0" * (len(lines[-1]) - 1) + b"\n"]))
    life(house, "c")
    assert [(act.n, act.action) for act in house.audit.after(house.audit.series, known)[1]] == [(known + 1, "c")]
