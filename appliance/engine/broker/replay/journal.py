"""The journals of replay jobs: a file for each in `DATA/rocketbox/replay/`; format page: docs/formats/replay-job.md.

    6f0a7c1e [{"kind":"job","version":1,"spec":{...}}]\\n

The CRC-32 of the JSON text as eight hex digits, a blank, the text: a list of entries, which count together. A line is
durable before the next is written, so only the last one can be torn; that is left out. A damaged line with others
behind it, or no first line: the job cannot be read, and others are not touched by that.
"""

from __future__ import annotations

import base64
import logging
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from ...crc_lines import line_of, text_of
from ...errors import CorruptFile
from ...store.disk import Disk
from .job import FINISHED, MOST_MESSAGES, PAUSED, RUNNING, JobSpec, JobState, Result, Why, count_results

logger = logging.getLogger(__name__)

VERSION = 1
#: Of a job with a filter: a program that does not know filters must not take it for a job of all messages.
FILTERED = 2
SUFFIX = ".job"
#: Of one file; ours stay far below it.
MOST_BYTES = 64 * 1024 * 1024
#: Results in one line of a file that was written anew.
CHUNK = 100_000
_NAME = re.compile(rf"[0-9A-Za-z._-]{{1,64}}{re.escape(SUFFIX)}\Z", re.ASCII)


class JobLine(msgspec.Struct, tag="job", tag_field="kind", frozen=True):
    """The first line."""

    version: int
    spec: JobSpec


class TargetLine(msgspec.Struct, tag="target", tag_field="kind", frozen=True):
    """Before the first copy to a topic: where its queues ended."""

    topic: str
    offsets: tuple[int, ...]


class ProgressLine(msgspec.Struct, tag="progress", tag_field="kind", frozen=True):
    """Results of the messages from the last such line on up to `next`: a byte each, zlib, base64. targets: from where
    on copies of later messages may lie."""

    next: int
    results: str
    targets: dict[str, tuple[int, ...]]


class StateLine(msgspec.Struct, tag="state", tag_field="kind", frozen=True):
    """settled: what became of every copy that was sent is in the lines before."""

    state: str
    settled: bool
    at_ms: int
    by: str
    why: Why | None = None


Line = JobLine | TargetLine | ProgressLine | StateLine
_decoder = msgspec.json.Decoder(list[Line])


def encode_line(*entries: Line) -> bytes:
    """The line of entries that count together, with its CRC and newline."""
    return line_of(msgspec.json.encode(entries))


def decode_line(line: bytes) -> list[Line]:
    """Its entries. Raises ValueError for a damaged one."""
    text = text_of(line)
    if text is None:
        raise ValueError("the CRC does not match")
    return _decoder.decode(text)


def pack_results(results: bytes | bytearray) -> str:
    return base64.b64encode(zlib.compress(bytes(results), 6)).decode()


def unpack_results(text: str, count: int) -> bytes:
    """Raises ValueError unless they are `count` results."""
    if not count and not text:
        return b""
    try:
        found = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), count + 1)
    except zlib.error as error:
        raise ValueError(f"results that cannot be unpacked: {error}") from None
    if len(found) != count or (found and max(found) > max(Result)):
        raise ValueError(f"{len(found)} results, {count} were announced")
    return found


def progress(state: JobState, results: bytes | bytearray, targets: dict[str, tuple[int, ...]]) -> ProgressLine:
    """The line that adds results to a state."""
    return ProgressLine(state.next + len(results), pack_results(results), targets)


def follow(state: JobState, line: Line, results: bytes | bytearray | None = None) -> JobState:
    """The state behind a line. results: of a progress line, if they are at hand. Raises ValueError."""
    if isinstance(line, TargetLine):
        return structs.replace(state, targets={**state.targets, line.topic: line.offsets})
    if isinstance(line, ProgressLine):
        if not state.next <= line.next <= state.spec.total:
            raise ValueError(f"a step from {state.next} to {line.next} of {state.spec.total}")
        found = unpack_results(line.results, line.next - state.next) if results is None else results
        counts = tuple(a + b for a, b in zip(state.counts, count_results(found), strict=True))
        return structs.replace(state, next=line.next, counts=counts, targets=line.targets)
    if isinstance(line, StateLine):
        if line.state not in FINISHED and line.state not in (RUNNING, PAUSED):
            raise ValueError(f"the state {line.state[:20]!r}")
        targets = {} if line.settled else state.targets
        return structs.replace(state, state=line.state, why=line.why, targets=targets, changed_ms=line.at_ms)
    raise ValueError("a second first line")


def read_lines(data: bytes) -> tuple[list[Line], int]:
    """(lines, bytes they take) of a file; a torn last line is left out. Raises CorruptFile."""
    found: list[Line] = []
    good = at = 0
    bad: str | None = None
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at:] if end < 0 else data[at:end]
        at = len(data) if end < 0 else end + 1
        try:
            if end < 0:
                raise ValueError("it does not end")
            decoded = decode_line(line)
        except (ValueError, msgspec.DecodeError) as error:
            bad = bad or f"at byte {good}: {error}"
            continue
        if bad is not None:
            raise CorruptFile(bad)
        found += decoded
        good = at
    if not found:
        raise CorruptFile(bad or "it is empty")
    if not isinstance(found[0], JobLine) or found[0].version != (VERSION if found[0].spec.filter is None else FILTERED):
        raise CorruptFile("it does not begin with a job of this version")
    if not 0 < found[0].spec.total <= MOST_MESSAGES:
        raise CorruptFile(f"a job of {found[0].spec.total} messages")
    return found, good


