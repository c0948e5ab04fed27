"""Chooses a broker's server, the master, or a slave while the master is away, and tries again for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from .access import Access
from .connection import Connection
from .errors import Garbled, NetworkError, Refused, Unreachable
from .routes import Addresses, NameServers

T = TypeVar("T")
#: Pauses between tries.
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)


class Patience:
    """Time that a server may fail without anything read, in all. It begins at the first failure, ends with `forget`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._tries = 0

    def forget(self) -> None:
        """Begin anew, since something was read: the next failure counts as the first."""
        self._since = None
        self._tries = 0

    def wait(self, error: NetworkError) -> None:
        """Wait a little before the next try; raise the error if it has been tried for long enough."""
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
    """Return a connection to the first of a broker's servers that can be reached, the master first. last: an address
    that is tried after the others, since it has just failed. Raises Unreachable."""
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
    """Call `do` and return its result; try again while its servers are away."""
    patience = Patience(access.patience_s)
    while True:
        try:
            return do()
        except Garbled:
            raise
        except Unreachable as error:
            patience.wait(error)


def tried(name: str, servers: Addresses, access: Access, do: Callable[[Connection], T]) -> T:
    """Call `do` with a connection to the broker and return its result; try again while the broker is away."""
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
    """Return the broker's servers as the name servers list them now, since it may have come back elsewhere; the known
    ones if they do not answer or do not list any."""
    try:
        return NameServers(access).servers_of(name) or servers
    except NetworkError:
        return servers
