#!/usr/bin/env python3
"""Measures how fast a slave takes over the log of its master; prints markdown.

    bench/catch_up.py                              1 GiB of 1 KiB and of 4 KiB messages, 3 rounds each
    bench/catch_up.py --gib 0.5 --bodies 4096 --rounds 1 --servers rocketbox,pure
    bench/catch_up.py --rate 2000                  and the latency of sends to the master meanwhile

Master and slave are processes of their own on this machine, the log is in the page cache, and the slave starts empty.
Clock from 5 % to 95 % of the log; processor time of both over the whole log. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.filled_log import write_store
from bench.rounds import note
from bench.servers import ROCKETBOX, TITLES, RocketBoxServer
from tests.support.apache import ask, free_port

GIB = 1 << 30
NAME = "broker-a"


class Sample(NamedTuple):
    """mb_s: MB of log a second. slave_us, master_us: processor time a record. p99_ms: of sends, if there were any;
    alone_ms: before it."""

    mb_s: float
    records_s: float
    slave_us: float
    master_us: float
    alone_ms: float
    p99_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--bodies", type=lambda text: [int(word) for word in text.split(",")], default=[1024, 4096])
    parser.add_argument("--servers", type=lambda text: text.split(","), default=[ROCKETBOX])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=0, help="sends a second to the master meanwhile")
    parser.add_argument("--flush", default="async", choices=("async", "sync"))
    parser.add_argument("--dir", type=Path, default=None, help="where the stores lie")
    options = parser.parse_args(arguments)
    print("| slave | body | MB/s | records/s | CPU a record: slave, master | send p99 ms alone, meanwhile |")
    print("|---|---:|---:|---:|---:|---:|")
    root = options.dir or Path(tempfile.gettempdir())
    for body_bytes in options.bodies:
        found: dict[str, list[Sample]] = {label: [] for label in options.servers}
        with master_of(root, options, body_bytes) as (master, messages):
            for number in range(options.rounds):
                for label in options.servers:
                    found[label].append(catch_up(root, options, master, messages, label))
                    note(f"round {number + 1}, {label}, {body_bytes}: {found[label][-1]}")
        for label, samples in found.items():
            mb, records, slave, mine, alone, p99 = (median(column) for column in zip(*samples, strict=True))
            print(
                f"| {TITLES[label]} | {body_bytes} | {mb:,.0f} | {records:,.0f} | {slave:.2f} us, {mine:.2f} us | "
                f"{alone:.2f}, {p99:.2f} |",
                flush=True,
            )
    return 0


@contextmanager
def master_of(root: Path, options: argparse.Namespace, body_bytes: int) -> Iterator[tuple[RocketBoxServer, int]]:
    """A running master over a filled log, and how many messages that has."""
    server = RocketBoxServer(ROCKETBOX, options.flush, None, root)
    server.environment |= {
        "ROCKETBOX_STORE_BROKERROLE": "ASYNC_MASTER",
        "ROCKETBOX_STORE_HALISTENPORT": str(free_port()),
    }
    try:
        server.data_dir.mkdir()
        messages = write_store(server.data_dir / "store", int(options.gib * GIB), body_bytes)
        server.start()
        server.create_topic("Load", 8)
        for path in sorted((server.data_dir / "store" / "commitlog").iterdir()):
            with open(path, "rb", buffering=0) as file:
                while file.read(16 << 20):
                    pass
        yield server, messages
    finally:
        server.stop()


def catch_up(root: Path, options: argparse.Namespace, master: RocketBoxServer, messages: int, label: str) -> Sample:
    alone = p99_ms(load(options, master, 5.0)) if options.rate else 0.0
    slave = RocketBoxServer(label, options.flush, None, root)
    slave.roles = "broker"
    slave.arguments += ["--namesrv-addr", master.namesrv]
    slave.environment |= {"ROCKETBOX_STORE_BROKERROLE": "SLAVE", "ROCKETBOX_BROKER_BROKERID": "1"}
    end = end_of(master)
    beside = None
    before = processor_s(master)
    try:
        slave.start()
        started = processor_s(slave)
        beside = load(options, master, max(3.0, end / 300e6)) if options.rate else None
        times = [(time.monotonic(), 0)]
        while times[-1][1] < end:
            time.sleep(0.01)
            times.append((time.monotonic(), end_of(slave)))
            if times[-1][0] - times[0][0] > 600:
                raise RuntimeError("the slave does not catch up")
        used, mine = processor_s(slave) - started, processor_s(master) - before
        p99 = p99_ms(beside) if beside else 0.0
    finally:
        if beside is not None:
            beside.wait(60)
        slave.stop()
    first = next(one for one in times if one[1] >= 0.05 * end)
    last = next(one for one in times if one[1] >= 0.95 * end)
    rate = (last[1] - first[1]) / (last[0] - first[0])
    return Sample(rate / 1e6, rate / end * messages, used / messages * 1e6, mine / messages * 1e6, alone, p99)


def end_of(server: RocketBoxServer) -> int:
    _, body = ask(server.broker, 28, {})
    return int(json.loads(body)["table"]["commitLogMaxOffset"])


def processor_s(server: RocketBoxServer) -> float:
    """Of all its processes, since they began."""
    ticks = 0
    for pid in server.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def load(options: argparse.Namespace, server: RocketBoxServer, seconds: float) -> subprocess.Popen[str]:
    command = [
        str(build("loadgen")), "paced", "--broker", server.broker, "--topic", "Load", "--queues", "8",
        "--connections", "16", "--rate", str(options.rate), "--body", "1024", "--warm-up", "0",
        "--seconds", str(seconds),
    ]  # fmt: skip
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def p99_ms(running: subprocess.Popen[str]) -> float:
    answer, _ = running.communicate(timeout=120)
    result = json.loads(answer)
    assert not result["errors"], result["first_error"]
    return float(result["latency_us"]["p99"]) / 1000


if __name__ == "__main__":
    sys.exit(main())
