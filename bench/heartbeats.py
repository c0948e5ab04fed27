#!/usr/bin/env python3
"""Many clients that only send heartbeats: what they cost the broker; prints markdown.

    bench/heartbeats.py                                            1,000 groups of 100 clients, a heartbeat each 30 s
    bench/heartbeats.py --groups 10 --clients 10 --period 1 --seconds 2 --servers rocketbox

Each client is a connection of its own, whose heartbeat is that of the Java client 5.3.3: one consumer group with a
topic and its retry topic, and CLIENT_INNER_PRODUCER. They come evenly spread over the period; every answer is
checked, and what the broker tells of other members (40) is read. CPU is what all processes of a server took meanwhile.
Connections come from several loopback addresses, since one has too few ports. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.rounds import note
from bench.servers import APACHES, ROCKETBOX, Server, cpu_seconds, make_server, resident_bytes

#: Connections from one source address: below the usual range of 28,232 local ports.
_PORTS_AN_ADDRESS = 20_000
#: Connections that are opened before what came is read.
_OPENED_AT_ONCE = 200
#: Linux: the port is chosen at connect, so that the same one may go to several destinations.
_IP_BIND_ADDRESS_NO_PORT = 24
_TOPIC = "HeartbeatTopic"


def heartbeat(number: int, group: str) -> bytes:
    """The frame of client `number`."""
    wanted = [
        {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": "TAG",
            "subString": "*",
            "subVersion": 1795255036092 + number,
            "tagsSet": [],
            "topic": topic,
        }
        for topic in (_TOPIC, f"%RETRY%{group}")
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": wanted,
        "unitMode": False,
    }
    said = {
        "clientID": f"10.0.{number >> 8 & 255}.{number & 255}@{number}",
        "consumerDataSet": [consumer],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "withoutSub": False,
    }
    body = json.dumps(said, separators=(",", ":")).encode()
    header = b'{"code":34,"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}' % (
        number & 0x7FFFFFFF
    )
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class Clients:
    """All connections; one thread, one epoll. answered, refused: answers to heartbeats; notices: what came unasked."""

    def __init__(self, broker: str, groups: int, clients: int) -> None:
        host, _, port = broker.rpartition(":")
        self._target = (host, int(port))
        self._groups = groups
        self._count = groups * clients
        self._epoll = select.epoll()
        self._socks: dict[int, socket.socket] = {}
        self._order: list[socket.socket] = []
        self._rest: dict[int, bytes] = {}
        self.answered = self.refused = self.notices = self.sent = 0

    def open(self) -> None:
        """Connect all and have each say its first heartbeat."""
        for number in range(self._count):
            sock = socket.socket()
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((f"127.0.0.{2 + number // _PORTS_AN_ADDRESS}", 0))
            sock.connect(self._target)
            sock.setblocking(False)
            self._socks[sock.fileno()] = sock
            self._order.append(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._beat(number)
            if number % _OPENED_AT_ONCE == 0:
                self._wait_for_answers()
        self._wait_for_answers()

    def beat_for(self, seconds: float, period: float) -> float:
        """Heartbeats at their times; the seconds that passed."""
        begin = time.perf_counter()
        step = period / self._count
        done = 0
        while (now := time.perf_counter() - begin) < seconds:
            due = int(now / step)
            while done < due:
                self._beat(done % self._count)
                done += 1
            self._read(min(0.01, step))
        self._wait_for_answers()
        return time.perf_counter() - begin

    def _beat(self, number: int) -> None:
        # Groups by turns, so that all members of one group do not come together.
        self._order[number].sendall(heartbeat(number, f"HeartbeatGroup-{number % self._groups}"))
        self.sent += 1

    def _wait_for_answers(self, seconds: float = 60.0) -> None:
        deadline = time.perf_counter() + seconds
        while self.answered + self.refused < self.sent and time.perf_counter() < deadline:
            self._read(0.05)

    def _read(self, seconds: float) -> None:
        for fd, _ in self._epoll.poll(seconds, 4096):
            try:
                data = self._socks[fd].recv(1 << 16)
            except BlockingIOError:
                continue
            if not data:
                raise ConnectionError("the broker closed a connection")
            self._take(fd, self._rest.pop(fd, b"") + data)

    def _take(self, fd: int, data: bytes) -> None:
        at = 0
        while len(data) - at >= 8:
            (length,) = struct.unpack_from(">i", data, at)
            if len(data) - at < 4 + length:
                break
            head = data[at + 8 : at + 8 + 24]
            if b'"flag":1' not in data[at : at + 4 + length]:
                self.notices += 1
            elif head.startswith(b'{"code":0,'):
                self.answered += 1
            else:
                self.refused += 1
            at += 4 + length
        if at < len(data):
            self._rest[fd] = data[at:]

    def close(self) -> None:
        self._epoll.close()
        for sock in self._order:
            sock.close()


def measure(server: Server, options: argparse.Namespace) -> tuple[float, float]:
    """Print a row; (CPUs used, us a heartbeat)."""
    server.create_topic(_TOPIC, 8)
    before = resident_bytes(server.pids)
    clients = Clients(server.broker, options.groups, options.clients)
    try:
        begin = time.perf_counter()
        clients.open()
        note(f"{server.label}: all connected in {time.perf_counter() - begin:.1f} s, {clients.notices} notices")
        clients.beat_for(options.warm_up, options.period)
        sent, used = clients.sent, cpu_seconds(server.pids)
        took = clients.beat_for(options.seconds, options.period)
        used = cpu_seconds(server.pids) - used
        beats = clients.sent - sent
        missing = clients.sent - clients.answered
        grown = (resident_bytes(server.pids) - before) / (1 << 20)
        each = used / beats * 1e6 if beats else float("nan")
        count = options.groups * options.clients
        print(
            f"| {server.label} | {count} | {beats / took:.0f} | {missing} | {used / took * 100:.2f} | {each:.1f} | "
            f"{grown:.0f} |",
            flush=True,
        )
        return used / took, each
    finally:
        clients.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=100, help="of each group")
    parser.add_argument("--period", type=float, default=30.0, help="seconds between two heartbeats of a client")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds of heartbeats that do not count")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--servers", default=",".join((ROCKETBOX, *APACHES)))
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    needed = options.groups * options.clients + 8192  # as many in the broker, with its files
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, hard), max(needed, hard)))
    except (OSError, ValueError):
        print(f"{needed} descriptors are needed, {hard} is the hard limit: raise it, or fewer clients", file=sys.stderr)
        return 1
    print("| server | clients | heartbeats/s | not answered 0 | CPU, % of a core | us a heartbeat | memory, MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    found: dict[str, float] = {}
    for label in options.servers.split(","):
        server = make_server(label, "async", None, options.dir)
        try:
            server.start()
            found[label], _ = measure(server, options)
        finally:
            server.stop()
    apaches = [cpus for label, cpus in found.items() if label in APACHES]
    if ROCKETBOX in found and apaches:
        print(f"\nRocketBox over the better Apache: {found[ROCKETBOX] / min(apaches):.2f} (goal: at most 0.25)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
