"""Costs of access control and TLS, in processor time of the server for each message.

    .venv/bin/python bench/doors.py                     both parts
    .venv/bin/python bench/doors.py --parts access      sends and pulls, plain and signed, of both twins
    .venv/bin/python bench/doors.py --parts tls         sends and pulls by TLS, beside Apache
    .venv/bin/python bench/doors.py --parts handshakes  plain sends beside hostile handshakes

Servers are measured in turns, as in `bench/run.py`; a figure is the median of all rounds. The rate depends on what else
runs on the machine, the processor time hardly does. Apache serves TLS with the certificate of its test mode.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content  # noqa: E402
from bench.build import build  # noqa: E402
from bench.rounds import note, require_twin  # noqa: E402
from bench.rows import PULL_QUEUES, SEND_QUEUES, Bench, fresh_topic_name  # noqa: E402
from bench.servers import PURE, ROCKETBOX, RocketBoxServer, Server, ServerError, make_server  # noqa: E402
from tests.support.apache import ask  # noqa: E402
from tests.support.tls import make_pair  # noqa: E402

NAME, SECRET = "bench", "a secret of the bench"
APACHE = "apache-5.3.3"
PULLED = 32_000


class Guarded(RocketBoxServer):
    """With access control: its requests have to be signed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first = f'{{"username":"{NAME}","password":"{SECRET}"}}'
        self.environment |= {
            "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
            "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": first,
        }

    def create_topic(self, topic: str, queues: int) -> None:
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", ACCESS_KEY: NAME,
        }  # fmt: skip
        fields[SIGNATURE] = SigningKey(SECRET).sign(signed_content(fields, b""))
        answer, _ = ask(self.broker, 17, fields)
        if answer["code"] != 0:
            raise ServerError(f"{self.label} did not create topic {topic}: {answer}")


