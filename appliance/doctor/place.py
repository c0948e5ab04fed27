"""Checks the place: directories, the disk they are on, the ports."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..command_line import ServeOptions
from ..engine import own_files
from ..engine.config import EngineConfig
from ..engine.disk import Disk, file_system
from ..engine.engine import MIN_FREE_BYTES, VIP_DISTANCE
from ..engine.errors import StartError
from ..engine.host_port import cannot_reach, local_host
from ..engine.remoting.server import listen
from ..engine.store.log.commit_log import RECENT_BYTES
from ..engine.window.health.disk_room import disk_figures
from ..main import what_strangers_can_do
from ..runtime import is_loopback
from .diagnosis import Diagnosis, size_text

_SAME_OPTIONS = "give doctor the options that serve was started with"
#: A socket's state in /proc/net/tcp.
_LISTEN = "0A"
_FORGETS = ("tmpfs", "ramfs")
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")


def existing(path: Path) -> Path:
    """The path, or the nearest directory above that exists."""
    while not path.exists():
        path = path.parent
    return path


def look_at_place(found: Diagnosis, config: EngineConfig, running: bool) -> None:
    """running: a broker has the store open, so its directories are in use."""
    for name, directory in (("data-dir", config.data_dir), ("store-dir", config.store_dir)):
        if name == "store-dir" and directory == config.data_dir / "store" and not directory.exists():
            continue
        there = existing(directory)
        if not there.is_dir():
            found.fail(name, f"{there} is not a directory.", f"choose another one with --{name}")
        elif os.statvfs(there).f_flag & os.ST_RDONLY:
            found.fail(name, f"The file system of {there} is mounted read-only.", "mount it for writing")
        elif not os.access(there, os.W_OK | os.X_OK):
            found.fail(name, f"{there} is not writable for this user.", f"chown it, or choose another with --{name}")
        elif there != directory:
            found.ok(name, f"{directory} does not exist yet and will be made.")
        else:
            found.ok(name, f"{directory} exists and is writable.")
    _own_files(found, config.data_dir / "rocketbox")
    kind = file_system(existing(config.store_dir))
    if kind in _FORGETS:
        found.warn("file-system", f"{config.store_dir} is on {kind}: a reboot loses everything.", "use a disk")
    elif kind in _SHARED:
        text = f"{config.store_dir} is on {kind}, where locks and syncs depend on another machine."
        found.warn("file-system", text, "use a local disk")
    _disk(found, config, running)
    if "broker" in config.roles:
        _reads(found, config.store_dir)


class _Trial(Disk):
    """The store's own test of how reads work, without its log line."""

    def tell_of_slow_reads(self, error: OSError) -> None:
        pass


def _reads(found: Diagnosis, store_dir: Path) -> None:
    """Whether the store's file system says what is in the page cache, so that reads never wait for the disk (D2)."""
    tried = []
    for directory in (store_dir / "commitlog", store_dir / "consumequeue"):
        fd = _a_file_in(directory)
        if fd is None:
            continue
        try:
            tried.append(_Trial().find_out_about_reads(fd))
        finally:
            os.close(fd)
    if not tried:
        found.ok("reads", "There is no file in the store yet to test reads with.")
    elif all(tried):
        found.ok("reads", f"Reads of {store_dir} never wait for the disk.")
    else:
        text = (
            f"The file system of {store_dir} does not say what is in the page cache: except for the newest "
            f"{size_text(RECENT_BYTES)} of the log, one thread reads messages and queue files, one after the other."
        )
        found.warn("reads", text, "nothing is lost; on ext4 and xfs consumers that are behind get messages faster")


def _a_file_in(directory: Path) -> int | None:
    """A descriptor of some file in the directory; if there is none, of a new one without a name, which vanishes when it
    is closed. None when neither can be opened."""
    for path in directory.rglob("0*"):  # any will do, and there may be many
        if path.is_file():
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                break
    nameless = getattr(os, "O_TMPFILE", 0)
    try:
        return os.open(existing(directory), nameless | os.O_RDWR | os.O_CLOEXEC, 0o600) if nameless else None
    except OSError:
        return None


