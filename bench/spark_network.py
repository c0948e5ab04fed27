#!/usr/bin/env python3
"""Measures the data source over the network, without Spark: what one task pulls, and what sends notice. Markdown.

    bench/spark_network.py                    512 MiB of 1 KiB bodies, five minutes
    bench/spark_network.py --mib 128 --rounds 1

pulls: whole records over the loopback, in order and checked, not decoded. columns: the same as columns=meta and
columns=body. Beside sends: p99 of 5,000 sends a second, alone, beside one task, and beside one with maxBytesPerSecond.
See docs/spark.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.rounds import note
from bench.servers import ROCKETBOX, RocketBoxServer
from spark_reports.source.findings import Ledger
from spark_reports.source.network.pulls import Pulls
from spark_reports.source.network.reader import NetworkReader
from spark_reports.source.network.task import noted_in
from spark_reports.source.options import parse

TOPIC, QUEUES = "Filled", 4
LIMIT = 20_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketbox-bench-") as scratch:
        server = RocketBoxServer(ROCKETBOX, "async", None, Path(scratch))
        server.start()
        try:
            fill(server, options.mib)
            print(reading(server, options.rounds), flush=True)
            print(beside_sends(server, options.rounds, options.seconds, options.rate), flush=True)
        finally:
            server.stop()


def fill(server: RocketBoxServer, mib: int) -> None:
    server.create_topic(TOPIC, QUEUES)
    # fmt: off
    arguments = ["send", "--broker", server.broker, "--topic", TOPIC, "--queues", QUEUES, "--body", 1024,
                 "--connections", 8, "--inflight", 16, "--messages", mib * 1024, "--seconds", 600, "--warm-up", 0]
    # fmt: on
    subprocess.run([str(build("loadgen")), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def pull(server: RocketBoxServer, **more: str) -> tuple[int, int]:
    """(messages, bytes) of all ranges, undecoded."""
    reader = NetworkReader(parse({"brokers": server.namesrv, "topic": TOPIC, **more}))
    rows = size = 0
    for part in reader.partitions():
        for wanted in part.ranges:  # type: ignore[attr-defined]
            for piece in Pulls(wanted, reader._task.access, noted_in(Ledger(fails=True))).pieces():
                rows += piece.end - piece.start
                size += len(piece.records)
    return rows, size


def columns(server: RocketBoxServer, kind: str) -> None:
    reader = NetworkReader(parse({"brokers": server.namesrv, "topic": TOPIC, "columns": kind}))
    for part in reader.partitions():
        for _ in reader.read(part):
            pass


def reading(server: RocketBoxServer, rounds: int) -> str:
    rows, size = pull(server)
    took: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], object]] = {
        "pulls": lambda: pull(server),
        "columns=meta": lambda: columns(server, "meta"),
        "columns=body": lambda: columns(server, "body"),
    }
    for number in range(rounds):
        for name, way in ways.items():
            began = time.monotonic()
            way()
            took.setdefault(name, []).append(time.monotonic() - began)
            note(f"round {number + 1}, {name}: {size / took[name][-1] / 1e6:.0f} MB/s")
    lines = ["| one task | MB/s of log | messages/s |", "|---|---|---|"]
    for name, seconds in took.items():
        lines.append(f"| {name} | {size / median(seconds) / 1e6:.0f} | {rows / median(seconds):,.0f} |")
    return "\n".join(lines) + "\n"


def beside_sends(server: RocketBoxServer, rounds: int, seconds: float, rate: int) -> str:
    """Sends of another process, while yet another one pulls."""
    ways = {"alone": None, "beside one task": "", f"with maxBytesPerSecond={LIMIT:,}": str(LIMIT)}
    server.create_topic("Load", 8)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, limit in ways.items():
            task = (
                None if limit is None else subprocess.Popen([sys.executable, __file__, "--task", server.namesrv, limit])
            )
            try:
                # fmt: off
                arguments = ["paced", "--broker", server.broker, "--topic", "Load", "--queues", 8, "--rate", rate,
                             "--connections", 16, "--body", 1024, "--warm-up", 1, "--seconds", seconds]
                # fmt: on
                said = subprocess.run([str(build("loadgen")), *map(str, arguments)], check=True, capture_output=True)
            finally:
                if task is not None:
                    task.kill()
                    task.wait()
            found[name].append(json.loads(said.stdout)["latency_us"])
            note(f"round {number + 1}, {name}: send p99 {found[name][-1]['p99'] / 1000:.2f} ms")
    lines = [f"| {rate:,} sends a second | p50, ms | p99, ms |", "|---|---|---|"]
    for name, samples in found.items():
        p50, p99 = (median(sample[key] for sample in samples) / 1000 for key in ("p50", "p99"))
        lines.append(f"| {name} | {p50:.2f} | {p99:.2f} |")
    return "\n".join(lines) + "\n"


def be_a_task(namesrv: str, limit: str) -> None:
    """Read all, again and again, until killed."""
    more = {"maxBytesPerSecond": limit} if limit else {}
    while True:
        reader = NetworkReader(parse({"brokers": namesrv, "topic": TOPIC, **more}))
        for part in reader.partitions():
            for _ in reader.read(part):
                pass


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        be_a_task(*sys.argv[2:4])
    else:
        main()
