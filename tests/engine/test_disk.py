"""Page cache questions to the disk."""

import errno
import logging
import os
from pathlib import Path

import pytest

from appliance.engine import disk as disk_module
from appliance.engine.disk import NO_SUCH_READ, PAGE_BYTES, Disk, _cached_pages, file_system
from tests.support.page_cache import refuse_reads_that_never_wait
from tests.support.store import lies_in_memory


@pytest.mark.disk
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
    stays = known and lies_in_memory(tmp_path)
    assert disk.is_resident(fd, 0, 64 * PAGE_BYTES) is stays
    os.pread(fd, 4 * PAGE_BYTES, 0)
    assert disk.is_resident(fd, 0, 4 * PAGE_BYTES) is known
    assert disk.is_resident(fd, 0, 64 * PAGE_BYTES) is stays
    disk.close(fd)
    assert not disk.is_resident(fd, 0, 1), "a closed descriptor holds nothing"


@pytest.fixture
def open_file(tmp_path):
    """Return (disk, fd) of a file whose pages are cached."""
    (tmp_path / "file").write_bytes(b"x" * PAGE_BYTES)
    disk = Disk()
    fd = disk.open(tmp_path / "file")
    yield disk, fd
    disk.close(fd)


@pytest.mark.parametrize("number", sorted(NO_SUCH_READ))
def test_a_file_system_without_reads_that_never_wait_is_found_out_and_told_once(open_file, monkeypatch, caplog, number):
    disk, fd = open_file
    refuse_reads_that_never_wait(monkeypatch, number)
    with caplog.at_level(logging.WARNING):
        assert disk.find_out_about_reads(fd) is False
        assert disk.find_out_about_reads(fd) is False
        for _ in range(3):
            with pytest.raises(OSError) as refused:
                disk.read_nowait(fd, memoryview(bytearray(1)), 0)
            assert refused.value.errno == errno.EOPNOTSUPP
    (line,) = [record.getMessage() for record in caplog.records]
    assert "does not tell what the page cache holds" in line
    assert Disk().reads_without_waiting, "another store may lie elsewhere"


def test_that_the_disk_would_have_to_be_asked_says_that_such_reads_work(open_file, monkeypatch):
    disk, fd = open_file
    refuse_reads_that_never_wait(monkeypatch, errno.EAGAIN)
    assert disk.find_out_about_reads(fd)
    with pytest.raises(BlockingIOError):
        disk.read_nowait(fd, memoryview(bytearray(1)), 0)


def test_without_the_flag_nothing_is_read_that_might_wait(open_file, monkeypatch):
    """On systems other than Linux a read without the flag may wait."""
    disk, fd = open_file
    monkeypatch.setattr(disk, "reads_without_waiting", False)
    monkeypatch.setattr(os, "preadv", lambda *args: pytest.fail("it was read"))
    assert disk.find_out_about_reads(fd) is False
    assert (disk_module.RWF_NOWAIT != 0) is Disk.reads_without_waiting


def test_an_empty_file_tells_whether_such_reads_work(open_file, tmp_path):
    """doctor does this before there is a store."""
    (tmp_path / "empty").touch()
    disk = Disk()
    fd = disk.open(tmp_path / "empty")
    assert disk.find_out_about_reads(fd) is open_file[0].find_out_about_reads(open_file[1])
    disk.close(fd)


@pytest.mark.parametrize("name", ["a\x0cb", "a\u2028b", "a\rb", "a\\040b", "\udcff"])
def test_odd_names_of_mounts_do_not_stop_a_start(monkeypatch, name):
    """Each start of a broker in sync flush looks at all mounts, and some users may mount."""
    mounts = f"/dev/vda / ext4 rw 0 0\nnone /home/{name} fuse.x rw 0 0\nnone /data tmpfs rw 0 0\n"
    monkeypatch.setattr(Path, "read_bytes", lambda path: os.fsencode(mounts))
    assert file_system(Path("/data/store")) == "tmpfs"
    assert file_system(Path("/var/store")) == "ext4"
    assert file_system(Path("/home") / name.replace("\\040", " ") / "store") == "fuse.x"
