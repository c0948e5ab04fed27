"""Errors between a task and the servers, each one sentence that names the server."""

from __future__ import annotations


class NetworkError(Exception):
    """A server cannot be read from. `str(error)` is one sentence that begins with its host:port."""


class Unreachable(NetworkError):
    """No connection, no answer in time, or an answer that makes no sense: another server or another try may help."""


class Garbled(Unreachable):
    """The answer is not the protocol, or not to the request: trying the same server again does not help."""


class Refused(NetworkError):
    """The server refused the request. code: a RocketMQ response code. later: it may succeed after a while."""

    def __init__(self, text: str, code: int, later: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.later = later

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code, self.later)
