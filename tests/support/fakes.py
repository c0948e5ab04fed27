"""Stand-ins for sockets and threads: a connection, a loop and a pool that a test holds in its hands.

tests/test_stand_ins.py compares them with the parts they replace. Time is `tests.support.clock.FakeClock`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.engine.protocol.command import FLAG_ONEWAY, RemotingCommand, decode_frame
from appliance.engine.protocol.message_id import encode_host


class FakeConnection:
    """A client's connection as handlers see one. answers: to its requests; notices: what it was sent unasked."""

    def __init__(self, remote_host: str = "127.0.0.1:1") -> None:
        host, _, port = remote_host.rpartition(":")
        self.remote_host = remote_host
        self.born_host = encode_host(host or "127.0.0.1", int(port) if port.isdigit() else 1)
        self.client_id: str | None = None
        self.language = "JAVA"
        self.version = 0
        self.told: dict[object, int] = {}
        self.closed = False
        self.unread = False
        self.listening_since = -1e9
        self.answers: list[RemotingCommand] = []
        self.notices: list[RemotingCommand] = []

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if not request.flag & FLAG_ONEWAY:
            self.answers.append(response)

    def post(self, deliver: Callable[[], None], size: int) -> None:
        deliver()

    def send(self, data: bytes) -> None:
        self.notices.append(decode_frame(data))

    def close(self) -> None:
        self.closed = True

    def noticed(self) -> list[str]:
        """Return the groups of the notices received since the last look."""
        groups = [notice.ext_fields["consumerGroup"] for notice in self.notices if notice.code == 40]
        self.notices.clear()
        return groups


class InlinePool:
    """Runs each job at once, in the caller's thread."""

    def submit(self, job: Callable[[], None], size: int = 0, conn: Any = None, answered: bool = True) -> bool:
        job()
        return True


class InlineLoop:
    """Runs what it is handed at once, and keeps timers for the test to run."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def call_every(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)
