"""Information about this process: version, addresses, directories, disk."""

from __future__ import annotations

import os
import platform
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .... import __version__
from ...broker.registration import Registration
from ...hotpath import CHOICE
from ...protocol.codes import VERSION, release_name
from ...store.message_store import MessageStore
from ..health.disk_room import disk_figures
from ..options import Options
from ..sentences import say
from .system_snapshots import SystemInfo


class Addresses(NamedTuple):
    """The addresses advertised to clients, as "host:port"; None for a role that does not run."""

    broker: str | None
    namesrv: str | None


def rss_bytes() -> int | None:
    """Return the resident memory of this process; None if /proc does not have it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def open_files() -> int | None:
    """Return the number of file descriptors in use; None if the system does not list them."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return None


class SystemView:
    """Makes the information, with or without a broker. Any thread."""

    def __init__(self, options: Options, addresses: Callable[[], Addresses]) -> None:
        # Constant after construction.
        self._options = options
        self._addresses = addresses
        # Set once, by started().
        self._started_at = time.monotonic()
        self._started_at_ms: int | None = None

    def started(self, since: float) -> None:
        """Note that everything has run since this time on the monotonic clock."""
        self._started_at = since
        self._started_at_ms = int((time.time() - (time.monotonic() - since)) * 1000)

    @property
    def broker_name(self) -> str:
        return self._options.config.broker.broker_name

    def addresses(self) -> Addresses:
        return self._addresses()

    @property
    def uptime_ms(self) -> int:
        return int((time.monotonic() - self._started_at) * 1000)

    def snapshot(self, store: MessageStore | None, registration: Registration | None) -> SystemInfo:
        """Return the present information. store, registration: of the broker, None without one."""
        config = self._options.config
        addresses = self._addresses()
        disk = disk_figures(config.data_dir if store is None else config.store_dir)
        return SystemInfo(
            version=__version__,
            persona=release_name(VERSION),
            python=platform.python_version(),
            hot_path="pure" if CHOICE.reason else "compiled",
            why_pure=say(CHOICE.reason, error=CHOICE.error) if CHOICE.reason else None,
            pid=os.getpid(),
            roles=tuple(sorted(config.roles)),
            bind=config.bind,
            broker_name=config.broker.broker_name,
            cluster_name=config.broker.cluster_name,
            broker_id=config.broker.broker_id,
            broker_address=addresses.broker,
            namesrv_address=addresses.namesrv,
            advertised=config.advertise,
            namesrvs={} if registration is None else registration.status,
            started_at_ms=self._started_at_ms,
            uptime_ms=self.uptime_ms,
            data_dir=str(config.data_dir),
            store_dir=str(config.store_dir),
            disk_total_bytes=disk.total_bytes,
            disk_free_bytes=disk.free_bytes,
            log_bytes=0 if store is None else store.published - store.log.min_offset,
            log_files=0 if store is None else len(store.log.segments),
            flush=config.store.flush_disk_type,
            rss_bytes=rss_bytes(),
            threads=tuple(sorted(thread.name for thread in threading.enumerate())),
            open_files=open_files(),
            open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
