"""A follower's side of one connection: appends the bytes of the log that arrive, and reports how much is kept.

The last record that is here is sent again: only if it is the same, the bytes behind it are appended.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock
from ..host_port import split_host_port
from ..loop_calls import raise_from_loop
from ..protocol.ha_stream import Frames, pack_report, pack_taken
from ..store.message_store import MessageStore
from ..store.replica import Incoming, Piece, ReplicaAppender
from .roles import Guard
from .wake_pipe import WakePipe

logger = logging.getLogger(__name__)

STOPS = "this broker stops"
_RECEIVE_BYTES = 1 << 20
#: Pause between two looks while the disk is behind and nothing is read.
_PRESSURE_S = 0.01


class CopySettings(NamedTuple):
    """heartbeat_s: time after which the same offset is reported again. silence_s: the connection to a master that sends
    nothing for longer is given up."""

    heartbeat_s: float
    silence_s: float


class CannotFollow(Exception):
    """This master's log is not the one that is here, or the connection cannot be kept; the text gives the reason."""


class LogsDiffer(CannotFollow):
    """The master has another record at the place of the last one here."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"its record at {offset} is another than the last one here: the logs are not the same")


class Home(NamedTuple):
    """A follower's log, the way to append to it, and that to the log it follows. wake: ends a wait for the socket.
    stopped: returns True to give up; called after each wake. unproved: addresses of ports that requested no proof."""

    store: MessageStore
    call_soon: Callable[[Callable[[], None]], None]
    wake: WakePipe
    stopped: Callable[[], bool]
    clock: Clock
    guard: Guard
    unproved: set[str]

    def is_empty(self) -> bool:
        log = self.store.log
        return self.store.last_record_offset < 0 and log.written == log.min_offset

    def connect(self, address: str, seconds: float) -> socket.socket:
        """Return a non-blocking connection. Raises OSError, CannotFollow when stopped meanwhile."""
        failed = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        try:
            found = socket.getaddrinfo(*split_host_port(address), type=socket.SOCK_STREAM)
        except ValueError as error:  # no address, or a name that cannot be looked up
            raise OSError(errno.EINVAL, str(error)) from None
        for family, kind, protocol, _, where in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = sock.connect_ex(where)
                if code == errno.EINPROGRESS:
                    self.wait_for(sock, select.POLLOUT, seconds)
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    return sock
                raise OSError(code, os.strerror(code))
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
        raise failed

    def call(self, address: str, seconds: float) -> socket.socket:
        """Return a connection to a port for slaves, which does not block: over TLS where that is required, and proved
        where there is a secret. Raises as `connect`, and FrameError."""
        sock, channel = self._call(address, seconds)
        if not self.guard.secret:
            return sock
        from .proving import ProofFailed, prove

        try:
            proved = prove(sock, self.wait_for, self.guard.secret, channel, self.clock)
        except ProofFailed as error:
            sock.close()
            raise CannotFollow(str(error)) from None
        except BaseException:
            sock.close()
            raise
        if proved:
            self.unproved.discard(address)
            return sock
        sock.close()
        tls = self.guard.calls_by
        if tls is not None and not tls.is_own(channel):
            # The peer may be any holder of the authority's certificates; Apache's and older versions take no TLS there.
            raise CannotFollow("it proves no secret, and its certificate is not the one here: it may be anybody's")
        if address not in self.unproved:
            self.unproved.add(address)
            logger.warning(
                "replication: master=%s proves no secret, and is followed without: it is Apache's, of an older "
                "version, or has no haSecretFile",
                address,
            )
        return self._call(address, seconds)[0]

    def _call(self, address: str, seconds: float) -> tuple[socket.socket, bytes]:
        """Return (connection, digest of the certificate that was shown; empty without TLS)."""
        sock = self.connect(address, seconds)
        tls = self.guard.calls_by
        if tls is None:
            return sock, b""
        try:
            return tls.call(sock, self.wait_for)
        except BaseException:
            sock.close()
            raise

    def wait_for(self, sock: socket.socket, events: int, seconds: float) -> None:
        """Wait for one of the poll events. Raises TimeoutError, CannotFollow when stopped meanwhile."""
        if not self.wake.wait_beside(sock, events, seconds, self.clock, self.stopped):
            if self.stopped():
                raise CannotFollow(STOPS)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def last_record(self) -> int:
        """Return the physical offset of the last record, -1 if there is none: its file may have been deleted."""
        last = self.store.last_record_offset
        return last if last >= self.store.log.min_offset else -1


def read_last_record(store: MessageStore) -> tuple[int, bytes]:
    """Return physical offset and bytes of the last record that is shown; (-1, b"") without one. Raises OSError."""
    offset = store.last_record_offset
    return (-1, b"") if offset < store.log.min_offset else (offset, read_record(store, offset))


def read_record(store: MessageStore, offset: int) -> bytes:
    """Return the bytes of the record that begins at a physical offset. Raises OSError."""
    head = store.log.read(offset, 4)
    return store.log.read(offset, int.from_bytes(head, "big")) if len(head) == 4 else b""


class LogCopy:
    """Belongs to the follower's thread, for one connection; nothing is appended once `run` has returned."""

    def __init__(
        self,
        sock: socket.socket,
        frames: Frames,
        home: Home,
        settings: CopySettings,
        on_same: Callable[[], None],
        on_heard: Callable[[], None] = lambda: None,
        taken: Callable[[], int] = lambda: -1,
    ) -> None:
        """sock: does not block. on_same: called when the last record was found to be the master's. on_heard: called
        when bytes were taken. taken: returns the number of changes of topics that are here; -1 is not reported."""
        self._sock = sock
        self._frames = frames
        self._home = home
        self._store = home.store
        self._clock = home.clock
        self._settings = settings
        self._on_same = on_same
        self._on_heard = on_heard
        self._taken = taken
        self._taken_said = -1
        self._appender = ReplicaAppender(home.store)
        self._incoming = Incoming(home.store.log.segment_bytes)
        self._empty = home.is_empty()
        # Bytes below _end are here already, and are compared. _same: offset up to which that was done.
        self._end = self._same = home.store.log.written
        self._last = -1
        self._reported = -1
        #: When something was last reported, by the monotonic clock.
        self.said_at = 0.0

    def run(self, begin: int, early: bytes = b"") -> None:
        """Copy until stopped. begin: offset from which bytes are compared, the last record's or the log's end. early:
        bytes of the stream that arrived already. Raises when it cannot go on."""
        if not self._empty:
            self._incoming.begin(self._end)
        self._same = self._last = begin
        if self._same == self._end:
            self._on_same()
        view = memoryview(bytearray(_RECEIVE_BYTES))
        heard_at = self._clock.monotonic()
        self._report(0 if self._empty else self._same)
        self._take(memoryview(early))
        while not self._home.stopped():
            size = self._receive(view)
            now = self._clock.monotonic()
            if size == 0:
                raise CannotFollow("it closed the connection")
            if size is not None:
                heard_at = now
                self._take(view[:size])
                self._on_heard()
            elif now - heard_at > self._settings.silence_s:
                raise CannotFollow(f"nothing was heard of it for {self._settings.silence_s:g} s")
            kept = 0 if self._empty else self._store.kept()
            if self._same < self._end:
                kept = min(kept, self._same)
            taken = self._taken()
            if taken > self._taken_said:
                self._say(pack_taken(taken))
                self._taken_said = taken
            if kept > self._reported or now - self.said_at >= self._settings.heartbeat_s:
                self._report(kept)

    def _take(self, data: memoryview) -> None:
        """Compare or append the bytes that arrived."""
        incoming = self._incoming
        for offset, piece in self._frames.feed(data):
            if self._same < self._end:
                offset, piece = self._compare(offset, piece)
                if not piece:
                    continue
            if incoming.offset < 0:
                self._begin(offset)
            incoming.feed(offset, piece)
        while not self._home.stopped() and (whole := incoming.take()) is not None:
            self._append(whole)

    def _compare(self, offset: int, piece: memoryview) -> tuple[int, memoryview]:
        """Compare the part of a piece that is here already; return offset and bytes of the part behind the log's end.
        Raises LogsDiffer."""
        known = min(len(piece), self._end - self._same)
        if offset != self._same or self._store.log.read(offset, known) != piece[:known]:
            raise LogsDiffer(self._last)
        self._same += known
        if self._same == self._end:
            self._on_same()
        return offset + known, piece[known:]

    def _begin(self, offset: int) -> None:
        """Begin an empty log at the offset of its first bytes."""
        if offset % self._store.log.segment_bytes:
            raise CannotFollow(f"it begins at {offset}, where none of its files begins")
        self._on_loop(lambda: self._appender.begin_at(offset))
        self._incoming.begin(offset)
        self._empty = False

    def _receive(self, view: memoryview) -> int | None:
        """Receive into `view`; return the number of bytes, 0 at the end of the connection, None if there were none, or
        the disk is behind."""
        poller = select.poll()
        hold = self._store.under_pressure
        if not hold:
            poller.register(self._sock, select.POLLIN)
        poller.register(self._home.wake, select.POLLIN)
        due = self.said_at + self._settings.heartbeat_s - self._clock.monotonic()
        poller.poll((_PRESSURE_S if hold else max(0.0, min(due, 1.0))) * 1000)
        self._home.wake.drain()
        if hold:
            return None
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return None

    def _report(self, offset: int) -> None:
        self._say(pack_report(offset))
        self._reported, self.said_at = offset, self._clock.monotonic()

    def _say(self, report: bytes) -> None:
        """Send a report. Its eight bytes always fit into the socket's buffer, since the master keeps reading."""
        if self._sock.send(report) != len(report):
            raise CannotFollow("it takes no reports")

    def _append(self, piece: Piece) -> None:
        self._on_loop(lambda: self._appender.append(piece))

    def _on_loop(self, job: Callable[[], None]) -> None:
        """Call `job` on remoting-io, and raise its error here."""
        if not raise_from_loop(self._home.call_soon, job, self._home.stopped):
            raise CannotFollow(STOPS)
