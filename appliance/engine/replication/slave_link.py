"""One slave that follows this broker: a connection, and the thread that serves it.

The thread sends slices of the log's files, by sendfile from the page cache or the disk, and reads how far the slave
has come. The I/O thread does nothing for it but say that the log has grown. Follows RocketMQ `DefaultHAConnection`.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock
from ..protocol.ha_stream import Reports, pack_header
from ..service_thread import ServiceThread
from ..store.log.commit_log import CommitLog
from ..store.log.segments import Segment

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 64 * 1024
#: How long sending waits when the flow limit is used up.
_FLOW_WAIT_S = 0.01
#: Frames in a row before the slave's reports are looked at.
_FRAMES_IN_A_ROW = 64


class LinkSettings(NamedTuple):
    """What of the configuration a link needs. bytes_per_s: 0 for no limit. from_last_file: an empty slave gets the log
    from the start of the last file, as from Apache's masters; else all that is there."""

    heartbeat_s: float
    silence_s: float
    batch_bytes: int
    bytes_per_s: int
    from_last_file: bool


class LinkStatus(NamedTuple):
    """What can be seen of a slave. acknowledged: so far it holds the log, -1 before it said anything. sent: so far the
    kernel took it. heard_s: seconds since it last said anything. bytes_per_s: how fast it is sent the log."""

    peer: str
    acknowledged: int
    sent: int
    connected_s: float
    heard_s: float = 0.0
    bytes_per_s: float = 0.0


class _Ended(Exception):
    """The connection is not served any further; the text says why."""


