#!/usr/bin/env python3
"""How many keys a second the index takes in alone, compiled and pure; prints markdown.

    bench/index_speed.py                      a million records of each kind, some 20 s
    bench/index_speed.py --records 200000

A log of equal records is written to memory (/dev/shm), and the index service works it off slice by slice without rests:
the processor's time for scan, entries, slots and their writing, with nobody else there. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.clock import SYSTEM
from appliance.engine.disk import Disk
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from appliance.engine.store.index.index_recovery import IndexSettings
from appliance.engine.store.index.index_service import IndexService
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.publication import Publication

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
UNIQUE = "UNIQ_KEY\x01{0:032X}\x02"
#: Name -> (keys of a record, its properties); all have bodies of 100 bytes.
KINDS = {
    "unique key": (1, UNIQUE + "WAIT\x01true\x02TAGS\x01TagA\x02"),
    "unique key, two KEYS": (3, "KEYS\x01order-{0:08d} customer-4711\x02" + UNIQUE + "TAGS\x01TagA\x02"),
    "KEYS that are not ASCII": (2, "KEYS\x01\u8ba2\u5355{0:08d}\x02" + UNIQUE),
    "KEYS without a value": (1, "KEYS\x01\x02" + UNIQUE),
}


class MemoryLog:
    """What the index asks of the log, of one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.start, self.min_offset = path, 0, 0
        self.end = path.stat().st_size
        self.fd = os.open(path, os.O_RDONLY)

    def segment_at(self, offset: int) -> MemoryLog | None:
        return self if offset < self.end else None

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset)


def write_log(path: Path, properties: str, records: int) -> None:
    at = 0
    with open(path, "wb") as file:
        for number in range(records):
            text = properties.format(number)
            fields = (0, MAGIC_V1, 0, 0, 0, 0, at, 0, 0, None, 1_700_000_000_000 + number // 500, None, 0, 0)
            data = encode_record(Record(*fields, b"x" * 100, "BenchKeys", text), HOST, HOST)
            file.write(data)
            at += len(data)


def measure(path: Path, scratch: Path) -> tuple[float, float, float]:
    """(wall seconds, the thread's seconds, its longest slice in ms) to index a log."""
    log, publication = MemoryLog(path), Publication({})
    publication.published = log.end
    paths = StorePaths(scratch / "store", scratch / "own")
    service = IndexService(log, publication, paths, Disk(), None, IndexSettings(True, 5_000_000, 20_000_000), SYSTEM)
    service.ready = True
    begin, begin_thread = time.perf_counter(), time.thread_time()
    service.work()  # makes the file
    longest, before = 0.0, time.thread_time()
    while service.work():
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    took = time.perf_counter() - begin, time.thread_time() - begin_thread, longest * 1000
    os.close(log.fd)
    for file in service.files:
        file.close()
        file.path.unlink()
    return took


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(Path(options.measure), Path(options.dir))))
        return 0
    print("| records | keys/s compiled | keys/s pure | ratio | longest slice compiled | pure |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        for kind, (keys, properties) in KINDS.items():
            path = Path(directory) / "log"
            write_log(path, properties, options.records)
            found: dict[str, list[list[float]]] = {"": [], "1": []}
            for _ in range(options.rounds):
                for pure, samples in found.items():
                    command = [sys.executable, __file__, "--measure", str(path), "--dir", directory]
                    environment = {**os.environ, "ROCKETBOX_PURE": pure}
                    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                    samples.append(json.loads(done.stdout))
            rates = [keys * options.records / median(one[1] for one in samples) for samples in found.values()]
            slices = [median(one[2] for one in samples) for samples in found.values()]
            print(
                f"| {kind} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[0] / rates[1]:.1f} "
                f"| {slices[0]:.1f} ms | {slices[1]:.1f} ms |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
