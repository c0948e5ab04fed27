"""What the disk says of the page cache."""

import os

from appliance.engine.store.disk import PAGE_BYTES, Disk, _cached_pages


def test_residency_is_that_of_the_whole_range(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * PAGE_BYTES))
    disk = Disk()
    fd = disk.open(path)
    disk.fsync(fd)
    known = _cached_pages(fd, 0, 1) >= 0  # Linux before 6.5 cannot tell: nothing counts as resident there
    assert disk.is_resident(fd, 100, 63 * PAGE_BYTES) is known
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    assert not disk.is_resident(fd, 0, 64 * PAGE_BYTES)
    os.pread(fd, 4 * PAGE_BYTES, 0)
    assert disk.is_resident(fd, 0, 4 * PAGE_BYTES) is known
    assert not disk.is_resident(fd, 0, 64 * PAGE_BYTES)
    disk.close(fd)
    assert not disk.is_resident(fd, 0, 1), "a closed descriptor holds nothing"
