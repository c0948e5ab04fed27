"""The journals of replay jobs: a file for each in `DATA/rocketbox/replay/`; format page: docs/formats/replay-job.md.

    6f0a7c1e [{"kind":"job","version":1,"spec":{...}}]\\n

A line is the CRC-32 of the JSON text as eight hex digits, a blank, and the text: a list of entries that count together.
Each line is durable before the next is written, so only the last one can be torn; a torn line is left out. If a damaged
line has others behind it, or the first line is missing, the job cannot be read; this does not affect other jobs.

The other journals of lines leave a damaged line out, and know at any time what the whole file should hold.
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
from ...disk import Disk
from ...errors import CorruptFile
from ...journal_file import AppendedLines
from .job import FINISHED, MOST_MESSAGES, PAUSED, RUNNING, JobSpec, JobState, Result, Why, count_results

logger = logging.getLogger(__name__)

VERSION = 1
#: Version of a job with a filter: a program without filters must not take it for a job of all messages.
FILTERED = 2
SUFFIX = ".job"
#: Largest file that is read; journals stay far below it.
MOST_BYTES = 64 * 1024 * 1024
#: Most results in one line of a compacted file.
CHUNK = 100_000
_NAME = re.compile(rf"[0-9A-Za-z._-]{{1,64}}{re.escape(SUFFIX)}\Z", re.ASCII)


class JobLine(msgspec.Struct, tag="job", tag_field="kind", frozen=True):
    """The first line of a journal."""

    version: int
    spec: JobSpec


class TargetLine(msgspec.Struct, tag="target", tag_field="kind", frozen=True):
    """Ends of a topic's queues, written before the first copy goes to it."""

    topic: str
    offsets: tuple[int, ...]


class ProgressLine(msgspec.Struct, tag="progress", tag_field="kind", frozen=True):
    """Results of the messages from the `next` of the last such line up to this one's: a byte each, zlib, base64.
    targets: the offsets from which on copies of later messages may lie."""

    next: int
    results: str
    targets: dict[str, tuple[int, ...]]


class StateLine(msgspec.Struct, tag="state", tag_field="kind", frozen=True):
    """A change of the job's state. settled: the lines before hold the result of every copy that was sent."""

    state: str
    settled: bool
    at_ms: int
    by: str
    why: Why | None = None


Line = JobLine | TargetLine | ProgressLine | StateLine
_decoder = msgspec.json.Decoder(list[Line])


def encode_line(*entries: Line) -> bytes:
    """Return the line of entries that count together, with its CRC and newline."""
    return line_of(msgspec.json.encode(entries))


def decode_line(line: bytes) -> list[Line]:
    """Return the entries of a line. Raises ValueError for a damaged one."""
    text = text_of(line)
    if text is None:
        raise ValueError("the CRC does not match")
    return _decoder.decode(text)


def pack_results(results: bytes | bytearray) -> str:
    return base64.b64encode(zlib.compress(bytes(results), 6)).decode()


def unpack_results(text: str, count: int) -> bytes:
    """Return the packed results, a byte each. Raises ValueError unless there are `count` of them."""
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
    """Return the line that adds results to a state."""
    return ProgressLine(state.next + len(results), pack_results(results), targets)


