"""Stores to read, and a reader in this process that does without Spark what Spark would do."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_reports.source import findings
from spark_reports.source.files_reader import FilesReader
from spark_reports.source.options import parse
from tests.support.store import StoreUnderTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEGMENT = 64 * 1024
START_MS = 1_700_000_000_000
STEP_MS = 1000


def fill(
    under: StoreUnderTest, count: int, topics: Iterable[str] = ("orders",), queues: int = 3, size: int = 300
) -> None:
    """Write `count` messages, a second apart, in turn to each topic and queue."""
    names = tuple(topics)
    for number in range(count):
        under.scheduler.wall_ms += STEP_MS
        body = b"%d " % number * (size // (len(str(number)) + 1))
        topic = names[number % len(names)]
        text = b"KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02TAGS\x01t%d\x02" % (number, number, number % 3)
        under.put(topic, number // len(names) % queues, body, text)
        under.tick()


def stopped(directory: Path, count: int = 900, topics: Iterable[str] = ("orders",), rare: int = 0) -> Path:
    """Make a data directory of a stopped store: `count` messages, `rare` of them of the topic `rare`, evenly apart."""
    under = StoreUnderTest(directory).open()
    for at in range(rare):
        fill(under, 1, ("rare",))
        fill(under, (at + 1) * (count - rare) // rare - at * (count - rare) // rare, topics)
    fill(under, 0 if rare else count, topics)
    under.stop()
    return directory


def log_paths(directory: Path) -> list[Path]:
    return sorted((directory / "store" / "commitlog").iterdir())


class Read:
    """One read of a store: rows in the order of partitions, and the bytes read for them."""

    def __init__(self, directory: Path, filters: Iterable[Any] = (), **options: Any) -> None:
        given = {
            name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in options.items()
        }
        given.setdefault("findings", str(directory / "findings"))
        for old in Path(given["findings"]).glob("*"):
            old.unlink()
        reader = FilesReader(parse({"store": str(directory), **given}))
        if filters:
            assert reader.pushFilters(list(filters)) == list(filters), "Spark still applies them"
        self.reader = reader
        self.partitions = reader.partitions()
        self.findings_dir = given["findings"]
        self.batches: list[Any] = []
        self.rows: list[dict[str, Any]] = []

    #: Bytes of the log that were read.
    bytes_read = 0

    def run(self) -> Read:
        reader = pickle.loads(pickle.dumps(self.reader))
        for partition in pickle.loads(pickle.dumps(self.partitions)):
            batches = list(reader.read(partition))
            self.batches.append(batches)
            for batch in batches:
                batch.validate(full=True)
                self.rows += batch.to_pylist()
        self.bytes_read = findings.bytes_read(self.findings_dir)
        return self

    @property
    def numbers(self) -> list[tuple[str, int, int]]:
        """Return (topic, queue id, queue offset) of the rows, sorted."""
        return sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in self.rows)

    @property
    def found(self) -> list[findings.Finding]:
        return findings.read(self.findings_dir)


def read(directory: Path, filters: Iterable[Any] = (), **options: Any) -> Read:
    return Read(directory, filters, **options).run()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows in the order of the log; times have a zone, maps are dicts."""
    rows = frame.orderBy("physical_offset").toArrow().to_pylist()
    return [{**row, "properties": dict(row["properties"])} for row in rows]
