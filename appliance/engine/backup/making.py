"""Makes a backup of a data directory, in use or not. The order of the copies is that of the package."""

from __future__ import annotations

import io
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..config import StoreConfig
from ..disk import disk_usage
from ..store.retention.clean_rules import full_share
from ..store.retention.deleted_topics import NAME as DELETED_TOPICS
from .archive import BackupError, Sink, Step, disk_error, sink_for
from .ends import deletions_with_ends
from .manifest import FORMAT, Entry, Manifest, encode, sealed

#: Files that are made again from the log at the first start, or belong to this process only.
_STORE_LEFT_OUT = {"commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "abort",
                   "lock", "timerwheel", "timerlog", "rocketbox-member"}  # fmt: skip
#: A restored store is a new member of its broker set (`ha`): it may lack what the set has acknowledged since.
_OWN_LEFT_OUT = {"recovery-position", "index-position", "blocks", "jobs", "backups", "lock", "ha"}
#: Input and output of report runs; the reports, and the facts that cannot be counted again, are kept.
_REPORTS_LEFT_OUT = {"runs", "scratch"}
_OWN_LEFT_OUT_PATTERN = re.compile(r"queue-ledger-|.*\.tmp\Z|.*\.damaged\Z|.*\.sqlite3-(wal|shm|journal)\Z|\.")
#: Files that do no harm ahead of the log; if they were behind it, messages would have no topic.
_AFTER_THE_END = re.compile(
    r"rocketbox/(config\.journal|options\.json|deleted-topics\.json|purged-queues\.json|namesrv/.*|format)\Z"
    r"|store/config/(topics|subscriptionGroup|consumerFilter|topicQueueMapping|subscriptionGroupFork)\.json(\.bak)?\Z"
)
#: Messages that delivery skips come before the progress of delivery, so that a cancelled message never comes back.
_FIRST = ("rocketbox/audit-head", "rocketbox/settled-delays", "rocketbox/timers/state")
_LOG_NAME = re.compile(r"\d{20}\Z", re.ASCII)
#: A file up to this size is read at once.
_AT_ONCE = 32 << 20
#: Bytes between two looks at the room on the broker's disk.
_LOOK_BYTES = 16 << 20
#: Tries to copy the timers: their state names runs, which may be merged meanwhile.
_TRIES = 5


class Made(NamedTuple):
    path: Path
    manifest: Manifest


class Spared(NamedTuple):
    """The room that a backup leaves on the broker's own disk: at most this share in use, at least these bytes free."""

    share: float
    bytes: int

    @classmethod
    def by(cls, options: StoreConfig, room_bytes: int) -> Spared:
        """room_bytes: bytes that the next file of the log needs."""
        return cls(full_share(options), room_bytes)


class LogEnd(NamedTuple):
    """The end of a log, and how its files are kept meanwhile.

    at: called once the progress files are copied; returns the published end. keeping: called with a function that
    returns the offset from which on the log is still needed; returns a context manager that keeps the cleaner from it.
    Without it every file of the log is opened first, and stays readable when it is deleted. spared: for a running
    broker, which would delete messages before their time, and then refuse sends, if the backup filled its disk."""

    at: Callable[[], int]
    keeping: Callable[[Callable[[], int]], AbstractContextManager[object]] | None = None
    spared: Spared | None = None


class LogFile(NamedTuple):
    name: str
    path: Path
    start: int
    bytes: int
    full_bytes: int


