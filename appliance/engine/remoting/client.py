"""A small blocking client: one TCP connection to one address, one call at a time.

For the few calls that the server makes itself (registration) and for tests. It lacks what a busy client needs, such as
several calls in flight and answers in any order.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from ..clock import Clock
from ..errors import CallTimeout, ConnectError, FrameError
from ..host_port import for_resolver, split_host_port
from ..protocol.command import MAX_FRAME_BYTES, RemotingCommand, decode_frame, encode_command

logger = logging.getLogger(__name__)

#: A reachable host answers within milliseconds; Java waits 3 s.
CONNECT_TIMEOUT_MS = 3000
_RECEIVE_BYTES = 64 * 1024
#: Called on each new connection, before it carries anything else, with a function that makes a call on it.
#: With it, the digest of the certificate that the server showed; empty without TLS.
Greet = Callable[[Callable[[RemotingCommand], RemotingCommand], bytes], None]
#: (address, seconds) -> a new connection for plain bytes, and that digest. Raises OSError, UnicodeError.
Connect = Callable[[str, float], tuple[socket.socket, bytes]]


class RemotingClient:
    """Calls one server. It connects on first use, and again when the connection has broken.

    Any thread may call; calls take turns. A call that fails closes the connection, so that the next call cannot receive
    its late answer.
    """

    def __init__(
        self,
        address: str,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        clock: Clock | None = None,
        tls: bool = False,
        greet: Greet | None = None,
        pair: tuple[str, str] | None = None,
        connect: Connect | None = None,
    ) -> None:
        """tls: speak TLS, to whoever answers: no certificate is checked, as Apache's brokers check none. greet: may
        raise ConnectError, so that the connection is not used. pair: PEM files of a certificate and its key, which are
        shown over TLS to a server that requests one. connect: makes the connections, in place of `tls` and `pair`."""
        # Constant after construction.
        self.address = address
        host, port = split_host_port(address)
        self._target = for_resolver(host), port
        self._connect_timeout_ms = connect_timeout_ms
        self._clock = clock or Clock()
        self._tls = tls
        self._greet = greet
        self._pair = pair
        self._connect = connect or self._connect_plain
        # Held by a call until it has its answer: the connection serves one call at a time.
        self._turn = threading.Lock()
        # Guarded by _turn. `close` shuts the socket down without it, to end a call that waits.
        self._sock: socket.socket | None = None
        self._received = bytearray()
        self._opaque = 0

    def invoke_sync(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and return its answer, whatever its code. Sets the request's opaque.

        timeout_ms covers everything, including connecting. Raises ConnectError when there is no connection or it broke,
        CallTimeout when no answer came in time, FrameError when the request does not fit a frame.
        """
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._take_turn(deadline)
        try:
            sock = self._connected(deadline)
            return self._exchange(sock, command, deadline)
        except BaseException:
            self._disconnect()
            raise
        finally:
            self._turn.release()

    def take_socket(self, timeout_ms: int) -> socket.socket:
        """Connect, greet, and return the socket, which is the caller's from then on. Raises as `invoke_sync`."""
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._take_turn(deadline)
        try:
            sock = self._connected(deadline)
            self._sock = None
            return sock
        except BaseException:
            self._disconnect()
            raise
        finally:
            self._turn.release()

    def is_connected(self) -> bool:
        """True if the connection is open, as far as this side can see. Does not wait for a call that is under way."""
        if not self._turn.acquire(blocking=False):
            return True
        try:
            return self._sock is not None and _stands(self._sock)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the connection. A call that waits for its answer fails with ConnectError. The next call connects
        again."""
        self.hang_up()
        if self._turn.acquire(timeout=1.0):
            try:
                self._disconnect()
            finally:
                self._turn.release()

    def hang_up(self) -> None:
        """Make a call that waits for its answer fail with ConnectError; one that is still connecting may go on. Does
        not wait."""
        sock = self._sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of TLS takes TLS from under the call
            except OSError:
                pass

    # --- with the turn taken

    def _take_turn(self, deadline: float) -> None:
        if not self._turn.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            raise CallTimeout(f"{self.address} is busy with another call")

    def _connected(self, deadline: float) -> socket.socket:
        sock = self._sock
        if sock is not None:
            if _stands(sock):
                return sock
            self._disconnect()
        seconds = min(self._connect_timeout_ms / 1000, deadline - self._clock.monotonic())
        try:
            sock, channel = self._connect(self.address, max(0.001, seconds))
        except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be looked up
            raise ConnectError(f"connect to {self.address} failed: {error}") from None
        if self._tls:
            sock = self._shaken_hands(sock, deadline)
        self._sock = sock
        logger.debug("client: connected to=%s", self.address)
        if self._greet is not None:
            self._greet(lambda command: self._exchange(sock, command, deadline), channel)
        return sock

    def _connect_plain(self, address: str, seconds: float) -> tuple[socket.socket, bytes]:
        sock = socket.create_connection(self._target, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock, b""

    def _shaken_hands(self, sock: socket.socket, deadline: float) -> socket.socket:
        import ssl

        from ..regular_file import require_regular

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            if self._pair is not None:
                require_regular(*self._pair)
                context.load_cert_chain(*self._pair, password=str)  # an empty one, instead of a question at a terminal
            sock.settimeout(max(0.001, deadline - self._clock.monotonic()))
            return context.wrap_socket(sock)
        except OSError as error:
            sock.close()
            raise ConnectError(f"TLS with {self.address} failed: {error}") from None

    def _disconnect(self) -> None:
        sock, self._sock = self._sock, None
        self._received.clear()
        if sock is not None:
            sock.close()

    def _exchange(self, sock: socket.socket, command: RemotingCommand, deadline: float) -> RemotingCommand:
        self._send(sock, command, deadline)
        return self._receive(sock, command.opaque, deadline)

    def _send(self, sock: socket.socket, command: RemotingCommand, deadline: float) -> None:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.opaque = self._opaque
        frame = encode_command(command, command.codec)
        sock.settimeout(max(0.001, deadline - self._clock.monotonic()))
        try:
            sock.sendall(frame)
        except TimeoutError:
            raise CallTimeout(f"{self.address} does not take the request") from None
        except OSError as error:
            raise ConnectError(f"send to {self.address} failed: {error}") from None

    def _receive(self, sock: socket.socket, opaque: int, deadline: float) -> RemotingCommand:
        """Return the answer to `opaque`. Skips the server's own requests and answers to earlier calls."""
        while True:
            try:
                answer = decode_frame(self._receive_frame(sock, deadline))
            except FrameError as error:
                raise ConnectError(f"{self.address} sent no frame: {error}") from None
            if answer.is_response and answer.opaque == opaque:
                return answer
            logger.debug("client: skipped code=%d opaque=%d from=%s", answer.code, answer.opaque, self.address)

    def _receive_frame(self, sock: socket.socket, deadline: float) -> bytes:
        received = self._received
        while len(received) < 4:
            self._fill(sock, deadline)
        end = 4 + int.from_bytes(received[:4], "big")
        if not 8 <= end <= MAX_FRAME_BYTES:
            raise FrameError(f"frame length {end - 4}")
        while len(received) < end:
            self._fill(sock, deadline)
        frame = bytes(received[:end])
        del received[:end]
        return frame

    def _fill(self, sock: socket.socket, deadline: float) -> None:
        left = deadline - self._clock.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
            piece = sock.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise CallTimeout(f"{self.address} did not answer in time") from None
        except OSError as error:
            raise ConnectError(f"connection to {self.address} broke: {error}") from None
        if not piece:
            raise ConnectError(f"{self.address} closed the connection")
        self._received += piece


def _stands(sock: socket.socket) -> bool:
    """True if the connection is open: the peer has neither closed nor reset it. Leaves the socket non-blocking."""
    try:
        sock.setblocking(False)
        return bool(socket.socket.recv(sock, 1, socket.MSG_PEEK))  # of TLS, the encrypted bytes
    except BlockingIOError:
        return True
    except OSError:
        return False
