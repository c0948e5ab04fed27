"""What runs here: version, addresses, directories, process."""

from __future__ import annotations

import os
import platform
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING

from ... import __version__
from ..protocol.codes import VERSION, version_name
from . import snapshots as s
from .checks import disk_figures

if TYPE_CHECKING:
    from ..engine import Engine


def rss_bytes() -> int | None:
    """Resident memory of this process; None where /proc does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def open_files() -> int | None:
    """Descriptors in use; None where the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return None


def system_of(engine: Engine, started_at: float, started_at_ms: int | None) -> s.SystemInfo:
    config = engine.config
    broker = engine.broker
    disk = disk_figures(config.store_dir if broker is not None else config.data_dir)
    log = None if broker is None else broker.store.log
    return s.SystemInfo(
        version=__version__,
        persona=version_name(VERSION),
        python=platform.python_version(),
        pid=os.getpid(),
        roles=tuple(sorted(config.roles)),
        bind=config.bind,
        broker_name=config.broker.broker_name,
        cluster_name=config.broker.cluster_name,
        broker_id=config.broker.broker_id,
        broker_address=engine.broker_address,
        namesrv_address=engine.namesrv_address,
        advertised=config.advertise,
        namesrvs={} if broker is None else broker.registration.status,
        started_at_ms=started_at_ms,
        uptime_ms=int((time.monotonic() - started_at) * 1000),
        data_dir=str(config.data_dir),
        store_dir=str(config.store_dir),
        disk_total_bytes=disk.total_bytes,
        disk_free_bytes=disk.free_bytes,
        log_bytes=0 if broker is None or log is None else broker.store.published - log.min_offset,
        log_files=0 if log is None else len(log.segments),
        flush=config.store.flush_disk_type,
        rss_bytes=rss_bytes(),
        threads=tuple(sorted(thread.name for thread in threading.enumerate())),
        open_files=open_files(),
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
