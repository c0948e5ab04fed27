"""The other side of a replication stream: a slave that a test plays, and the recorded streams of Apache's brokers."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.golden import GOLDEN

VERSIONS = ("4.9.8", "5.3.3")


class Event(NamedTuple):
    """A report (body None), a heartbeat (no bytes) or a frame of a recorded stream."""

    conn: int
    offset: int
    body: bytes | None


def recorded(version: str) -> Iterator[Event]:
    """Yield the traffic of the replication connections: whole reports and frames in the order of their last byte."""
    pending: dict[tuple[int, str], bytes] = {}
    with gzip.open(GOLDEN / "ha" / version / "stream.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            key = (line["conn"], line["dir"])
            data = pending.get(key, b"") + base64.b64decode(line["b64"])
            while data:
                if line["dir"] == "slave-to-master":
                    yield Event(line["conn"], int.from_bytes(data[:8], "big"), None)
                    data = data[8:]
                    continue
                offset, size = struct.unpack_from(">qi", data)
                if len(data) < 12 + size:
                    break
                yield Event(line["conn"], offset, data[12 : 12 + size])
                data = data[12 + size :]
            pending[key] = data


def manifest(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "ha" / version / "manifest.json").read_text())
    return found


class PlayedSlave:
    """A connection to a master's replication port."""

    def __init__(self, port: int, host: str = "127.0.0.1", source: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection((host, port), timeout=60, source_address=(source, 0))
        self.log = bytearray()

    def report(self, offset: int) -> None:
        self.sock.sendall(struct.pack(">q", offset))

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def frame(self) -> tuple[int, bytes]:
        offset, size = struct.unpack(">qi", self.receive(12))
        return offset, self.receive(size)

    def copy_to(self, end: int) -> bytes:
        """Return what comes until the frames reach `end`. Frames that do not follow each other fail."""
        at = None
        while at is None or at < end:
            offset, body = self.frame()
            assert at in (None, offset)
            at = offset + len(body)
            self.log += body
        return bytes(self.log)

    def is_closed(self, seconds: float = 60) -> bool:
        """True if the master closes the connection, whatever it still sends."""
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(1 << 16):
                    return True
        except TimeoutError:
            pass
        except ConnectionError:
            return True
        return False

    def close(self) -> None:
        self.sock.close()
