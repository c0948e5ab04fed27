"""Consumers whose expression lets nothing through: how many messages a broker looks through in a second.

Each connection walks its queues as a push consumer does: the expression was registered by a heartbeat, a pull is
answered "nothing matched" with the offset behind what was looked through, and the next one asks from there. At the end
of a queue it begins again. One thread of Python: a pull stands for hundreds of messages and takes it 50 us.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from bench.servers import Server

GROUP = "BenchSqlGroup"
_HEART_BEAT, _PULL = 34, 11
_FOUND, _NOT_FOUND, _NO_MATCH = 0, 19, 20


class ScanError(RuntimeError):
    """What was measured is not what was meant to be."""


def frame(code: int, opaque: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    header = json.dumps(
        {
            "code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 479,
            "serializeTypeCurrentRPC": "JSON", "extFields": {name: str(value) for name, value in fields.items()},
        }
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


@dataclass
class _Walk:
    """One connection and the queues it walks, each with the offset of its next pull."""

    sock: socket.socket
    offsets: dict[int, int]
    buffer: bytearray = field(default_factory=bytearray)


class Scan:
    """A group of consumers that scan `topic` from `start` to `stop`; `messages` looked through so far."""

    def __init__(self, server: Server, topic: str, queues: int, expression: str, connections: int) -> None:
        self.messages = 0
        self.pulls = 0
        self.error = ""
        self._topic = topic
        self._version = time.time_ns() // 1_000_000
        self._stopping = threading.Event()
        host, _, port = server.broker.rpartition(":")
        self._walks = []
        for number in range(connections):
            sock = socket.create_connection((host, int(port)), 30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._walks.append(_Walk(sock, dict.fromkeys(range(number, queues, connections), 0)))
        self._register(expression)
        self._thread = threading.Thread(target=self._run, name="sql92-scan", daemon=True)

    def _register(self, expression: str) -> None:
        subscription = {
            "topic": self._topic, "subString": expression, "expressionType": "SQL92", "subVersion": self._version,
            "tagsSet": [], "codeSet": [], "classFilterMode": False,
        }  # fmt: skip
        consumer = {
            "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        for number, walk in enumerate(self._walks):
            body = {"clientID": f"127.0.0.1@{number}", "consumerDataSet": [consumer], "producerDataSet": []}
            walk.sock.sendall(frame(_HEART_BEAT, 0, {}, json.dumps(body).encode()))
            while not any(code == 0 for code, *_ in self._answers(walk, True)):
                pass

    def __enter__(self) -> Scan:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        for walk in self._walks:
            walk.sock.close()
        if self.error:
            raise ScanError(self.error)

    def rate(self, seconds: float) -> float:
        """Messages looked through a second, over the next `seconds`."""
        begin, before = time.monotonic(), self.messages
        time.sleep(seconds)
        return (self.messages - before) / (time.monotonic() - begin)

    def _ask(self, walk: _Walk, queue: int) -> None:
        fields = {
            "consumerGroup": GROUP, "topic": self._topic, "queueId": queue, "queueOffset": walk.offsets[queue],
            "maxMsgNums": 32, "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 15_000,
            "subVersion": self._version, "expressionType": "SQL92",
        }  # fmt: skip
        walk.sock.sendall(frame(_PULL, queue + 1, fields))

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for walk in self._walks:
                    selector.register(walk.sock, selectors.EVENT_READ, walk)
                    for queue in walk.offsets:
                        self._ask(walk, queue)
                while not self._stopping.is_set():
                    for key, _ in selector.select(1.0):
                        walk = key.data
                        for code, opaque, fields, remark in self._answers(walk, False):
                            self._take(walk, opaque - 1, code, fields, remark)
        except (OSError, ScanError) as error:
            self.error = str(error)

    def _take(self, walk: _Walk, queue: int, code: int, fields: dict[str, str], remark: str) -> None:
        if code not in (_NO_MATCH, _NOT_FOUND):
            raise ScanError(f"a pull that matches nothing was answered {code}: {remark}")
        following = int(fields["nextBeginOffset"])
        if code == _NO_MATCH and following <= walk.offsets[queue]:
            raise ScanError(f"queue {queue}: the offset does not move from {following}")
        self.pulls += 1
        if code == _NO_MATCH:
            self.messages += following - walk.offsets[queue]
        walk.offsets[queue] = following if following < int(fields["maxOffset"]) else 0
        self._ask(walk, queue)

    @staticmethod
    def _answers(walk: _Walk, wait: bool) -> list[tuple[int, int, dict[str, str], str]]:
        walk.sock.settimeout(30 if wait else 0)
        try:
            data = walk.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        finally:
            walk.sock.settimeout(30)
        if not data:
            raise ScanError("the broker closed a connection")
        walk.buffer += data
        found = []
        while len(walk.buffer) >= 8:
            size, length = struct.unpack_from(">ii", walk.buffer)
            if len(walk.buffer) < 4 + size:
                break
            header = json.loads(walk.buffer[8 : 8 + (length & 0xFFFFFF)])
            del walk.buffer[: 4 + size]
            if header["flag"] & 1:
                found.append((header["code"], header["opaque"], header.get("extFields", {}), header.get("remark", "")))
        return found
