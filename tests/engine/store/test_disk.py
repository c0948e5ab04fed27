"""What the disk says of the page cache."""

import os

from appliance.engine.store.disk import PAGE_BYTES, Disk


def test_residency_is_that_of_the_whole_range(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * PAGE_BYTES))
    disk = Disk()
    fd = disk.open(path)
    disk.fsync(fd)
    assert disk.is_resident(fd, 100, 63 * PAGE_BYTES)
    os.posix_fadvise(fd, 32 * PAGE_BYTES, 8 * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
    assert not disk.is_resident(fd, 0, 64 * PAGE_BYTES)
    assert disk.is_resident(fd, 0, 8 * PAGE_BYTES)
    disk.close(fd)
    assert not disk.is_resident(fd, 0, 1), "a closed descriptor holds nothing"
