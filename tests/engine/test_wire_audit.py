"""The file of administrative acts: numbers without gaps, floods counted, sizes bounded, no number given twice."""

from __future__ import annotations

import errno
import json
import stat
import time
from pathlib import Path

import pytest

from appliance.engine import wire_audit
from appliance.engine.disk import Disk
from appliance.engine.wire_act import WireAct
from appliance.engine.wire_audit import (
    ALL_REFUSED_IN_FULL,
    DONE_IN_FULL,
    MANY_ADDRESSES,
    MAX_COUNTS,
    MAX_OLD_FILES,
    MAX_WAITING,
    REFUSED_IN_FULL,
    WireAudit,
)
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

NAME = "wire-audit.jsonl"


class FailingDisk(Disk):
    """Fails the calls that `fails` names; a failing write has written half."""

    fails = ""
    directory_syncs_until_failure = 0

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.fails == "write":
            super().pwrite(fd, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        if self.fails == "sync":
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        self.directory_syncs_until_failure -= 1
        if self.directory_syncs_until_failure == 0:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_directory(path)


class AuditTrail:
    """An audit file whose thread is played by the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.disk = FailingDisk(directory)
        self.all: list[WireAudit] = []
        self.audit = self.opened()

    def opened(self) -> WireAudit:
        audit = WireAudit(self.directory, self.clock, self.disk)
        audit.open()
        self.all.append(audit)
        return audit

    def restart(self) -> None:
        """Start again as after SIGKILL: unwritten acts are gone."""
        self.audit = self.opened()

    def do(
        self,
        target: str = "T",
        host: str = "10.0.0.5",
        result: str = "done",
        action: str = "topic.set",
        after: dict[str, str] | None = None,
    ) -> None:
        """Record an act. after: changes by an act that was done; None for a default, {} for none."""
        changed = {"queues": "8"} if after is None and result == "done" else after or None
        act = WireAct(at_ms=1, host=host, port=4711, action=action, target=target, result=result, after=changed)
        self.audit.record(act)

    def acts(self, series: str = "", n: int = 0) -> list[WireAct]:
        """Return all acts behind n, fetched as the console does."""
        found: list[WireAct] = []
        while True:
            series, more = self.audit.after(series or self.audit.series, n)
            if not more:
                return found
            found += more
            n = more[-1].n


@pytest.fixture
def trail(tmp_path):
    found = AuditTrail(tmp_path / "rocketbox")
    yield found
    for audit in found.all:
        audit.stop()


def test_acts_come_back_in_order_with_numbers_that_grow_over_restarts(trail):
    trail.do("A")
    trail.do("B")
    trail.audit.work()
    series = trail.audit.series
    trail.restart()
    trail.do("C")
    trail.audit.work()
    assert [(act.n, act.target) for act in trail.acts()] == [(1, "A"), (2, "B"), (3, "C")]
    assert trail.audit.series == series
    assert [act.target for act in trail.acts(series, 2)] == ["C"]


def test_the_file_is_for_its_owner_only_whatever_the_umask(trail):
    assert stat.S_IMODE((trail.directory / NAME).stat().st_mode) == 0o600
    (trail.directory / NAME).chmod(0o644)
    trail.restart()
    assert stat.S_IMODE((trail.directory / NAME).stat().st_mode) == 0o600


def test_what_is_not_synced_is_not_handed_out(trail):
    trail.disk.fails = "sync"
    trail.do("A")
    trail.audit.work()
    assert trail.acts() == []
    assert trail.audit.failure == "Input/output error"
    trail.disk.fails = ""
    trail.audit.work()
    assert [(act.n, act.target) for act in trail.acts()] == [(1, "A")]
    assert trail.audit.failure is None


def test_a_full_disk_loses_nothing_and_leaves_no_half_line(trail):
    trail.do("A")
    trail.audit.work()
    trail.disk.fails = "write"
    trail.do("B")
    trail.audit.work()
    trail.do("C")
    trail.disk.fails = ""
    trail.audit.work()
    trail.audit.work()
    assert [(act.n, act.target) for act in trail.acts()] == [(1, "A"), (2, "B"), (3, "C")]
    assert all(json.loads(line) for line in (trail.directory / NAME).read_text().splitlines())


def test_a_torn_tail_is_cut_and_its_number_given_again(trail):
    trail.do("A")
    trail.audit.work()
    with open(trail.directory / NAME, "ab") as file:
        file.write(b'{"n":2,"at_ms":1,"ho')
    trail.restart()
    trail.do("B")
    trail.audit.work()
    assert [(act.n, act.target) for act in trail.acts()] == [(1, "A"), (2, "B")]


def test_a_file_that_is_not_ours_is_set_aside_and_another_series_begins(trail):
    series = trail.audit.series
    (trail.directory / NAME).write_bytes(b"not ours\n")
    trail.restart()
    trail.do("A")
    trail.audit.work()
    assert (trail.directory / "wire-audit.damaged").read_bytes() == b"not ours\n"
    assert trail.audit.series != series
    assert [act.target for act in trail.acts(series, 500)] == ["A"]


def test_another_series_is_read_from_its_beginning(trail):
    trail.do("A")
    trail.audit.work()
    series, acts = trail.audit.after("older", 99)
    assert (series, [act.target for act in acts]) == (trail.audit.series, ["A"])


# --- floods


def test_refused_requests_beyond_so_many_a_minute_are_counted_in_one_entry(trail):
    for number in range(REFUSED_IN_FULL + 500):
        trail.do(f"T{number}", result="refused")
    trail.audit.work()
    acts = trail.acts()
    assert len(acts) == REFUSED_IN_FULL
    assert acts[-1].after == {"counted_from_here": True}
    trail.clock.advance(60_000)
    trail.audit.work()
    (total,) = trail.acts(n=REFUSED_IN_FULL)
    assert (total.more, total.host, total.action, total.result) == (500, "10.0.0.5", "topic.set", "refused")
    trail.do("again", result="refused")
    trail.audit.work()
    assert trail.acts()[-1].target == "again"


def test_hundreds_of_changes_that_were_made_show_whole(trail):
    for number in range(DONE_IN_FULL):
        trail.do(f"T{number}")
    trail.audit.work()
    assert [act.target for act in trail.acts()] == [f"T{number}" for number in range(DONE_IN_FULL)]


def test_a_flood_of_acts_that_change_nothing_hides_none_that_does(trail):
    for number in range(1000):
        trail.do(f"Nothing{number}", action="topic.delete", after={})
    trail.do("Orders", action="topic.delete")
    trail.audit.work()
    acts = trail.acts()
    assert acts[-1].target == "Orders"
    assert len(acts) == 20 + 1


def test_one_peers_flood_hides_nobody_elses_acts(trail):
    for _ in range(1000):
        trail.do(host="10.0.0.5", result="refused")
    trail.do("mine", host="127.0.0.1")
    trail.audit.work()
    assert [act.target for act in trail.acts() if act.host == "127.0.0.1"] == ["mine"]


def test_a_flood_from_many_addresses_is_bounded_and_counted_whole(trail):
    for number in range(5000):
        trail.do(host=f"2001:db8::{number:x}", result="refused")
    trail.clock.advance(60_000)
    trail.audit.work()
    acts = trail.acts()
    full = [act for act in acts if not act.more]
    sums = [act for act in acts if act.more]
    assert len(full) == ALL_REFUSED_IN_FULL
    assert full[-1].after == {"counted_from_here": True}
    assert len(sums) == MAX_COUNTS + 1
    assert len(full) + sum(act.more for act in sums) == 5000
    assert max(sums, key=lambda act: act.more).host == MANY_ADDRESSES


def test_counts_are_written_at_the_stop(trail):
    for _ in range(REFUSED_IN_FULL + 7):
        trail.do(result="refused")
    trail.audit.stop()
    trail.restart()
    assert [act.more for act in trail.acts() if act.more] == [7]


def test_a_disk_that_hangs_bounds_what_waits_and_counts_the_rest(trail, monkeypatch):
    monkeypatch.setattr(wire_audit, "DONE_IN_FULL", 10**6)
    for number in range(MAX_WAITING + 300):
        trail.do(f"T{number}")
    assert len(trail.audit._waiting) == MAX_WAITING
    trail.clock.advance(60_000)
    for _ in range(3):
        trail.audit.work()
    acts = trail.acts()
    assert len([act for act in acts if not act.more]) == MAX_WAITING
    assert [act.more for act in acts if act.more] == [300]


# --- sizes


def files(trail: AuditTrail) -> list[str]:
    return sorted(path.name for path in trail.directory.iterdir())


def fill(trail: AuditTrail, count: int) -> None:
    """Write acts for so many files, one act a file."""
    for number in range(count):
        trail.do(f"F{number}")
        trail.audit.work()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(wire_audit, "MAX_FILE_BYTES", 150)


def test_files_roll_and_are_read_over_all_of_them(trail, small):
    fill(trail, 5)
    assert len(files(trail)) > 2
    assert [act.target for act in trail.acts()] == [f"F{n}" for n in range(5)]
    assert [act.target for act in trail.acts(trail.audit.series, 3)] == ["F3", "F4"]
    trail.restart()
    fill(trail, 1)
    assert [act.n for act in trail.acts()] == [1, 2, 3, 4, 5, 6]


def test_a_reader_gets_the_first_act_of_another_file_at_once(trail, small):
    n = 0
    for _ in range(5):
        fill(trail, 1)
        _, [act] = trail.audit.after(trail.audit.series, n)
        n = act.n
    assert n == 5
    assert len(files(trail)) > 2


@pytest.mark.parametrize("failing", [1, 2])
def test_a_directory_that_cannot_be_synced_loses_no_file(trail, small, failing):
    fill(trail, 2)
    trail.disk.directory_syncs_until_failure = failing
    fill(trail, 1)
    assert trail.audit.failure == "Input/output error"
    assert [act.target for act in trail.acts()] == ["F0", "F1"]
    trail.audit.taken(trail.audit.series, 1)
    fill(trail, 1)
    assert trail.audit.failure is None
    trail.restart()
    assert [act.target for act in trail.acts()][-3:] == ["F1", "F0", "F0"]


def test_without_a_console_the_newest_files_stay_and_it_is_said_how_many_went(trail, small, caplog):
    fill(trail, 40)
    trail.audit.work()
    assert len(files(trail)) <= MAX_OLD_FILES + 1
    acts = trail.acts()
    dropped = [act for act in acts if act.action == "wire_audit.drop"]
    assert dropped
    lost = acts[0].n - 1
    assert sum(act.after["entries"] for act in dropped) <= lost
    assert "no console took them over" in caplog.text


def test_what_the_console_took_goes_without_a_word(trail, small):
    fill(trail, 5)
    trail.audit.taken(trail.audit.series, 3)
    assert [act.n for act in trail.acts()][-2:] == [4, 5]
    assert len(files(trail)) <= 3
    fill(trail, 60)
    for _ in range(60):
        trail.audit.taken(trail.audit.series, trail.audit.last)
        fill(trail, 1)
    assert not [act for act in trail.acts() if act.action == "wire_audit.drop" and act.n > 70]


def test_a_kill_between_two_files_goes_on_with_the_next_number(trail, small):
    fill(trail, 3)
    (trail.directory / NAME).rename(trail.directory / f"wire-audit-{trail.audit._first:020d}.jsonl")
    series = trail.audit.series
    trail.restart()
    fill(trail, 1)
    assert (trail.audit.series, [act.n for act in trail.acts()]) == (series, [1, 2, 3, 4])


def test_every_act_is_in_the_log_too(trail, caplog):
    caplog.set_level("INFO")
    trail.do("T", result="done")
    trail.do("T", result="refused")
    trail.audit.work()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "wire admin: topic.set T by=10.0.0.5:4711: refused" in caplog.text


def test_recording_waits_for_no_disk(trail):
    """This is on remoting-io: a record takes memory only, and 100,000 of them take less than 2 s of it."""
    import time

    trail.disk.fails = "sync"
    begin = time.thread_time()
    for _ in range(100_000):
        trail.do(result="refused")
    assert time.thread_time() - begin < 2
    assert trail.audit.last == 0


def test_acts_that_come_one_after_the_other_share_a_sync(trail, monkeypatch):
    syncs: list[int] = []
    monkeypatch.setattr(wire_audit, "GATHER_S", 1.0)
    sync = trail.disk.fdatasync
    trail.disk.fdatasync = lambda fd: (syncs.append(fd), sync(fd))
    trail.audit.start()
    for n in range(8):
        trail.do(f"T{n}")
        time.sleep(0.01)
    wait_for(lambda: trail.audit.last == 8, "8 acts in the file")
    assert len(syncs) == 1


def test_a_stop_does_not_wait_for_more_acts(trail, monkeypatch):
    monkeypatch.setattr(wire_audit, "GATHER_S", 60.0)
    trail.audit.start()
    trail.do("T")
    assert trail.audit.stop(5.0)
    assert [act.target for act in trail.acts()] == ["T"]


# --- files that are not what the reader saw last


def actions(found: tuple[str, list[WireAct]]) -> list[str]:
    return [act.action for act in found[1]]


def life(trail: AuditTrail, *names: str) -> int:
    """Run the engine once and record acts with these names; return the number of the last one."""
    trail.audit = trail.opened()
    for name in names:
        trail.audit.record(WireAct(at_ms=1, host="127.0.0.1", action=name))
    trail.audit.work()
    return trail.audit.last


def test_what_is_done_after_an_older_copy_was_put_back_reaches_a_reader_who_knows_of_more(trail):
    trail.audit.stop()
    life(trail, "a", "b")
    trail.audit.stop()
    older = (trail.directory / NAME).read_bytes()
    known = life(trail, "c", "d", "e")
    assert actions(trail.audit.after(trail.audit.series, 2)) == ["c", "d", "e"]
    trail.audit.stop()
    (trail.directory / NAME).write_bytes(older)
    life(trail, "f", "g")
    series, acts = trail.audit.after(trail.audit.series, known)
    assert [act.action for act in acts] == ["f", "g"]
    assert trail.audit.after(series, acts[-1].n) == (series, [])
    trail.audit.record(WireAct(at_ms=1, host="127.0.0.1", action="h"))
    trail.audit.work()
    assert actions(trail.audit.after(series, acts[-1].n)) == ["h"]


def test_the_number_of_a_damaged_line_is_not_given_again(trail):
    trail.audit.stop()
    known = life(trail, "a", "b")
    trail.audit.stop()
    path = trail.directory / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b"\0" * (len(lines[-1]) - 1) + b"\n"]))
    life(trail, "c")
    assert [(act.n, act.action) for act in trail.audit.after(trail.audit.series, known)[1]] == [(known + 1, "c")]
