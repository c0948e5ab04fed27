"""What goes wrong between a task and the servers, in one sentence that names the server."""

from __future__ import annotations


class NetworkError(Exception):
    """A server cannot be read from. `str(error)` is one sentence that begins with its host:port."""


class Unreachable(NetworkError):
    """No connection, no answer in time, or an answer that is none: another server or another try may do."""


class Garbled(Unreachable):
    """What came is not the protocol, or not what was asked for: the same server will not do better."""


class Refused(NetworkError):
    """The server answered that it will not. code: a RocketMQ response code. later: whether it may, after a while."""

    def __init__(self, text: str, code: int, later: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.later = later

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code, self.later)