def follow(state: JobState, line: Line, results: bytes | bytearray | None = None) -> JobState:
    """Return the state after a line. results: those of a progress line, if unpacked already. Raises ValueError."""
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
    """Return (entries, bytes of their lines) of a file; a torn last line is left out. Raises CorruptFile."""
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
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
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
    """Return the job's state after all lines. Raises CorruptFile if they contradict each other."""
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
    """The files of all jobs. Writing belongs to one thread; any thread may call `results`."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        # Constant after construction.
        self._directory = directory
        self._disk = disk
        # Owned by the thread: the files of unfinished jobs, by id.
        self._open: dict[str, AppendedLines] = {}

    def _path(self, job: str) -> Path:
        return self._directory / f"{job}{SUFFIX}"

    def ids(self) -> list[str]:
        """Return the ids of all jobs with a file, oldest first; other files are ignored. Raises OSError."""
        if not self._disk.exists(self._directory):
            return []
        return [name.removesuffix(SUFFIX) for name in self._disk.names(self._directory) if _NAME.match(name)]

    def load(self, job: str) -> JobState:
        """Read a job's file and return its state. Raises CorruptFile, OSError."""
        return state_of(read_lines(self._read(self._path(job)))[0])

    def modified_ms(self, job: str) -> int:
        fd = self._disk.open(self._path(job), read_only=True)
        try:
            return self._disk.modified_ms(fd)
        finally:
            self._disk.close(fd)

    def create(self, spec: JobSpec) -> JobState:
        """Create the journal of a new job, durable when this returns; return the job's state. Raises OSError."""
        self._disk.make_directory(self._directory)
        line = JobLine(VERSION if spec.filter is None else FILTERED, spec)
        self._disk.replace(self._path(spec.id), encode_line(line))
        self._open[spec.id] = self._opened(spec.id)
        return state_of([line])

    def open(self, job: str) -> JobState:
        """Open a journal for more lines; return its state, which then is on the disk. Raises CorruptFile, OSError.

        Also called after a failed write or sync: the page cache may then show what the disk does not hold. So the file
        is read from the disk, and the lines found there go into a new file.
        """
        self.close(job)
        file = self._opened(job)
        try:
            data = _bounded(file.read(MOST_BYTES))
            lines, good = read_lines(data)
            state = state_of(lines)
            file.begin(data[:good])
        except BaseException:
            file.close()
            raise
        self._open[job] = file
        return state

    def _opened(self, job: str) -> AppendedLines:
        return AppendedLines(f"replay {job}", self._path(job), self._disk, create=False)

    def append(self, job: str, *lines: Line) -> None:
        """Append entries as one line, durable when this returns: all or none. After an OSError, `open` the journal
        again."""
        if job not in self._open:
            raise OSError(f"the journal of job {job} is not open")
        try:
            self._open[job].append(encode_line(*lines))
        except OSError:
            self.close(job)
            raise

    def size(self, job: str) -> int:
        """Return the size of an open journal in bytes."""
        return self._open[job].size

    def compact(self, job: str) -> None:
        """Rewrite the file with the fewest lines that say the same. Raises CorruptFile, OSError.

        An open journal stays open; after an error it has to be opened again.
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
            self._open[job] = self._opened(job)

    def results(self, job: str, begin: int, end: int) -> bytes:
        """Return a byte for each message of [begin, end) whose result is in the file. Raises CorruptFile, OSError."""
        lines, _ = read_lines(self._read(self._path(job)))
        try:
            return b"".join(_results(lines, begin, end))
        except ValueError as error:
            raise CorruptFile(str(error)) from None

    def delete(self, job: str) -> None:
        """Delete a job's file. Raises OSError."""
        self.close(job)
        self._disk.unlink(self._path(job))

    def close(self, job: str) -> None:
        """Close a job's file, if it is open."""
        if job in self._open:
            self._open.pop(job).close()

    def close_all(self) -> None:
        for job in list(self._open):
            self.close(job)

    def _read(self, path: Path) -> bytes:
        return _bounded(self._disk.read(path, MOST_BYTES + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise CorruptFile(f"it has more than {MOST_BYTES} bytes")
    return data


def _results(lines: Sequence[Line], begin: int, end: int) -> Iterator[bytes]:
    """Yield the results of the messages [begin, end) in pieces; unpack only the lines needed. Raises ValueError."""
    at = 0
    for line in lines:
        if isinstance(line, ProgressLine):
            if at < end and line.next > begin:
                found = unpack_results(line.results, line.next - at)
                yield found[max(begin - at, 0) : end - at]
            at = line.next
