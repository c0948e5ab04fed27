"""A whole engine inside the test's process, and a peer that speaks frames to it."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.record import Record, decode_record

#: Whatever the machine's own disk looks like.
ROOMY = {
    "disk_max_used_space_ratio": 95,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
}


def start_engine(data_dir: Path, broker: dict[str, Any] | None = None, store: dict[str, Any] | None = None) -> Engine:
    """Broker and name server on free ports; small log files, async flush unless told otherwise."""
    small = {"mapped_file_size_commit_log": 8 << 20, "max_hash_slot_num": 5000, "max_index_num": 20_000}
    store_options = ROOMY | {"flush_disk_type": "ASYNC_FLUSH"} | small | (store or {})
    engine = Engine(
        EngineConfig(
            data_dir=data_dir,
            broker_port=0,
            namesrv_port=0,
            broker=BrokerConfig(**({"broker_name": "broker-a"} | (broker or {}))),
            store=StoreConfig(**store_options),
        )
    )
    engine.start()
    return engine


class Peer:
    """A blocking connection; several requests may be under way."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._opaque = 0

    def send(
        self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0, codec: int = 0
    ) -> int:
        """Send a request; returns its opaque."""
        self._opaque += 1
        fields = {name: str(value) for name, value in (ext or {}).items()}
        command = RemotingCommand(code, opaque=self._opaque, flag=flag, ext_fields=fields, body=body)
        self._sock.sendall(encode_command(command, codec))
        return self._opaque

    def receive(self, timeout: float = 10) -> RemotingCommand:
        """The next frame; TimeoutError when none comes, ConnectionError when the server closed."""
        self._sock.settimeout(timeout)
        while True:
            if len(self._buffer) >= 4:
                size = 4 + struct.unpack_from(">i", self._buffer)[0]
                if len(self._buffer) >= size:
                    frame, self._buffer = self._buffer[:size], self._buffer[size:]
                    return decode_frame(frame)
            data = self._sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data

    def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", codec: int = 0) -> RemotingCommand:
        """Send and wait for the answer; notices of the server's own are passed over."""
        opaque = self.send(code, ext, body, codec=codec)
        while True:
            answer = self.receive()
            if answer.is_response and answer.opaque == opaque:
                return answer

    def answer(self, question: RemotingCommand, code: int, remark: str | None = None, body: bytes = b"") -> None:
        """Answer a request of the server's."""
        command = RemotingCommand.response(code, remark, body=body)
        command.opaque = question.opaque
        self._sock.sendall(encode_command(command))

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing arrives for a while."""
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._sock.close()


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
