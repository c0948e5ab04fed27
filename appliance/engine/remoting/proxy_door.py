"""Takes the PROXY header from connections of named balancers, and has the rest served as the client's whom it names.

Imported only if `proxyProtocolFrom` names any. From these addresses a header is required; connections of all others go
on untouched, and a header of theirs is a bad frame. Not a byte behind the header is read here, so TLS or a frame may
follow. A header that comes in pieces is taken piece by piece: bytes that stay in the socket would wake the loop again
and again.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from functools import partial

from ..errors import FrameError
from ..protocol.message_id import encode_host
from ..protocol.proxy_header import MOST_BYTES, parse_proxy_header
from .connection import RelayedConnection
from .event_loop import READABLE
from .server import Adopt, Door, RemotingServer, text_of

logger = logging.getLogger(__name__)

#: Time that a balancer has to send the whole header; it sends it at once.
DEADLINE_S = 5.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyDoor:
    """Owned by remoting-io."""

    def __init__(self, networks: Sequence[Network], server: RemotingServer, inside: Door | None) -> None:
        """networks: of the balancers. inside: the door behind this one, that of TLS; None: all are plain."""
        # Constant after construction.
        self._networks = tuple(networks)
        self.server = server
        self._inside = inside
        # Connections whose header is not whole yet.
        self._waiting: set[_Arriving] = set()

    def take(self, sock: socket.socket, address: tuple[str, int], adopt: Adopt) -> None:
        """Pass a new connection on, after its header if it is a balancer's."""
        if not self.is_named(address[0]):
            self.pass_on(sock, address, adopt)
            return
        sock.setblocking(False)
        one = _Arriving(self, sock, address, adopt)
        self.server.loop.watch(sock.fileno(), READABLE, one)
        self.server.count(one)
        self._waiting.add(one)

    def is_named(self, host: str) -> bool:
        """True if connections from this address begin with a header."""
        address = ipaddress.ip_address(host.partition("%")[0])
        plain = getattr(address, "ipv4_mapped", None) or address
        return any(plain in network for network in self._networks)

    def pass_on(self, sock: socket.socket, address: tuple[str, int], adopt: Adopt) -> None:
        """Have a connection served. address: whose it is."""
        if self._inside is None:
            adopt(sock, address)
        else:
            self._inside(sock, address, adopt)

    def leave(self, one: _Arriving) -> None:
        """Forget a connection whose header is whole, or that ends."""
        one.deadline.cancel()
        self.server.loop.unwatch(one.sock.fileno())
        self.server.uncount(one)
        self._waiting.discard(one)

    def turn_away(self) -> None:
        """Close the connections whose header is not whole."""
        for one in list(self._waiting):
            one.close()


class _Arriving:
    """A balancer's connection until its header is whole. Counts for the balancer's address, as connections do."""

    __slots__ = ("_address", "_adopt", "_door", "_header", "born_host", "deadline", "last_active", "sock")
    #: Its silence means something.
    unread = False

    def __init__(self, door: ProxyDoor, sock: socket.socket, address: tuple[str, int], adopt: Adopt) -> None:
        self._door = door
        self.sock = sock
        self._address = address
        self._adopt = adopt
        self._header = b""
        self.born_host = encode_host(address[0], address[1])
        self.last_active = door.server.loop.monotonic
        self.deadline = door.server.loop.call_later(DEADLINE_S, partial(self.refuse, "its PROXY header is late"))

    @property
    def remote_host(self) -> str:
        """ "address:port", for logs."""
        return text_of(self.born_host)

    def close(self) -> None:
        self._door.leave(self)
        self.sock.close()

    def refuse(self, reason: str) -> None:
        """Close it, and log why."""
        self._door.server.note_refusal(f"closed a connection of {self.remote_host}: {reason}")
        self.close()

    def on_event(self, mask: int) -> None:
        try:
            self._read()
        except BlockingIOError:
            return
        except FrameError as error:
            self.refuse(str(error))
        except OSError:  # the peer has gone already
            self.close()
        except Exception:
            logger.exception("server: closing a balancer's connection after an internal error")
            self.close()

    def _read(self) -> None:
        data = self.sock.recv(MOST_BYTES - len(self._header), socket.MSG_PEEK)
        if not data:  # as balancers check that the port is open
            self.close()
            return
        known = len(self._header)
        header = parse_proxy_header(self._header + data)
        if header is None:
            self._header += self.sock.recv(len(data))
            return
        self.sock.recv(header.length - known)
        self._door.leave(self)
        try:
            # Relayed without an address, too: a balancer on this machine must not make its clients this machine's.
            self._door.pass_on(self.sock, header.source or self._address, partial(self._adopt, kind=RelayedConnection))
        except OSError as error:
            logger.info("server: lost a new connection: %s", error)
            self.sock.close()
