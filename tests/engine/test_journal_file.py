"""The file of a journal: the effect of a failed write or sync on the entries after it."""

import os

import pytest

from appliance.engine.disk import Disk
from appliance.engine.journal_file import JournalFile


class Failing(Disk):
    """fails: the call that fails; a failing write has written half before."""

    fails = ""
    synced_directories = 0

    def pwrite(self, fd, data, position):
        if self.fails == "pwrite":
            super().pwrite(fd, data[: len(data) // 2], position)
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd):
        if self.fails == "fdatasync":
            raise OSError(5, "Input/output error")
        super().fdatasync(fd)

    def sync_directory(self, path):
        self.synced_directories += path.name == "own"
        super().sync_directory(path)


@pytest.fixture
def kept():
    return [b"one\n"]


@pytest.fixture
def file(tmp_path, kept):
    file = JournalFile("trials", tmp_path / "own" / "journal", 100, lambda: b"".join(kept), Failing())
    file.load(lambda line: True)
    file.append(b"one\n")
    yield file
    file.close()


@pytest.mark.parametrize("fails", ["pwrite", "fdatasync"])
def test_after_a_failure_the_next_line_goes_into_a_new_file(tmp_path, file, kept, fails):
    path = tmp_path / "own" / "journal"
    before = os.stat(path).st_ino
    with open(path, "rb"):  # keeps its inode number from being reused for the new one
        file.disk.fails = fails
        with pytest.raises(OSError, match=r"No space|Input/output"):
            file.append(b"two, which fails\n")
        assert file.failure
        assert path.read_bytes() == b"one\n", "a start sees nothing of what was refused"
        file.disk.fails = ""
        file.append(b"three\n")
        assert os.stat(path).st_ino != before
    assert path.read_bytes() == b"one\nthree\n"
    assert file.failure is None


def test_a_file_that_may_have_lost_its_name_takes_no_line(tmp_path, file, kept, monkeypatch):
    def fail(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(file.disk, "sync_directory", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.begin_anew()
    file.append(b"two\n")
    assert (tmp_path / "own" / "journal").read_bytes() == b"one\ntwo\n"


def test_a_new_file_is_in_its_directory_after_a_power_cut(file):
    assert file.disk.synced_directories == 1


def test_what_does_not_fit_is_refused_and_what_is_there_stays(tmp_path, file):
    with pytest.raises(OSError, match="the journal of trials is full"):
        file.append(b"x" * 100)
    file.append(b"two\n")
    assert (tmp_path / "own" / "journal").read_bytes() == b"one\ntwo\n"


def test_after_the_end_nothing_is_written(file):
    file.close()
    with pytest.raises(OSError, match="stopping"):
        file.append(b"two\n")
