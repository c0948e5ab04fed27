"""Deletes old files, or any while room is short, and refuses sends while the disk is too full: thread `clean-store`.

Whole log files are deleted, oldest first, but not the one being written or one that recovery may still need:

    remoting-io takes it off the log -> unlinked -> directory synced -> descriptor released -> on_removed -> queues

Before that, keepers agree: messages that wait in the file and are still needed have been stored again, durably. One
unlink is synced before the next, so that a crash leaves no gap in the log. Readers that hold the file can read on.
Source: RocketMQ `DefaultMessageStore.CleanCommitLogService`, `CleanConsumeQueueService`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...clock import AgeClock, Clock
from ...config import StoreConfig
from ...disk import DiskUsage
from ...errors import RocketBoxError
from ...few_lines import OncePerReason
from ...loop_calls import run_on_loop
from ...named_tuple import NamedTuple
from ...service_thread import ServiceThread
from ..clock_steps import ClockSteps, Stamped, ahead_of
from ..log.commit_log import CommitLog, Segment
from ..publication import Publication
from ..queues.consume_queue_table import ConsumeQueueTable
from ..queues.flush_queues import FlushConsumeQueueService
from ..record_reader import RecordReader
from ..settings import Scheduler
from ..store_files import StoreFiles
from .clean_queues import QueueTrimmer, Raised
from .clean_rules import HOUR_MS, Watermarks, is_cleaning_hour, watermarks
from .leaders_needs import FollowersWishes, LeadersNeeds

if TYPE_CHECKING:
    from .purged_queues import Places

logger = logging.getLogger(__name__)

#: No file is deleted for its age this soon after the start. Source: the first delay of Apache's task.
FIRST_AFTER_S = 60.0
#: Rounds at any hour after one request for cleaning (`MAX_MANUAL_DELETE_FILE_TIMES`).
REQUESTED_ROUNDS = 20
#: Time for keepers to store waiting messages again; after it the next round asks them again.
KEPT_S = 5.0
#: If a file's times lie in the future, the times of this many files behind it are tried instead.
_FILES_BEHIND = 64
#: Longest wait for a purge: a round may be deleting files.
PURGE_S = 30.0
#: Interval between looks at topics with a retention time of their own.
TOPICS_EVERY_S = 60.0


class CleanStatus(NamedTuple):
    """Results of the cleaner's last round. Times in ms since the epoch, -1 for never.

    refusing: why sends are refused, None when they are not. failure: why the last round could not do its work.
    log_files_forced: of log_files_deleted, those that were not old enough, as the disk was too full.
    clock_ahead_ms: distance of the wall clock ahead of the time that ages are measured by.
    """

    looked_at_ms: int = -1
    used_share: float = 0.0
    stages: Watermarks = Watermarks(0.75, 0.85, 0.90)
    refusing: str | None = None
    failure: str | None = None
    log_files_deleted: int = 0
    queue_files_deleted: int = 0
    deleted_at_ms: int = -1
    clock_ahead_ms: int = 0
    log_files_forced: int = 0


class Purge:
    """Places to be noted and followed, by `clean-store`. error: of the attempt; None if the notes are durable."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.done = threading.Event()
        self.error: OSError | None = None


