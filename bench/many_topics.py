#!/usr/bin/env python3
"""Creates many topics one after the other, and says what that costs beside it; prints markdown.

    bench/many_topics.py                                   10,000 topics of 4 queues with RocketBox, 1,000 with Apache
    bench/many_topics.py --topics 1000 --servers rocketbox

Each topic: UPDATE_AND_CREATE_TOPIC (17) to the broker, one route query to the name server until it is there, one
message to each of its queues. Beside it another connection sends to a topic of its own, one message after the other,
200 a second; its latencies are compared with those of the same sends before. Apache's figure is a time for fewer
topics: its cost of a topic grows with their number, so multiplying it up favours Apache. See bench/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.rounds import note
from bench.servers import APACHES, LABELS, ROCKETBOX, TITLES, Server, make_server, resident_bytes
from tests.support.engine import Peer, send_fields

QUEUES = 4
UNRELATED = "Unrelated"
RATE = 200.0
BEFORE_S = 3.0


class Figures(NamedTuple):
    label: str
    topics: int
    seconds: float
    route_ms: float
    grown_bytes: int
    before_ms: tuple[float, float]
    beside_ms: tuple[float, float]
    errors: int


class Sends:
    """Sends on a thread of its own, RATE a second, until `stop`; remembers how long each took."""

    def __init__(self, broker: str) -> None:
        self._peer = Peer(broker)
        self._seconds: list[float] = []
        self._stopped = False
        self.errors = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            begin = time.monotonic()
            answer = self._peer.ask(310, send_fields(UNRELATED), b"x" * 100)
            self._seconds.append(time.monotonic() - begin)
            self.errors += answer.code != 0
            due = max(due + 1 / RATE, begin)
            time.sleep(max(0.0, due - time.monotonic()))

    def take(self) -> tuple[float, float]:
        """(p50, p99) in ms since the last time."""
        found, self._seconds = sorted(self._seconds), []
        return found[len(found) // 2] * 1000, found[int(len(found) * 0.99)] * 1000

    def stop(self) -> None:
        self._stopped = True
        self._thread.join(10)
        self._peer.close()


def create(peer: Peer, name: str) -> int:
    fields: dict[str, Any] = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return peer.ask(17, fields).code


def measure(server: Server, topics: int) -> Figures:
    """One run from an empty store."""
    server.start()
    try:
        broker, namesrv = Peer(server.broker), Peer(server.namesrv)
        assert create(broker, UNRELATED) == 0
        sends = Sends(server.broker)
        time.sleep(1.0)
        sends.take()
        time.sleep(BEFORE_S)
        before = sends.take()
        resident = resident_bytes(server.pids)
        errors = 0
        waited = 0.0
        begin = time.monotonic()
        for number in range(topics):
            name = f"many-{number:06d}"
            errors += create(broker, name) != 0
            asked = time.monotonic()
            while namesrv.ask(105, {"topic": name}).code != 0:
                time.sleep(0.001)
            waited += time.monotonic() - asked
            for queue_id in range(QUEUES):
                errors += broker.ask(310, send_fields(name, queue_id), b"x").code != 0
        seconds = time.monotonic() - begin
        beside = sends.take()
        time.sleep(3.0)  # queue files are made behind the sends
        grown = resident_bytes(server.pids) - resident
        sends.stop()
        return Figures(
            server.label, topics, seconds, waited / topics * 1000, grown, before, beside, errors + sends.errors
        )
    finally:
        server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000, help="with RocketBox")
    parser.add_argument("--apache-topics", type=int, default=1_000)
    parser.add_argument("--servers", default=f"{ROCKETBOX},{APACHES[-1]}", help=f"some of {','.join(LABELS)}")
    parser.add_argument("--flush", default="async", choices=("async", "sync"))
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for label in options.servers.split(","):
            note(f"{TITLES[label]}: topics")
            count = options.topics if label == ROCKETBOX else options.apache_topics
            rows.append(measure(make_server(label, options.flush, None, Path(scratch)), count))
    print(f"{time.strftime('%Y-%m-%d')}; {options.flush} flush, {QUEUES} queues a topic.\n")
    print("| | topics | time | a topic | memory | unrelated send before: p50, p99 | beside: p50, p99 | errors |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {TITLES[row.label]} | {row.topics:,} | {row.seconds:.1f} s | {row.seconds / row.topics * 1000:.2f} ms "
            f"(route {row.route_ms:.2f}) | +{row.grown_bytes / 1e6:.0f} MB | "
            f"{row.before_ms[0]:.2f}, {row.before_ms[1]:.2f} ms | {row.beside_ms[0]:.2f}, {row.beside_ms[1]:.2f} ms | "
            f"{row.errors} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