class Encrypted(RocketBoxServer):
    """With TLS, beside plain connections."""

    def _launch(self, broker_port: int) -> None:
        certificate, key = make_pair(self.scratch)
        self.environment |= {
            "ROCKETBOX_BROKER_TLS_MODE": "permissive",
            "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
            "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        }
        super()._launch(broker_port)


@dataclass(frozen=True)
class Column:
    """A server that is measured. base: title of the column that it is compared with. options: of the generator."""

    title: str
    make: Callable[[Path, str | None], Server]
    options: dict[str, Any]
    base: str = ""


def _ours(kind: type[RocketBoxServer], label: str) -> Callable[[Path, str | None], Server]:
    return lambda scratch, cpus: kind(label, "async", cpus, scratch)


# Signed where nothing is checked, too: the same generator, the same bytes.
_SIGN = {"sign": f"{NAME}:{SECRET}"}
ACCESS = (
    Column("compiled, off", _ours(RocketBoxServer, ROCKETBOX), _SIGN),
    Column("compiled, enforce", _ours(Guarded, ROCKETBOX), _SIGN, "compiled, off"),
    Column("pure, off", _ours(RocketBoxServer, PURE), _SIGN),
    Column("pure, enforce", _ours(Guarded, PURE), _SIGN, "pure, off"),
)
TLS = (
    Column("plain", _ours(RocketBoxServer, ROCKETBOX), {}),
    Column("TLS", _ours(Encrypted, ROCKETBOX), {"tls": True}, "plain"),
    Column(
        "Apache 5.3.3, TLS", lambda scratch, cpus: make_server(APACHE, "async", cpus, scratch), {"tls": True}, "TLS"
    ),
)


def _measure(bench: Bench, server: Server, column: Column, pulls: str) -> dict[str, dict[str, Any]]:
    topic = fresh_topic_name()
    server.create_topic(topic, SEND_QUEUES)
    sent = bench.load(server, "send", topic=topic, queues=SEND_QUEUES, connections=64, **column.options)
    pulled = bench.load(
        server, "pull", topic=pulls, group="BenchPullGroup", queues=PULL_QUEUES, connections=16, **column.options
    )
    return {"send 64 x 1 KiB": sent, "pull 32 x 1 KiB, 16 connections": pulled}


def compare(columns: Sequence[Column], bench: Bench, rounds: int, scratch: Path, cpus: str | None) -> int:
    """Measure in turns and print a table; return the number of errors."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    errors = 0
    with contextlib.ExitStack() as stack:
        servers = []
        for column in columns:
            server = column.make(scratch, cpus)
            stack.callback(server.stop)
            server.start()
            require_twin(server)
            pulls = fresh_topic_name()
            server.create_topic(pulls, PULL_QUEUES)
            fill = {"topic": pulls, "queues": PULL_QUEUES, "connections": 16, "messages": PULLED}
            bench.load(server, "send", **fill, **column.options)
            _measure(bench, server, column, pulls)
            server.freeze()
            servers.append((column, server, pulls))
        for number in range(rounds):
            for column, server, pulls in servers:
                os.sync()
                server.thaw()
                for load, result in _measure(bench, server, column, pulls).items():
                    found.setdefault(load, {}).setdefault(column.title, []).append(result)
                    errors += result["errors"]
                    if result["errors"]:
                        note(f"{column.title}: {result['first_error']}")
                server.freeze()
            note(f"round {number + 1} of {rounds}")
    for load, of_columns in found.items():
        cpu = {
            title: median(one["watched_cpu_s"] * 1e6 / max(one["messages"], 1) for one in results)
            for title, results in of_columns.items()
        }
        print(f"\n| {load} | messages/s | CPU for 1,000 | to |\n|---|---:|---:|---|")
        for column in columns:
            results = of_columns[column.title]
            rate = median(one["rate"] for one in results)
            ratio = f"{cpu[column.title] / cpu[column.base]:.3f} x {column.base}" if column.base else ""
            print(f"| {column.title} | {rate:,.0f} | {cpu[column.title]:.2f} ms | {ratio} |", flush=True)
    return errors


# ---------------------------------------------------------------- hostile handshakes

HALF_OPEN = 10_000


def _garbage(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=10) as sock, contextlib.suppress(OSError):
        sock.sendall(b"\x16\x03\x01\x07\xd0" + os.urandom(2000))
        sock.recv(1000)


def _whole(address: tuple[str, int]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=10) as sock:
        context.wrap_socket(sock).close()


@contextlib.contextmanager
def _repeated(act: Callable[[tuple[str, int]], None], address: tuple[str, int]) -> Iterator[list[int]]:
    done = [0]
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            with contextlib.suppress(OSError):
                act(address)
            done[0] += 1

    threads = [threading.Thread(target=run, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _half_open(address: tuple[str, int]) -> Iterator[list[int]]:
    """Handshakes that are begun and not gone on with, all at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    socks: list[socket.socket] = []
    for _ in range(HALF_OPEN):
        with contextlib.suppress(OSError):
            sock = socket.create_connection(address, timeout=10)
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
            socks.append(sock)
    try:
        yield [len(socks)]
    finally:
        for sock in socks:
            sock.close()


def handshakes(bench: Bench, scratch: Path, cpus: str | None) -> int:
    """Print the latency of plain sends at a fixed rate alone, and beside hostile handshakes; return errors."""
    server = Encrypted(ROCKETBOX, "async", cpus, scratch)
    errors = 0
    try:
        server.start()
        host, _, port = server.broker.rpartition(":")
        address = host, int(port)
        kinds: dict[str, Callable[[], contextlib.AbstractContextManager[list[int]]]] = {
            "nothing": lambda: contextlib.nullcontext([0]),
            "garbage": lambda: _repeated(_garbage, address),
            "whole handshakes": lambda: _repeated(_whole, address),
            "half-open ones": lambda: _half_open(address),
        }
        print("\n| beside | begun a second | p50 | p99 | errors |\n|---|---:|---:|---:|---:|")
        for name, kind in kinds.items():
            topic = fresh_topic_name()
            server.create_topic(topic, SEND_QUEUES)
            with kind() as done:
                began, before = time.monotonic(), done[0]
                load = {"topic": topic, "queues": SEND_QUEUES, "connections": 16, "rate": 2000}
                result = bench.load(server, "paced", **load)
                rate = (done[0] - before) / (time.monotonic() - began)
            errors += result["errors"]
            p50, p99 = (result["latency_us"][quantile] / 1000 for quantile in ("p50", "p99"))
            told = f"{done[0]} held" if kind is kinds["half-open ones"] else f"{rate:,.0f}"
            print(f"| {name} | {told} | {p50:.2f} ms | {p99:.2f} ms | {result['errors']} |", flush=True)
    finally:
        server.stop()
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="access,tls,handshakes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--columns", help="comma list of beginnings of the columns' titles; default all")
    parser.add_argument("--dir", help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    scratch = Path(options.dir) if options.dir else Path(os.environ.get("TMPDIR", "/tmp"))
    bench = Bench(build("loadgen"), options.seconds, 1.0, None)
    errors = 0
    wanted = tuple((options.columns or "").split(","))
    for part, columns in (("access", ACCESS), ("tls", TLS)):
        if part in options.parts.split(","):
            chosen = [column for column in columns if column.title.startswith(wanted)]
            errors += compare(chosen, bench, options.rounds, scratch, None)
    if "handshakes" in options.parts.split(","):
        errors += handshakes(bench, scratch, None)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