class CleanService(ServiceThread):
    """Owns the files that have left the log, and the queues' minimum offsets. Woken by its interval, a request, or a
    log file that could not be made."""

    def __init__(
        self,
        log: CommitLog,
        publication: Publication,
        queues: ConsumeQueueTable,
        records: RecordReader,
        writer: FlushConsumeQueueService,
        files: StoreFiles,
        steps: ClockSteps,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        """writer: notes minimum offsets in the ledger before queue files are deleted. steps: of the clocks that stamped
        the log."""
        super().__init__("clean-store", clock)
        # Constant after construction.
        self._log = log
        self._publication = publication
        self._queues = queues
        self._records = records
        self._writer = writer
        self._files = files
        self._steps = steps
        self._scheduler = scheduler
        # Set by the owner before start(); values are read at each use.
        self.options = StoreConfig()
        #: Newest store time of an earlier process, by this broker's clock; 0 if there is none.
        self.seen_ms = 0
        #: Called by this thread with the end of files to delete; each returns why they must stay for now, None if they
        #: may go. A keeper with a reason has the messages that wait in them stored again, and is called again.
        self.keepers: list[Callable[[int], str | None]] = []
        #: Of a broker that copies its log, whose `keep` is one of the keepers; and of one whose log is copied.
        self.leaders_needs, self.followers = LeadersNeeds(), FollowersWishes()
        #: Called by this thread with the log's new minimum offset once files are gone.
        self.on_removed: list[Callable[[int], None]] = []
        #: Called by this thread at the end of a round with the log's disk, and the share at which sends are refused.
        self.on_looked: list[Callable[[DiskUsage, float], None]] = []
        #: Called by this thread with the minimum offsets that a round has raised.
        self.on_raised: list[Callable[[Sequence[Raised]], None]] = []
        #: Topic -> hours that its messages are kept, where that is shorter than fileReservedTime.
        self.topic_hours: Callable[[], Mapping[str, int]] = dict
        # Written by any thread, processed by this one.
        self._purges: deque[Purge] = deque()
        self._rounds = 0
        self._no_room = False
        self._all_queues = False
        #: Replaced whole by this thread, read by anyone.
        self.status = CleanStatus()
        # Owned by this thread.
        self._ages: AgeClock
        self._trimmer: QueueTrimmer
        self._leaving: list[Segment] = []
        self._unlinked = False  # the first of _leaving is unlinked, its directory not synced yet
        self._retry_at = 0.0
        self._kept_for = ""
        self._first_seen_ms: dict[int, int] = {}
        #: Log beginnings that the queues were last trimmed to, and `on_removed` was last called with.
        self._log_begin = self._told_begin = -1
        self._topics_at = 0.0
        self._topics: Mapping[str, int] = {}
        #: True while a queue may begin before the place up to which it was purged.
        self._follow_purges = True
        self._raising_told = OncePerReason(logger.error)
        self._started = 0.0
        log.on_no_room = self.no_room
        log.on_made = self.file_made

    def start(self) -> None:
        self._prepare()
        super().start()

    def _prepare(self) -> None:
        self._ages = AgeClock(self.clock, self.seen_ms)
        self._trimmer = QueueTrimmer(self._log, self._queues, self._records, self._writer, self._pause)
        self._log_begin = self._told_begin = self._log.min_offset
        self._started = self.clock.monotonic()
        self._topics_at = self._started - TOPICS_EVERY_S

    # --- from any thread

    def request(self) -> None:
        """Delete expired files in the next rounds, at any hour."""
        self._rounds = REQUESTED_ROUNDS
        self.wakeup()

    def request_queues(self) -> None:
        """Check every queue's minimum offset and files in the next round."""
        self._all_queues = True
        self.wakeup()

    def purge(self, places: Places, seconds: float = PURGE_S) -> None:
        """Show the records of queues no longer that begin before these places; durable when it returns. Any thread but
        this one and remoting-io. Raises OSError; if that is a TimeoutError, it may still be done."""
        purge = Purge(places)
        self._purges.append(purge)
        self.wakeup()
        if not purge.done.wait(seconds):
            raise TimeoutError("the thread clean-store has not come to it; it may still do it")
        if purge.error is not None:
            raise purge.error

    def free_for(self, end: int) -> int:
        """Return the offset before which nothing waits. Before `end`, where a follower wants to delete files, the
        next rounds store what waits again."""
        if self.followers.ask(end, self._log.min_offset, self._log.written):
            self.wakeup()
        return self.followers.free

    def no_room(self) -> None:
        """Note that the next log file could not be made, and wake the thread."""
        self._no_room = True
        self.wakeup()

    def file_made(self) -> None:
        """Look at the disk soon, as the log has one file more, if that is over a stage: before the next one."""
        try:
            if self._log.usage().share > watermarks(self.options).clean:
                self.wakeup()
        except OSError as error:
            logger.warning("cleaner: the log's disk cannot be looked at: %s", error)

    # --- the thread

    def run(self) -> None:
        while not self.stopped:
            self.look()
            self.wait(self.options.clean_resource_interval_ms / 1000)

    def stop(self, deadline: float = 5.0) -> bool:
        ended = super().stop(deadline)
        if ended:
            for segment in self._leaving:  # their names stay, and belong to the log again after the next start
                segment.release()
            self._leaving = []
            if hasattr(self, "_trimmer"):
                self._trimmer.close()
        return ended

    def _pause(self, seconds: float) -> bool:
        """Sleep, in short pieces; False if the thread must stop."""
        end = self.clock.monotonic() + seconds
        while not self.stopped and (left := end - self.clock.monotonic()) > 0:
            self.clock.sleep(min(left, 0.1))
        return not self.stopped

    def look(self) -> None:
        """Do one round."""
        failure = None
        deleted = queue_files = 0
        self._look_at_purges()
        try:
            self._log.check_place()
            stages = watermarks(self.options)
            usage = self._look_at_disk(stages)
            deleted = self._delete_log_files(usage, stages)
            if deleted:
                usage = self._look_at_disk(stages)
            self._look_at_followers()
            for looked in self.on_looked:
                looked(usage, stages.refuse)
            try:
                queue_files = self._look_at_queues() + self._look_at_topics()
            finally:
                self._tell_of_raised()
        except OSError as error:
            failure = f"cleaning failed: {error.strerror or error} ({error.filename or self._log.directory.parent})"
        except RocketBoxError as error:  # odd names among a queue's files, or a queue that is being rebuilt
            failure = f"cleaning failed: {error}"
        if failure is not None and failure != self.status.failure:
            logger.error("cleaner: %s", failure)
        old = self.status
        self.status = old._replace(
            looked_at_ms=self.clock.wall_ms(),
            failure=failure,
            log_files_deleted=old.log_files_deleted + deleted,
            queue_files_deleted=old.queue_files_deleted + queue_files,
            deleted_at_ms=self.clock.wall_ms() if deleted else old.deleted_at_ms,
            clock_ahead_ms=self._ages.ahead_ms,
        )

    def _look_at_purges(self) -> None:
        """Note what is to be purged and raise these queues, and those that could not be read before."""
        waiting = []
        while self._purges:
            waiting.append(self._purges.popleft())
        for purge in waiting:
            try:
                self._files.purged_queues.remember(purge.places, self._log.min_offset)
                self._follow_purges = True
            except OSError as error:
                purge.error = error
        if self._follow_purges and self._files.has_purged():
            try:
                places = self._files.purged_queues.places
                self._follow_purges = not self._trimmer.follow_places(places, self._publication.published)
                self._raising_told.went_well()
            except OSError as error:  # the notes are durable: the next round tries again, and any start does it
                self._raising_told.failed("cleaner: purged queues are not raised yet: %s", error)
        for purge in waiting:
            purge.done.set()

    def _tell_of_raised(self) -> None:
        raised = self._trimmer.take_raised()
        for told in self.on_raised if raised else ():
            told(raised)

    # --- the disk

    def _look_at_disk(self, stages: Watermarks) -> DiskUsage:
        """Refuse or allow sends, by the fuller disk of log and queues; return the usage of the log's disk."""
        usage, of_queues = self._log.usage(), self._queues.usage()
        share = usage.share if of_queues is None else max(usage.share, of_queues.share)
        refusing = None
        if share > stages.refuse:
            text = f"{share:5.2f}"
            refusing = (
                f"the broker's disk is full [CL: {text} CQ: {text} INDEX: {text}], "
                f"more than {stages.refuse:.0%} of it is in use"
            )
        old, log = self.status, self._log
        if refusing is None and old.refusing is not None:
            logger.warning("cleaner: sends are taken again, %.1f %% of the disk in use", share * 100)
        if refusing is not None and old.refusing is None:
            logger.error("cleaner: sends are refused: %s", refusing)
        if refusing != log.refused:
            self._scheduler.call_soon(lambda: log.refuse(refusing))
        self.status = old._replace(used_share=share, stages=stages, refusing=refusing)
        return usage

    # --- log files

    def _delete_log_files(self, usage: DiskUsage, stages: Watermarks) -> int:
        """Delete the log files that are due; return their number. Raises OSError if one fails, which ends the round."""
        options = self.options
        deleted = self._unlink_leaving()
        # The file that is being written stays in this round: it may fill while older ones go, and has new messages
        # then. It need not be the last one, since the next file may have been prepared.
        written = self._log.written
        closed = sum(segment.end <= written for segment in self._log.segments[:-1])
        most = min(options.delete_file_batch_max, closed)
        wanted = 0
        spans, now_ms = self._now()
        if self._may_expire() or self.status.used_share > stages.clean:
            wanted = self._count_expired(now_ms, spans, most)
        if self._rounds:
            self._rounds -= 1
        forced = 0
        if options.clean_file_forcibly_enable:
            forced = min(self._count_forced(usage, stages), most)
        self._no_room = False
        expired, before = wanted, deleted
        if forced > wanted:
            logger.warning(
                "cleaner: %.1f %% of the disk in use, up to %d log files go before their time",
                usage.share * 100,
                forced,
            )
            wanted = forced
        wanted = self.leaders_needs.fitting([one.end for one in self._log.segments[:wanted]])
        for index in range(wanted):
            if not self._is_let_go(index, wanted) or not self._take_first():
                break
            deleted += self._unlink_leaving()
            if not self._pause(options.delete_commit_log_files_interval_ms / 1000):
                break
        too_young = max(0, deleted - before - expired)
        self.status = self.status._replace(log_files_forced=self.status.log_files_forced + too_young)
        return deleted

    def _now(self) -> tuple[tuple[Stamped, ...], int]:
        """Return the clock spans and the time that ages are measured by. In this order, and once a round: if the clock
        was set back in between, all stored records would seem older."""
        return self._steps.spans, self._ages.now_ms()

    def _may_expire(self) -> bool:
        if self._rounds:
            return True
        # The hour is the wall clock's: the time that ages are measured by goes on from before a stop for a while.
        return self.clock.monotonic() - self._started >= FIRST_AFTER_S and is_cleaning_hour(
            self.options.delete_when, self.clock.wall_ms()
        )

    def _count_expired(self, now_ms: int, spans: tuple[Stamped, ...], limit: int) -> int:
        """Return how many files at the front were last written more than fileReservedTime ago."""
        segments = self._log.segments
        reserved_ms = self.options.file_reserved_time_hours * HOUR_MS
        first_seen = self._first_seen_ms
        self._first_seen_ms = {s.start: first_seen.get(s.start, now_ms) for s in segments[:-1]}
        count = 0
        for at in range(min(limit, len(segments) - 1)):
            if now_ms - self._last_written_ms(segments, at, now_ms, spans) < reserved_ms:
                break
            count += 1
        return count

    def _last_written_ms(self, segments: Sequence[Segment], at: int, now_ms: int, spans: tuple[Stamped, ...]) -> int:
        """Return the time at which a file's last record was stored, rather too late than too early.

        That is the later of its modification time and the store time of the next file's first record, both converted to
        the present clock. A time in the future is ignored: the file is older than those behind it, so their times are
        tried. Without any time, it is the time at which this process first saw the file.
        """
        for index in range(at, min(at + _FILES_BEHIND, len(segments))):
            times = self._times_of(segments, index, spans)
            found = [one for one in times if one <= now_ms]
            if found:
                return max(found)
        return self._first_seen_ms[segments[at].start]

    def _times_of(self, segments: Sequence[Segment], at: int, spans: tuple[Stamped, ...]) -> list[int]:
        segment = segments[at]
        # A slave's files have modification times of its own clock, and its leader's store times: the later counts.
        times = [self._log.modified_ms(segment) + ahead_of(spans, segment.end - 1)]
        if at + 1 < len(segments):
            following = segments[at + 1].start
            stored_ms = self._records.store_time(following)
            if stored_ms >= 0:
                times.append(stored_ms + ahead_of(spans, following))
        return times

    def _count_forced(self, usage: DiskUsage, stages: Watermarks) -> int:
        """Return how many files have to go for the disk to fall below the forced stage, or to hold the next file."""
        log = self._log
        size = log.segment_bytes
        excess = usage.used_bytes - int(usage.total_bytes * min(stages.force, stages.refuse)) if stages.force < 1 else 0
        if self._no_room or log.is_low:
            excess = max(excess, log.room_bytes - usage.free_bytes)
        return -(-excess // size) if excess > 0 else 0

    def _is_let_go(self, index: int, wanted: int) -> bool:
        """True if no keeper needs the first file. Keepers are called at once for all files that are to go, and have a
        little time. Copies of what waits may be as large as the files: a keeper is not called for more files than the
        disk has room for, as none could go then."""
        segments = self._log.segments
        if len(segments) < 2:
            return False
        room = max(1, self._log.usage().free_bytes // self._log.segment_bytes)
        first, end = segments[0].end, segments[min(wanted - index, len(segments) - 1, room) - 1].end
        begun = self.clock.monotonic()
        while True:
            free, reasons = self._ask_keepers(first, end)
            if free:
                self._kept_for = ""
                return True
            if self.clock.monotonic() - begun > KEPT_S or not self._pause(0.05):
                break
        if reasons[0] != self._kept_for:
            self._kept_for = reasons[0]
            logger.warning("cleaner: %s stays for now: %s", segments[0].path.name, self._kept_for)
        return False

    def _ask_keepers(self, first: int, end: int) -> tuple[int, list[str]]:
        """Return the offset before which no keeper needs anything, and their reasons against `end`: it is `end`, else
        `first`, where the first file ends, else 0. All keepers begin at once to store again what waits before `end`."""
        keepers = tuple(self.keepers)
        reasons = [reason for keeper in keepers if (reason := keeper(end)) is not None]
        if not reasons:
            return end, reasons
        return first if first < end and all(keeper(first) is None for keeper in keepers) else 0, reasons

    def _look_at_followers(self) -> None:
        """Have what waits stored again where followers want to delete files."""
        wishes = self.followers
        wanted = wishes.wanted
        free = max(wishes.free, self._log.min_offset)
        if wanted > free:
            first = self._log.segment_at(free)
            freed, _ = self._ask_keepers(wanted if first is None else first.end, wanted)
            if freed:
                wishes.free = freed

    def _take_first(self) -> bool:
        """Take the oldest file off the log, on remoting-io; False if it must stay."""
        segments = self._log.segments
        if len(segments) < 2 or segments[0].end > self._needed_from():
            return False
        taken: list[Segment] = []
        if not self._call(lambda: taken.extend(self._log.remove_before(segments[0].end))):
            return False
        self._leaving.extend(taken)
        return bool(taken)

    def _needed_from(self) -> int:
        """Return the offset that recovery would read from: the record of the saved position.

        Without a position, everything published since the start is needed: entries that are in no file yet say where a
        queue continues. Entries from recovery are in files.
        """
        publication = self._publication
        position = self._files.recovery_position.position
        if position is not None:
            return min(publication.published, position.record_offset)
        return 0 if publication.messages else min(publication.published, self._log.durable)

    def _call(self, callback: Callable[[], object]) -> bool:
        """Run `callback` on remoting-io and wait for it; False if that has ended."""
        return run_on_loop(self._scheduler.call_soon, callback, lambda: self.stopped)

    def _unlink_leaving(self) -> int:
        """Delete the files that left the log, in order; return their number. After a failure, wait for `_retry_at`."""
        if not self._leaving or self.clock.monotonic() < self._retry_at:
            return 0
        deleted = 0
        try:
            while self._leaving:
                segment = self._leaving[0]
                if not self._unlinked:
                    self._log.unlink(segment)
                    self._unlinked = True
                self._log.sync_directory()
                self._unlinked = False
                self._leaving.pop(0)
                segment.release()
                deleted += 1
                logger.info("commit log: deleted file=%s", segment.path.name)
        except OSError:
            self._retry_at = self.clock.monotonic() + self.options.redelete_hanged_file_interval_ms / 1000
            raise
        return deleted

    # --- queues

    def _look_at_queues(self) -> int:
        """Bring queues and other followers to the log's new beginning; return the number of queue files deleted."""
        begin = self._log.min_offset
        if begin != self._told_begin:
            for removed in self.on_removed:
                removed(begin)
            self._told_begin = begin
        if begin == self._log_begin and not self._all_queues:
            return 0
        deleted = self._trimmer.follow_log(self._queue_file_pause_s())
        self._log_begin, self._all_queues = begin, False
        return deleted

    def _look_at_topics(self) -> int:
        """Raise the queues of topics with a shorter retention time; return the number of queue files deleted."""
        topics = self.topic_hours()
        now = self.clock.monotonic()
        if not topics or (topics == self._topics and now - self._topics_at < TOPICS_EVERY_S):
            return 0
        self._topics, self._topics_at = topics, now
        spans, now_ms = self._now()
        keep_from = {topic: now_ms - hours * HOUR_MS for topic, hours in topics.items()}
        return self._trimmer.follow_times(keep_from, spans, self._queue_file_pause_s())

    def _queue_file_pause_s(self) -> float:
        return self.options.delete_consume_queue_files_interval_ms / 1000