def _own_files(found: Diagnosis, directory: Path) -> None:
    """The directory holds password hashes and the key of sessions."""
    # While Spark counts, its files have modes that it chooses; the directory around them is closed.
    loose = own_files.loose(directory, without=directory / "reports" / "scratch")
    if not loose:
        found.ok("own-files", f"Only this user may read what is in {directory}.")
        return
    mine = [one for one in loose if one.why.startswith("mode ")]
    advice = f"chmod -R go-rwx {directory}; each start does it, too" if mine else "find out who put it there"
    found.warn("own-files", f"Others may read or own these: {own_files.text_of(mine or loose)}.", advice)


def _disk(found: Diagnosis, config: EngineConfig, running: bool) -> None:
    there = existing(config.store_dir)
    disk = disk_figures(there)
    if disk.free_bytes is None or disk.used_percent is None:
        found.fail("disk", f"The disk of {there} cannot be measured: {disk.failure}.", "check the disk")
        return
    inodes = os.statvfs(there)
    log = config.store_dir / "commitlog"
    has_log = log.is_dir() and any(log.iterdir())
    segment_bytes = config.store.mapped_file_size_commit_log
    needed = MIN_FREE_BYTES + (0 if has_log else segment_bytes)
    limit = config.store.disk_max_used_space_ratio
    text = f"{size_text(disk.free_bytes)} are free, {disk.used_percent:.0f} % of the disk is used."
    if disk.free_bytes < needed and not running:
        advice = f"free at least {size_text(needed)}, or give a new store a smaller mappedFileSizeCommitLog"
        found.fail("disk", text, advice)
    elif inodes.f_files and not inodes.f_favail:
        found.fail("disk", "No inodes are free, so no file can be made.", "delete files, or use another file system")
    elif disk.used_percent >= limit:
        advice = f"diskMaxUsedSpaceRatio is {limit}: old messages are deleted early, and later sends are refused"
        found.warn("disk", text, advice)
    elif disk.free_bytes < 2 * segment_bytes:
        advice = f"a log file takes {size_text(segment_bytes)}, and the next one is made in advance"
        found.warn("disk", text, advice)
    else:
        found.ok("disk", text)


def look_at_ports(found: Diagnosis, config: EngineConfig, options: ServeOptions, holder: int | None) -> None:
    """Ports must be free when no broker runs here, and be its own and answer when one does. holder: its process."""
    ports: list[tuple[str, int]] = []
    if "broker" in config.roles and config.broker_port:
        ports += [("broker", config.broker_port), ("broker's VIP", config.broker_port - VIP_DISTANCE)]
    if "namesrv" in config.roles and config.namesrv_port:
        ports.append(("name server", config.namesrv_port))
    if options.console and options.http_port:
        ports.append(("console", options.http_port))
    own = None if holder is None else listening_ports(holder)
    for name, port in ports:
        if own is not None and port not in own:
            others = ", ".join(map(str, sorted(own))) or "no port"
            text = f"The {name} of process {holder} does not listen on {port}: it listens on {others}."
            found.warn("port", text, _SAME_OPTIONS)
            continue
        if holder is not None:
            _answers(found, name, config.bind, port)
            continue
        try:
            listen(config.bind, port).close()
        except StartError as error:
            found.fail("port", f"For the {name}: {error}", "stop what listens there, or choose another port")
        else:
            found.ok("port", f"{port} is free for the {name}.")
    host = config.advertise
    if host is not None and cannot_reach(host, config.bind):
        found.warn(
            "address",
            f"Clients are told {host}, but the ports listen on {config.bind} only, so they cannot connect.",
            f"start with --bind 0.0.0.0 or --bind {host}",
        )
    if not is_loopback(config.bind):
        found.warn("address", what_strangers_can_do(config), "keep these ports behind a firewall")


def listening_ports(pid: int) -> set[int] | None:
    """Return the TCP ports on which a process listens; None if that is not known. Source: proc(5)."""
    try:
        # A file may have the number of another process's socket.
        of_process = {status.st_ino for status in _open_files(pid) if stat.S_ISSOCK(status.st_mode)}
        found = set()
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[9]) in of_process:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    except (OSError, ValueError, IndexError):
        return None
    return found


def _open_files(pid: int) -> Iterator[os.stat_result]:
    for one in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.stat(one.path)


def _answers(found: Diagnosis, name: str, bind: str, port: int) -> None:
    host = local_host(bind)
    try:
        socket.create_connection((host, port), 2.0).close()
    except OSError as error:
        text = f"The {name} does not answer on {host}:{port}: {error.strerror or error}."
        found.warn("port", text, _SAME_OPTIONS)
    else:
        found.ok("port", f"The {name} answers on {host}:{port}.")
