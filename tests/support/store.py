"""A store under test: small files, its own directory, a clock that the test moves, disks that fail when told."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from appliance.engine.clock import SYSTEM, Clock
from appliance.engine.config import StoreConfig
from appliance.engine.disk import Disk, file_system
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import Record, decode_record
from appliance.engine.store.cold_reader import ColdReader
from appliance.engine.store.message_store import MessageStore, StoreSettings
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue import ConsumeQueue
from appliance.engine.store.results import GetResult, GetStatus
from tests.support.clock import FakeClock

BORN = encode_host("10.0.0.1", 5000)
#: Whatever the machine's own disk looks like.
ROOMY = StoreConfig(
    disk_max_used_space_ratio=95, disk_space_clean_forcibly_ratio=100, disk_space_warning_level_ratio=100
)
STORE_HOST = encode_host("127.0.0.1", 10911)


def lies_in_memory(path: Path) -> bool:
    """True if the path's file system keeps files in the page cache only: nothing is ever cold there."""
    return file_system(path) in ("tmpfs", "ramfs")


class Inline:
    """The loop's part the store uses: calls from other threads run at once, one at a time."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        #: Held by whoever acts as remoting-io: a test that reads a queue's tail, while another thread cuts it.
        self._turn = threading.RLock()

    def call_soon(self, callback) -> None:
        with self._turn:
            callback()

    def new_wake_fd(self) -> None:
        """Return None: no loop sleeps."""


class FailingDisk(Disk):
    """A disk whose calls named in `failing` fail with the given errno, from the moment they are named."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.synced_paths = 0

    def _check(self, call: str) -> None:
        if call in self.failing:
            raise OSError(self.failing[call], errno.errorcode[self.failing[call]])

    def pread(self, fd, size, position):
        self._check("pread")
        return super().pread(fd, size, position)

    def pwrite(self, fd, data, position):
        self._check("pwrite")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd):
        self._check("fdatasync")
        super().fdatasync(fd)

    def allocate(self, fd, size):
        self._check("allocate")
        super().allocate(fd, size)


class ShortWriteDisk(Disk):
    """Writes at most `limit` bytes a call."""

    limit = 7

    def pwrite(self, fd, data, position):
        return super().pwrite(fd, data[: self.limit], position)


def sync_in_python(store: MessageStore) -> None:
    """Have the log of a running store synced by its disk's methods, also where the compiled part does it."""
    rounds, store._flush._rounds = store._flush._rounds, None
    if rounds is not None:
        rounds.ask()


def sync_by(store: MessageStore, sync: Callable[[], int]) -> Callable[[], int]:
    """Have the log of a running store synced by another function. Return the one before."""
    before, store.log.sync = store.log.sync, sync
    sync_in_python(store)
    return before


