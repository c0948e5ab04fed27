"""One connection to a name server or a broker. It blocks; several requests may be under way, answered in any order."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

from appliance.engine.errors import FrameError
from appliance.engine.host_port import split_host_port
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import (
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    RemotingCommand,
    encode_command,
)
from appliance.engine.protocol.header_codecs import decode_header

from .access import Access
from .errors import Garbled, Refused, Unreachable

#: Longest wait for a connection. A host that answers at all does so within milliseconds; Java waits 3 s.
CONNECT_S = 5.0
_PREFIX = struct.Struct(">iI")
#: Codes of a broker that starts, stops or is overloaded.
_LATER = frozenset(
    (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.BROKER_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    )
)
_MOST_REMARK = 300


class Answer(NamedTuple):
    """code: a response code. fields: of the header. body: the bytes behind the header."""

    opaque: int
    code: int
    remark: str
    fields: dict[str, str]
    body: memoryview


class Connection:
    """Open from the start until `close`; for one thread. After an error only `close` may be called."""

    def __init__(self, address: str, access: Access) -> None:
        """Connect. Raises Unreachable."""
        self.address = address
        self._credentials = access.credentials
        self._answer_s = access.answer_s
        self._opaque = 0
        self._asked: set[int] = set()
        self._sock = _connect(address, access)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Answer:
        """Send a request and wait for its answer, whatever its code; nothing else may be under way."""
        self.send(code, fields, body)
        return self.receive()

    def send(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> int:
        """Send a request; return its opaque, which its answer will have, too."""
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        if self._credentials is not None:
            texts = self._credentials.sign(texts, body)
        command = RemotingCommand(code, opaque=self._opaque, language="PYTHON", ext_fields=texts, body=body)
        try:
            self._sock.settimeout(self._answer_s)
            self._sock.sendall(encode_command(command))
        except TimeoutError:
            raise Unreachable(f"{self.address} took no request for {self._answer_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.address} closed the connection: {_why(error)}") from None
        self._asked.add(self._opaque)
        return self._opaque

    def receive(self) -> Answer:
        """Return the next answer to a request that is under way. The server's own requests are ignored."""
        deadline = time.monotonic() + self._answer_s
        while True:
            prefix = self._read(8, deadline, begun=False)
            length, meta = _PREFIX.unpack(prefix)
            header_length = meta & 0xFFFFFF
            if not 4 <= length <= MAX_FRAME_BYTES - 4 or not 0 < header_length <= min(length - 4, MAX_HEADER_BYTES):
                raise Garbled(
                    f"{self.address} does not speak the remoting protocol: it sent {bytes(prefix[:8])!r} for a frame's "
                    "beginning"
                )
            frame = self._read(length - 4, deadline, begun=True)
            try:
                header = decode_header(meta >> 24, frame[:header_length])
            except FrameError as error:
                raise Garbled(f"{self.address} does not speak the remoting protocol: {error}") from None
            if not header.flag & FLAG_RESPONSE:
                continue
            if header.opaque not in self._asked:
                raise Garbled(f"{self.address} answered request {header.opaque}, which it was not asked")
            self._asked.discard(header.opaque)
            return Answer(
                header.opaque, header.code, header.remark or "", header.ext_fields or {}, frame[header_length:]
            )

    def _read(self, size: int, deadline: float, begun: bool) -> memoryview:
        """Read exactly `size` bytes. begun: a frame's beginning has arrived already."""
        room = bytearray(size)
        view = memoryview(room)
        at = 0
        while at < size:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._sock.settimeout(left)
                count = self._sock.recv_into(view[at:])
            except TimeoutError:
                what = "stopped in the middle of an answer" if begun or at else "did not answer"
                raise Unreachable(f"{self.address} {what}: waited {self._answer_s:g} s") from None
            except OSError as error:
                raise Unreachable(f"{self.address} closed the connection: {_why(error)}") from None
            if not count:
                where = " in the middle of an answer" if begun or at else " instead of an answer"
                raise Unreachable(f"{self.address} closed the connection{where}")
            at += count
        return view


def refused(address: str, what: str, answer: Answer) -> Refused:
    """Return the error for an answer that is a refusal. what: the thing requested, "messages of Orders"."""
    remark = " ".join(answer.remark.split())
    if len(remark) > _MOST_REMARK:
        remark = remark[:_MOST_REMARK] + "..."
    return Refused(
        f"{address} does not give {what}: code {answer.code}{', ' if remark else ''}{remark}",
        answer.code,
        later=answer.code in _LATER,
    )


def number(address: str, answer: Answer, name: str) -> int:
    """Return a number of an answer's header. Raises Garbled if it is missing."""
    try:
        return int(answer.fields[name])
    except (KeyError, ValueError):
        raise Garbled(f"{address} left {name} out of its answer") from None


def _connect(address: str, access: Access) -> socket.socket:
    try:
        host, port = split_host_port(address)
        sock = socket.create_connection((host, port), min(CONNECT_S, access.answer_s))
    except ValueError as error:
        raise Garbled(str(error)) from None
    except OSError as error:
        raise Unreachable(f"{address} cannot be reached: {_why(error)}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not access.tls:
        return sock
    try:
        return tls_context(access.tls_ca).wrap_socket(sock, server_hostname=host)
    except OSError as error:
        sock.close()
        raise Unreachable(f"{address} cannot be reached by TLS: {_why(error)}") from None


def tls_context(authorities: str) -> ssl.SSLContext:
    """authorities: in PEM form; "" for those that this machine trusts."""
    return ssl.create_default_context(cadata=authorities or None)


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error) or type(error).__name__
