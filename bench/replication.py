#!/usr/bin/env python3
"""What two copies cost: double writes beside Apache's, an empty slave that catches up, fail-over's memory; markdown.

    bench/replication.py --parts double               64 connections, synchronous double write, all in turns
    bench/replication.py --parts catchup --gib 4      MB/s of an empty slave, and sends beside it
    bench/replication.py --parts cost                 memory and idle CPU with and without haStore
    bench/replication.py --parts before --before DIR  sends without replication, here and of another work tree

DIR: a work tree of an older commit with its own .venv and compiled part. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import filled_log
from bench.build import build
from bench.replicas import (
    PAIR_TITLES,
    SET,
    Member,
    log_end,
    make_replicas,
    slave_of,
    thread_cpu,
    thread_shares,
)
from bench.rounds import Starter, note, run_row
from bench.rows import ROWS, SEND_QUEUES, Bench, Row, Sample, fresh_topic
from bench.servers import (
    ROCKETBOX,
    RocketBoxServer,
    Server,
    cpu_seconds,
    resident_bytes,
    shared_out_bytes,
    wait_for_ack,
)

PARTS = ("double", "catchup", "cost", "before")
LOAD_RATE, LOAD_CONNECTIONS = 5000, 16
CATCH_UP_S = 900.0
NOW, BEFORE = "now", "before"


@dataclass(frozen=True)
class Making(Starter):
    """Replicas, and the broker of another work tree."""

    before: Path | None = None

    def make(self, label: str, row: Row) -> Server:
        if label in PAIR_TITLES:
            return make_replicas(label, row.flush, self.cpus, self.scratch_root)
        command = None
        if label == BEFORE:
            python = f"{self.before}/.venv/bin/python"
            command = ["env", "-C", str(self.before), python, "-m", "appliance.main"]
        return RocketBoxServer(ROCKETBOX, row.flush, self.cpus, self.scratch_root, command)


def send_rows(flushes: Sequence[str]) -> list[Row]:
    return [row for row in ROWS for flush in flushes if row.key == f"send-64-{flush}"]


def print_turns(title: str, results: dict[str, list[Sample]], titles: dict[str, str], key: str) -> int:
    """A table of what was measured in turns; returns how many errors there were."""
    print(f"\n| {title} | sends/s | ± | p50 | p99 | CPU per 1,000 | errors |\n|---|---:|---:|---:|---:|---:|---:|")
    failed = 0
    for label, samples in results.items():
        good = [sample for sample in samples if sample.values and sample.latency_us]
        errors = sum(sample.errors for sample in samples)
        failed += errors
        if not good:
            print(f"| {titles[label]} | - | | | | | {errors} |")
            continue
        rates = [sample.values[key] for sample in good]
        p50, p99 = (median(sample.latency_us[name] for sample in good if sample.latency_us) for name in ("p50", "p99"))
        cpu = median(sample.cpu_ms or 0.0 for sample in good)
        spread = (max(rates) - min(rates)) / 2 / median(rates)
        print(
            f"| {titles[label]} | {median(rates):,.0f} | {spread:.0%} | {p50 / 1000:.2f} ms | {p99 / 1000:.2f} ms "
            f"| {cpu:.1f} ms | {errors} |",
            flush=True,
        )
    return failed


def double(bench: Bench, starter: Making, flushes: Sequence[str], rounds: int, labels: Sequence[str]) -> int:
    failed = 0
    for row in send_rows(flushes):
        note(f"double write, {row.flush} flush")
        results = run_row(row, labels, bench, rounds, starter)
        failed += print_turns(f"synchronous double write, {row.flush} flush", results, PAIR_TITLES, row.key)
    return failed


def before(bench: Bench, starter: Making, flushes: Sequence[str], rounds: int) -> int:
    failed = 0
    for row in send_rows(flushes):
        note(f"one broker, {row.flush} flush, beside {starter.before}")
        results = run_row(row, [NOW, BEFORE], bench, rounds, starter)
        titles = {NOW: "this work tree", BEFORE: "the other"}
        failed += print_turns(f"64 connections, one broker, {row.flush} flush", results, titles, row.key)
    return failed


# ---------------------------------------------------------------- an empty slave


@dataclass(frozen=True)
class CatchUp:
    """of_slave, of_master: CPUs that the process used, then its busiest threads."""

    copied: int
    seconds: float
    alone: list[Sample]
    beside: list[Sample]
    of_slave: list[float]
    of_master: list[float]


def load_slice(bench: Bench, server: Server, topic: str) -> Sample:
    result = bench.load(
        server, "paced", topic=topic, queues=SEND_QUEUES, connections=LOAD_CONNECTIONS, rate=LOAD_RATE, warm_up=0.1
    )
    return Sample({"rate": result["rate"]}, result["errors"], result["latency_us"], result["cores"], result)


def catch_up(bench: Bench, scratch: Path, flush: str, log_bytes: int, body_bytes: int, slices: int) -> CatchUp:
    """A master that has `log_bytes` and takes sends, and a slave that starts with nothing."""
    master = Member(flush, None, scratch, listens=True)
    slave = None
    try:
        filled_log.write_store(master.data_dir / "store", log_bytes, body_bytes)
        os.sync()
        master.start()
        settle_cpu(master)
        topic = fresh_topic(master, SEND_QUEUES)
        load_slice(bench, master, topic)
        alone = [load_slice(bench, master, topic) for _ in range(slices)]
        caught_up = threading.Event()
        beside: list[Sample] = []

        def load() -> None:
            while not caught_up.is_set():
                sample = load_slice(bench, master, topic)
                # One that ends later was half alone; the only one is better than none.
                if not caught_up.is_set() or not beside:
                    beside.append(sample)

        slave = slave_of(master)
        slave.start()
        threads = thread_cpu(slave.pids), thread_cpu(master.pids)
        loading = threading.Thread(target=load, name="bench-load")
        loading.start()
        try:
            copied, seconds = until_equal(master, slave)
            shares = [
                thread_shares(earlier, thread_cpu(server.pids), seconds)
                for earlier, server in zip(threads, (slave, master), strict=True)
            ]
        finally:
            caught_up.set()
            loading.join(60)
        of_slave, of_master = ([sum(found), *found[:3]] for found in shares)
        return CatchUp(copied, seconds, alone, beside, of_slave, of_master)
    finally:
        for server in (slave, master):
            if server is not None:
                server.stop()


def settle_cpu(server: Server) -> None:
    """Until it works off nothing more of what it found: less than a tenth of a CPU for a second."""
    deadline = time.monotonic() + 300
    spent = cpu_seconds(server.pids)
    while time.monotonic() < deadline:
        time.sleep(1)
        spent, last = cpu_seconds(server.pids), spent
        if spent - last < 0.1:
            return
    raise SystemExit("the master did not come to rest")


def until_equal(master: Server, slave: Server) -> tuple[int, float]:
    """(bytes, seconds) from now until the slave shows what the master had, and all but 0.1 s of what came since."""
    wanted = log_end(master.broker)
    began, first = time.monotonic(), log_end(slave.broker)
    behind = LOAD_RATE * 2048 // 10
    while (now := time.monotonic()) < began + CATCH_UP_S:
        there = log_end(slave.broker)
        if there >= wanted and log_end(master.broker) - there < behind:
            return there - first, now - began
        time.sleep(0.02)
    raise SystemExit(f"the slave had not caught up in {CATCH_UP_S:.0f} s")


def print_catch_up(found: CatchUp, title: str) -> int:
    p99s = [
        [sample.latency_us["p99"] / 1000 for sample in samples if sample.latency_us]
        for samples in (found.alone, found.beside)
    ]
    alone, beside = (median(values) for values in p99s)
    slave, master = (" ".join(f"{share:.2f}" for share in shares) for shares in (found.of_slave, found.of_master))
    errors = sum(sample.errors for sample in found.alone + found.beside)
    megabytes = found.copied / 1e6
    print(
        f"| {title} | {megabytes:,.0f} MB | {megabytes / found.seconds:.0f} MB/s | {alone:.2f} ms | {beside:.2f} ms "
        f"({max(p99s[1]):.2f}, of {len(p99s[1])}) | {beside / alone:.2f} | {slave} | {master} | {errors} |",
        flush=True,
    )
    return errors


# ---------------------------------------------------------------- memory and idle CPU


@dataclass(frozen=True)
class Idle:
    """RSS and PSS in MB, CPU as a share of one."""

    rss: float
    pss: float
    cpu: float


def idle_of(groups: dict[str, tuple[int, ...]], seconds: float) -> dict[str, Idle]:
    """Of processes by name, `seconds` from now; CPU during these seconds."""
    earlier = {name: cpu_seconds(pids) for name, pids in groups.items()}
    time.sleep(seconds)
    return {
        name: Idle(
            resident_bytes(pids) / 1e6, shared_out_bytes(pids) / 1e6, (cpu_seconds(pids) - earlier[name]) / seconds
        )
        for name, pids in groups.items()
    }


def cost(scratch: Path, flush: str, seconds: float, rounds: int) -> None:
    """All have both roles: the name server is in each process."""
    found: dict[str, list[Idle]] = {}
    for number in range(rounds):
        note(f"memory, round {number + 1}")
        plain = Member(flush, None, scratch)
        replicas = make_replicas(SET, flush, None, scratch)
        try:
            plain.start()
            wait_for_ack(plain.broker, lambda: None)  # as the set gets one, too
            replicas.start()
            groups = {
                "without haStore": plain.pids, "leader": replicas.leader_pids, "follower": replicas.follower_pids,
                "etcd, one server": replicas.other_pids,
            }  # fmt: skip
            for name, idle in idle_of(groups, seconds).items():
                found.setdefault(name, []).append(idle)
        finally:
            replicas.stop()
            plain.stop()
    print(f"\n| {seconds:g} s after the start, no load | RSS | PSS | CPU |\n|---|---:|---:|---:|")
    for name, idles in found.items():
        rss, pss, cpu = (median(getattr(idle, what) for idle in idles) for what in ("rss", "pss", "cpu"))
        print(f"| {name} | {rss:.1f} MB | {pss:.1f} MB | {cpu:.2%} |", flush=True)


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    bench = Bench(build("loadgen"), options.seconds, options.warm_up, None)
    flushes = options.flush.split(",")
    parts: dict[str, Callable[[Path], int]] = {
        "double": lambda scratch: double(
            bench, Making(None, scratch), flushes, options.rounds, options.servers.split(",")
        ),
        "catchup": lambda scratch: all_catch_ups(options, flushes, scratch),
        "cost": lambda scratch: cost(scratch, flushes[0], options.idle, options.rounds) or 0,
        "before": lambda scratch: before(bench, Making(None, scratch, options.before), flushes, options.rounds),
    }
    print(f"{time.strftime('%Y-%m-%d')}; {os.cpu_count()} CPUs, medians of {options.rounds}.")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as scratch:
        for name in options.parts:
            failed += parts[name](Path(scratch))
    return 1 if failed else 0


def all_catch_ups(options: argparse.Namespace, flushes: Sequence[str], scratch: Path) -> int:
    print(
        "\n| empty slave | copied | at | p99 of 5,000 sends/s alone | beside (worst slice) | ratio "
        "| slave: CPUs, busiest threads | master: the same | errors |\n|---|---:|---:|---:|---:|---:|---|---|---:|",
        flush=True,
    )
    # Each is a second's sends: a long one would end after the slave has caught up.
    bench = Bench(build("loadgen"), options.slice, 0.1, None)
    failed = 0
    for flush in flushes:
        for body in options.bodies:
            for number in range(options.rounds):
                note(f"empty slave, {flush} flush, {body} B, round {number + 1}")
                found = catch_up(bench, scratch, flush, int(options.gib * (1 << 30)), body, options.slices)
                failed += print_catch_up(found, f"{options.gib:g} GiB of {body} B, {flush} flush")
    return failed


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="double,catchup,cost", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round of double and before")
    parser.add_argument("--warm-up", type=float, default=1.0, help="at the head of each, not counted")
    parser.add_argument("--flush", default="sync,async", help="which of them, in this order; cost takes the first")
    parser.add_argument("--servers", default=",".join(PAIR_TITLES), help=f"of double: some of {','.join(PAIR_TITLES)}")
    parser.add_argument("--gib", type=float, default=1.0, help="how much the slave has to copy")
    parser.add_argument("--bodies", default="1024,4096", help="bytes of the records' bodies")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of sends that one p99 is of")
    parser.add_argument("--slices", type=int, default=8, help="how many of them before the slave comes")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds that idle brokers are watched")
    parser.add_argument("--before", type=Path, help="another work tree, for the part before")
    parser.add_argument("--dir", help="where the stores go: three times --gib")
    options = parser.parse_args(arguments)
    options.parts = options.parts.split(",")
    options.bodies = [int(text) for text in options.bodies.split(",")]
    if not set(options.parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    if "before" in options.parts and options.before is None:
        parser.error("--before DIR is needed")
    return options


if __name__ == "__main__":
    sys.exit(main())
