"""Lag of the index behind its log: the bound that its docstring states, in a model of a minute; and its slices."""

import pytest

from appliance.engine import hotpath
from appliance.engine.clock import Clock
from appliance.engine.disk import Disk
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from appliance.engine.store.index import index_service
from appliance.engine.store.index.index_recovery import IndexSettings
from appliance.engine.store.index.index_service import IndexService
from appliance.engine.store.paths import StorePaths

HOST = encode_host("127.0.0.1", 10911)
RECORD_BYTES = 300
MINUTE_S = 60.0
#: Bytes a second of a compiled index beside sends that need both processors: a fifth of its rate when alone.
INDEX_RATE = 1_500_000
#: Longest sync of a checkpoint: half of the bound.
SYNC_S = index_service.MAX_LAG_S / 2


class Minute(Clock):
    """A clock that moves when a thread waits or works; records come at a rate, and `published` is their end."""

    def __init__(self, rate):
        self.now = 0.0
        self.rate = rate
        self.index = None
        self.largest = 0.0

    @property
    def published(self):
        return int(self.rate * self.now) * RECORD_BYTES

    def wall_ms(self):
        return int(1_700_000_000_000 + self.now * 1000)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.largest = max(self.largest, self.index.behind / RECORD_BYTES / self.rate)
        if self.now > MINUTE_S:
            self.index.stopped = True

    def wait(self, gate, seconds):
        woken = not self.index._dirty
        self.index.published()
        self.sleep(0.001 if woken else seconds)
        return woken


class ModelledIndex(IndexService):
    """An index whose work and syncs only take time."""

    syncs = 0

    def work(self) -> bool:
        records = min((self.target - self.position) // RECORD_BYTES, index_service.FAST_SLICE)
        self.position += records * RECORD_BYTES
        self._keys_put += records
        self.clock.sleep(0.0001 + records / INDEX_RATE)
        return records > 0

    def checkpoint(self, stopped=False):
        self.syncs += 1
        self.clock.sleep(SYNC_S)
        self._saved_position, self._saved_at, self._saved_keys = self.position, self.clock.monotonic(), self._keys_put

    def _hold_slots(self):
        pass


def minute_of(rate, tmp_path):
    clock = Minute(rate)
    paths = StorePaths(tmp_path, tmp_path)
    index = ModelledIndex(None, clock, paths, Disk(), None, IndexSettings(True, 10, 10), clock)
    clock.index, index.ready = index, True
    index.run()
    return clock.largest, index


@pytest.mark.compiled
@pytest.mark.parametrize("rate", [5_000, 100_000, 400_000, index_service.MAX_RATE])
def test_a_minute_of_sends_leaves_it_no_further_behind_than_it_says(tmp_path, rate):
    lag, index = minute_of(rate, tmp_path)
    assert lag <= index_service.MAX_LAG_S
    assert index.position >= (MINUTE_S - index_service.MAX_LAG_S) * rate * RECORD_BYTES
    assert index.syncs >= max(1, (MINUTE_S - 5) * rate // index_service.CHECKPOINT_KEYS // 2), "never durable"
    assert lag >= SYNC_S, "the model says nothing"


def test_what_never_catches_up_is_made_durable_all_the_same(tmp_path):
    _, index = minute_of(INDEX_RATE, tmp_path)
    assert index.behind > 0
    assert index.syncs >= 5


class LogInMemory:
    """A log of one file that counts reads."""

    min_offset, start = 0, 0

    def __init__(self, records, text):
        self.reads = 0
        parts, at = [], 0
        for number in range(records):
            fields = (0, MAGIC_V1, 0, 0, 0, 0, at, 0, 0, None, 1_700_000_000_000, None, 0, 0)
            parts.append(encode_record(Record(*fields, b"x" * 100, "TopicTest", text % number), HOST, HOST))
            at += len(parts[-1])
        self.data = b"".join(parts)
        self.end = self.published = at

    def segment_at(self, offset):
        return self if offset < self.end else None

    def read(self, offset, size):
        self.reads += 1
        return self.data[offset : offset + size]


def test_many_records_are_few_slices(tmp_path):
    log = LogInMemory(20_000, "UNIQ_KEY\x01%032X\x02KEYS\x01order-1\x02")
    paths = StorePaths(tmp_path, tmp_path)
    index = IndexService(log, log, paths, Disk(), None, IndexSettings(True, 1000, 50_000), Clock())
    index.ready = True
    slices = 0
    while index.work():
        slices += 1
    assert index.files[0].count == 40_001
    assert slices <= 40_000 / index_service.FAST_SLICE + 1
    assert log.reads <= len(log.data) / (index_service.WINDOW_BYTES - 1000) + 1
    if hotpath.COMPILED:
        assert index._scanner.left <= log.reads, "no more than the record each window ends in was left to Python"
        assert index_service.FAST_SLICE > index_service.SLICE
    index.close()
