"""Makes stores and delivery events in which the test chooses every time, place and fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.engine.broker.deliveries.event_format import EVENT, Definition
from appliance.engine.broker.deliveries.recorder import Taken
from appliance.engine.broker.deliveries.ring import LEAST_BUDGET_BYTES, DeliveryRing
from appliance.engine.disk import Disk
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.protocol.record import (
    BLANK_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MAGIC,
    Record,
    decode_record,
    encode_record,
)
from spark_reports.facts.tables import DayFacts
from spark_reports.snapshot import Snapshot
from tests.support.store import BORN, STORE_HOST

#: 2023-11-15 in UTC.
DAY_MS = 1_700_006_400_000
HOUR_MS = 3_600_000


class MadeStore:
    """A log of small files. `end`: its end; `records`: all that were put, including those damaged later."""

    def __init__(self, directory: Path, file_bytes: int = 4096) -> None:
        self.directory = directory / "store"
        self.log = self.directory / "commitlog"
        self.log.mkdir(parents=True)
        self.file_bytes = file_bytes
        self.end = 0
        self.records: list[Record] = []
        self._next: dict[tuple[str, int], int] = {}

    def put(
        self,
        topic: str,
        queue_id: int,
        store_ms: int,
        body: bytes = b"body",
        properties: dict[str, str] | None = None,
        reconsume_times: int = 0,
    ) -> Record:
        key = topic, queue_id
        magic = MAGIC_V1 if len(topic) < 128 else MAGIC_V2
        text = encode_properties(properties or {})
        record = Record(
            0, magic, 0, queue_id, 0, self._next.get(key, 0), 0, 0, store_ms - 1, ("10.0.0.1", 5000), store_ms,
            ("127.0.0.1", 10911), reconsume_times, 0, body, topic, text,
        )  # fmt: skip
        size = len(encode_record(record, BORN, STORE_HOST))
        rest = -self.end % self.file_bytes or self.file_bytes
        if size + BLANK_BYTES > rest:
            self._write(SIZE_MAGIC.pack(rest, MAGIC_BLANK))
            self.end += rest - BLANK_BYTES
        data = encode_record(record._replace(physical_offset=self.end), BORN, STORE_HOST)
        self._write(data)
        self._next[key] = record.queue_offset + 1
        self.records.append(decode_record(data))
        return self.records[-1]

    def next_offset(self, topic: str, queue_id: int) -> int:
        return self._next.get((topic, queue_id), 0)

    def begin_anew(self, topic: str) -> None:
        """Begin the topic's queues at 0 again, as if the topic had been deleted."""
        self._next = {key: offset for key, offset in self._next.items() if key[0] != topic}

    def _write(self, data: bytes) -> None:
        start = self.end - self.end % self.file_bytes
        path = self.log / f"{start:020d}"
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.truncate(self.file_bytes)
            file.seek(self.end - start)
            file.write(data)
        self.end += len(data)

    def files(self) -> list[Path]:
        return sorted(self.log.iterdir())

    def damage(self, physical: int, data: bytes) -> None:
        start = physical - physical % self.file_bytes
        with open(self.log / f"{start:020d}", "r+b") as file:
            file.seek(physical - start)
            file.write(data)


@dataclass
class MadeDeliveries:
    """A ring of delivery events, written batch by batch."""

    directory: Path
    _ring: DeliveryRing = field(init=False)
    _numbers: dict[Definition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ring = DeliveryRing(self.directory, Disk())

    def start(self, published: int, wall_ms: int) -> None:
        """Open the ring as a starting broker does; numbers begin again at 0."""
        self._ring.open(published, wall_ms)
        self._numbers = {}

    def batch(
        self, published: int, wall_ms: int, answers: Iterable[tuple[Definition, int, int, int]], lost: int = 0
    ) -> None:
        """Write a batch. answers: (who, first offset, number of messages, time in ms)."""
        events = bytearray()
        for who, first, count, at_ms in answers:
            number = self._numbers.setdefault(who, len(self._numbers))
            events += EVENT.pack(number, at_ms & 0xFFFF_FFFF, first << 16 | count)
        known = {number: who for who, number in self._numbers.items()}
        self._ring.write(Taken(bytes(events), known, published, wall_ms, lost), LEAST_BUDGET_BYTES)

    def stop(self) -> None:
        self._ring.close()


def snapshot_of(store: MadeStore, deliveries: Path, **different: Any) -> Snapshot:
    """Return a snapshot of a day that is over; T0 is two hours after its end."""
    files = store.files()
    values = {
        "t0_ms": DAY_MS + 26 * HOUR_MS, "day": "2023-11-15", "zone": "UTC", "from_ms": DAY_MS,
        "to_ms": DAY_MS + 24 * HOUR_MS, "store_dir": str(store.directory), "deliveries_dir": str(deliveries),
        "log_min": int(files[0].name) if files else 0, "log_end": store.end, "retention_ms": 72 * HOUR_MS,
        "disk_total": 1000, "disk_free": 400, "store_bytes": 300,
    }  # fmt: skip
    return Snapshot(**(values | different))


def who(group: str, topic: str, queue_id: int = 0, codes: Sequence[int] | str | None = None) -> Definition:
    return Definition(group, topic, queue_id, "c@1", codes if codes is None or isinstance(codes, str) else tuple(codes))


def another_file(ring: MadeDeliveries) -> None:
    """Let the next batch begin a new file."""
    ring._ring._end = 1 << 40


def rows_of(facts: Mapping[str, Any]) -> DayFacts:
    """Return the rows of Spark's frames, sorted; tables that are lists of rows stay as they are."""
    return {
        name: one if isinstance(one, list) else sorted(tuple(row) for row in one.collect())
        for name, one in facts.items()
    }
