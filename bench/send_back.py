#!/usr/bin/env python3
"""Measures sends beside messages that consumers send back (36), and prints markdown.

    bench/send_back.py                      5,000 send-backs a second, about three minutes
    bench/send_back.py --rate 10000 --only rocketbox,apache-5.3.3

Of each server: the latency of 1,000 sends a second to one topic, alone, and while messages of another topic are sent
back at a fixed rate, spread over 20 groups, each to wait two hours. Interleaved rounds, the servers that wait are
frozen. Every send-back must be answered with 0. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.key_query import Asker
from bench.rounds import note
from bench.rows import SEND_QUEUES, Bench, LoadError
from bench.run import pinning
from bench.servers import LABELS, ROCKETBOX, TITLES, Server, make_server

UNRELATED, CONSUMED = "BenchUnrelated", "BenchConsumed"
SEND_RATE = 1000
GROUPS = 20
#: Messages that are sent back, again and again: consumed a moment ago, so in the page cache.
MESSAGES, BODY_BYTES = 2000, 1024
#: The highest level: two hours.
LEVEL = 18
#: Requests are written as often as this, those that are due by then together.
TICK_S = 0.001
DRAIN_S = 5.0


class Beside(NamedTuple):
    """One round beside send-backs: how many a second were answered, the slowest hundredth of them in ms, and the
    latency of the sends in us."""

    rate: float
    p99_ms: float
    sends: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    server_cpus, generator_cpus = pinning(options.pin)
    bench = Bench(build("loadgen"), options.seconds, 1.0, generator_cpus)
    scratch = Path(options.dir or tempfile.gettempdir())
    print(
        f"{time.strftime('%Y-%m-%d')}; {options.rounds} rounds of {options.seconds:g} s, medians; pin {options.pin}; "
        f"{options.flush} flush.\n"
    )
    print(measure(options, bench, server_cpus, scratch), flush=True)
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=5000, help="messages sent back a second")
    parser.add_argument("--connections", type=int, default=4, help="of consumers that send back")
    parser.add_argument("--flush", choices=("async", "sync"), default="async")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", default=",".join(LABELS))
    parser.add_argument("--pin", choices=("split", "none"), default="split")
    parser.add_argument("--dir", help="where stores are written")
    return parser.parse_args(arguments)


class SendBacks:
    """Consumers that send messages back at a fixed rate; a stall is charged to every request it delayed."""

    def __init__(self, server: Server, connections: int) -> None:
        self._label = server.label
        host, _, port = server.broker.rpartition(":")
        self._offsets = self._fill(server)
        self._sockets = [socket.create_connection((host, int(port)), 10) for _ in range(connections)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = dict.fromkeys(self._sockets, b"")
        self._number = 0

    @staticmethod
    def _fill(server: Server) -> list[int]:
        """Where the messages lie."""
        server.create_topic(CONSUMED, SEND_QUEUES)
        asker = Asker(server.broker)
        found = []
        for number in range(MESSAGES):
            asker.send(
                310, number, b"x" * BODY_BYTES, a="BenchGroup", b=CONSUMED, c="TBW102", d=SEND_QUEUES,
                e=number % SEND_QUEUES, f=0, g=int(time.time() * 1000), h=0,
                i=f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01TagA\x02", j=0, k="false", m="false",
                n="broker-a",
            )  # fmt: skip
            answer, _ = asker.receive()
            if answer["code"] == 0:  # a cold JVM refuses some
                found.append(int(answer["extFields"]["msgId"][16:], 16))
        asker.close()
        if len(found) < MESSAGES // 2:
            raise LoadError(f"{server.label} could not be filled: {answer}")
        return found

    def run(self, rate: int, seconds: float, strict: bool = True) -> tuple[float, float]:
        """(answered with 0 a second, p99 in ms) over `seconds`; strict: any other answer is an error."""
        begin = time.monotonic()
        count, total = 0, int(rate * seconds)
        took: list[float] = []
        due: dict[int, float] = {}
        while count < total or due:
            now = time.monotonic()
            while count < total and begin + count / rate <= now:
                due[self._number] = begin + count / rate
                self._ask()
                count += 1
            if now > begin + seconds + DRAIN_S:
                raise LoadError(f"{self._label}: {len(due)} of {total} send-backs were not answered")
            for one in select.select(self._sockets, [], [], TICK_S)[0]:
                for answer in self._answers(one):
                    asked_at = due.pop(answer["opaque"])
                    if answer["code"] == 0:
                        took.append(time.monotonic() - asked_at)
                    elif strict:
                        raise LoadError(f"{self._label}: {answer}")
        took.sort()
        return len(took) / (time.monotonic() - begin), took[int(len(took) * 0.99)] * 1000 if took else 0.0

    def _ask(self) -> None:
        number = self._number
        self._number += 1
        offset = self._offsets[number % len(self._offsets)]
        fields = {
            "delayLevel": str(LEVEL), "group": f"BenchBack{number % GROUPS}", "maxReconsumeTimes": "16",
            "offset": str(offset), "originMsgId": f"{number % MESSAGES:032X}", "originTopic": CONSUMED,
            "unitMode": "false",
        }  # fmt: skip
        request = {"code": 36, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": number, "version": 479}
        header = json.dumps(request, separators=(",", ":")).encode()
        frame = struct.pack(">ii", 4 + len(header), len(header)) + header
        self._sockets[number % len(self._sockets)].sendall(frame)

    def _answers(self, one: socket.socket) -> list[dict[str, int]]:
        data = one.recv(1 << 20)
        if not data:
            raise LoadError(f"{self._label} closed the connection")
        data = self._unread[one] + data
        found = []
        while len(data) >= 8:
            length, header = struct.unpack_from(">iI", data)
            if len(data) < 4 + length:
                break
            answer = json.loads(data[8 : 8 + (header & 0xFFFFFF)])
            if answer["flag"] & 1:  # a broker may ask something itself
                found.append(answer)
            data = data[4 + length :]
        self._unread[one] = data
        return found

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def measure(options: argparse.Namespace, bench: Bench, cpus: str | None, scratch: Path) -> str:
    """p99 of unrelated sends alone and beside send-backs, of each server."""
    backs: dict[str, tuple[Server, SendBacks]] = {}
    rounds: dict[str, list[tuple[dict[str, float], Beside]]] = {}
    try:
        for label in options.only.split(","):
            server = make_server(label, options.flush, cpus, scratch)
            try:
                server.start()
                server.create_topic(UNRELATED, SEND_QUEUES)
                backs[label] = server, SendBacks(server, options.connections)
            except BaseException:
                server.stop()
                raise
            _both(server, backs[label][1], bench, options.rate, max(options.seconds, 3), strict=False)
            server.freeze()
        for number in range(1, options.rounds + 1):
            for label, (server, one) in backs.items():
                server.thaw()
                alone = _sends(server, bench, options.seconds)
                beside = _both(server, one, bench, options.rate, options.seconds)
                server.freeze()
                rounds.setdefault(label, []).append((alone, beside))
                note(
                    f"round {number} {label}: send p99 {alone['p99'] / 1000:.2f} ms alone, "
                    f"{beside.sends['p99'] / 1000:.2f} ms beside {beside.rate:,.0f} send-backs a second"
                )
    finally:
        for server, one in backs.values():
            one.close()
            server.stop()
    lines = [
        f"{SEND_RATE:,} sends a second beside {options.rate:,} messages sent back a second",
        "",
        "| | send p99 alone | beside | ratio | send-backs/s | their p99 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    beside_ms: dict[str, float] = {}
    for label, samples in rounds.items():
        alone_ms = median(alone["p99"] for alone, _ in samples) / 1000
        beside_ms[label] = median(beside.sends["p99"] for _, beside in samples) / 1000
        rate, p99 = (median(getattr(beside, name) for _, beside in samples) for name in ("rate", "p99_ms"))
        lines.append(
            f"| {TITLES[label]} | {alone_ms:.2f} ms | {beside_ms[label]:.2f} ms | {beside_ms[label] / alone_ms:.2f} "
            f"| {rate:,.0f} | {p99:.2f} ms |"
        )
    if ROCKETBOX in rounds:
        lines += ["", "Goal: ratio ≤ 2."]
        others = [value for label, value in beside_ms.items() if label != ROCKETBOX]
        if others:
            lines[-1] += f" Beside send-backs: {beside_ms[ROCKETBOX] / min(others):.2f} of the better Apache's p99."
    return "\n".join(lines)


def _sends(server: Server, bench: Bench, seconds: float) -> dict[str, float]:
    """The latency of sends alone, in us."""
    result = bench.load(
        server, "paced", topic=UNRELATED, queues=SEND_QUEUES, rate=SEND_RATE, connections=8, seconds=seconds
    )
    if result["errors"]:
        raise LoadError(f"{server.label}: {result['first_error']}")
    found: dict[str, float] = result["latency_us"]
    return found


def _both(server: Server, backs: SendBacks, bench: Bench, rate: int, seconds: float, strict: bool = True) -> Beside:
    command = bench.command(
        server, "paced", topic=UNRELATED, queues=SEND_QUEUES, rate=SEND_RATE, connections=8, seconds=seconds
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
        answered, p99_ms = backs.run(rate, bench.warm_up + seconds, strict)
        assert generator.stdout is not None
        sends = json.loads(generator.stdout.readline())
    if sends["errors"] and strict:
        raise LoadError(f"{server.label}: {sends['first_error']}")
    return Beside(answered, p99_ms, sends["latency_us"])


if __name__ == "__main__":
    sys.exit(main())
