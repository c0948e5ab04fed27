#!/usr/bin/env python3
"""Measures queries by unique key beside running sends, and sends beside running queries, and prints markdown.

    bench/key_query.py                          a million messages on each server, about three minutes
    bench/key_query.py --messages 10000000      as many as the goal names: some ten minutes, 12 GB of disk

Every server is filled in batches, then asked for random messages by unique key, one after the other, while a generator
sends 5,000 messages a second to it; interleaved rounds, the servers that wait are frozen. Every answer must hold
exactly what was asked for. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.build import build
from bench.rounds import note
from bench.rows import SEND_QUEUES, Bench, LoadError
from bench.run import pinning
from bench.servers import LABELS, ROCKETBOX, TITLES, Server, make_server

TOPIC = "BenchKeys"
SEND_RATE = 5000
#: Messages of a batch a server is filled with, and batches that wait for their answers.
FILL_BATCH, FILL_WINDOW = 256, 4
#: How often a batch that was refused is sent again: a cold JVM refuses what waits too long in its queue.
FILL_TRIES = 50
FOREVER = (1 << 63) - 1
#: The generator's.
UNIQUE_PREFIX = "7F0000016AB14E0E"
#: How long a server may take to index what it was filled with.
INDEXED_S = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    server_cpus, generator_cpus = pinning(options.pin)
    bench = Bench(build("loadgen"), options.seconds, 1.0, generator_cpus)
    scratch = Path(options.dir or tempfile.gettempdir())
    print(
        f"{time.strftime('%Y-%m-%d')}; {options.rounds} rounds of {options.seconds:g} s, medians; pin {options.pin}.\n"
    )
    print(measure_queries(options, bench, server_cpus, scratch), flush=True)
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="on each server before it is asked")
    parser.add_argument("--body", type=int, default=100, help="bytes of the messages it is filled with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", default=",".join(LABELS))
    parser.add_argument("--pin", choices=("split", "none"), default="split")
    parser.add_argument("--dir", help="where stores are written")
    return parser.parse_args(arguments)


class Asker:
    """One connection that queries one message after the other."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, code: int, **fields: object) -> tuple[dict[str, Any], bytes]:
        self.send(code, 1, b"", **fields)
        return self.receive()

    def send(self, code: int, opaque: int, body: bytes, **fields: object) -> None:
        named = {name: str(value) for name, value in fields.items()}
        request = {"code": code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": 0, "extFields": named}
        header = json.dumps(request, separators=(",", ":")).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        while True:
            (length,) = struct.unpack(">i", self._receive(4))
            frame = self._receive(length)
            size = struct.unpack_from(">i", frame)[0] & 0xFFFFFF
            answer = json.loads(frame[4 : 4 + size])
            if answer["flag"] & 1:  # a broker may ask something itself
                return answer, frame[4 + size :]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise LoadError("the broker closed the connection")
            data += chunk
        return data

    def query(self, key: str) -> bytes:
        answer, body = self.ask(
            12, topic=TOPIC, key=key, maxNum=32, beginTimestamp=0, endTimestamp=FOREVER, _UNIQUE_KEY_QUERY="true"
        )  # fmt: skip
        if answer["code"] != 0:
            raise LoadError(f"no message {key}: {answer['code']} {answer.get('remark')}")
        return body

    def close(self) -> None:
        self._socket.close()


class Filled:
    """A server with messages, and the unique keys it was given."""

    def __init__(self, server: Server, messages: int, body: int) -> None:
        self.server = server
        self.count = messages
        #: The last 16 digits of the first unique key; later the generator's come, which begin with their own time.
        self._first = (int(time.time() * 1000) << 24) & 0xFFFFFFFFFFFFFFFF
        server.create_topic(TOPIC, SEND_QUEUES)
        asker = Asker(server.broker)
        begin = time.monotonic()
        self._fill(asker, body)
        filled = time.monotonic()
        while True:
            try:
                asker.query(self.key(self.count - 1))
                break
            except LoadError:
                if time.monotonic() - filled > INDEXED_S:
                    raise
                time.sleep(0.2)
        asker.close()
        note(
            f"{server.label}: {self.count:,} messages in {filled - begin:.1f} s, "
            f"indexed {time.monotonic() - filled:.1f} s after the last"
        )

    def _fill(self, asker: Asker, body: int) -> None:
        """Batches without a unique key of their own, under which Apache would index all members."""
        to_send = deque(range(0, self.count, FILL_BATCH))
        waiting: set[int] = set()
        refused = 0
        while to_send or waiting:
            while to_send and len(waiting) < FILL_WINDOW:
                begin = to_send.popleft()
                waiting.add(begin)
                asker.send(
                    320, begin, self._batch(begin, body), a="BenchGroup", b=TOPIC, c="TBW102", d=SEND_QUEUES,
                    e=begin // FILL_BATCH % SEND_QUEUES, f=0, g=int(time.time() * 1000), h=0, i="WAIT\x01true\x02", j=0,
                    k="false", m="true", n="broker-a",
                )  # fmt: skip
            answer, _ = asker.receive()
            waiting.remove(answer["opaque"])
            if answer["code"] != 0:
                refused += 1
                if refused > FILL_TRIES:
                    raise LoadError(f"{self.server.label} could not be filled: {answer.get('remark')}")
                time.sleep(0.1)
                to_send.appendleft(answer["opaque"])

    def _batch(self, begin: int, body: int) -> bytes:
        """The members from number `begin` on: size, magic, CRC, flag, body, properties each."""
        head, tail = b"UNIQ_KEY\x01" + UNIQUE_PREFIX.encode(), b"\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        size = len(head) + 16 + len(tail)
        head = struct.pack(">iiiii", 22 + body + size, 0, 0, 0, body) + b"x" * body + struct.pack(">h", size) + head
        numbers = range(self._first + begin, self._first + min(begin + FILL_BATCH, self.count))
        return b"".join([head + b"%016X" % number + tail for number in numbers])

    def key(self, number: int) -> str:
        return f"{UNIQUE_PREFIX}{self._first + number:016X}"


def measure_queries(options: argparse.Namespace, bench: Bench, cpus: str | None, scratch: Path) -> str:
    """p50 and p99 of queries by unique key, and of the sends beside them."""
    filled: dict[str, Filled] = {}
    rounds: dict[str, list[tuple[list[float], dict[str, float]]]] = {}
    try:
        for label in options.only.split(","):
            server = make_server(label, "async", cpus, scratch)
            try:
                server.start()
                filled[label] = Filled(server, options.messages, options.body)
            except BaseException:
                server.stop()
                raise
            _ask_for(filled[label], bench, max(options.seconds, 3), warm_up=True)
            server.freeze()
        for number in range(1, options.rounds + 1):
            for label, one in filled.items():
                one.server.thaw()
                took, sends = _ask_for(one, bench, options.seconds)
                one.server.freeze()
                rounds.setdefault(label, []).append((took, sends))
                note(f"round {number} {label}: {len(took)} queries, p99 {_at(took, 0.99):.2f} ms")
    finally:
        for one in filled.values():
            one.server.stop()
    lines = [
        f"Query by unique key among {options.messages:,} messages, {SEND_RATE:,} sends a second beside it",
        "",
        "| | query p50 | query p99 | queries/s | send p50 | send p99 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    queries: dict[str, float] = {}
    sends: dict[str, float] = {}
    for label, samples in rounds.items():
        p50, queries[label] = (median(_at(took, share) for took, _ in samples) for share in (0.5, 0.99))
        rate = median(len(took) for took, _ in samples) / options.seconds
        send_p50, sends[label] = (median(found[name] for _, found in samples) / 1000 for name in ("p50", "p99"))
        lines.append(
            f"| {TITLES[label]} | {p50:.2f} ms | {queries[label]:.2f} ms | {rate:,.0f} "
            f"| {send_p50:.2f} ms | {sends[label]:.2f} ms |"
        )
    if ROCKETBOX in rounds and len(rounds) > 1:
        lines.append("")
        for title, goal, found in (
            ("query p99 beside sends", "≤ 1/2", queries),
            ("send p99 beside queries", "≤ 1", sends),
        ):
            better = min(value for label, value in found.items() if label != ROCKETBOX)
            lines.append(f"{title}: {found[ROCKETBOX] / better:.2f} of the better Apache's (goal {goal})  ")
    return "\n".join(lines)


def _ask_for(
    filled: Filled, bench: Bench, seconds: float, warm_up: bool = False
) -> tuple[list[float], dict[str, float]]:
    """(milliseconds of each query, latency of the sends in us) over `seconds` of sends at the fixed rate.

    warm_up: sends may be refused, as a cold JVM refuses what waits 200 ms in its queue.
    """
    command = bench.command(
        filled.server, "paced", topic=TOPIC, queues=SEND_QUEUES, rate=SEND_RATE, connections=16, seconds=seconds + 1
    )
    took = []
    asker, chance = Asker(filled.server.broker), random.Random(1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
        time.sleep(1.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            key = filled.key(chance.randrange(filled.count))
            begin = time.perf_counter()
            body = asker.query(key)
            took.append((time.perf_counter() - begin) * 1000)
            if body.count(key.encode()) != 1:
                raise LoadError(f"{filled.server.label}: another message than {key}")
        assert generator.stdout is not None
        sends = json.loads(generator.stdout.readline())
    asker.close()
    if sends["errors"] and not warm_up:
        raise LoadError(f"{filled.server.label}: {sends['first_error']}")
    return took, sends["latency_us"]


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    sys.exit(main())
