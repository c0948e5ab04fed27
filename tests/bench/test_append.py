"""Appends to JetStream and Redis: the sent bytes and the answers that are errors; and once to the real servers."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.build import build
from bench.columns import make_column
from bench.others import NATS, REDIS, why_absent


@pytest.fixture(scope="module")
def loadgen() -> Path:
    return build("loadgen", ("-O2", "-Wall", "-Wextra", "-Werror"))


def run(loadgen: Path, address: str, mode: str, *options: object) -> tuple[int, dict[str, Any]]:
    command = [str(loadgen), mode, "--broker", address, *map(str, options)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server with one thread per connection; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


# ---------------------------------------------------------------- JetStream


class Stream:
    """A JetStream of one stream. `answer` makes the acknowledgement of a sequence number."""

    def __init__(self, answer: Callable[[int], str | None]) -> None:
        self.answer = answer
        self.lock = threading.Lock()
        self.bodies: list[bytes] = []
        self.subscriptions: list[str] = []
        self.replies: list[str] = []

    def serve(self, connection: socket.socket) -> None:
        connection.sendall(b'INFO {"server_id":"x","headers":true}\r\n')
        stream = connection.makefile("rb")
        while line := stream.readline():
            words = line.decode().split()
            if words[0] == "SUB":
                self.subscriptions.append(words[1])
            elif words[0] == "PUB":
                assert words[1] == "Orders"
                body = stream.read(int(words[3]) + 2)
                with self.lock:
                    self.bodies.append(body)
                    self.replies.append(words[2])
                    sequence = len(self.bodies)
                    said = self.answer(sequence)
                if sequence == 5:
                    connection.sendall(b"PING\r\n")
                if said is not None:
                    connection.sendall(f"MSG {words[2]} 1 {len(said)}\r\n{said}\r\n".encode())
            else:
                assert words[0] in ("CONNECT", "PONG"), line


def acknowledgement(sequence: int) -> str:
    return f'{{"stream":"Orders", "seq":{sequence}}}'


def test_a_publish_is_acknowledged_by_its_sequence_number(loadgen: Path) -> None:
    stream = Stream(acknowledgement)
    with listening(stream.serve) as address:
        options = ("--topic", "Orders", "--connections", 2, "--inflight", 3, "--messages", 100, "--body", 64)
        status, result = run(loadgen, address, "nats", *options)
    assert (status, result["errors"], result["all_messages"], result["offset_gaps"]) == (0, 0, 100, 0)
    assert {len(body) for body in stream.bodies} == {66}
    assert sorted(stream.subscriptions) == ["_B.0.>", "_B.1.>"]
    assert len(set(stream.replies)) == 100


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda n: '{"error":{"code":503,"description":"no space"},"stream":"Orders","seq":0}', "bad_code"),
        (lambda n: f'{{"stream":"Other", "seq":{n}}}', "bad_code"),
        (lambda n: '{"stream":"Orders"}', "bad_code"),
        (lambda n: acknowledgement(n + 1), "gap"),
        (lambda n: None, "unanswered"),
    ],
    ids=["refused", "another-stream", "no-sequence", "hole", "silence"],
)
def test_a_wrong_acknowledgement_is_an_error(loadgen: Path, answer: Callable[[int], str | None], kind: str) -> None:
    # The 10th gets the wrong answer; after a gap, so do all behind it.
    stream = Stream(lambda n: answer(n) if n == 10 or (kind == "gap" and n > 10) else acknowledgement(n))
    with listening(stream.serve) as address:
        timing = ("--messages", 40) if kind != "unanswered" else ("--seconds", 0.2, "--warm-up", 0)
        status, result = run(loadgen, address, "nats", "--topic", "Orders", "--inflight", 2, *timing)
    assert (status, result["error_kinds"]) == (1, {kind: 1})


def test_an_acknowledgement_that_comes_twice_is_an_error(loadgen: Path) -> None:
    def serve(connection: socket.socket) -> None:
        twice = connection.makefile("rb")
        connection.sendall(b"INFO {}\r\n")
        for sequence, line in enumerate(iter(twice.readline, b""), start=-1):
            if line.startswith(b"PUB"):
                twice.read(int(line.split()[3]) + 2)
                said = acknowledgement(sequence)
                frame = f"MSG {line.split()[2].decode()} 1 {len(said)}\r\n{said}\r\n".encode()
                connection.sendall(frame * (2 if sequence == 5 else 1))

    with listening(serve) as address:
        status, result = run(loadgen, address, "nats", "--topic", "Orders", "--messages", 20)
    assert (status, result["error_kinds"]) == (1, {"unknown_opaque": 1})


# ---------------------------------------------------------------- Redis


class Streams:
    """Redis streams. `answer` makes the reply to the entry of that number (over all keys)."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self.answer = answer
        self.lock = threading.Lock()
        self.entries: dict[str, list[bytes]] = {}
        self.added = 0

    def serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while line := stream.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(stream.readline()[1:])
                words.append(stream.read(size + 2)[:-2])
            key = words[1].decode()
            if words[0] == b"XLEN":
                connection.sendall(b":%d\r\n" % len(self.entries.get(key, ())))
                continue
            assert (words[0], words[2], words[3]) == (b"XADD", b"*", b"b")
            with self.lock:
                said = self.answer(self.added)
                self.added += 1
                self.entries.setdefault(key, []).append(words[4])
            connection.sendall(said)


