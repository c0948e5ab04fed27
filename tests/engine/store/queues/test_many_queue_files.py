"""Many queues, more than descriptors may be open: their files are synced together, not one by one."""

import os
import tempfile
from pathlib import Path

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.queues.queue_files import MANY, QueueFiles
from tests.support.store import StoreUnderTest

QUEUES = 300


class CountingDisk(Disk):
    """Counts syncs: of single queue files, of directories below the queues, and of all at once."""

    def __init__(self, has_one_call=True):
        super().__init__()
        self.has_one_call = has_one_call
        self.files = self.directories = self.all = 0
        #: Devices that were synced as a whole.
        self.devices = set()
        self._queue_fds = set()

    def open(self, path, create=False, read_only=False):
        fd = super().open(path, create, read_only)
        (self._queue_fds.add if "consumequeue" in str(path) else self._queue_fds.discard)(fd)
        return fd

    def fdatasync(self, fd):
        self.files += fd in self._queue_fds
        super().fdatasync(fd)

    def sync_directory(self, path):
        self.directories += "consumequeue" in str(path)
        super().sync_directory(path)

    def sync_file_system(self, fd):
        self.all += 1
        self.devices.add(os.fstat(fd).st_dev)
        return self.has_one_call


def killed_store(directory, disk):
    """A store that was killed before it wrote the entries of its queues, not open."""
    store = StoreUnderTest(directory, disk=disk).open()
    for queue in range(QUEUES):
        store.put("Many", queue, b"x")
    store.tick()
    store.die()
    return store


def few_descriptors(monkeypatch):
    few = QueueFiles.__init__

    def made(self, paths, disk, file_bytes, capacity, deletions=None):
        few(self, paths, disk, file_bytes, min(capacity, 100), deletions)

    monkeypatch.setattr(QueueFiles, "__init__", made)


@pytest.mark.parametrize("has_one_call", [True, False])
def test_a_recovery_syncs_many_queues_in_few_calls(tmp_path, monkeypatch, has_one_call):
    disk = CountingDisk()
    store = killed_store(tmp_path, disk)
    few_descriptors(monkeypatch)
    disk.has_one_call, disk.files, disk.directories, disk.all = has_one_call, 0, 0, 0
    store.open()
    try:
        assert [len(store.bodies("Many", queue)) for queue in range(QUEUES)] == [1] * QUEUES
        if has_one_call:
            assert disk.files + disk.directories < MANY
            assert 0 < disk.all < 10
        else:
            assert disk.files >= QUEUES
            assert disk.directories >= QUEUES
    finally:
        store.stop()


def test_queues_on_a_disk_of_their_own_are_synced_there(tmp_path, monkeypatch):
    """The queues' directory may be a mount, or a link to another disk."""
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system")
    with tempfile.TemporaryDirectory(dir=other) as queues:
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "consumequeue").symlink_to(queues)
        disk = CountingDisk()
        store = killed_store(tmp_path, disk)
        few_descriptors(monkeypatch)
        disk.devices.clear()
        store.open()
        try:
            assert disk.devices == {other.stat().st_dev}
            assert [len(store.bodies("Many", queue)) for queue in range(QUEUES)] == [1] * QUEUES
        finally:
            store.stop()
