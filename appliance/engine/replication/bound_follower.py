"""The member's side of a bound stream: follows the leader of one epoch, and no other.

    connect -> Hello, Answer -> the lists of epochs are compared -> the leader's list is adopted -> the log is copied

Nothing is cut here: a log that has to be cut is reported, and so is one that has no epoch in common with the leader's.
Offsets that are reported to the leader are durable here, as far as this broker flushes (`MessageStore.kept`).
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable

from ..clock import Clock
from ..errors import CorruptFile, FrameError, StoreBroken
from ..failover.parts import MemberFiles, StreamStatus
from ..failover.set_state import EpochStart, Leader
from ..loop_calls import run_on_loop
from ..protocol.ha_preamble import SAYS_TAKEN, Answer, Hello, Opening, Refusal, pack, set_hash
from ..protocol.ha_stream import Frames
from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from ..store.replica import CannotPlace
from .acknowledged import ConfirmedPosition
from .log_copy import CannotFollow, CopySettings, Home, LogCopy
from .roles import NO_GUARD, Guard
from .wake_pipe import WakePipe

logger = logging.getLogger(__name__)

CONNECT_S = 1.0
#: Longest wait for the answer: a master that supports the plain stream only does not answer a preamble.
ANSWER_S = 2.0
#: Waits before a leader that cannot be followed is tried again: doubling from the first to the last.
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 1.0
#: A leader's heartbeats come each 0.25 s.
SETTINGS = CopySettings(heartbeat_s=1.0, silence_s=5.0)
#: Refused attempts after which the leader's process counts as gone; time between them, and time-out of each.
_KNOCKS, _KNOCK_S = 3, 0.06
#: Most bytes that are sent again to be compared.
COMPARE_BYTES = 8 << 20
_RECEIVE_BYTES = 64 * 1024

Epochs = tuple[EpochStart, ...]
#: (own epochs, own end, the leader's epochs, its end) -> offset up to which both logs are the same; None: nowhere.
ConsistentPoint = Callable[[Epochs, int, Epochs, int], int | None]


class BoundFollower(ServiceThread):
    """The thread `follow-leader`, for one epoch. Owns: the connection to its leader. Woken by: it, the sync of the
    log."""

    def __init__(
        self,
        store: MessageStore,
        call_soon: Callable[[Callable[[], None]], None],
        leader: Leader,
        epoch: int,
        set_name: str,
        files: MemberFiles,
        consistent_point: ConsistentPoint,
        adopt_epochs: Callable[[Epochs], None],
        confirmed: ConfirmedPosition,
        clock: Clock,
        guard: Guard = NO_GUARD,
    ) -> None:
        """epoch: must be the newest that was seen (`files`). adopt_epochs: takes the leader's list when this log is the
        leader's from now on; durable before it returns; called on this thread."""
        super().__init__("follow-leader", clock)
        # Constant after construction.
        self._store = store
        self._call_soon = call_soon
        self._leader = leader
        self._epoch = epoch
        self._set_name = set_name
        self._files = files
        self._consistent_point = consistent_point
        self._adopt_epochs = adopt_epochs
        self._confirmed = confirmed
        self._wake = WakePipe()
        self._home = Home(store, call_soon, self._wake, lambda: self.stopped, clock, guard, set())
        # Written by this thread, read by anyone.
        self._runs = False
        self._heard_at = 0.0
        self._refused = False
        self._cut_at = -1
        self._stranger = False
        self._fuller = False
        self._unplaced = ""
        self._confirm = -1
        self._why = "no connection was made yet"
        #: The leader's last answer: a cut needs its list of epochs.
        self.answer: Answer | None = None
        #: True while a stream is bound to the leader, and this log was found to be its log. Without a stream another
        #: process may listen at the leader's address: that of an empty machine in its place.
        self.agrees = False
        #: Called on this thread when it was found so.
        self.on_agreement: Callable[[], None] = lambda: None
        #: Called on this thread with the leader's number of changes of topics, while fewer of them are here.
        self.on_changes: Callable[[int], None] = lambda changes: None
        #: Number of them that are here, durably; -1: unknown. Written by any thread, which then calls `log_kept`.
        self.taken = -1
        #: Physical offset of the record that this store cannot take; -1: there is none.
        self.unplaced_at = -1

    @property
    def status(self) -> StreamStatus:
        """Any thread."""
        runs = self._runs
        return StreamStatus(
            leader=self._leader.uuid if runs else "",
            epoch=self._epoch if runs else 0,
            heard_at=self._heard_at,
            refused=self._refused,
            cut_at=self._cut_at,
            stranger=self._stranger,
            confirm=self._confirm,
            why="" if runs else self._why,
            fuller=self._fuller,
            unplaced=self._unplaced,
        )

    def log_kept(self) -> None:
        """Report to the leader: what was appended is kept now. Any thread."""
        self._wake.wake()

    def wakeup(self) -> None:
        super().wakeup()
        self._wake.wake()

    def close(self, deadline_s: float = 5.0) -> bool:
        """Close the stream and drop the bytes that were not appended. True: the log does not grow after this. False:
        not in time; it may still grow. Any thread but remoting-io."""
        until = self.clock.monotonic() + deadline_s
        if not self.stop(deadline_s):
            return False
        # The last append may still wait for the end of its tick.
        return run_on_loop(self._call_soon, self._store.end_tick, lambda: self.clock.monotonic() > until)

    # --- this thread

    def run(self) -> None:
        retry_s = FIRST_RETRY_S
        ran = False
        while not self.stopped and self._cut_at < 0 and not self._stranger and not self._unplaced:
            self._refused = ran and self._is_gone()
            if not self._refused:
                begun = self.clock.monotonic()
                try:
                    self._follow()
                except CannotPlace as error:
                    logger.error("replication: leader=%s epoch=%d: %s", self._leader.ha, self._epoch, error)
                    self._why = self._unplaced = str(error)
                    self.unplaced_at = error.physical_offset
                except (OSError, FrameError, CorruptFile, StoreBroken, CannotFollow) as error:
                    self._tell(str(error) or type(error).__name__)
                except Exception as error:  # whatever a leader sends
                    logger.exception("replication: failed at leader=%s", self._leader.ha)
                    self._why = f"{type(error).__name__}: {error}"
                ran = ran or self._runs
                self._runs = False
                if ran and self.clock.monotonic() - begun > LAST_RETRY_S:
                    retry_s = FIRST_RETRY_S
                    continue  # check at once whether it is gone
            self.wait(retry_s)
            retry_s = min(LAST_RETRY_S, 2 * retry_s)
        self._wake.close()

    def _tell(self, why: str) -> None:
        if why != self._why and not self.stopped:
            logger.warning("replication: leader=%s epoch=%d: %s", self._leader.ha, self._epoch, why)
        self._why = why

    def _is_gone(self) -> bool:
        """True if the leader's machine refuses connections to both ports each time: no process listens there."""
        for knock in range(_KNOCKS):
            if knock:
                self.wait(_KNOCK_S)
            for address in (self._leader.ha, self._leader.addr):
                try:
                    self._home.connect(address, _KNOCK_S).close()
                except ConnectionRefusedError:
                    continue
                except (OSError, CannotFollow):
                    pass
                return False
        return True

    def _follow(self) -> None:
        """Follow the leader until this stops or something fails, which is raised. Return early if this log cannot
        follow as it is."""
        if self._epoch != self._files.seen:
            raise CannotFollow(f"epoch {self._epoch} is not the newest: {self._files.seen} was seen")
        self._wait_until_kept()
        sock = self._home.call(self._leader.ha, CONNECT_S)
        try:
            answer, early = self._greet(sock)
            begin = self._compare(answer)
            if begin is None:
                return
            # Before any byte of a later epoch is appended: the list records which bytes are of which epoch.
            self._adopt_epochs(_epochs(answer))
            if self.stopped:
                return
            frames = Frames(self._store.log.segment_bytes, bound=True)
            copy = LogCopy(
                sock, frames, self._home, SETTINGS, self._found_same, lambda: self._heard(frames), lambda: self.taken
            )
            logger.info(
                "replication: bound to leader=%s uuid=%s epoch=%d from=%d",
                self._leader.ha, self._leader.uuid, self._epoch, begin,
            )  # fmt: skip
            self._confirm, self._heard_at, self._runs = -1, self.clock.steady(), True
            copy.run(begin, early)
        finally:
            self.agrees = False
            sock.close()

    def _wait_until_kept(self) -> None:
        """Wait until the whole log is kept. The leader takes the first report as kept, and sends from there: both have
        to be the log's end."""
        until = self.clock.monotonic() + LAST_RETRY_S
        while self._store.kept() < self._store.log.written:
            if self.clock.monotonic() > until:
                raise CannotFollow("the end of this log is not on the disk yet")
            self.wait(0.01)
            if self.stopped:
                return

    def _greet(self, sock: socket.socket) -> tuple[Answer, bytes]:
        """Send the preamble; return the leader's answer and the bytes of the stream that came with it. Raises
        CannotFollow when the leader refuses."""
        store, files = self._store, self._files
        hello = Hello(
            set_hash(self._set_name), files.uuid, files.slot, self._epoch, files.seen, store.log.written,
            store.log.min_offset, store.log.segment_bytes, tuple((one.epoch, one.start) for one in files.epochs),
            SAYS_TAKEN,
        )  # fmt: skip
        words = pack(hello)
        if sock.send(words) != len(words):
            raise CannotFollow("it takes no preamble")
        until = self.clock.monotonic() + ANSWER_S
        opening = Opening()
        answer = None
        while answer is None:
            try:
                self._home.wait_for(sock, select.POLLIN, until - self.clock.monotonic())
            except TimeoutError:
                raise CannotFollow(f"it did not answer within {ANSWER_S:g} s: it leads no set") from None
            data = sock.recv(_RECEIVE_BYTES)
            if not data:
                raise CannotFollow("it closed the connection instead of answering")
            answer = opening.feed(data)
        if isinstance(answer, Refusal):
            raise CannotFollow(f"it refuses this member: {answer.text}")
        if not isinstance(answer, Answer) or (answer.uuid, answer.epoch) != (self._leader.uuid, self._epoch):
            raise CannotFollow(f"it is not {self._leader.uuid} in epoch {self._epoch}: {answer}")
        self.answer = answer
        return answer, opening.rest

    def _compare(self, answer: Answer) -> int | None:
        """Return the offset from which to compare and copy; None if this log cannot follow as it is, which is
        reported."""
        self.answer = answer
        store, home = self._store, self._home
        if home.is_empty():
            return store.log.written
        end = store.log.written
        point = self._consistent_point(self._files.epochs, end, _epochs(answer), answer.end)
        if point is None:
            self._fuller = end - store.log.min_offset > answer.end - answer.start
            self._is_stranger("this log has no epoch in common with the leader's")
        elif end < answer.start:
            self._is_stranger(f"this log ends at {end}, and what follows has been deleted there, up to {answer.start}")
        elif point < end:
            self._cut_at = point
            self._tell(f"this log has to be cut at {point}: what lies behind, up to {end}, is not the leader's")
        else:
            # From the last record that is shown; much may lie behind it while the leader waits for others. A request
            # from 0 asks for the whole log, which is the same if the leader's log begins there.
            last = home.last_record()
            return last if last >= max(answer.start, end - COMPARE_BYTES) else end
        return None

    def _is_stranger(self, why: str) -> None:
        self._stranger = True
        self._tell(why)

    def _found_same(self) -> None:
        self.agrees = True
        self.on_agreement()

    def _heard(self, frames: Frames) -> None:
        self._heard_at = self.clock.steady()
        if frames.changes > self.taken:
            self.on_changes(frames.changes)
        confirm = frames.confirm
        if confirm > self._confirm:
            self._confirm = confirm
            self._confirmed.take(confirm)


def _epochs(answer: Answer) -> Epochs:
    return tuple(EpochStart(epoch, start) for epoch, start in answer.epochs)
