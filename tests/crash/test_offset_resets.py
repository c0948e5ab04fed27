"""Offsets are moved whole or not at all, whenever the process dies; a damaged journal takes nothing else with it."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.offset_resets.journal import KEPT_MS, ResetJournal
from appliance.engine.broker.offset_resets.records import Line, Move, ResetRecord, encode_line
from appliance.engine.disk import Disk
from tests.support.clock import FakeClock
from tests.support.peer import Peer, pull_fields, send_fields
from tests.support.server import ROOT, Server

SEND, PULL, ASK, COMMIT, RESET, MAKE_GROUP = 310, 11, 14, 15, 222, 200


def committed(peer: Peer) -> list[str]:
    fields = {"consumerGroup": "CG", "topic": "T"}
    return [peer.ask(ASK, fields | {"queueId": queue}).ext_fields["offset"] for queue in (0, 1)]


@pytest.mark.parametrize(
    ("kill_at", "moved"), [("half-written", False), ("written", True), ("synced", True), ("done", True)]
)
def test_a_reset_that_is_killed_has_moved_every_queue_or_none(tmp_path: Path, kill_at: str, moved: bool) -> None:
    prefix = (sys.executable, str(ROOT / "tests/support/serve_killed.py"))
    environment = {"PYTHONPATH": str(ROOT), "KILL_AT": kill_at}
    server = Server(tmp_path / "data", environment=environment, prefix=prefix)
    server.start()
    peer = Peer(server.broker)
    for queue in (0, 0, 0, 1, 1):
        assert peer.ask(SEND, send_fields("T", queue), b"text").code == 0
    peer.ask(MAKE_GROUP, {}, b'{"groupName":"CG"}')
    for queue, offset in ((0, 3), (1, 2)):
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": queue, "commitOffset": offset}
        assert peer.ask(COMMIT, fields).code == 0
    # The offsets are on disk, as after 5 s: an orderly restart.
    peer.close()
    server.restart()
    peer = Peer(server.broker)
    assert committed(peer) == ["3", "2"]
    with pytest.raises((ConnectionError, OSError)):
        peer.ask(RESET, {"group": "CG", "topic": "T", "timestamp": 0, "isForce": "true"})
    peer.close()
    server.kill()
    with Server(tmp_path / "data") as again:
        peer = Peer(again.broker)
        assert committed(peer) == (["0", "0"] if moved else ["3", "2"])
        # A member that was there all the time hears of it.
        answer = peer.ask(PULL, pull_fields("T", 0, 3, consumerGroup="CG", sysFlag=4))
        assert answer.code == (21 if moved else 19)
        peer.close()


# --- the journal alone


class Killed(BaseException):
    """The process ends here."""


class MortalDisk(Disk):
    """Ends the process at call number `last`, half way through if that is a write."""

    last = 1 << 30
    count = 0

    def _step(self) -> None:
        self.count += 1
        if self.count > self.last:
            raise Killed

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        try:
            self._step()
        except Killed:
            super().pwrite(fd, data[: len(data) // 2], position)
            raise
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self._step()
        super().fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._step()
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)


class FullDisk(Disk):
    """A disk that takes no more than `room` bytes. Syncs fail if `sync_fails` is set."""

    room = 1 << 30
    sync_fails = False

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if position + len(data) > self.room:
            if position < self.room:
                super().pwrite(fd, data[: self.room - position], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(fd)


def record(number: int, at_ms: int = 0, group: str = "CG", moves: int = 3, **more: Any) -> ResetRecord:
    at = at_ms or FakeClock().wall_ms()
    return ResetRecord(
        number, "reset", group, "alice", at, "earliest", tuple(Move("T", q, 7, 0) for q in range(moves)), **more
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rocketbox" / "offset-resets.journal"


def ids(journal: ResetJournal, group: str = "CG") -> list[int]:
    return [found.id for found in journal.of_group(group)]


def unfinished(journal: ResetJournal) -> list[tuple[int, int]]:
    return [(found.id, move.queue_id) for found, move in journal.unfinished()]


def test_what_was_written_is_there_again(path: Path) -> None:
    journal = ResetJournal(path, FakeClock())
    journal.append(record(1))
    journal.append(record(2, group="Other"))
    journal.append(record(3, moves=1))
    journal.note([(3, "T", 0), (2, "T", 1)])
    for found in (journal, ResetJournal(path, FakeClock())):
        assert (ids(found), ids(found, "Other")) == ([3, 1], [2])
        assert found.get(1) == record(1)
        # The third one overtook queue 0 of the first.
        assert unfinished(found) == [(1, 1), (1, 2), (2, 0), (2, 2)]
        assert found.next_id() > 3


def test_a_file_cut_anywhere_loses_its_end_only(path: Path) -> None:
    lines = [encode_line_of(record(number)) for number in (1, 2)]
    for cut in range(len(lines[1])):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lines[0] + lines[1][:cut])
        journal = ResetJournal(path, FakeClock())
        assert ids(journal) == [1]
        journal.append(record(3))
        journal.close()
        again = ResetJournal(path, FakeClock())
        assert ids(again) == [3, 1], cut
        again.close()


def encode_line_of(one: ResetRecord) -> bytes:
    return encode_line(Line(reset=one))


def test_a_flipped_bit_loses_its_line_and_nothing_before_it_is_done_again(path: Path) -> None:
    lines = [encode_line_of(record(1)), encode_line_of(record(2, moves=1)), encode_line_of(record(3, moves=2))]
    path.parent.mkdir()
    for at in range(len(lines[1])):
        for bit in (0, 6):
            flipped = bytearray(lines[1])
            flipped[at] ^= 1 << bit
            path.write_bytes(lines[0] + flipped + lines[2])
            journal = ResetJournal(path, FakeClock())
            if at != len(lines[1]) - 1:  # without its newline the next line is lost with it
                assert ids(journal) == [3, 1], (at, bit)
                # The lost bytes may have moved queue 2 elsewhere.
                assert unfinished(journal) == [(3, 0), (3, 1)], (at, bit)
            assert 2 not in ids(journal)
            journal.close()


def test_killed_at_any_step_an_act_is_there_whole_or_not_at_all(path: Path) -> None:
    for last in range(200):
        for file in path.parent.glob("*"):
            file.unlink()
        disk, clock = MortalDisk(), FakeClock()
        journal = ResetJournal(path, clock, disk)
        disk.last = disk.count + last
        told: list[int] = []
        over = False
        try:
            for number in range(1, 4):
                journal.append(record(number, clock.wall_ms()))
                told.append(number)
            journal.note([(3, "T", 0)])
            over = True
            clock.advance(KEPT_MS + 3_600_001)
            journal.append(record(4, clock.wall_ms()))  # trims the others
            told = [4]
        except Killed:
            pass
        else:
            assert last > 10
            return
        again = ResetJournal(path, FakeClock(clock.wall_ms()))
        found = {number for number in range(1, 5) if again.get(number) is not None}
        if told == [1, 2, 3]:
            assert found in ({1, 2, 3}, {1, 2, 3, 4}, set(), {4}), (last, "trimmed, or not, and the fourth or not")
        else:
            assert set(told) <= found <= {*told, len(told) + 1}
        if over and 3 in found:
            assert (3, 0) not in unfinished(again)
        again.close()
    raise AssertionError("it never came to its end")


def test_on_a_full_disk_nothing_is_moved_and_later_it_is(path: Path) -> None:
    disk = FullDisk()
    journal = ResetJournal(path, FakeClock(), disk)
    journal.append(record(1))
    disk.room = path.stat().st_size + 20
    with pytest.raises(OSError, match="No space left"):
        journal.append(record(2))
    assert ids(journal) == [1]
    assert journal.failure == "No space left on device"
    disk.room = 1 << 30
    journal.append(record(3))
    assert journal.failure is None
    assert ids(ResetJournal(path, FakeClock())) == [3, 1]


def test_an_act_whose_sync_failed_is_not_in_the_file(path: Path) -> None:
    disk = FullDisk()
    journal = ResetJournal(path, FakeClock(), disk)
    journal.append(record(1))
    disk.sync_fails = True
    for number in (2, 3):
        with pytest.raises(OSError, match="Input/output"):
            journal.append(record(number))
    assert ids(ResetJournal(path, FakeClock())) == [1]
    disk.sync_fails = False
    journal.append(record(4))
    assert ids(ResetJournal(path, FakeClock())) == [4, 1]


def test_a_days_acts_are_kept_and_no_more(path: Path) -> None:
    clock = FakeClock()
    journal = ResetJournal(path, clock)
    journal.append(record(1, clock.wall_ms()))
    clock.advance(KEPT_MS - 1)
    assert ids(journal) == [1]
    clock.advance(1)
    assert ids(journal) == []
    clock.advance(3_600_000)
    journal.note([])
    assert journal.get(1) is None
    assert path.read_bytes() == b""


def test_the_file_is_bounded_the_oldest_go_first(path: Path) -> None:
    journal = ResetJournal(path, FakeClock(), most_bytes=20_000)
    for number in range(1, 400):
        journal.append(record(number))
        assert path.stat().st_size <= 20_000
    kept = ids(journal)
    assert kept[0] == 399
    assert kept == list(range(399, 399 - len(kept), -1))
    assert len(kept) > 10
    assert ids(ResetJournal(path, FakeClock())) == kept
    with pytest.raises(OSError, match="full"):
        journal.append(record(1000, moves=3000))
    journal.append(record(1001))


def test_deleted_topics_and_groups_are_left_out(path: Path) -> None:
    journal = ResetJournal(path, FakeClock())
    journal.append(record(1))
    journal.append(record(2, group="Other"))
    journal.note([], [("group", "Other")])
    assert (journal.gone(1), journal.gone(2)) == (set(), {"T"})
    journal.note([], [("topic", "T")])
    journal.append(record(3))
    for found in (journal, ResetJournal(path, FakeClock())):
        assert [found.gone(number) for number in (1, 2, 3)] == [{"T"}, {"T"}, set()]
        assert unfinished(found) == [(3, 0), (3, 1), (3, 2)]