class SlaveLink(ServiceThread):
    """The thread `replicate-<peer>`. Owns: the connection to one slave. Woken by: the log, the socket."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        log: CommitLog,
        sendable: Callable[[], int],
        settings: LinkSettings,
        on_progress: Callable[[], None],
        on_end: Callable[[SlaveLink], None],
        clock: Clock,
    ) -> None:
        """sendable: up to where the log may be sent. on_progress, on_end: on this thread."""
        super().__init__(f"replicate-{peer}", clock)
        # Constant after construction.
        self.peer = peer
        self._sock = sock
        self._log = log
        self._sendable = sendable
        self._settings = settings
        self._on_progress = on_progress
        self._on_end = on_end
        self._wake_in, self._wake_out = socket.socketpair()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        # Written by this thread, read by anyone.
        self.acknowledged = -1
        self.sent = -1
        #: Why it is not served any further; "" while it is.
        self.ended = ""
        self._connected_at = clock.monotonic()
        # True while the thread is about to sleep; whoever grows the log wakes it once.
        self._sleeps = False
        # Owned by this thread. _head: what is left of a frame's header; _left: bytes of its body that were not sent.
        self._reports = Reports()
        self._head = b""
        self._left = 0
        self._segment: Segment | None = None
        self._wrote_at = self._heard_at = self._filled_at = clock.monotonic()
        self._allowed = float(settings.bytes_per_s)

    def log_grew(self) -> None:
        """Any thread."""
        if self._sleeps:
            self._sleeps = False
            self.wakeup()

    def wakeup(self) -> None:
        try:
            self._wake_out.send(b"w")
        except OSError:  # full, so it wakes; or gone
            pass

    @property
    def status(self) -> LinkStatus:
        now = self.clock.monotonic()
        return LinkStatus(self.peer, self.acknowledged, self.sent, now - self._connected_at, now - self._heard_at)

    # --- this thread

    def run(self) -> None:
        reason = "this broker stops"
        try:
            while not self.stopped:
                blocked = self._send_some()
                self._sleep(blocked)
                self._receive()
                if self.clock.monotonic() - self._heard_at > self._settings.silence_s:
                    raise _Ended(f"nothing was heard of it for {self._settings.silence_s:g} s")
        except _Ended as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            self.ended = reason
            self._let_go()
            for sock in (self._sock, self._wake_in, self._wake_out):
                sock.close()
            logger.info("replication: slave gone peer=%s acknowledged=%d: %s", self.peer, self.acknowledged, reason)
            self._on_end(self)

    def _sleep(self, blocked: bool) -> None:
        """Until the slave says something, the log grows, the socket takes more, or something is due."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | (select.POLLOUT if blocked else 0))
        poller.register(self._wake_in, select.POLLIN)
        now = self.clock.monotonic()
        due = self._heard_at + self._settings.silence_s
        if self.sent >= 0 and not blocked:
            due = min(due, self._wrote_at + self._settings.heartbeat_s)
        seconds = max(0.0, due - now)
        if not blocked and self.sent >= 0:
            self._sleeps = True  # first said, then looked: what grows in between wakes
            if self.sent < self._sendable():
                seconds = _FLOW_WAIT_S if self._allowed < 1 and self._settings.bytes_per_s else 0.0
        poller.poll(seconds * 1000)
        self._sleeps = False
        try:
            self._wake_in.recv(4096)
        except BlockingIOError:
            pass

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise _Ended("it closed the connection")
        self._heard_at = self.clock.monotonic()
        offsets = self._reports.feed(data)
        if offsets:
            self._take_report(offsets[-1])

    def _take_report(self, offset: int) -> None:
        end = self._sendable()
        if self.sent < 0:
            self.sent = self._begin(offset, end)
            logger.info("replication: slave follows peer=%s from=%d asked=%d", self.peer, self.sent, offset)
        elif not 0 <= offset <= self.sent:
            raise _Ended(f"it says that it has the log up to {offset}, but was sent it up to {self.sent}")
        if offset > self.acknowledged:
            self.acknowledged = offset
            self._on_progress()

    def _begin(self, offset: int, end: int) -> int:
        """From where a slave gets the log that has it up to `offset`."""
        low = self._log.min_offset
        if not offset:
            return max(low, end - end % self._log.segment_bytes) if self._settings.from_last_file else low
        if offset < 0:
            raise _Ended(f"{offset} is no offset")
        if offset > end:
            raise _Ended(f"it is ahead: its log ends at {offset}, this one at {end}; nothing is overwritten")
        if offset < low:
            raise _Ended(f"it asks for {offset}, but this log begins at {low}: empty its store to start again")
        return offset

    # --- sending

    def _send_some(self) -> bool:
        """Send what there is, for a while; whether the socket takes no more."""
        try:
            for _ in range(_FRAMES_IN_A_ROW):
                if not self._head and not self._left and not self._next_frame():
                    return False
                self._push()
        except BlockingIOError:
            return True
        return False

    def _next_frame(self) -> bool:
        """Begin the next frame, or a heartbeat; False when there is nothing to say."""
        if self.sent < 0:
            return False
        now = self.clock.monotonic()
        if now - self._wrote_at >= self._settings.heartbeat_s:
            self._head = pack_header(self.sent, 0)
            return True
        size = min(self._sendable() - self.sent, self._settings.batch_bytes, self._may_send(now))
        if size <= 0:
            return False
        segment = self._log.segment_at(self.sent)
        if segment is None or not segment.hold():
            raise _Ended(f"it is at {self.sent}, which has been deleted here: it was too slow")
        self._segment = segment
        self._left = min(size, segment.end - self.sent)
        self._allowed -= self._left
        self._head = pack_header(self.sent, self._left)
        return True

    def _may_send(self, now: float) -> int:
        rate = self._settings.bytes_per_s
        if not rate:
            return self._settings.batch_bytes
        self._allowed = min(float(rate), self._allowed + (now - self._filled_at) * rate)
        self._filled_at = now
        return int(self._allowed)

    def _push(self) -> None:
        """Send of the frame what the socket takes at once. Raises BlockingIOError."""
        if self._head:
            sent = self._sock.send(self._head, socket.MSG_MORE if self._left else 0)
            self._head = self._head[sent:]
            self._wrote_at = self.clock.monotonic()
            if self._head:
                raise BlockingIOError
        while self._left:
            segment = self._segment
            assert segment is not None
            sent = self._log.send_to(self._sock, segment, self.sent, self._left)
            if not sent:
                raise _Ended(f"{segment.path.name} ends before {self.sent + self._left}")
            self._wrote_at = self.clock.monotonic()
            self._left -= sent
            self.sent += sent
        self._let_go()

    def _let_go(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.release()