def make_backup(
    target: Path,
    store_dir: Path,
    own_dir: Path,
    *,
    version: str,
    log_end: LogEnd,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> Made:
    """Make a backup. Raises BackupError, and what `step` raises; nothing is left of it then.

    step: called with (bytes done, bytes in all) after each MiB.
    """
    try:
        with ExitStack() as stack:
            sink = sink_for(target)
            try:
                data = _DataDirectory(store_dir, own_dir)
                manifest = sealed(_make(sink, data, version, log_end, step, target, stack))
                sink.finish(encode(manifest))
            except BaseException:
                sink.give_up()
                raise
            return Made(target, manifest)
    except OSError as error:
        raise disk_error(error, target) from None
    except sqlite3.Error as error:
        raise BackupError(f"A database of the console cannot be copied: {error}.") from None


class _DataDirectory(NamedTuple):
    store: Path
    own: Path


def _make(
    sink: Sink,
    data: _DataDirectory,
    version: str,
    log_end: LogEnd,
    step: Callable[[int, int], None],
    target: Path,
    stack: ExitStack,
) -> Manifest:
    store_dir, own_dir = data
    spared = log_end.spared
    needed_from = [0]
    if log_end.keeping is not None:
        stack.enter_context(log_end.keeping(lambda: needed_from[0]))
    handles = {} if log_end.keeping is not None else _open_all(store_dir / "commitlog", stack)
    small = dict(_small_files(store_dir, own_dir))
    expected = sum(_size(path) for path in small.values()) + _log_bytes(store_dir / "commitlog")
    _check_room(target, expected)
    if spared is not None and not _same_disk(target.parent, store_dir):
        spared = None
    _check_spared(spared, store_dir, expected)
    done = [0]
    total = [expected]

    def count(size: int) -> None:
        if (done[0] + size) // _LOOK_BYTES != done[0] // _LOOK_BYTES:
            _check_spared(spared, store_dir, 0)
        done[0] += size
        step(done[0], max(total[0], done[0]))

    entries: list[Entry] = []

    def copy(name: str, path: Path) -> None:
        entry = _copy(sink, name, path, count)
        if entry is not None:
            entries.append(entry)

    before = [name for name in small if not _AFTER_THE_END.match(name) and not name.endswith(".sqlite3")]
    timers = [name for name in before if name.startswith("rocketbox/timers/")]
    entries += _copy_timers(sink, own_dir / "timers", count)
    for name in sorted(set(before) - set(timers), key=lambda name: (_rank(name), name)):
        copy(name, small[name])
    end = log_end.at()
    files = _log_files(store_dir / "commitlog", end)
    begin = files[0].start if files else end
    small = dict(_small_files(store_dir, own_dir))  # by now a table that was never changed may have its first file
    noted = deletions_with_ends(store_dir, own_dir, begin, end, count)
    if noted is not None:
        name = f"rocketbox/{DELETED_TOPICS}"
        small.pop(name, None)
        entries.append(_bytes(sink, name, noted, count))
    for name in sorted(name for name in small if _AFTER_THE_END.match(name)):
        copy(name, small[name])
    for name in sorted(name for name in small if name.endswith(".sqlite3")):
        entries.append(_copy_database(sink, name, small[name], target.parent, count))
    total[0] = done[0] + sum(one.bytes for one in files)
    for one in files:
        needed_from[0] = one.start
        with _log_handle(handles, one) as source:
            sha256 = sink.add(one.name, source, one.bytes, count)
            os.posix_fadvise(source.fileno(), 0, max(0, one.bytes - (16 << 20)), os.POSIX_FADV_DONTNEED)
        entries.append(Entry(one.name, one.bytes, one.full_bytes, sha256))
    return Manifest(FORMAT, version, int(time.time() * 1000), begin, end, sorted(entries, key=lambda one: one.name))


def _rank(name: str) -> int:
    """Return a file's rank in the order of copies: those in store/, such as delayOffset.json, follow RocketBox's
    own."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST) + name.startswith("store/")


def _small_files(store_dir: Path, own_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name in the backup, path) of all files but the log, in no order."""
    for prefix, root in (("store", store_dir), ("rocketbox", own_dir)):
        left_out = _STORE_LEFT_OUT if prefix == "store" else _OWN_LEFT_OUT
        for directory, directories, names in os.walk(root):
            here = Path(directory)
            if here == root:
                directories[:] = [one for one in directories if one not in left_out]
                names = [one for one in names if one not in left_out]
            elif here == own_dir / "reports":
                directories[:] = [one for one in directories if one not in _REPORTS_LEFT_OUT]
            elif here.parent == own_dir / "reports":  # directories that are still being written
                directories[:] = [one for one in directories if not one.startswith(".")]
            for name in names:
                path = here / name
                if _OWN_LEFT_OUT_PATTERN.match(name) or path.is_symlink() or not path.is_file():
                    continue
                yield f"{prefix}/{path.relative_to(root).as_posix()}", path


def _copy(sink: Sink, name: str, path: Path, count: Step) -> Entry | None:
    """Copy a file; None if it has gone meanwhile."""
    try:
        source = path.open("rb")
    except FileNotFoundError:
        return None
    with source:
        size = os.fstat(source.fileno()).st_size
        if size <= _AT_ONCE:
            return _bytes(sink, name, source.read(_AT_ONCE), count)
        return Entry(name, size, size, sink.add(name, source, size, count))


def _bytes(sink: Sink, name: str, data: bytes, count: Step) -> Entry:
    return Entry(name, len(data), len(data), sink.add(name, io.BytesIO(data), len(data), count))


def _copy_timers(sink: Sink, directory: Path, count: Step) -> list[Entry]:
    """Copy the state and the runs that it names, which never change; all are opened before any is copied."""
    for _ in range(_TRIES):
        with ExitStack() as stack:
            try:
                state = (directory / "state").read_bytes()
                names = sorted(one for one in os.listdir(directory) if one.startswith("run-") and "." not in one)
                runs = [(name, stack.enter_context((directory / name).open("rb"))) for name in names]
                if (directory / "state").read_bytes() != state:
                    continue
            except FileNotFoundError:
                if not (directory / "state").exists():
                    return []  # no message ever waited
                continue
            entries = []
            sources: list[tuple[str, BinaryIO]] = [("state", io.BytesIO(state)), *runs]
            for name, source in sources:
                size = len(state) if name == "state" else os.fstat(source.fileno()).st_size
                whole = f"rocketbox/timers/{name}"
                entries.append(Entry(whole, size, size, sink.add(whole, source, size, count)))
            return entries
    return []  # the state changes all the time


def _copy_database(sink: Sink, name: str, path: Path, beside: Path, count: Step) -> Entry:
    """Copy a database by SQLite itself: the copy is of one moment, whatever is written meanwhile."""
    with tempfile.TemporaryDirectory(prefix=".backup-", suffix=".partial", dir=beside) as scratch:
        copy = Path(scratch) / "copy.sqlite3"
        os.close(os.open(copy, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        source = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        try:
            made = sqlite3.connect(copy)
            try:
                source.backup(made, pages=1024, sleep=0.005)
                made.execute("PRAGMA journal_mode=DELETE")
            finally:
                made.close()
        finally:
            source.close()
        entry = _copy(sink, name, copy, count)
        assert entry is not None
        return entry


# --- the log


def _log_files(directory: Path, end: int) -> list[LogFile]:
    """Return the files of the log that have bytes below `end`."""
    found = []
    for path in _log_paths(directory):
        start, size = int(path.name), _size(path)
        kept = min(size, end - start)
        if kept > 0:
            found.append(LogFile(f"store/commitlog/{path.name}", path, start, kept, size))
    return found


def _log_paths(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if _LOG_NAME.match(path.name))
    except FileNotFoundError:
        return []


def _log_bytes(directory: Path) -> int:
    """Return at most how many bytes the log has; of the last file those that are on the disk count."""
    paths = _log_paths(directory)
    return sum(_size(path) for path in paths[:-1]) + (min(_size(paths[-1]), _used(paths[-1])) if paths else 0)


def _open_all(directory: Path, stack: ExitStack) -> dict[str, BinaryIO]:
    """Open every file of the log: one that is deleted while others are copied can still be read."""
    paths = _log_paths(directory)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(paths) + 64
    if soft < wanted <= (hard if hard != resource.RLIM_INFINITY else wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    found: dict[str, BinaryIO] = {}
    for path in paths:
        try:
            found[path.name] = stack.enter_context(path.open("rb"))
        except FileNotFoundError:
            continue
    return found


@contextmanager
def _log_handle(handles: dict[str, BinaryIO], one: LogFile) -> Iterator[BinaryIO]:
    held = handles.get(one.path.name)
    if held is not None:
        yield held
        return
    with one.path.open("rb") as source:
        yield source


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _used(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _check_room(target: Path, wanted: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if wanted > free:
        raise BackupError(
            f"The backup needs up to {wanted} bytes, and the disk of {target.parent} has {free} free; nothing was made."
        )


def _same_disk(target: Path, store_dir: Path) -> bool:
    return target.stat().st_dev == _log_place(store_dir).stat().st_dev


def _log_place(store_dir: Path) -> Path:
    log = store_dir / "commitlog"
    return log if log.exists() else store_dir


def _check_spared(spared: Spared | None, store_dir: Path, wanted: int) -> None:
    if spared is None:
        return
    usage = disk_usage(_log_place(store_dir))
    used, free = usage.used_bytes + wanted, usage.free_bytes - wanted
    if used > spared.share * usage.total_bytes or free < spared.bytes:
        raise BackupError(
            "There is too little room on the broker's own disk: it would delete messages before their time, or refuse "
            f"new ones ({wanted} bytes to write, {usage.free_bytes} free). Nothing was kept; make it on another disk."
        )
