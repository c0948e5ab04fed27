"""The cost of a start after a kill."""

import pytest

from appliance.engine.disk import Disk
from tests.support.store import StoreUnderTest


class CountingDisk(Disk):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, fd, size, position):
        data = super().pread(fd, size, position)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize("torn_bytes", [0, 5 << 20])
def test_the_part_of_the_log_that_was_never_written_is_not_read(tmp_path, torn_bytes):
    """A read of some of it brings more of it into the page cache, and ext4 then takes that for data: 1 GiB of zeros
    was read at each start after a kill."""
    store = StoreUnderTest(tmp_path, segment_bytes=256 << 20).open()
    store.write("A", 0, *[b"x" * 1000 for _ in range(300)])
    segment = store.store.log.segments[0]
    if torn_bytes:
        store.disk.write_all(segment.fd, b"\xff" * torn_bytes, store.store.log.written)
        store.disk.fdatasync(segment.fd)
    store.die()
    disk = CountingDisk()
    again = StoreUnderTest(tmp_path, segment_bytes=256 << 20, disk=disk).open()
    read = disk.read_bytes
    assert len(again.bodies("A", 0)) == 300
    again.die()
    assert read < (16 << 20) + 3 * torn_bytes
