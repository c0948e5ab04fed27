"""The slave's side of replication: follows the log of the master, wherever it stands.

Works with Apache's masters as with ours: the stream is the same. A slave has itself sent its last record once more, and
follows only when what comes is what lies here: nothing that was stored is ever written over. Before, the master is
asked for that record (33), which says at once what is wrong; that it is not there may also mean that a sync master does
not show it yet, since it waits for this slave. Follows RocketMQ `DefaultHAClient`.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from ..clock import Clock
from ..errors import CorruptFile, FrameError, RemotingError, StoreBroken
from ..host_port import split_host_port
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.ha_stream import Frames, pack_report
from ..remoting.client import RemotingClient
from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from ..store.replica import Incoming, Piece, ReplicaAppender

logger = logging.getLogger(__name__)

CONNECT_S = 3.0
ASK_MS = 3000
#: A master that cannot be followed is tried again so often; the wait doubles from the first to the last.
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 5.0
_RECEIVE_BYTES = 1 << 20
#: A rate that is older is not told: nothing has come since.
_PACE_KNOWN_S = 3.0
#: How long nothing is read while the disk is behind.
_PRESSURE_S = 0.01


class Master(NamedTuple):
    """Where a master is: for requests ("" when nobody has said), and for its log. "host:port"."""

    address: str
    ha_address: str


class FollowerSettings(NamedTuple):
    heartbeat_s: float
    silence_s: float


class FollowerStatus(NamedTuple):
    """following: the master's HA address, "" while there is none. end: so far the log is kept here. why_not: what went
    wrong the last time, "" when all is well. since_s: how long it is followed, or has not been; None: not since the
    start. heard_s, said_s: since the master said something, or was told something; None: never. bytes_per_s: how fast
    the log grows here."""

    following: str
    end: int
    why_not: str
    since_s: float | None = None
    heard_s: float | None = None
    said_s: float | None = None
    bytes_per_s: float = 0.0


class _CannotFollow(Exception):
    """This master's log is not the one that is here, or the connection is not worth keeping; the text says why."""


