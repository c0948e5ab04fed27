"""Delayed and timed messages, sent at a rate or as fast as it goes, and how late each of them came.

A connection of the bench's own in Python: 5,000 sends a second take it a fifth of a core.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.servers import Server

LEVEL, DELAY_MS = 1, 1000
#: Sends in one piece: what came due in so many seconds.
TICK_S = 0.005
#: Answers that may be outstanding; beyond it the sender waits.
WINDOW = 2000
_SEND, _PULL, _FOUND = 310, 11, 0
_DRAIN_S = 60.0
#: What a broker's stamps may be behind: whole milliseconds, of the moment when a round of its work began.
STAMP_MS = 2
#: Of a record: place of its born time, and of its store time behind an IPv4 born host.
_BORN_AT, _STORED_AT = 40, 56


class DelayError(RuntimeError):
    """What was measured is not what was meant to be."""


class Wire:
    """One connection to a broker: frames out, headers and bodies of the answers in."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.outstanding = 0
        self.refused = 0

    def send(self, frames: list[bytes]) -> None:
        self._socket.sendall(b"".join(frames))
        self.outstanding += len(frames)

    def take(self, wait: bool) -> None:
        """Count the answers that came; wait: for one of them at least."""
        for header, _ in self._answers(wait):
            self.outstanding -= 1
            self.refused += header["code"] != 0

    def ask(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        self._socket.sendall(frame)
        while True:
            for answer in self._answers(True):
                return answer

    def _answers(self, wait: bool) -> Iterator[tuple[dict[str, Any], bytes]]:
        while True:
            while len(self._buffer) >= 8:
                size, length = struct.unpack_from(">ii", self._buffer)
                if len(self._buffer) < 4 + size:
                    break
                frame, self._buffer = self._buffer[: 4 + size], self._buffer[4 + size :]
                begin = 8 + (length & 0xFFFFFF)
                header = json.loads(frame[8:begin])
                if header["flag"] & 1:  # else a notice of the broker's
                    wait = False
                    yield header, frame[begin:]
            self._socket.settimeout(30 if wait else 0)
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                return
            finally:
                self._socket.settimeout(30)
            if not data:
                raise DelayError("the broker closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._socket.close()


def _frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0, "extFields": fields}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


class Wait(NamedTuple):
    """What a message waits for: a delay level, or (timer) so many ms by TIMER_DELIVER_MS; 0: nothing. early_ms: how
    much earlier than that a broker may deliver."""

    level: int = 0
    timer_ms: int = 0
    early_ms: int = 0

    @property
    def ms(self) -> int:
        return self.timer_ms or DELAY_MS


class Sends:
    """Frames of sends to queue 0 of a topic."""

    def __init__(self, topic: str, wait: Wait, body: int, broker_name: str = "broker-a") -> None:
        properties = f"UNIQ_KEY\x01{0:032X}\x02WAIT\x01true\x02"
        properties += f"DELAY\x01{wait.level}\x02" if wait.level else ""
        properties += f"TIMER_DELIVER_MS\x01{'9' * 13}\x02" if wait.timer_ms else ""
        self._timer_ms = wait.timer_ms
        frame = _frame(
            _SEND,
            {
                "a": "BenchGroup", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0" * 13, "h": "0",
                "i": properties, "j": "0", "k": "false", "m": "false", "n": broker_name,
            },
            b"x" * body,
        )  # fmt: skip
        self._head, born, rest = frame.partition(b"0" * 13)
        assert born
        self._middle, _, self._tail = rest.partition(b"0" * 32)

    def make(self, number: int) -> bytes:
        """The next one, born now."""
        now_ms = time.time_ns() // 1_000_000
        frame = b"%b%013d%b%032X%b" % (self._head, now_ms, self._middle, number, self._tail)
        return frame.replace(b"9" * 13, b"%013d" % (now_ms + self._timer_ms), 1) if self._timer_ms else frame


def send_paced(wire: Wire, sends: Sends, rate: float, seconds: float) -> int:
    """`rate` messages a second, whatever the broker does; how many it took: a cold JVM refuses what waits too long."""
    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        due = int(passed * rate)
        if due > sent:
            wire.send([sends.make(number) for number in range(sent, due)])
            sent = due
        wire.take(wait=wire.outstanding > WINDOW)
        time.sleep(TICK_S)
    while wire.outstanding:
        wire.take(wait=True)
    return sent - wire.refused


def delivered(wire: Wire, topic: str, count: int) -> list[tuple[int, int]]:
    """(born, stored) in ms of each copy in queue 0; waits until there are `count`, and a moment for more."""
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + _DRAIN_S
    more = 0
    while time.monotonic() < deadline and more < 3:
        header, body = wire.ask(
            _frame(
                _PULL,
                {
                    "consumerGroup": "BenchPullGroup", "topic": topic, "queueId": "0", "queueOffset": str(len(found)),
                    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                    "subscription": "*", "subVersion": "0", "expressionType": "TAG",
                },
            )
        )  # fmt: skip
        if header["code"] != _FOUND:
            more += len(found) >= count
            time.sleep(0.1)
            continue
        at = 0
        while at < len(body):
            (size,) = struct.unpack_from(">i", body, at)
            (born,) = struct.unpack_from(">q", body, at + _BORN_AT)
            (stored,) = struct.unpack_from(">q", body, at + _STORED_AT)
            found.append((born, stored))
            at += size
    return found


def measure_lateness(
    server: Server, topic: str, wait: Wait, rate: float, seconds: float, warm_up: float, body: int = 1024
) -> tuple[dict[str, float], int]:
    """({"p50", "p99", "max"}: ms from due to stored in its topic, of what was sent after the warm-up; errors).

    Due is when it was born and what it waits: what the send took is in it. errors: messages that were refused, lost,
    came twice or came early.
    """
    wire = Wire(server.broker)
    try:
        sent = send_paced(wire, Sends(topic, wait, body), rate, warm_up + seconds)
        found = delivered(wire, topic, sent)
    finally:
        wire.close()
    if not found:
        raise DelayError(f"{server.label} delivered nothing of {sent}")
    first = min(born for born, _ in found) + warm_up * 1000
    late = sorted(stored - born - wait.ms for born, stored in found if born >= first)
    if not late:
        raise DelayError("nothing was sent after the warm-up")
    early = sum(one < -STAMP_MS - wait.early_ms for one in late)
    quantiles = {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}
    return {name: float(value) for name, value in quantiles.items()}, wire.refused + abs(sent - len(found)) + early


def fill(server: Server, topic: str, wait: Wait, messages: int, body: int = 256) -> float:
    """Send so many as fast as it goes; seconds."""
    wire, sends = Wire(server.broker), Sends(topic, wait, body)
    begin = time.monotonic()
    try:
        for number in range(0, messages, 100):
            wire.send([sends.make(n) for n in range(number, min(number + 100, messages))])
            while wire.outstanding > WINDOW:
                wire.take(wait=True)
        while wire.outstanding:
            wire.take(wait=True)
    finally:
        wire.close()
    if wire.refused > messages // 10:
        raise DelayError(f"{wire.refused} of {messages} sends were refused")
    return time.monotonic() - begin