class StoreUnderTest:
    """Opens, writes, reads, dies and comes back."""

    def __init__(self, directory: Path, synchronous: bool = False, segment_bytes: int = 64 * 1024, disk=None) -> None:
        self.directory = directory
        self.settings = StoreSettings(
            synchronous=synchronous,
            segment_bytes=segment_bytes,
            queue_file_bytes=2000,
            max_bytes_in_memory=262_144,
            max_count_in_memory=32,
            max_bytes_on_disk=65_536,
            max_count_on_disk=8,
            max_scan_bytes=16_000,
            memory_bytes=1 << 40,
            delay_levels_ms=[1000, 5000],
        )
        self.options = ROOMY
        self.disk = disk or Disk()
        self.scheduler = Inline()
        #: Clock of the store's threads.
        self.store_clock: Clock = SYSTEM
        self.acked: list[object] = []
        self.failed: list[tuple[object, str]] = []
        self.store: MessageStore
        self.cold_reader: ColdReader

    def stamp_ticks_by(self, clock: Clock) -> None:
        """Have an open store stamp its ticks by the clock of those who wait: with the machine's, what they make of a
        tick depends on how long the machine has been up."""
        self.store._monotonic = clock.monotonic

    def open(self) -> StoreUnderTest:
        paths = StorePaths(self.directory / "store", self.directory / "rocketbox")
        self.store = MessageStore(self.settings, paths, self.disk, self.scheduler, STORE_HOST, self.store_clock)
        self.cold_reader = self.store.new_cold_reader()
        self.store.on_published = lambda tick: self.acked.extend(tick.acks)
        self.store.on_failed = lambda tick, reason: self.failed.extend((ack, reason) for ack in tick.acks)
        self.store.cleaner.options = self.options
        self.store.open()
        self.store.start()
        return self

    def stop(self) -> None:
        self.cold_reader.close()
        self.store.stop()

    def die(self) -> None:
        """Leave as SIGKILL does: nothing more is written, the lock is gone, the abort file stays."""
        store = self.store
        self.cold_reader.close()
        store.index.abandon()
        for service in (store._flush, store._flush_queues, store.log._allocator, *store.services):
            service.stop()
        store._flush_queues.files.close()
        store.log.close()
        store.queues.close()
        store.files.checkpoint.close()
        store.files.recovery_position.close()
        store.ledger.close()
        store.files.release()

    def put(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"", ack: object = None) -> int:
        """Stage one message; `tick()` writes it."""
        queue = self.store.queues.get_or_create(topic, queue_id)
        field = bytes((len(topic),)) + topic.encode()
        physical = self.store.put(queue, field, body, properties, 0, 0, 0, 1, BORN, 0)
        self.store.tick.acks.append((topic, queue_id, body) if ack is None else ack)
        return physical

    def tick(self) -> None:
        self.store.end_tick()

    def write(self, topic: str, queue_id: int, *bodies: bytes) -> None:
        """Each body in a tick of its own."""
        for body in bodies:
            self.put(topic, queue_id, body)
            self.tick()

    def pass_a_moment(self, seconds: float) -> None:
        """Between two looks at what a thread does: its own waits are over."""
        if isinstance(self.store_clock, FakeClock):
            self.store_clock.advance(500)
            seconds = 0.001
        time.sleep(seconds)

    def wait_acked(self, count: int, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while len(self.acked) < count:
            assert time.monotonic() < end, f"{len(self.acked)} of {count} ticks were acknowledged in {seconds} s"
            self.pass_a_moment(0.002)

    def wait_recovery_position(self, seconds: float = 60.0) -> None:
        """Until the queue files hold all that was published."""
        end = time.monotonic() + seconds
        while True:
            position = self.store.files.recovery_position.position
            if position is not None and position.offset == self.store.published:
                return
            assert time.monotonic() < end, (
                f"the recovery position stays at {position}, {self.store.published} published"
            )
            self.pass_a_moment(0.01)

    def wait_whole(self, seconds: float = 60.0) -> None:
        """Until the queue files were looked at, and what they lacked is there again."""
        end = time.monotonic() + seconds
        repair = self.store._flush_queues.repair
        while repair.pending or repair.broken:
            assert time.monotonic() < end, f"{repair.broken} queues are still broken"
            self.pass_a_moment(0.01)

    def get(
        self, queue: ConsumeQueue | None, offset: int, max_count: int, wanted: MessageFilter = EVERYTHING
    ) -> GetResult:
        """Return what a pull finds: at once, or after one round through the pool if the page cache cannot show it."""
        with self.scheduler._turn if isinstance(self.scheduler, Inline) else nullcontext():
            result = self.store.get(queue, offset, max_count, wanted)
            if result is None:
                assert queue is not None
                entries = self.cold_reader.entries(queue, offset, max_count, wanted)
                result = self.store.get(queue, offset, max_count, wanted, entries)
        assert result is not None, "what was read is an answer"
        return result

    def records(self, topic: str, queue_id: int) -> list[Record]:
        """Everything a reader can get from a queue, from its first offset on."""
        queue = self.store.find_queue(topic, queue_id)
        found: list[Record] = []
        offset = queue.min_offset if queue else 0
        for _ in range(100_000):
            result = self.get(queue, offset, 32)
            if result.status not in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING):
                return found
            for physical, size in result.runs:
                data, at = self.store.log.read(physical, size), 0
                while at < size:
                    record = decode_record(data, at)
                    found.append(record)
                    at += record.size
            offset = result.next_offset
        raise AssertionError("a reader that never ends")

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]
