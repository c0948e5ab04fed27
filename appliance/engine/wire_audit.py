"""Keeps administrators' acts over the wire in files, until the console has them in its audit log (D22).

    DATA/rocketbox/wire-audit.jsonl                            the file that is written to
    DATA/rocketbox/wire-audit-<number of its first act>.jsonl  closed files

A line is one JSON object (`wire_act`): first the file's head with the series and the number of its first act, then
acts, whose numbers `n` grow by one over all files. The series is a random name made with the first file. A reader
remembers (series, n), so it takes each act once, and notices if the files were removed.

Any thread may record an act, remoting-io too: it goes into a bounded buffer, and the thread `wire-audit` writes and
syncs it. Readers get synced acts only, so a number never means two acts, also after a power cut.

Floods: in each minute a limited number of acts of one address, kind and result is kept in full. Further ones are
counted, and each count becomes one act (`more`) at the end of the minute or at the engine's stop. The last act in full
notes that counting starts, so a kill within that minute leaves a trace, too.

Unlike those of the journals, its lines have numbers instead of checksums, and no file is written anew.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from .clock import Clock
from .disk import Disk
from .journal_file import AppendedLines
from .service_thread import ServiceThread
from .wire_act import DONE, FileHead, WireAct, decode_act, read_acts

logger = logging.getLogger(__name__)

#: Prefixes of file names. A name server that shares its data directory with a broker in another process has its own
#: files.
STEM = "wire-audit"
NAMESRV_STEM = "wire-audit-namesrv"

WINDOW_S = 60.0
#: Acts of one address and kind that changed something and are kept in full in a minute. So a script that makes hundreds
#: of topics is kept in full, and hundreds of deletions without effect do not hide one with an effect.
DONE_IN_FULL = 600
#: Other acts (refused, failed, without effect) of one address and kind in a minute; further ones are nothing new.
REFUSED_IN_FULL = 20
#: Limit of those acts for all addresses together, so that a flood from many addresses does not fill the disk.
ALL_REFUSED_IN_FULL = 100
#: Counts that are kept at a time; further addresses are counted together.
MAX_COUNTS = 32
MANY_ADDRESSES = "many addresses"
#: Acts that wait for the disk; further ones are counted. `wire_gate.MAX_STATE_CHARS` bounds the size of each.
MAX_WAITING = 2_000
#: Size of a file, and number of closed ones that stay. The console takes a file's acts over long before the next one is
#: full; without a console the newest files stay.
MAX_FILE_BYTES = 1024 * 1024
MAX_OLD_FILES = 7
RETRY_S = 1.0
#: Time after an act in which further acts are gathered for the same sync: otherwise a script that makes topics one
#: after the other would have two syncs for each, one behind the other.
GATHER_S = 0.05
#: Acts that one call of `after` returns at most.
MAX_READ = 200


class WireAudit(ServiceThread):
    """The thread `wire-audit` writes; any thread records and reads."""

    def __init__(self, directory: Path, clock: Clock, disk: Disk | None = None, stem: str = STEM) -> None:
        """directory: DATA/rocketbox. Nothing is touched before `open`."""
        super().__init__("wire-audit")
        # Constant after construction.
        self._directory = directory
        self._stem = stem
        self._path = directory / f"{stem}.jsonl"
        self._old = re.compile(re.escape(stem) + r"-([0-9]{20})\.jsonl\Z")
        self._clock = clock
        self._ending = threading.Event()
        self._disk = Disk(directory) if disk is None else disk
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._waiting: deque[WireAct] = deque()
        self._window_end = 0.0
        self._seen: dict[tuple[tuple[str, str, str], bool], int] = {}
        self._refused_seen = 0
        self._sums: dict[tuple[str, str, str], int] = {}
        # Owned by the thread, and by open() and stop() before and after it.
        self._file: AppendedLines | None = None
        self._first = 1
        self._unwritten: list[WireAct] = []
        self.failure: str | None = None
        # Guarded by _files_lock: names of files, and the place of the last read.
        self._files_lock = threading.Lock()
        self._read_to: tuple[int, str, int] = (0, "", 0)  # n, file, position behind it
        self._taken = 0
        # Numbers: the last act at the start, and the last one returned since. Guarded by _files_lock.
        self._at_open = self._handed_out = 0
        # Written by the thread, read by anyone; only grows.
        self.series = ""
        self.last = 0

    # --- any thread

    def record(self, act: WireAct) -> None:
        """Keep an act. Never waits for the disk."""
        with self._lock:
            self._end_window_locked()
            key = (act.host, act.action, act.result)
            changed = act.result == DONE and (act.before is not None or act.after is not None)
            count = self._seen.get((key, changed), 0) + 1
            everybody = 0 if changed else self._refused_seen + 1
            limit = DONE_IN_FULL if changed else REFUSED_IN_FULL
            if count <= limit and everybody <= ALL_REFUSED_IN_FULL and len(self._waiting) < MAX_WAITING:
                self._seen[key, changed] = count
                self._refused_seen = everybody or self._refused_seen
                if count == limit or everybody == ALL_REFUSED_IN_FULL:
                    after = act.after if isinstance(act.after, dict) else {}
                    act = msgspec.structs.replace(act, after=after | {"counted_from_here": True})
                self._waiting.append(act)
            else:
                if key not in self._sums and len(self._sums) >= MAX_COUNTS:
                    key = (MANY_ADDRESSES, act.action, act.result)
                self._sums[key] = self._sums.get(key, 0) + 1
        self.wakeup()

    def _end_window_locked(self, now: bool = False) -> None:
        """Turn the counts of the minute into acts if it is over (or `now`)."""
        clock = self._clock.monotonic()
        if clock < self._window_end and not now:
            return
        self._window_end = clock + WINDOW_S
        self._seen.clear()
        self._refused_seen = 0
        for (host, action, result), more in self._sums.items():
            self._waiting.append(
                WireAct(at_ms=self._clock.wall_ms(), host=host, action=action, result=result, more=more)
            )
        self._sums.clear()

    def after(self, series: str, n: int, limit: int = MAX_READ) -> tuple[str, list[WireAct]]:
        """Return (series, acts after number n, oldest first). If `series` is not the present one, return all acts.

        Reads the files in the caller's thread, but only if there is something new. A number that was never returned
        comes from files that were replaced by an older copy since: the reader then gets the acts since the start.
        """
        last = self.last
        if series == self.series and n >= last and n <= self._handed_out:
            return self.series, []
        with self._files_lock:
            if series != self.series:
                n = 0
            elif n > self._handed_out:
                n = self._at_open
            found = self._read(n, last, limit) if n < last else []
            if found:
                self._handed_out = max(self._handed_out, found[-1].n)
            return self.series, found

    def taken(self, series: str, n: int) -> None:
        """Note that the console has all acts up to number n; delete closed files that hold no others."""
        if series != self.series or n <= self._taken:
            return
        with self._files_lock:
            self._taken = n
            files = self._files()
            for (_, path), (following, _) in pairwise(files):
                if following <= n + 1:
                    self._delete(path)

    def _files(self) -> list[tuple[int, Path]]:
        """Return (number of its first act, file), oldest first; the last one is the file that is written to."""
        matches = map(self._old.match, self._disk.file_names(self._directory))
        found = [(int(match[1]), self._directory / match[0]) for match in matches if match]
        return [*sorted(found), (self._first, self._path)]

    def _delete(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(path)

    def _read(self, n: int, last: int, limit: int) -> list[WireAct]:
        found: list[WireAct] = []
        files = self._files()
        for index, (_, path) in enumerate(files):
            if index + 1 < len(files) and files[index + 1][0] <= n + 1:
                continue
            known, name, position = self._read_to
            begin = position if known == n + len(found) and name == path.name else 0
            raw = self._rest(path, begin)
            at = 0 if begin else raw.find(b"\n") + 1  # behind the head
            while len(found) < limit and (end := raw.find(b"\n", at) + 1):
                act = decode_act(raw[at:end])
                at = end
                if act is None or act.n <= n:
                    continue
                if act.n > last:
                    return found
                found.append(act)
                if path == self._path:
                    self._read_to = (act.n, path.name, begin + at)
        return found

    def _rest(self, path: Path, begin: int) -> bytes:
        """Return a file's bytes from `begin` on; none if it was deleted."""
        try:
            fd = self._disk.open(path, read_only=True)
        except FileNotFoundError:
            return b""
        try:
            return self._disk.pread(fd, self._disk.size(fd) - begin, begin)
        finally:
            self._disk.close(fd)

    # --- before the thread

    def open(self) -> None:
        """Open the file and continue behind its last whole line. Raises OSError."""
        self._disk.make_directory(self._directory)
        raw = self._disk.read_if_any(self._path) or b""
        head, lines = read_acts(raw)
        if head is None and raw:
            aside = self._path.with_name(f"{self._stem}.damaged")
            logger.error("wire audit: the file has no valid head, setting it aside path=%s", aside)
            self._disk.rename(self._path, aside)
        is_new = head is None
        file = self._file = AppendedLines("wire audit", self._path, self._disk)
        if head is None:
            head = self._following_old() or FileHead(os.urandom(8).hex(), 1)
            file.begin(_head_line(head))
            lines = []
        else:
            self._disk.make_private(file.fd)
            torn = len(raw) - raw.rfind(b"\n") - 1
            if torn:
                logger.warning("wire audit: cut a torn last line bytes=%d", torn)
                file.cut(len(raw) - torn)
            file.sync()
        self.series = head.series
        self._first = head.first
        # A damaged line had a number, too, which the next act must not get.
        self.last = max((act.n for act in lines), default=head.first - 1)
        if not is_new:
            self.last = max(self.last, head.first - 1 + raw.count(b"\n") - 1)
        self._at_open = self._handed_out = self.last

    def _following_old(self) -> FileHead | None:
        """Return the head of a file behind the newest closed one, after a process died before it made that file."""
        files = self._files()[:-1]
        if not files:
            return None
        head, acts = read_acts(self._disk.read(files[-1][1]))
        return head and FileHead(head.series, max((act.n for act in acts), default=head.first - 1) + 1)

    # --- the thread

    def run(self) -> None:
        while not self.stopped:
            with self._lock:
                pending = bool(self._sums)
                left = self._window_end - self._clock.monotonic()
            if self.wait(RETRY_S if self._unwritten else max(0.05, left) if pending else None):
                self._ending.wait(GATHER_S)
            self.work()

    def work(self, last: bool = False) -> None:
        """Write and sync the waiting acts. last: also the counts of a minute that is not over."""
        with self._lock:
            self._end_window_locked(now=last)
            room = MAX_WAITING - len(self._unwritten)
            self._unwritten += [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if not self._unwritten:
            return
        acts = [msgspec.structs.replace(act, n=self.last + 1 + k) for k, act in enumerate(self._unwritten)]
        data = b"".join(msgspec.json.encode(act) + b"\n" for act in acts)
        assert self._file is not None, "`open` comes first"
        try:
            if self._file.size > MAX_FILE_BYTES:
                self._roll(self._file)
            self._file.append(data)  # what fails stays in memory, and is written again
        except OSError as error:
            if self.failure is None:
                logger.error("wire audit: cannot be written, trying again path=%s: %s", self._path, error)
            self.failure = error.strerror or str(error)
            return
        self._unwritten = []
        self.failure = None
        self.last = acts[-1].n
        for act in acts:
            _log(act)

    def _roll(self, file: AppendedLines) -> None:
        """Close this file and begin the next one. Beyond MAX_OLD_FILES delete the oldest, and record that as an act."""
        with self._files_lock:
            file.begin(
                _head_line(FileHead(self.series, self.last + 1)),
                aside=self._directory / f"{self._stem}-{self._first:020d}.jsonl",
            )
            self._first = self.last + 1
            self._read_to = (0, "", 0)  # a place in the file that was closed
            files = self._files()
            surplus = files[: max(0, len(files) - 1 - MAX_OLD_FILES)]
            lost = 0
            for k, (first, path) in enumerate(surplus):
                end = files[k + 1][0]
                lost += max(0, end - max(first, self._taken + 1))
                self._delete(path)
        if lost:
            logger.warning("wire audit: deleted the oldest acts, no console took them over count=%d", lost)
            note = WireAct(at_ms=self._clock.wall_ms(), host="", action="wire_audit.drop", after={"entries": lost})
            with self._lock:
                self._waiting.append(note)
            self.wakeup()

    def request_stop(self) -> None:
        super().request_stop()
        self._ending.set()

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread, write the rest, close the file."""
        ended = super().stop(deadline)
        if self._file is not None and ended:
            self.work(last=True)
            self.work()
            self._file.close()
            self._file = None
        return ended


def _head_line(head: FileHead) -> bytes:
    return msgspec.json.encode(head) + b"\n"


def _log(act: WireAct) -> None:
    level = logging.INFO if act.result == DONE else logging.WARNING
    if act.more:
        logger.log(level, "wire admin: %d more of %s from %s: %s", act.more, act.action, act.peer, act.result)
    else:
        logger.log(level, "wire admin: %s %s by=%s: %s", act.action, act.target, act.peer, act.result)
