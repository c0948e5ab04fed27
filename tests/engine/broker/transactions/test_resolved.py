"""The record of how transactions ended: a ring of files that survives crashes, cuts and damage."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from appliance.engine.broker.transactions import resolved as r
from appliance.engine.broker.transactions.resolved import By, EntryPlace, How, Resolved, ResolvedTransactions
from appliance.engine.disk import Disk
from tests.support.store import FailingDisk

HOST = bytes((10, 0, 0, 1, 0, 0, 4, 210))


def note(ring: ResolvedTransactions, number: int, how: How = How.COMMITTED) -> Resolved:
    entry = Resolved(number, number * 1000, 1_700_000_000_000 + number, number * 7, how, By.CHECK, number % 9, HOST)
    ring.note(entry)
    return entry


def all_of(ring: ResolvedTransactions) -> list[Resolved]:
    return [entry for _, entry in ring.newest_first()]


@pytest.fixture
def ring(tmp_path: Path) -> ResolvedTransactions:
    return ResolvedTransactions(tmp_path / "resolved", Disk())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files of 10 entries, searched 3 entries at a time."""
    monkeypatch.setattr(r, "FILE_BYTES", r.ENTRY_BYTES * 11)
    monkeypatch.setattr(r, "MOST_FILES", 4)
    monkeypatch.setattr(r, "_PIECE", r.ENTRY_BYTES * 3)


def test_newest_first_over_restarts(ring, tmp_path, small):
    noted = [note(ring, number) for number in range(17)]
    assert all_of(ring) == noted[::-1]
    ring.close()
    again = ResolvedTransactions(tmp_path / "resolved", Disk())
    noted.append(note(again, 99))
    assert all_of(again) == noted[::-1]
    assert again.find(99, 99_000) == noted[-1]
    assert again.find(3, 3000) == noted[3]
    assert again.find(3, 3001) is None


def test_the_last_said_of_a_half_is_found(ring, small):
    note(ring, 5)
    last = note(ring, 5, How.DISCARDED)
    for number in range(20, 30):
        note(ring, number)
    assert ring.find(5, 5000) == last


def test_the_oldest_go(ring, small):
    for number in range(100):
        note(ring, number)
        if number % 7 == 0:
            ring.write()
    kept = [entry.half_offset for entry in all_of(ring)]
    assert kept == list(range(99, 59, -1))
    assert len(ring.numbers()) == 4


def test_pages_go_on_where_the_last_one_ended(ring, small):
    for number in range(25):
        note(ring, number)
    seen: list[int] = []
    before: EntryPlace | None = None
    while True:
        page = [found for found, _ in zip(ring.newest_first(before), range(4), strict=False)]
        if not page:
            break
        note(ring, 1000 + len(seen))  # entries that come meanwhile are no part of it
        seen += [entry.half_offset for _, entry in page]
        before = page[-1][0]
    assert seen == list(range(24, -1, -1))


@pytest.mark.parametrize("seed", range(8))
def test_damage_costs_what_it_hits(ring, tmp_path, small, seed):
    noted = [note(ring, number) for number in range(35)]
    ring.close()
    some = random.Random(seed)
    hit = tmp_path / "resolved" / f"{some.choice(ring.numbers()):010d}"
    data = bytearray(hit.read_bytes())
    at = some.randrange(r.ENTRY_BYTES, len(data))
    data[at] ^= 0x40
    hit.write_bytes(data[: some.choice((len(data), len(data) - some.randrange(1, 20)))])
    again = ResolvedTransactions(tmp_path / "resolved", Disk())
    noted.append(note(again, 500))
    found = all_of(again)
    assert found[0] == noted[-1]
    assert set(found) <= set(noted)
    assert len(found) >= len(noted) - 2


def test_a_disk_that_takes_nothing_costs_entries_only(tmp_path):
    disk = FailingDisk()
    ring = ResolvedTransactions(tmp_path / "resolved", disk)
    note(ring, 1)
    ring.write()
    disk.failing["pwrite"] = errno.ENOSPC
    note(ring, 2)
    ring.write()
    assert ring.failure is not None
    assert ring.lost == 1
    disk.failing.clear()
    note(ring, 3)
    assert [entry.half_offset for entry in all_of(ring)] == [3, 1]
    assert ring.failure is None


def test_memory_is_bounded(ring, monkeypatch):
    monkeypatch.setattr(r, "MOST_WAITING", 5)
    for number in range(8):
        note(ring, number)
    assert ring.lost == 3
    assert len(all_of(ring)) == 5
