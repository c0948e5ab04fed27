"""One slave that follows this broker: a connection, and the thread that serves it.

The thread sends slices of the log's files, by sendfile from the page cache or the disk, and reads the slave's reports.
The I/O thread only wakes it when the log has grown. Follows RocketMQ `DefaultHAConnection`. `bound_link.py` has the
rest of a link to a set's member.
"""

from __future__ import annotations

import logging
import math
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..clock import Clock
from ..errors import FrameError
from ..host_port import split_host_port
from ..protocol.ha_preamble import SAYS_TAKEN, Hello, Opening, Proof, Prove, Reason, Refusal, is_preamble, pack
from ..protocol.ha_stream import Reports, pack_header, taken_of
from ..service_thread import ServiceThread
from ..store.log.commit_log import CommitLog
from ..store.log.segments import Segment
from .ack_pace import AckPace
from .bound_link import Door, Pulse
from .roles import NO_GUARD, Guard
from .wake_pipe import WakePipe

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from .proving import Challenger

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 64 * 1024
#: Pause of sending when the flow limit is used up.
_FLOW_WAIT_S = 0.01
#: Time that a peer which haSlaveAddresses does not name has for TLS and the proof of the secret.
PROVES_S = 5.0
#: More changes of topics than there will ever be.
_EVERYTHING = 1 << 62
#: Frames in a row before the slave's reports are looked at.
_FRAMES_IN_A_ROW = 64


class LinkSettings(NamedTuple):
    """The settings of links. bytes_per_s: 0 for no limit. from_last_file: an empty slave gets the log from the start
    of the last file, as from Apache's masters; else all of it. late_s: a member's acknowledgement that takes longer is
    late; 0: none is. allowed: networks of slaves; empty: any."""

    heartbeat_s: float
    silence_s: float
    batch_bytes: int
    bytes_per_s: int
    from_last_file: bool
    late_s: float = 0.0
    allowed: tuple[IPv4Network | IPv6Network, ...] = ()


class LinkStatus(NamedTuple):
    """Status of a slave. acknowledged: offset up to which it holds the log, -1 before its first report. sent: offset up
    to which the kernel took it. heard_s: seconds since it last sent anything. bytes_per_s: rate at which it is sent the
    log. member: its uuid if it is a member of the set."""

    peer: str
    acknowledged: int
    sent: int
    connected_s: float
    member: str = ""
    heard_s: float = 0.0
    bytes_per_s: float = 0.0


class _Ended(Exception):
    """The connection is no longer served; the text gives the reason."""


