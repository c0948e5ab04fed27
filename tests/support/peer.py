"""A peer of the broker or the name server: a blocking connection that speaks frames, and the headers it sends."""

from __future__ import annotations

import socket
import struct
from typing import Any

from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.record import Record, decode_record


class Peer:
    """A blocking connection; several requests may be under way.

    sock: for what a test does to the socket itself. unread: bytes that came and belong to no whole frame yet.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=60)
        #: Seconds to wait for an answer. A peer that repeats unanswered requests may have less.
        self.patience_s = 60.0
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self._opaque = 0

    def send(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        flag: int = 0,
        codec: int = 0,
        opaque: int | None = None,
    ) -> int:
        """Send a request; returns its opaque, the next one unless told otherwise."""
        if opaque is None:
            self._opaque += 1
            opaque = self._opaque
        fields = {name: str(value) for name, value in (ext or {}).items()}
        self.send_bytes(
            encode_command(RemotingCommand(code, opaque=opaque, flag=flag, ext_fields=fields, body=body), codec)
        )
        return opaque

    def send_bytes(self, *pieces: bytes) -> None:
        """Frames, or what is none."""
        self.sock.sendall(b"".join(pieces))

    def receive(self, timeout: float | None = None) -> RemotingCommand:
        """The next frame; TimeoutError when none comes, ConnectionError when the server closed."""
        self.sock.settimeout(self.patience_s if timeout is None else timeout)
        while True:
            if len(self.unread) >= 4:
                size = 4 + struct.unpack_from(">i", self.unread)[0]
                if len(self.unread) >= size:
                    frame, self.unread = self.unread[:size], self.unread[size:]
                    return decode_frame(frame)
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self.unread += data

    def receive_all(self) -> list[RemotingCommand]:
        """Every frame until the server closes the connection; TimeoutError when it does not."""
        found = []
        while True:
            try:
                found.append(self.receive())
            except ConnectionError:
                return found

    def ask(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        codec: int = 0,
        opaque: int | None = None,
    ) -> RemotingCommand:
        """Send and wait for the answer; notices of the server's own are passed over."""
        opaque = self.send(code, ext, body, codec=codec, opaque=opaque)
        while True:
            answer = self.receive()
            if answer.is_response and answer.opaque == opaque:
                return answer

    def answer(self, question: RemotingCommand, code: int, remark: str | None = None, body: bytes = b"") -> None:
        """Answer a request of the server's."""
        command = RemotingCommand.response(code, remark, body=body)
        command.opaque = question.opaque
        self.send_bytes(encode_command(command))

    def is_silent(self, seconds: float = 0.3) -> bool:
        """True if nothing arrives for `seconds`."""
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False

    def is_closed(self) -> bool:
        """True if the server closes without sending more. TimeoutError if it neither sends nor closes."""
        try:
            self.receive()
        except ConnectionError:
            return True
        return False

    def close(self) -> None:
        self.sock.close()


def send_fields(topic: str, queue_id: int = 0, properties: str = "", **changes: Any) -> dict[str, Any]:
    """The header of a 310 as the Java client writes it."""
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1700000000000, "h": 0,
        "i": properties, "j": 0, "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return fields | changes


def pull_fields(topic: str, queue_id: int, offset: int, **changes: Any) -> dict[str, Any]:
    """The header of an 11 that brings its own subscription."""
    fields = {
        "consumerGroup": "CG", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    return fields | changes


def records(body: bytes) -> list[Record]:
    """The messages of a pull's body."""
    found, at = [], 0
    while at < len(body):
        record = decode_record(body, at)
        found.append(record)
        at += record.size
    return found


def read_queue(peer: Peer, topic: str) -> list[Record]:
    """Every message of a topic's first queue, as a consumer gets them. Closes the peer."""
    found: list[Record] = []
    try:
        while (answer := peer.ask(11, pull_fields(topic, 0, len(found), maxMsgNums=800))).code == 0:
            found += records(answer.body)
        return found
    finally:
        peer.close()