def state_of(lines: Sequence[Line]) -> JobState:
    """Raises CorruptFile for lines that contradict each other."""
    first = lines[0]
    assert isinstance(first, JobLine)
    state = JobState(first.spec, changed_ms=first.spec.created_ms)
    try:
        for line in lines[1:]:
            state = follow(state, line)
    except ValueError as error:
        raise CorruptFile(str(error)) from None
    return state


class JobJournal:
    """The files of all jobs. Writing belongs to one thread; `results` may be asked by any."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        # Constant after construction.
        self._directory = directory
        self._disk = disk
        # Owned by the thread: id -> (descriptor, where the next line begins) of unfinished jobs.
        self._open: dict[str, tuple[int, int]] = {}

    def _path(self, job: str) -> Path:
        return self._directory / f"{job}{SUFFIX}"

    def ids(self) -> list[str]:
        """Of every file there, oldest first; names that are none of ours are left alone. Raises OSError."""
        if not self._disk.exists(self._directory):
            return []
        return [name.removesuffix(SUFFIX) for name in self._disk.names(self._directory) if _NAME.match(name)]

    def load(self, job: str) -> JobState:
        """What a file says. Raises CorruptFile, OSError."""
        return state_of(read_lines(self._read(self._path(job)))[0])

    def modified_ms(self, job: str) -> int:
        fd = self._disk.open(self._path(job), read_only=True)
        try:
            return self._disk.modified_ms(fd)
        finally:
            self._disk.close(fd)

    def create(self, spec: JobSpec) -> JobState:
        """Durable when it returns. Raises OSError."""
        self._disk.make_directory(self._directory)
        line = JobLine(VERSION if spec.filter is None else FILTERED, spec)
        self._disk.replace(self._path(spec.id), encode_line(line))
        self._reopen(spec.id)
        return state_of([line])

    def open(self, job: str) -> JobState:
        """Ready for more lines; what it says now is on the disk. Raises CorruptFile, OSError.

        Also after a write or a sync has failed: the page cache may then show what the disk does not hold, so the disk
        is asked, and what it holds goes into a new file.
        """
        self.close(job)
        path = self._path(job)
        fd = self._disk.open(path)
        try:
            self._disk.fdatasync(fd)
            self._disk.forget_cached(fd)
        finally:
            self._disk.close(fd)
        data = self._read(path)
        lines, good = read_lines(data)
        state = state_of(lines)
        self._disk.replace(path, data[:good])
        self._reopen(job)
        return state

    def _reopen(self, job: str) -> None:
        fd = self._disk.open(self._path(job))
        self._open[job] = fd, self._disk.size(fd)

    def append(self, job: str, *lines: Line) -> None:
        """Durable when it returns, all or none. After an OSError it has to be opened again."""
        if job not in self._open:
            raise OSError(f"the journal of job {job} is not open")
        fd, end = self._open[job]
        data = encode_line(*lines)
        try:
            self._disk.write_all(fd, data, end)
            self._disk.fdatasync(fd)
        except OSError:
            self.close(job)
            raise
        self._open[job] = fd, end + len(data)

    def size(self, job: str) -> int:
        """Of an open one, in bytes."""
        return self._open[job][1]

    def compact(self, job: str) -> None:
        """Write the file anew with as few lines as say the same. Raises CorruptFile, OSError.

        An open one stays open; after an error it has to be opened again.
        """
        was_open = job in self._open
        self.close(job)
        lines, _ = read_lines(self._read(self._path(job)))
        state = state_of(lines)
        found = b"".join(_results(lines, 0, state.next))
        fresh: list[Line] = [lines[0]]
        for at in range(0, len(found), CHUNK):
            part = found[at : at + CHUNK]
            fresh.append(ProgressLine(at + len(part), pack_results(part), state.targets))
        if not found:
            fresh += [TargetLine(topic, offsets) for topic, offsets in state.targets.items()]
        if state.state != RUNNING:
            last = next(line for line in reversed(lines) if isinstance(line, StateLine))
            fresh.append(last)
        self._disk.replace(self._path(job), b"".join(encode_line(line) for line in fresh))
        if was_open:
            self._reopen(job)

    def results(self, job: str, begin: int, end: int) -> bytes:
        """A byte for each of the messages [begin, end) that the file has a result of. Raises CorruptFile, OSError."""
        lines, _ = read_lines(self._read(self._path(job)))
        try:
            return b"".join(_results(lines, begin, end))
        except ValueError as error:
            raise CorruptFile(str(error)) from None

    def delete(self, job: str) -> None:
        """Raises OSError."""
        self.close(job)
        self._disk.unlink(self._path(job))

    def close(self, job: str) -> None:
        """Let the descriptor go."""
        if job in self._open:
            fd, _ = self._open.pop(job)
            self._disk.close(fd)

    def close_all(self) -> None:
        for job in list(self._open):
            self.close(job)

    def _read(self, path: Path) -> bytes:
        fd = self._disk.open(path, read_only=True)
        try:
            size = self._disk.size(fd)
            if size > MOST_BYTES:
                raise CorruptFile(f"it has {size} bytes")
            return self._disk.pread(fd, size, 0)
        finally:
            self._disk.close(fd)


def _results(lines: Sequence[Line], begin: int, end: int) -> Iterator[bytes]:
    """The results of the messages [begin, end), piece by piece; only what is needed is unpacked. Raises ValueError."""
    at = 0
    for line in lines:
        if isinstance(line, ProgressLine):
            if at < end and line.next > begin:
                found = unpack_results(line.results, line.next - at)
                yield found[max(begin - at, 0) : end - at]
            at = line.next
