"""The recovery position: two slots, written in turn, so that a torn save leaves the one before it."""

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.checkpoint import SLOT_BYTES, RecoveryPosition, RecoveryPositionFile

SLOTS = (0, 4096)


def position(offset: int) -> RecoveryPosition:
    return RecoveryPosition(offset, offset - 100, 100, 7, 1_700_000_000_000, 3)


def saved(path, *offsets: int) -> None:
    file = RecoveryPositionFile(path, Disk())
    for offset in offsets:
        file.save(position(offset))
    file.close()


def loaded(path) -> RecoveryPosition | None:
    file = RecoveryPositionFile(path, Disk())
    file.close()
    return file.position


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("torn_at", [0, 20, SLOT_BYTES - 1])
def test_a_torn_save_leaves_the_position_before_it(tmp_path, count, torn_at):
    path = tmp_path / "position"
    saved(path, *(1000 * (number + 1) for number in range(count)))
    data = bytearray(path.read_bytes().ljust(SLOTS[1] + SLOT_BYTES, b"\0"))
    newest = max(SLOTS, key=lambda at: bytes(data[at : at + 8]))
    data[newest + torn_at] ^= 0xFF
    path.write_bytes(data)
    assert loaded(path) == position(1000 * (count - 1))


def test_the_last_save_counts(tmp_path):
    path = tmp_path / "position"
    saved(path, 1000, 2000, 3000)
    assert loaded(path) == position(3000)