class SlaveLink(ServiceThread):
    """The thread `replicate-<peer>`. Owns: the connection to one slave. Woken by: the log, the socket."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        log: CommitLog,
        sendable: Callable[[], int],
        settings: LinkSettings,
        admit: Callable[[SlaveLink, int], str],
        on_progress: Callable[[], None],
        on_end: Callable[[SlaveLink], None],
        clock: Clock,
        door: Door | None = None,
        guard: Guard = NO_GUARD,
        is_named: bool = True,
    ) -> None:
        """sendable: returns the offset up to which the log may be sent. admit: takes it as a slave from an offset on,
        and returns "" or why it is refused; on this thread. on_progress, on_end: called on this thread.
        door: of a set's leader. is_named: haSlaveAddresses names it, so that it needs no proof of the secret."""
        super().__init__(f"replicate-{peer}", clock)
        # Constant after construction.
        self.peer = peer
        self._sock = sock
        self._log = log
        self._sendable = sendable
        self._settings = settings
        self._admit = admit
        self._on_progress = on_progress
        self._on_end = on_end
        self._door = door
        self._guard = guard
        self.is_named = is_named
        self._wake = WakePipe()
        sock.setblocking(False)
        # Written by this thread, read by anyone. moved_at: when `acknowledged` last grew, or nothing was missing.
        self.acknowledged = -1
        self.sent = -1
        #: Reason why it is no longer served; "" while it is.
        self.ended = ""
        #: True if it ended because it may not follow, or while that was not known.
        self.turned_away = False
        self.connected_at = self.moved_at = clock.steady()
        #: Number of changes of topics by administrators that a member has reported to have; -1: no report yet. A member
        #: of an older version, which does not report it, counts as having all.
        self.taken = -1
        self.pace = AckPace(settings.late_s)
        # Written by the door, or by `admit`: its uuid if it is a member of the set; true of any other slave.
        self.member = ""
        self.observes = False
        # True while the thread is about to sleep; the next growth of the log wakes it once.
        self._sleeps = False
        # Owned by this thread. _head: unsent rest of a frame's header; _left: bytes of its body that were not sent.
        # _opening: set until the peer's first bytes are known; only if members may connect.
        # _challenger: set until it is known whether the peer may follow; only if there is a secret.
        self._opening = Opening() if door is not None or guard.secret else None
        self._challenger: Challenger | None = None
        self._pulse: Pulse | None = None
        self._reports = Reports()
        self._head = b""
        self._left = 0
        self._segment: Segment | None = None
        self._wrote_at = self._heard_at = self._filled_at = clock.monotonic()
        self._allowed = float(settings.bytes_per_s)

    def log_grew(self) -> None:
        """Wake the thread if it sleeps. Any thread."""
        if self._sleeps:
            self._sleeps = False
            self.wakeup()

    def wakeup(self) -> None:
        self._wake.wake()

    @property
    def host(self) -> str:
        return split_host_port(self.peer)[0]

    @property
    def status(self) -> LinkStatus:
        connected_s = self.clock.steady() - self.connected_at
        return LinkStatus(self.peer, self.acknowledged, self.sent, connected_s, self.member, self.silent_s)

    @property
    def silent_s(self) -> float:
        """Seconds since something came from it."""
        return self.clock.monotonic() - self._heard_at

    # --- this thread

    def run(self) -> None:
        reason = "this broker stops"
        level = logging.DEBUG  # until it may follow: strangers come as often as they like
        try:
            self._come_in()
            level = logging.INFO
            while not self.stopped:
                blocked = self._send_some()
                self._sleep(blocked)
                self._receive()
                if self.silent_s > self._settings.silence_s:
                    raise _Ended(f"nothing was heard of it for {self._settings.silence_s:g} s")
        except (_Ended, FrameError) as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            self.ended = reason
            self._let_go()
            self._sock.close()
            self._wake.close()
            logger.log(
                level, "replication: slave gone peer=%s acknowledged=%d: %s", self.peer, self.acknowledged, reason
            )
            self._on_end(self)

    def _come_in(self) -> None:
        """Shake hands, if the peer begins with TLS, and have a secret proved, if there is one."""
        guard, channel = self._guard, b""
        if guard.tls is None and not guard.secret:
            return
        self.turned_away = True
        until = math.inf if self.is_named else self.clock.monotonic() + PROVES_S

        def wait(sock: socket.socket, events: int, seconds: float) -> None:
            self._wait_for(sock, events, min(seconds, until - self.clock.monotonic()))

        if guard.tls is not None:
            self._sock, channel = guard.tls.serve(self._sock, wait, self._settings.silence_s)
        if guard.secret:
            from .proving import Challenger

            self._challenger = challenger = Challenger(guard.secret, channel)
            while not (self.is_named or challenger.is_proved):
                wait(self._sock, select.POLLIN, PROVES_S)
                self._receive()
        self.turned_away = False

    def _wait_for(self, sock: socket.socket, events: int, seconds: float) -> None:
        """Wait for one of the poll events. Raises TimeoutError, _Ended when stopped meanwhile."""
        if not self._wake.wait_beside(sock, events, seconds, self.clock, lambda: self.stopped):
            if self.stopped:
                raise _Ended("this broker stops, or others needed its place")
            raise TimeoutError("it sent nothing in time")

    def _sleep(self, blocked: bool) -> None:
        """Sleep until the slave sends something, the log grows, the socket takes more, or something is due."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | (select.POLLOUT if blocked else 0))
        poller.register(self._wake, select.POLLIN)
        now = self.clock.monotonic()
        due = self._heard_at + self._settings.silence_s
        if self.sent >= 0 and not blocked:
            due = min(due, self._heartbeat_at())
        seconds = max(0.0, due - now)
        if not blocked and self.sent >= 0:
            self._sleeps = True  # set before the log's end is read: growth in between wakes the thread
            if self.sent < self._sendable():
                seconds = _FLOW_WAIT_S if self._allowed < 1 and self._settings.bytes_per_s else 0.0
        poller.poll(seconds * 1000)
        self._sleeps = False
        self._wake.drain()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.turned_away = False
            raise _Ended("it closed the connection")
        self._heard_at = self.clock.monotonic()
        if self._opening is not None:
            data = self._meet(self._opening, data)
        offsets = self._reports.feed(data)
        if self.member:
            for offset in offsets:
                self._take_report(offset)
        elif offsets:
            self._take_report(offsets[-1])

    def _meet(self, opening: Opening, data: bytes) -> bytes:
        """Take the first bytes of a connection if members may connect; return those of them that are reports."""
        if not opening.begun and not is_preamble(data):
            self._opening = None
            if why := self._unproved():
                raise _Ended(why)
            return data
        hello = opening.feed(data)
        if hello is None:
            return b""
        if isinstance(hello, Prove | Proof) and self._challenger is not None:
            return self._challenge(self._challenger, hello, opening.rest)
        door = self._door
        if door is None or not isinstance(hello, Hello):
            raise _Ended("it answers what it was not asked")
        if why := self._unproved():
            self._sock.send(pack(Refusal(Reason.NOT_PROVED, door.leading.epoch, why)))
            raise _Ended(why)
        refusal = door.member(self, hello)
        if refusal is not None:
            self._sock.send(pack(refusal))  # the first bytes of a connection find room
            raise _Ended(f"refused uuid={hello.uuid} epoch={hello.epoch}: {refusal.text}")
        self._opening = None
        if not hello.features & SAYS_TAKEN:
            # Changes cannot wait for a report that never comes; the member fetches the tables each second by itself.
            self.taken = _EVERYTHING
            logger.warning(
                "replication: member uuid=%s peer=%s is of an older version: changes of topics do not wait for it",
                hello.uuid, self.peer,
            )  # fmt: skip
        self._pulse = Pulse(door.leading)
        self._head = pack(door.leading.answer(self._log.min_offset, self._sendable()))
        logger.info("replication: member bound peer=%s uuid=%s epoch=%d", self.peer, hello.uuid, hello.epoch)
        return opening.rest

    def _challenge(self, challenger: Challenger, said: Prove | Proof, rest: bytes) -> bytes:
        """Take a step of the proof; return as `_meet`."""
        answer = challenger.answer(said)
        self._sock.send(pack(answer))  # the first bytes of a connection find room
        if isinstance(answer, Refusal):
            self.turned_away = True
            raise _Ended(answer.text)
        self._opening = opening = Opening()
        return self._meet(opening, rest) if rest else b""

    def _unproved(self) -> str:
        """Return why a peer that requests the log is refused it; "" if it is not. Warn of one without a proof."""
        challenger, self._challenger = self._challenger, None
        if challenger is None or challenger.is_proved:
            return ""
        if not self.is_named:
            return "it has not proved the secret in haSecretFile, and haSlaveAddresses does not name it"
        logger.warning(
            "replication: slave peer=%s has not proved the secret in haSecretFile; it is served since haSlaveAddresses "
            "names it", self.peer,
        )  # fmt: skip
        return ""

    def _take_report(self, offset: int) -> None:
        if offset < 0 and self.member and self.sent >= 0 and (taken := taken_of(offset)) >= 0:
            self.taken = max(self.taken, taken)
            return
        end = self._sendable()
        if self.sent < 0:
            if not self.member and (why := self._admit(self, offset)):
                logger.error("replication: a slave is not served peer=%s: %s", self.peer, why)
                raise _Ended(why)
            self.sent = self._begin(offset, end)
            logger.info("replication: slave follows peer=%s from=%d asked=%d", self.peer, self.sent, offset)
        elif not 0 <= offset <= self.sent:
            raise _Ended(f"it says that it has the log up to {offset}, but was sent it up to {self.sent}")
        if offset > self.acknowledged:
            self.acknowledged = offset
            self.moved_at = now = self.clock.steady()
            self.pace.takes(offset, end, now)
            self._on_progress()
        elif offset < self.acknowledged and self.member:
            raise _Ended(f"it kept the log up to {self.acknowledged}, and now up to {offset}")

    def _begin(self, offset: int, end: int) -> int:
        """Return the offset from which a slave that has the log up to `offset` is sent it. Raises _Ended if it
        cannot be."""
        low = self._log.min_offset
        if not offset:
            if self._settings.from_last_file and not self.member:
                return max(low, end - end % self._log.segment_bytes)
            return low
        if offset < 0:
            raise _Ended(f"{offset} is no offset")
        if offset > end:
            raise _Ended(f"it is ahead: its log ends at {offset}, this one at {end}; nothing is overwritten")
        if offset < low:
            raise _Ended(f"it asks for {offset}, but this log begins at {low}: empty its store to start again")
        return offset

    # --- sending

    def _send_some(self) -> bool:
        """Send what there is, up to _FRAMES_IN_A_ROW frames; True if the socket takes no further bytes."""
        try:
            for _ in range(_FRAMES_IN_A_ROW):
                if not self._head and not self._left and not self._next_frame():
                    return False
                self._push()
        except BlockingIOError:
            return True
        return False

    def _next_frame(self) -> bool:
        """Begin the next frame, or a heartbeat; False if there is nothing to send."""
        if self.sent < 0:
            return False
        now = self.clock.monotonic()
        self._head = self._heartbeat(now)
        if self._head:
            return True
        end = self._sendable()
        size = min(end - self.sent, self._settings.batch_bytes, self._may_send(now))
        if size <= 0:
            return False
        segment = self._log.segment_at(self.sent)
        if segment is None or not segment.hold():
            raise _Ended(f"it is at {self.sent}, which has been deleted here: it was too slow")
        steady = self.clock.steady()
        if self.acknowledged >= self.sent:  # nothing was missing until now
            self.moved_at = steady
        self.pace.sends(end, steady)
        self._segment = segment
        self._left = min(size, segment.end - self.sent)
        self._allowed -= self._left
        self._head = pack_header(self.sent, self._left)
        return True

    def _heartbeat(self, now: float) -> bytes:
        """Return the headers that are due beside the log, b"" for none."""
        if self._pulse is not None:
            return self._pulse.due(now, self._wrote_at, self.sent, self.taken)
        return pack_header(self.sent, 0) if now >= self._heartbeat_at() else b""

    def _heartbeat_at(self) -> float:
        if self._pulse is not None:
            return self._pulse.next_at(self._wrote_at, self.sent)
        return self._wrote_at + self._settings.heartbeat_s

    def _may_send(self, now: float) -> int:
        rate = self._settings.bytes_per_s
        if not rate:
            return self._settings.batch_bytes
        self._allowed = min(float(rate), self._allowed + (now - self._filled_at) * rate)
        self._filled_at = now
        return int(self._allowed)

    def _push(self) -> None:
        """Send as much of the frame as the socket takes at once. Raises BlockingIOError."""
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