def entry_id(number: int) -> bytes:
    text = b"1700000000%03d-%d" % (number // 10, number % 10)
    return b"$%d\r\n%s\r\n" % (len(text), text)


def test_entries_are_added_in_turn_and_counted_in_the_end(loadgen: Path) -> None:
    streams = Streams(entry_id)
    with listening(streams.serve) as address:
        options = ("--topic", "Orders", "--queues", 4, "--connections", 2, "--inflight", 3, "--messages", 100)
        status, result = run(loadgen, address, "redis", *options, "--body", 64)
    assert (status, result["errors"], result["all_messages"], result["offset_gaps"]) == (0, 0, 100, 0), result
    assert {key: len(bodies) for key, bodies in streams.entries.items()} == {f"Orders:{i}": 25 for i in range(4)}
    assert {len(body) for bodies in streams.entries.values() for body in bodies} == {64}


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (lambda n: b"-OOM command not allowed\r\n", {"bad_code": 1}),
        (lambda n: b"$4\r\nabcd\r\n", {"bad_answer": 1}),
        (lambda n: entry_id(n - 1), {"bad_answer": 1}),
        (lambda n: b"+OK\r\n", {"closed": 1, "unanswered": 1}),
        (lambda n: entry_id(n) + entry_id(n + 1), {"bad_answer": 1}),
    ],
    ids=["refused", "no-id", "not-above", "another-kind", "twice"],
)
def test_a_wrong_reply_is_an_error(loadgen: Path, answer: Callable[[int], bytes], kinds: dict[str, int]) -> None:
    streams = Streams(lambda n: answer(n) if n == 10 else entry_id(n))
    with listening(streams.serve) as address:
        status, result = run(loadgen, address, "redis", "--topic", "Orders", "--queues", 1, "--messages", 40)
    assert status == 1
    found = {kind: count for kind, count in result["error_kinds"].items() if kind != "gap"}
    assert found == kinds, result


def test_an_entry_that_is_not_in_its_stream_is_an_error(loadgen: Path) -> None:
    def forget_one(number: int) -> bytes:
        if number == 20:
            streams.entries["Orders:1"].pop()
        return entry_id(number)

    streams = Streams(forget_one)
    with listening(streams.serve) as address:
        status, result = run(loadgen, address, "redis", "--topic", "Orders", "--queues", 2, "--messages", 40)
    assert (status, result["error_kinds"]) == (1, {"gap": 1}), result


# ---------------------------------------------------------------- the real ones


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("label", [NATS, REDIS])
def test_the_installed_server_takes_the_load(loadgen: Path, tmp_path: Path, label: str, flush: str) -> None:
    if missing := why_absent(label):  # this builds the server that Debian does not package
        pytest.skip(missing)
    server = make_column(label, flush, None, tmp_path)
    try:
        server.start()
        for topic in ("First", "Second"):
            server.create_topic(topic, 8)
            options = (
                "--topic",
                topic,
                "--connections",
                3,
                "--inflight",
                4,
                "--messages",
                300,
                "--watch",
                server.pids[0],
            )
            status, result = run(loadgen, server.broker, server.send_mode, *options)
            assert (status, result["errors"], result["all_messages"]) == (0, 0, 300), result
            assert result["watched_cpu_s"] > 0
    finally:
        server.stop()
    assert list(tmp_path.iterdir()) == [], "its files are gone"
