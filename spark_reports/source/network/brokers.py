"""Which of a broker's servers is asked: the master, or a slave while the master is away; and how long it is tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from .access import Access
from .connection import Connection
from .errors import Garbled, NetworkError, Refused, Unreachable
from .routes import Addresses, NameServers

T = TypeVar("T")
#: Between two tries.
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)


class Patience:
    """How long a server may fail without anything read, in all. Begins at the first failure, ends with `forget`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._tries = 0

    def forget(self) -> None:
        """Something was read: the next failure is a first one."""
        self._since = None
        self._tries = 0

    def wait(self, error: NetworkError) -> None:
        """Wait a little before the next try; raises the error when it has been tried for long enough."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds:
            if self._tries:
                raise type(error)(*_again(error, self._seconds)) from error
            raise error
        time.sleep(min(_PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)], self._since + self._seconds - now + 0.01))
        self._tries += 1


def _again(error: NetworkError, seconds: float) -> tuple[object, ...]:
    text = f"{error} (tried again for {seconds:g} s)"
    return (text, error.code, error.later) if isinstance(error, Refused) else (text,)


def connect(name: str, servers: Sequence[str], access: Access, last: str = "") -> Connection:
    """A connection to the first of a broker's servers that can be reached, the master first. last: an address that is
    tried after the others, since it has just failed. Raises Unreachable."""
    why = []
    for address in sorted(servers, key=lambda address: address == last):
        try:
            return Connection(address, access)
        except Unreachable as error:
            why.append(str(error))
    told = " and ".join(access.name_servers)
    text = "; ".join(why) or f"broker {name} has no server"
    raise Unreachable(f"{text} (broker {name}, as {told} name{'s' if len(access.name_servers) == 1 else ''} it)")


def patiently(access: Access, do: Callable[[], T]) -> T:
    """What `do` returns; tried again while its servers are away."""
    patience = Patience(access.patience_s)
    while True:
        try:
            return do()
        except Garbled:
            raise
        except Unreachable as error:
            patience.wait(error)


def tried(name: str, servers: Addresses, access: Access, do: Callable[[Connection], T]) -> T:
    """What `do` returns, given a connection to the broker; tried again while the broker is away."""
    patience = Patience(access.patience_s)
    last = ""
    while True:
        try:
            with connect(name, servers, access, last) as connection:
                last = connection.address
                return do(connection)
        except Garbled:
            raise
        except Unreachable as error:
            patience.wait(error)
        except Refused as error:
            if not error.later:
                raise
            patience.wait(error)
        servers = where_now(name, servers, access)


def where_now(name: str, servers: Addresses, access: Access) -> Addresses:
    """The broker's servers as the name servers tell now, since it may have come back elsewhere; those known before
    when they do not tell."""
    try:
        return NameServers(access).servers_of(name) or servers
    except NetworkError:
        return servers
