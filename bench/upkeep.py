#!/usr/bin/env python3
"""What the key index, retention and checksums cost sends, and how far the index is behind; prints markdown.

    bench/upkeep.py                        about four minutes
    bench/upkeep.py --rounds 1 --seconds 3 --rows 64-async

Two RocketBoxes side by side in interleaved rounds, one with the three services and one whose threads do nothing. Log
files are 64 MiB, so that many are closed and sealed, and kept for an hour. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.rounds import note
from bench.rows import SEND_QUEUES, Bench, fresh_topic
from bench.servers import ROCKETBOX, RocketBoxServer, cpu_seconds, default_command

#: name -> (what it is called, flush, mode and options of the generator)
ROWS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "64-async": ("sync send, 64 connections, async flush", "async", "send", {"connections": 64}),
    "64-sync": ("sync send, 64 connections, sync flush", "sync", "send", {"connections": 64}),
    "pipelined": ("pipelined, 4 connections x 64, async flush", "async", "send", {"connections": 4, "inflight": 64}),
    "batch": ("batches of 32, 8 connections x 4, async flush", "async", "batch", {"connections": 8, "inflight": 4}),
    "keys": ("64 connections with KEYS, async flush", "async", "send", {"connections": 64, "keys": "order-4711"}),
    "paced": ("20,000/s, 16 connections, async flush", "async", "paced", {"connections": 16, "rate": 20_000}),
}
SEGMENT_BYTES = 64 << 20


class UpkeepServer(RocketBoxServer):
    """`kind`: "whole" or "bare"."""

    def __init__(self, kind: str, flush: str, scratch_root: Path) -> None:
        python = default_command()[0]
        super().__init__(ROCKETBOX, flush, None, scratch_root)
        self.samples_file = self.scratch / "samples"
        self._command = [python, "-m", "bench.upkeep_server", kind, str(self.samples_file)]
        self.environment["ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG"] = str(SEGMENT_BYTES)

    def end(self) -> list[tuple[float, int, int]]:
        """Stop it; what it saw of its index."""
        self._end()
        lines = self.samples_file.read_text().splitlines() if self.samples_file.exists() else []
        found = [line.split() for line in lines]
        self.stop()
        return [(float(at), int(published), int(indexed)) for at, published, indexed in found]


def lags_s(samples: list[tuple[float, int, int]]) -> list[float]:
    """Of each look: seconds until the index held what was published then; the last ones are left out."""
    indexed = [one[2] for one in samples]
    found = []
    for at, published, _ in samples:
        later = bisect_left(indexed, published)
        if later < len(samples):
            found.append(max(0.0, samples[later][0] - at))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    bench = Bench(build("loadgen"), options.seconds, 1.0, None)
    lines = [
        f"{time.strftime('%Y-%m-%d')}; {options.rounds} interleaved rounds of {options.seconds:g} s, medians.",
        "",
        "| load | unit | with index, retention, checksums | without | ratio | goal |",
        "|---|---|---:|---:|---:|---|",
    ]
    lag_lines: list[str] = []
    for key in options.rows.split(","):
        title, flush, mode, load = ROWS[key]
        results = measure(bench, flush, mode, load, options, lag_lines, title)
        rates = {kind: median(one["rate"] for one in found) for kind, found in results.items()}
        lines.append(
            f"| {title} | msg/s | {rates['whole']:,.0f} | {rates['bare']:,.0f} "
            f"| {rates['whole'] / rates['bare']:.2f} | ≥ 0.92 |"
        )
        for quantile in ("p50", "p99"):
            times = {
                kind: median(one["latency_us"][quantile] / 1000 for one in found) for kind, found in results.items()
            }
            lines.append(
                f"| {title}: {quantile} | ms | {times['whole']:.3f} | {times['bare']:.3f} "
                f"| {times['whole'] / times['bare']:.2f} | |"
            )
        costs = {kind: median(one["cpu_us"] for one in found) for kind, found in results.items()}
        lines.append(
            f"| {title}: CPU | us a message | {costs['whole']:.2f} | {costs['bare']:.2f} "
            f"| {costs['whole'] / costs['bare']:.2f} | |"
        )
    print("\n".join([*lines, "", *lag_lines]))
    return 0


def measure(
    bench: Bench, flush: str, mode: str, load: dict[str, Any], options: argparse.Namespace, said: list[str], title: str
) -> dict[str, list[dict[str, Any]]]:
    servers = {kind: UpkeepServer(kind, flush, options.dir) for kind in ("whole", "bare")}
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in servers}
    samples: list[tuple[float, int, int]] = []
    try:
        for server in servers.values():
            server.start()
            topic = fresh_topic(server, SEND_QUEUES)
            bench.load(server, "send", topic=topic, queues=SEND_QUEUES, connections=64, seconds=2)
            time.sleep(1.0)
            server.freeze()
        for number in range(1, options.rounds + 1):
            for kind, server in servers.items():
                os.sync()
                server.thaw()
                topic = fresh_topic(server, SEND_QUEUES)
                cpu_before = cpu_seconds(server.pids)
                result = bench.load(server, mode, topic=topic, queues=SEND_QUEUES, **load)
                # The index catches up in time that is counted; what follows it would be no lag of the load's.
                time.sleep(2.5)
                result["cpu_us"] = (cpu_seconds(server.pids) - cpu_before) * 1e6 / max(1, result["all_messages"])
                server.freeze()
                results[kind].append(result)
                note(f"{title}, {kind}, round {number}: {result['rate']:,.0f}/s, {result['errors']} errors")
                if result["errors"]:
                    raise RuntimeError(f"{kind}: {result['first_error']}")
    finally:
        for kind, server in servers.items():
            if server._frozen:
                server.thaw()
            found = server.end()
            if kind == "whole":
                samples = found
    lags = sorted(lags_s(samples))
    if lags:
        said.append(
            f"Index lag, {title}: median {lags[len(lags) // 2]:.2f} s, p99 {lags[len(lags) * 99 // 100]:.2f} s, "
            f"largest {lags[-1]:.2f} s (goal ≤ 2 s; looked at {len(lags):,} times)."
        )
    return results


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"comma list of {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where stores are written")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows.split(",")) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
