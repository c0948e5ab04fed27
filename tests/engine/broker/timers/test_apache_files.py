"""Files written for an Apache broker, read as `TimerMessageStore.recover` and `dequeue` do.

`tests/exchange/test_timers.py` has a real one read them.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from appliance.engine.broker.timers.apache_files import (
    ROLL_WINDOW_S,
    Checkpoint,
    Unit,
    read_checkpoint,
    remove_schedule,
    save_checkpoint,
    write_timer_log,
)
from appliance.engine.disk import Disk

UNIT = struct.Struct(">iqiqiqiiq")
NOW_MS = 1_700_000_000_123
LAST = Unit(0, 999_999, 50)


def wheel(store: Path, file_bytes: int) -> tuple[dict[int, list[tuple[int, int, int]]], tuple[int, int]]:
    """Return (second -> (physical offset, size, magic) in Apache's order of delivery, the last unit's record)."""
    data: dict[int, bytes] = {}
    last_of: dict[int, int] = {}
    last = (0, 0)
    for number, path in enumerate(sorted((store / "timerlog").iterdir())):
        assert int(path.name) == number * file_bytes
        content = path.read_bytes()
        assert len(content) == file_bytes
        for at in range(0, file_bytes, UNIT.size):
            size, _, magic = struct.unpack_from(">iqi", content, at)
            if magic == 0xCBD43194 - (1 << 32):
                assert size == file_bytes - at < UNIT.size + 16 + UNIT.size
                break
            if size != UNIT.size:
                assert not any(content[at:]), "Apache stops here"
                break
            data[number * file_bytes + at] = content[at : at + UNIT.size]
            _, _, _, write_ms, delay, physical, record, _, _ = UNIT.unpack_from(content, at)
            last_of[(write_ms + delay) // 1000] = number * file_bytes + at
            last = (physical, record)
    found = {}
    for second, position in last_of.items():
        chain = []
        while position != -1:
            _, position, magic, write_ms, delay, physical, record, _, _ = UNIT.unpack(data[position])
            assert (write_ms + delay) // 1000 == second
            chain.append((physical, record, magic))
        found[second] = chain[::-1]
    return found, last


@pytest.mark.parametrize("file_bytes", [4096, 1 << 20])
def test_each_record_is_where_apache_looks_for_it(tmp_path: Path, file_bytes: int) -> None:
    chance = random.Random(5)
    dues = sorted(NOW_MS + chance.choice((-5000, 0, 2000, 90_000_000, 200_000_000, 10**11)) + n for n in range(400))
    waiting = [Unit(due, 1000 * number, 300 + number) for number, due in enumerate(dues)]
    first_ms = write_timer_log(Disk(), tmp_path, waiting, LAST, NOW_MS, file_bytes)
    found, last = wheel(tmp_path, file_bytes)
    assert last == LAST[1:]
    seconds = {physical: second for second, chain in found.items() for physical, _, _ in chain}
    assert len(seconds) == len(waiting) + 1
    assert first_ms == min((NOW_MS // 1000) * 1000, (dues[0] - 1) // 1000 * 1000)
    for unit in waiting:
        second = seconds[unit.physical_offset]
        [(size, magic)] = [(size, magic) for at, size, magic in found[second] if at == unit.physical_offset]
        assert size == unit.size
        away = (unit.due_ms - 1) // 1000 - NOW_MS // 1000
        assert magic == (3 if away >= ROLL_WINDOW_S else 1)
        assert second == away + NOW_MS // 1000 if magic == 1 else second - NOW_MS // 1000 < ROLL_WINDOW_S
        assert second * 1000 >= first_ms
    for second, chain in found.items():
        places = [physical for physical, _, magic in chain if magic == 1]
        assert places == sorted(places), f"out of order in {second}"
    assert seconds[LAST.physical_offset] < NOW_MS // 1000 - 7 * 86_400, "nobody looks there"


def test_a_checkpoint_says_whose_it_is(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    disk = Disk()
    assert read_checkpoint(disk, tmp_path) is None
    save_checkpoint(disk, tmp_path, NOW_MS, 17, NOW_MS)
    assert read_checkpoint(disk, tmp_path) == Checkpoint(NOW_MS // 1000 * 1000, 17, True)
    path = tmp_path / "config" / "timercheck"
    path.write_bytes(struct.pack(">7q", 5000, 52, 9, 8, 0, 1, 2).ljust(4096, b"\0"))
    assert read_checkpoint(disk, tmp_path) == Checkpoint(5000, 8, False)
    path.write_bytes(b"short")
    assert read_checkpoint(disk, tmp_path) is None


def test_a_schedule_of_apaches_goes(tmp_path: Path) -> None:
    disk = Disk()
    remove_schedule(disk, tmp_path)
    (tmp_path / "timerwheel").write_bytes(b"x")
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / "00000000000000000000").write_bytes(b"x")
    remove_schedule(disk, tmp_path)
    assert not (tmp_path / "timerwheel").exists()
    assert list((tmp_path / "timerlog").iterdir()) == []


def test_what_is_overdue_by_months_is_where_apache_still_looks(tmp_path: Path) -> None:
    """Its wheel has slots of seven days, and a delay has four bytes of milliseconds."""
    day_ms = 86_400_000
    waiting = [Unit(NOW_MS - days * day_ms, 1000 * days, 300) for days in (400, 30, 8, 1)]
    first_ms = write_timer_log(Disk(), tmp_path, waiting, LAST, NOW_MS, 4096)
    found, _ = wheel(tmp_path, 4096)
    seconds = {physical: second for second, chain in found.items() for physical, _, _ in chain}
    assert first_ms // 1000 == min(seconds[unit.physical_offset] for unit in waiting) > NOW_MS // 1000 - 6.5 * 86_400
    assert [physical for second in sorted(found) for physical, _, _ in found[second]] == [
        LAST.physical_offset,
        400_000,
        30_000,
        8_000,
        1_000,
    ]
