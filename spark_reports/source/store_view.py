"""A store as the driver sees it at one moment: its log files, its queues, and the end of its log."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from appliance.engine.config_journal import decode_line
from appliance.engine.protocol.record import PHYSICAL_OFFSET_AT, Record, store_time_ms
from appliance.engine.store.log.log_scan import LogScan
from appliance.engine.store.log.raw_log import RECORD_MAGICS
from appliance.engine.store.retention.deleted_topics import DeletedTopics
from appliance.engine.store.time_order import NAME as TIME_ORDER
from appliance.engine.store.time_order import read_begin
from appliance.engine.store_tools.small_files_check import position_matches, recovery_position, table_in

from .log_files import LogFile, files_of, open_store
from .options import OptionError
from .queue_entries import Queue, Queues
from .topics import is_system

#: Bytes of a record that contain its store time, for both kinds of born hosts.
_HEAD_BYTES = 76


def _queue_count(config: Any) -> int:
    """Return how many queues a topic's configuration gives it, to read or to write; 0 if it is none."""
    counts = [config.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(config, dict) else []
    return max((count for count in counts if isinstance(count, int)), default=0)


class _Nobody:
    def damage(self, begin: int, end: int, reason: str) -> None:
        """Ignore damage: the scan of a tail ends at the first one."""


class StoreView:
    """For one thread of the driver; `close()` when done."""

    def __init__(self, directory: str) -> None:
        """Open the store. Raises OptionError when there is none."""
        self._store = open_store(directory)
        self.files: list[LogFile] = files_of(self._store)
        self.entries = Queues(self._store)
        # Read before the queues: their files have all entries below it.
        position, _ = recovery_position(self._store)
        self.queues: list[Queue] = self.entries.all()
        #: True if RocketBox seems to have written here last: the record at its recovery position is still there.
        self.is_ours = position is not None and position_matches(self._store, position)
        self._published = position.offset if position is not None and self.is_ours else 0
        #: Physical offset of the record that ends there.
        self._before_published = position.record_offset if position is not None and self.is_ours else 0
        #: Topics that were deleted while the log had messages of them.
        self.deleted = DeletedTopics(self._store.paths, self._store.disk).load() if self.is_ours else {}
        self.is_open = self._store.lock_holder() is not None
        #: Records behind the last one with a queue entry: their physical offsets.
        self.tail: list[int] = []
        self.settled = self._settled()
        #: Physical offset up to which the queues name every message.
        self.named_to = self._named_to()
        self.end = self.settled if self.is_open else self._walk_tail()
        #: Range of the log in which store times are known to ascend, since RocketBox stamped or compared them. Behind
        #: its recovery position an Apache broker may have gone on.
        self.ascends = (self._ascends_from(), self._published)

    @property
    def begin(self) -> int:
        return self._store.log.min_offset

    def was_never_deleted(self, topic: str) -> bool:
        """True if all messages of a topic in the log are in its queues. Deletions by Apache, before RocketBox took the
        store over, are not known."""
        return self.is_ours and topic not in self.deleted

    def topics(self) -> set[str]:
        """Return the names of all topics in the store: those with queues, those in its configuration, and those that
        were deleted while the log had messages of them."""
        return {topic for topic, _ in self._store.queues()} | set(self.deleted) | set(self._configured())

    def _configured(self) -> dict[str, int]:
        """Return the topics of the store's configuration, and how many queues each has, 0 for a deleted one."""
        paths = self._store.paths
        found: dict[str, Any] = {}
        try:
            found |= table_in((paths.config / "topics.json").read_bytes())["topicConfigTable"]
        except (OSError, ValueError, LookupError, TypeError):
            pass  # there may be none, or half of one
        try:
            lines = (paths.own / "config.journal").read_bytes().splitlines()
        except OSError:
            lines = []
        entries = [entry for line in lines if (entry := decode_line(line)) is not None]
        found |= {entry["name"]: entry.get("value") for entry in entries if entry.get("table") == "topics"}
        return {topic: _queue_count(config) for topic, config in found.items()}

    def check_topics(self, names: Iterable[str]) -> None:
        """Raise OptionError for the first of these topics that is not in the store."""
        known = self.topics()
        for name in names:
            if name not in known:
                near = get_close_matches(name, [topic for topic in known if not is_system(topic)], n=1)
                hint = f"; did you mean {near[0]}?" if near else "."
                raise OptionError(
                    f"{self._store.paths.root} has no topic {name}{hint} With the option failOnMissingTopic=false it "
                    "is read as one without messages, and topicPattern takes a regular expression."
                )

    def check_queues(self, option: str, queues: Iterable[tuple[str, int]]) -> None:
        """Raise OptionError for the first of these (topic, queue id) that the store has neither files nor a
        configuration of. Topics that are not there are passed over: a deleted one may have had the queue."""
        configured, there = self._configured(), set(self._store.queues())
        topics = {topic for topic, _ in there} | {topic for topic, count in configured.items() if count}
        for topic, queue_id in sorted(queues):
            is_known = (topic, queue_id) in there or queue_id < configured.get(topic, 0)
            if topic in topics and not is_known:
                raise OptionError(f"The option {option} names {topic}, queue {queue_id}, which is not there to read.")

    @property
    def files_end(self) -> int:
        """Physical offset behind the last file, which is allocated ahead."""
        return self._store.log.end

    def _ascends_from(self) -> int:
        path = self._store.paths.own / TIME_ORDER
        begin = read_begin(path, self._store.disk) if self.is_ours else None
        return self._published if begin is None else min(max(begin, self.begin), self._published)

    def store_ms_at(self, physical: int) -> int | None:
        """Return the store time of the record that begins there and contains that physical offset; None without one."""
        head = self._store.raw.read(physical, _HEAD_BYTES)
        at_home = int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") == physical
        if len(head) < _HEAD_BYTES or head[4:8] not in RECORD_MAGICS or not at_home:
            return None
        ms = store_time_ms(head)
        return ms if ms < 1 << 63 else ms - (1 << 64)

    def witness_of(self, place: int) -> tuple[int, int] | None:
        """Return (physical offset, store time in ms) of the record that begins at a place, or of the last one before
        the log's end; None if it is not known. While it is there, the log was not written anew before that place."""
        if place == self.end:
            places = self.tail[-1:]
            if self._published == place:
                places.append(self._before_published)
            if self.queues:
                places.append(self.entries.last_physical(max(self.queues, key=lambda queue: queue.ends)))
            place = max(places, default=-1)
        ms = self.store_ms_at(place) if place >= self.begin else None
        return None if ms is None else (place, ms)

    def offset_of(self, place: int) -> dict[str, Any]:
        """Return a place as an offset of streams, with its witness if that is known."""
        witness = self.witness_of(place)
        return {"position": place} | ({} if witness is None else {"witness": list(witness)})

    def has_witness(self, witness: tuple[int, int]) -> bool:
        """True if that record is still there, or was deleted with its file."""
        place, ms = witness
        return place < self.begin or self.store_ms_at(place) == ms

    def is_written(self, physical: int) -> bool:
        """True if the log's files have something there; they are zeros where they are allocated ahead."""
        return any(self._store.raw.read(physical, 8))

    def is_within_message(self, physical: int) -> bool:
        """True if a message that a queue names begins before that physical offset and ends behind it."""
        if self.store_ms_at(physical) is not None:
            return False
        for queue in self.queues:
            if queue.begins < physical < queue.ends:
                offset = self.entries.offset_at(queue, physical) - 1
                places, sizes = self.entries.places(queue, offset, offset + 1)
                if (places + sizes > physical).any():
                    return True
        return False

    def _settled(self) -> int:
        """Return the offset up to which the log is published, as far as the files show.

        A broker publishes its log in order, and writes a message's entry into a queue's file after that: RocketBox once
        its tick is durable (at most a second later), Apache once the record is complete. So everything before the end
        of any message with an entry is whole, published, and stays. The recovery position, which only RocketBox has,
        shows the same for a log whose newest messages have no entries.
        """
        ends = [queue.ends for queue in self.queues]
        return max(self.begin, min(max(ends, default=0), self._store.log.end), self._published)

    def _named_to(self) -> int:
        """Return `named_to`. A broker writes one queue file after another, and they are read so: an entry of one queue
        does not prove that older ones of the others had been written when their files were read."""
        if not self.is_open:
            return self.settled
        if self._store.paths.own.is_dir():
            return self._published
        # Apache writes entries in the order of the log: the others are there by now.
        self.queues = self.entries.all()
        return self.settled

    def _walk_tail(self) -> int:
        """Return the end of the log of a store that is not in use: the first bytes that are no record, where a start of
        the broker would end it, too."""
        start = self.settled
        later = [one.start for one in self._store.log.segments if one.start > start]
        scan = LogScan(
            self._store.raw, _Nobody(), None if not self._store.was_killed else start, self._vouches, lambda _: None
        )
        # Without entries, as after a loss of the queues, the last file that begins with a record is read.
        start = max([start, *(one for one in later if scan.is_record(one))])
        end = start
        for behind, record in scan.records(start):
            end = behind
            if record is not None:
                self.tail.append(record.physical_offset)
        return end

    def _vouches(self, record: Record) -> bool:
        return not self._store.was_killed

    def close(self) -> None:
        self._store.close()
