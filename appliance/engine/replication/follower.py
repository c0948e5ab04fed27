"""The slave's side of replication: follows the log of the master, wherever it is.

Works with Apache's masters as with RocketBox's: the stream is the same. A slave has its last record sent again, and
follows only if the bytes are the same as here: stored bytes are never overwritten. Before that, it queries that record
from the master (33), which shows at once if the logs differ. If the record is missing there, a sync master may just not
show it yet, since it waits for this slave. Follows RocketMQ `DefaultHAClient`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CorruptFile, FrameError, RemotingError, StoreBroken
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.ha_stream import Frames
from ..remoting.client import RemotingClient
from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from .log_copy import CannotFollow, CopySettings, Home, LogCopy, LogsDiffer
from .roles import NO_GUARD, Guard
from .wake_pipe import WakePipe

if TYPE_CHECKING:
    from ..remoting.event_loop import EventLoop
    from .shared_secret import Greeting

logger = logging.getLogger(__name__)

CONNECT_S = 3.0
ASK_MS = 3000
#: Waits before a master that cannot be followed is tried again: doubling from the first to the last.
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 5.0
#: A rate that was measured longer ago is shown as 0: nothing has arrived since.
_PACE_KNOWN_S = 3.0


class Master(NamedTuple):
    """A master's addresses: for requests ("" if unknown), and for its log. "host:port"."""

    address: str
    ha_address: str


class FollowerStatus(NamedTuple):
    """following: the master's HA address, "" while there is none. end: offset up to which the log is kept here.
    why_not: the last failure, "" when all is well. since_s: seconds that it has been followed, or has not been; None:
    not since the start. heard_s, said_s: seconds since the master sent something, or was sent a report; None: never.
    bytes_per_s: growth of the log here."""

    following: str
    end: int
    why_not: str
    since_s: float | None = None
    heard_s: float | None = None
    said_s: float | None = None
    bytes_per_s: float = 0.0


class Follower(ServiceThread):
    """The thread `follow-master`. Owns: the connection to the master. Woken by: it, the sync of the log."""

    def __init__(
        self,
        store: MessageStore,
        loop: EventLoop,
        master: Callable[[], Master | None],
        find_master: Callable[[], None],
        settings: CopySettings,
        greeting: Callable[[], Greeting | None] = lambda: None,
        guard: Guard = NO_GUARD,
    ) -> None:
        """master: returns its addresses as known now, None if unknown. find_master: has name servers queried again.
        greeting: makes the proof of this slave for a client."""
        super().__init__("follow-master", loop.clock)
        # Constant after construction.
        self._store = store
        self._master = master
        self._find_master = find_master
        self._settings = settings
        self._greeting = greeting
        self._guard = guard
        self._wake = WakePipe()
        self._home = Home(store, loop.call_soon, self._wake, lambda: self.stopped, loop.clock, guard, set())
        #: (master's address, code, fields) -> answer; a seam for tests.
        self.ask: Callable[[str, int, dict[str, str]], RemotingCommand] = self._ask
        # Written by this thread, read by anyone.
        self._following = ""
        self._why_not = "no name server has told where the master is"
        #: True once this log was found to be the master's; as long as it is not, nothing is taken over from it.
        self.agrees = False
        # Owned by this thread. _doubt: why the master may have another log, "" while nothing suggests it.
        self._doubt = ""
        # Written by this thread, for status; by the monotonic clock, None: never. _pace: when it was last measured,
        # the log's end then, and its bytes a second before.
        self._since: float | None = None
        self._heard_at: float | None = None
        self._said_at: float | None = None
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
            ago(self._said_at),
            pace[2] if self._following and now - pace[0] < _PACE_KNOWN_S else 0.0,
        )

    def log_kept(self) -> None:
        """Report to the master: what was appended is kept now. Any thread."""
        self._wake.wake()

    def wakeup(self) -> None:
        super().wakeup()
        self._wake.wake()

    # --- this thread

    def run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self.stopped:
            master = self._master()
            if master is not None:
                begun = self.clock.monotonic()
                try:
                    self._follow(master)
                except (OSError, FrameError, CorruptFile, StoreBroken, RemotingError, CannotFollow) as error:
                    self._tell(master, self._doubt or str(error) or type(error).__name__)
                    self._find_master()  # it may have moved
                except Exception as error:  # whatever a master sends, the next one may be followed
                    logger.exception("replication: failed at master=%s", master.ha_address)
                    self._why_not = f"{type(error).__name__}: {error}"
                    self._find_master()
                if self.clock.monotonic() - begun > LAST_RETRY_S:
                    retry_s = FIRST_RETRY_S
            self.wait(retry_s)
            retry_s = min(LAST_RETRY_S, 2 * retry_s)
        self._wake.close()

    def _tell(self, master: Master, why_not: str) -> None:
        if why_not and why_not != self._why_not and not self.stopped:
            logger.warning("replication: cannot follow master=%s: %s", master.ha_address, why_not)
        self._why_not = why_not

    def _follow(self, master: Master) -> None:
        """Follow a master until this stops or something fails, which is raised."""
        self._doubt = ""
        try:
            self._look_at_history(master)
            self._copy(master)
        except LogsDiffer:
            self.agrees, self._doubt = False, ""
            raise

    def _copy(self, master: Master) -> None:
        sock = self._home.call(master.ha_address, CONNECT_S)
        try:
            logger.info("replication: following master=%s from=%d", master.ha_address, self._store.log.written)
            self._following = master.ha_address
            self._since, self._pace = self.clock.monotonic(), (self.clock.monotonic(), self._store.log.written, 0.0)
            self._tell(master, self._doubt)
            home = self._home
            frames = Frames(self._store.log.segment_bytes)
            copy = LogCopy(sock, frames, home, self._settings, self._found_same, lambda: self._heard(copy))
            # A request from 0 is that of an empty slave: made only if the query did not show the record to be the same.
            last = home.last_record()
            copy.run(last if last > 0 or (last == 0 and self._doubt) else self._store.log.written)
        except LogsDiffer:
            self.agrees = False  # before other threads see that the connection has ended
            raise
        finally:
            if self._following:
                self._following, self._since = "", self.clock.monotonic()
            sock.close()

    def _look_at_history(self, master: Master) -> None:
        """Query the master for the last record that is here, and note a doubt if it is missing there. Raises LogsDiffer
        if the master has another one."""
        store = self._store
        offset = self._home.last_record()
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
            raise LogsDiffer(offset)

    def _ask(self, address: str, code: int, fields: dict[str, str]) -> RemotingCommand:
        client = RemotingClient(address, ASK_MS, self.clock, greet=self._greeting(), connect=self._guard.connect)
        try:
            return client.invoke_sync(RemotingCommand(code, ext_fields=fields), ASK_MS)
        finally:
            client.close()

    def _heard(self, copy: LogCopy) -> None:
        now = self.clock.monotonic()
        self._heard_at, self._said_at = now, copy.said_at
        if now - self._pace[0] >= 1.0:
            end = self._store.log.written
            self._pace = (now, end, max(0, end - self._pace[1]) / (now - self._pace[0]))

    def _found_same(self) -> None:
        self.agrees, self._doubt, self._why_not = True, "", ""
