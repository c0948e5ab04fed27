#!/usr/bin/env python3
"""Fills a log, kills the broker with SIGKILL and times its next start to the first acknowledged send; prints markdown.

    bench/recovery.py                              4 GiB, RocketBox and Apache 5.3.3
    bench/recovery.py --gib 1 --servers rocketbox --queues 1000
    bench/recovery.py --gib 0.2 --servers rocketbox --queues 100000        two topics of 50,000

The load is 1 KiB messages in batches, asynchronous flush, and the kill comes while it runs. Apache's name server is
there before its broker is started, RocketBox starts both. See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.rounds import note
from bench.servers import APACHES, LABELS, ROCKETBOX, TITLES, ApacheServer, RocketBoxServer, Server, make_server

TOPIC = "BenchTopic"
#: A topic may have some more.
MOST_QUEUES = 50_000


def log_bytes(server: Server) -> int:
    """What the log's files take, prepared ones included."""
    return sum(path.stat().st_blocks * 512 for path in server.scratch.rglob("commitlog/*"))


def kill(server: Server) -> None:
    """SIGKILL to the broker, and to what it started with it; its ports are free soon."""
    pids = server.pids
    if isinstance(server, ApacheServer):
        server._apache.broker_server.kill()
        server._apache.namesrv_server.kill()
    else:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    if isinstance(server, RocketBoxServer) and server._process is not None:
        server._process.wait(10)


def measure(server: Server, gib: float, queues: int, rounds: int, loadgen: Path) -> tuple[float, list[float]]:
    """(GiB sent, seconds to the first acknowledgement of each start after a kill)."""
    server.start()
    try:
        count = -(-queues // MOST_QUEUES)
        topics = [TOPIC + (str(number) if number else "") for number in range(count)]
        each = -(-queues // count)
        for topic in topics:
            server.create_topic(topic, each)
        wanted = gib * (1 << 30)
        sent = 0

        def loads(seconds: int) -> list[subprocess.Popen[str]]:
            return [
                subprocess.Popen(
                    [str(loadgen), "batch", "--topic", topic, "--queues", str(each), "--body", "1024", "--batch", "32",
                     "--connections", str(max(1, 8 // count)), "--inflight", "4", "--warm-up", "0",
                     "--broker", server.broker, "--seconds", str(seconds)],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for topic in topics
            ]  # fmt: skip

        while sent < wanted:
            for load in loads(2):
                said, _ = load.communicate(timeout=60)
                if load.returncode:
                    raise RuntimeError(said)
            sent = log_bytes(server)
        found = []
        for _ in range(rounds):
            running = loads(30)
            time.sleep(1.5)
            kill(server)
            for load in running:
                load.communicate(timeout=60)
            time.sleep(1.0)
            found.append(server.time_to_first_ack())
            if isinstance(server, RocketBoxServer):
                deadline = time.monotonic() + 30
                while not server._ready_file.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
        return log_bytes(server) / (1 << 30), found
    finally:
        server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", default=f"{ROCKETBOX},{APACHES[-1]}", help=f"some of {','.join(LABELS)}")
    parser.add_argument("--scratch", type=Path, default=None, help="where the stores go; twice --gib of room")
    options = parser.parse_args(arguments)
    loadgen = build("loadgen")
    print(f"{time.strftime('%Y-%m-%d')}; async flush, 1 KiB messages, {options.queues} queues.\n")
    print("| | log | SIGKILL to a start's first acknowledgement: median | all |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        for label in options.servers.split(","):
            note(f"{TITLES[label]}: {options.gib} GiB")
            server = make_server(label, "async", None, Path(scratch))
            size, found = measure(server, options.gib, options.queues, options.rounds, loadgen)
            times = ", ".join(f"{seconds:.2f}" for seconds in found)
            print(f"| {TITLES[label]} | {size:.1f} GiB | {median(found):.2f} s | {times} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