class Follower(ServiceThread):
    """The thread `follow-master`. Owns: the connection to the master. Woken by: it, the sync of the log."""

    def __init__(
        self,
        store: MessageStore,
        call_soon: Callable[[Callable[[], None]], None],
        master: Callable[[], Master | None],
        find_master: Callable[[], None],
        settings: FollowerSettings,
        clock: Clock,
    ) -> None:
        """master: where it is now, as far as anybody knows. find_master: have somebody ask again."""
        super().__init__("follow-master", clock)
        # Constant after construction.
        self._store = store
        self._call_soon = call_soon
        self._master = master
        self._find_master = find_master
        self._settings = settings
        self._appender = ReplicaAppender(store)
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        #: (master's address, code, fields) -> answer; a seam for tests.
        self.ask: Callable[[str, int, dict[str, str]], RemotingCommand] = self._ask
        # Written by this thread, read by anyone.
        self._following = ""
        self._why_not = "no name server has told where the master is"
        #: Whether this log was seen to be the master's: before that, and when it is not, nothing is taken over from it.
        self.agrees = False
        # Owned by this thread. _doubt: why the master may have another log, "" when nothing is known against it.
        self._doubt = ""
        self._reported = -1
        self._said_at = 0.0
        # The same, for status; by the monotonic clock, None: never. _pace: since when, where the log ended then, and
        # its bytes a second before.
        self._since: float | None = None
        self._heard_at: float | None = None
        self._pace = (0.0, 0, 0.0)

    @property
    def status(self) -> FollowerStatus:
        now = self.clock.monotonic()

        def ago(at: float | None) -> float | None:
            return None if at is None else max(0.0, now - at)

        pace = self._pace
        return FollowerStatus(
            self._following,
            self._store.kept(),
            self._why_not,
            ago(self._since),
            ago(self._heard_at),
            ago(self._said_at or None),
            pace[2] if self._following and now - pace[0] < _PACE_KNOWN_S else 0.0,
        )

    def log_kept(self) -> None:
        """What was appended is kept now: the master may be told. Any thread."""
        try:
            self._wake_out.send(b"w")
        except OSError:  # full, so it wakes; or gone
            pass

    def wakeup(self) -> None:
        super().wakeup()
        self.log_kept()

    # --- this thread

    def run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self.stopped:
            master = self._master()
            if master is not None:
                begun = self.clock.monotonic()
                try:
                    self._follow(master)
                except (OSError, FrameError, CorruptFile, StoreBroken, RemotingError, _CannotFollow) as error:
                    self._tell(master, self._doubt or str(error) or type(error).__name__)
                    self._find_master()  # it may have moved
                except Exception as error:  # whatever a master says, the next one may be followed
                    logger.exception("replication: failed at master=%s", master.ha_address)
                    self._why_not = f"{type(error).__name__}: {error}"
                    self._find_master()
                if self.clock.monotonic() - begun > LAST_RETRY_S:
                    retry_s = FIRST_RETRY_S
            self.wait(retry_s)
            retry_s = min(LAST_RETRY_S, 2 * retry_s)
        for sock in (self._wake_in, self._wake_out):
            sock.close()

    def _tell(self, master: Master, why_not: str) -> None:
        if why_not and why_not != self._why_not and not self.stopped:
            logger.warning("replication: cannot follow master=%s: %s", master.ha_address, why_not)
        self._why_not = why_not

    def _follow(self, master: Master) -> None:
        """Until something is wrong; says so by what it raises."""
        self._doubt = ""
        self._look_at_history(master)
        sock = socket.create_connection(split_host_port(master.ha_address), CONNECT_S)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            logger.info("replication: following master=%s from=%d", master.ha_address, self._store.log.written)
            self._following = master.ha_address
            self._since, self._pace = self.clock.monotonic(), (self.clock.monotonic(), self._store.log.written, 0.0)
            self._tell(master, self._doubt)
            self._copy(sock)
        finally:
            if self._following:
                self._following, self._since = "", self.clock.monotonic()
            sock.close()

    def _is_empty(self) -> bool:
        log = self._store.log
        return self._store.last_record_offset < 0 and log.written == log.min_offset

    def _last_here(self) -> int:
        """Where the last record lies, -1 when none does: its file may have left the log."""
        last = self._store.last_record_offset
        return last if last >= self._store.log.min_offset else -1

    def _look_at_history(self, master: Master) -> None:
        """Whether the master has the last record that lies here. Raises _CannotFollow when it has another one."""
        store = self._store
        offset = self._last_here()
        if offset < 0 or not master.address:
            return
        head = store.log.read(offset, 4)
        ours = store.log.read(offset, int.from_bytes(head, "big")) if len(head) == 4 else b""
        answer = self.ask(master.address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        if answer.code != ResponseCode.SUCCESS:
            self.agrees = False
            self._doubt = (
                f"it does not have the record at {offset} that is the last one here ({answer.remark or answer.code}): "
                "this log is ahead of it, or it has deleted what is missing here"
            )
        elif answer.body != ours:
            self._differs(offset)

    def _differs(self, offset: int) -> NoReturn:
        self.agrees = False
        self._doubt = ""
        raise _CannotFollow(f"its record at {offset} is another than the last one here: the logs are not the same")

    def _ask(self, address: str, code: int, fields: dict[str, str]) -> RemotingCommand:
        client = RemotingClient(address, ASK_MS, self.clock)
        try:
            return client.invoke_sync(RemotingCommand(code, ext_fields=fields), ASK_MS)
        finally:
            client.close()

    def _copy(self, sock: socket.socket) -> None:
        store = self._store
        incoming = Incoming(store.log.segment_bytes)
        frames = Frames(store.log.segment_bytes)
        empty = self._is_empty()
        end = store.log.written
        last = self._last_here()
        if not empty:
            incoming.begin(end)
        # What comes below `end` lies here already, and is compared. `same`: up to where that was done.
        # To ask for 0 is to ask as an empty slave does: only where nothing else told whether the record is the same.
        same = last if last > 0 or (last == 0 and self._doubt) else end
        if same == end:
            self._found_same()
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        heard_at = self.clock.monotonic()
        self._report(sock, 0 if empty else same)
        while not self.stopped:
            size = self._receive(sock, view)
            now = self.clock.monotonic()
            if size == 0:
                raise _CannotFollow("it closed the connection")
            if size is not None:
                heard_at = self._heard_at = now
                for offset, data in frames.feed(view[:size]):
                    if same < end:
                        known = min(len(data), end - same)
                        if offset != same or store.log.read(offset, known) != data[:known]:
                            self._differs(last)
                        offset, data, same = offset + known, data[known:], same + known
                        if same == end:
                            self._found_same()
                        if not data:
                            continue
                    if incoming.offset < 0:
                        self._begin(offset, len(data))
                        incoming.begin(offset)
                        empty = False
                    incoming.feed(offset, data)
                while (piece := incoming.take()) is not None:
                    self._append(piece)
            elif now - heard_at > self._settings.silence_s:
                raise _CannotFollow(f"nothing was heard of it for {self._settings.silence_s:g} s")
            if now - self._pace[0] >= 1.0:
                end_now = store.log.written
                self._pace = (now, end_now, max(0, end_now - self._pace[1]) / (now - self._pace[0]))
            kept = 0 if empty else store.kept()
            if same < end:
                kept = min(kept, same)
            if kept > self._reported or now - self._said_at >= self._settings.heartbeat_s:
                self._report(sock, kept)

    def _found_same(self) -> None:
        self.agrees, self._doubt, self._why_not = True, "", ""

    def _begin(self, offset: int, size: int) -> None:
        """The first bytes of an empty log."""
        if offset % self._store.log.segment_bytes:
            raise _CannotFollow(f"it begins at {offset}, where none of its files begins")
        self._on_loop(lambda: self._appender.begin_at(offset))

    def _receive(self, sock: socket.socket, view: memoryview) -> int | None:
        """Bytes that came, 0 at the end of the connection, None when there was something else to look at."""
        store = self._store
        poller = select.poll()
        hold = store.under_pressure
        if not hold:
            poller.register(sock, select.POLLIN)
        poller.register(self._wake_in, select.POLLIN)
        due = self._said_at + self._settings.heartbeat_s - self.clock.monotonic()
        poller.poll((_PRESSURE_S if hold else max(0.0, min(due, 1.0))) * 1000)
        try:
            self._wake_in.recv(4096)
        except BlockingIOError:
            pass
        if hold:
            return None
        try:
            return sock.recv_into(view)
        except BlockingIOError:
            return None

    def _report(self, sock: socket.socket, offset: int) -> None:
        """Eight bytes always find room: the master reads them before it may close."""
        if sock.send(pack_report(offset)) != struct.calcsize(">q"):
            raise _CannotFollow("it takes no reports")
        self._reported, self._said_at = offset, self.clock.monotonic()

    def _append(self, piece: Piece) -> None:
        self._on_loop(lambda: self._appender.append(piece))

    def _on_loop(self, job: Callable[[], None]) -> None:
        """Do it on remoting-io, and raise here what it raises there."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                job()
            except BaseException as error:
                failed.append(error)

        if not run_on_loop(self._call_soon, run, lambda: self.stopped):
            raise _CannotFollow("this broker stops")
        if failed:
            raise failed[0]

    def stop(self, deadline: float = 5.0) -> bool:
        return super().stop(deadline)
