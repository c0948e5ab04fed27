"""What the leader stores cost a member: time of a swap and of a read, and the memory of the client.

    .venv/bin/python bench/leader_stores.py [--calls 2000]

Starts etcd with one and with three members and ZooKeeper with one, on this machine and its temporary directory, and
asks each from a process of its own. One line a store: milliseconds, and KiB of the process's memory that came with the
client and its first calls.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: As a set's state with three members and a few elections.
VALUE_BYTES = 700


def measure(url: str, calls: int) -> dict[str, float]:
    """In the process that asks."""
    sys.path.insert(0, str(ROOT))
    # What an engine has loaded anyway.
    import appliance.engine.engine  # noqa: F401
    from appliance.engine.failover.stores import open_store

    before = _rss_kib()
    store = open_store(url)
    swaps, reads = [], []
    revision = store.swap("/rocketbox/bench/state", bytes(VALUE_BYTES), None)
    store.read("/rocketbox/bench/state")
    added = _rss_kib() - before
    for _ in range(calls):
        start = time.perf_counter()
        revision = store.swap("/rocketbox/bench/state", bytes(VALUE_BYTES), revision)
        swaps.append(time.perf_counter() - start)
        start = time.perf_counter()
        store.read("/rocketbox/bench/state")
        reads.append(time.perf_counter() - start)
    start_cpu, start = time.process_time(), time.monotonic()
    while time.monotonic() - start < 5.0:
        # A follower's round.
        store.wait("/rocketbox/bench/state", revision, 0.25)
        store.read("/rocketbox/bench/state")
    cpu = (time.process_time() - start_cpu) / (time.monotonic() - start)
    later = _rss_kib() - before
    store.close()
    return {
        "swap p50": _at(swaps, 0.5), "swap p99": _at(swaps, 0.99), "read p50": _at(reads, 0.5),
        "read p99": _at(reads, 0.99), "KiB": added, "KiB later": later, "CPU %": 100 * cpu,
    }  # fmt: skip


def _rss_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _at(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(seconds)[int(len(seconds) * share)] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.url:
        print(json.dumps(measure(options.url, options.calls)))
        return
    sys.path.insert(0, str(ROOT))
    from tests.support.etcd import Etcd
    from tests.support.zookeeper import ZooKeeper

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, store in (
            ("etcd, 1 member", Etcd(place / "etcd1")),
            ("etcd, 3 members", Etcd(place / "etcd3", members=3)),
            ("ZooKeeper, 1 server", ZooKeeper(place / "zookeeper")),
        ):
            with store:
                command = [sys.executable, __file__, "--url", store.url, "--calls", str(options.calls)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"{name:20}", "  ".join(f"{what} {value:.2f}" for what, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
