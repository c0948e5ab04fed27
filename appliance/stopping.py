"""Lets a start wait for an earlier server of the same data directory that is still stopping.

A server whose arbiter was killed stops in order, for a second or longer, and a supervisor starts the next one at once.
Until its process has ended it has the store and the ports. So a server that stops holds a shared lock of the data
directory, which needs no file and ends with the process. A start asks for the lock and never takes it: it would keep a
server that begins to stop from it, and another start would take it for one that stops.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import struct
import time
from pathlib import Path

from .engine.disk import holder_of

logger = logging.getLogger(__name__)

#: Longest wait: connections have 3 s to finish and the engine 9 s to stop, after which the process ends.
LIMIT_S = 15.0
#: A process that has the store may have been told to stop a moment ago, and hold nothing yet.
NOTICE_S = 0.5
_LOOK_S = 0.05
#: struct flock of 64-bit Linux; of locks that belong to an open file (OFD), which the end of a process lets go.
_FLOCK = "hhqqi4x"
_ENDS = {signal.SIGTERM, signal.SIGINT}

_held: int | None = None


def hold(directory: Path) -> None:
    """Show other processes that this one is stopping, until it ends. Main thread, or a signal's handler there."""
    global _held
    if _held is not None:
        return
    try:
        fd = _held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    except (OSError, AttributeError):  # not Linux; or no such locks there: the next start is refused, in a sentence
        pass


def is_held(directory: Path) -> bool:
    """True if a process is stopping that served this directory."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    except (OSError, AttributeError):
        return False
    finally:
        os.close(fd)
    return bool(kind != fcntl.F_UNLCK)


def wait_for_earlier(directory: Path, lock: Path | None) -> bool:
    """Return when no earlier server of the data directory is stopping, or after LIMIT_S, but do not wait for one that
    runs. False if this process was told to stop meanwhile. Main thread.

    lock: the lock file of the store, None for a server without one.
    """
    # The kernel drops a signal without a handler that it does not block, if this is process 1, as in a container.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        began = time.monotonic()
        logged = False
        while (waited := time.monotonic() - began) < LIMIT_S:
            if is_held(directory):
                if not logged:
                    logger.warning(
                        "rocketbox: an earlier server of %s is still stopping; waiting for its end", directory
                    )
                    logged = True
            elif logged or lock is None or waited >= NOTICE_S or holder_of(lock) is None:
                return True
            time.sleep(_LOOK_S)
            if signal.sigpending() & _ENDS:
                signal.sigwait(_ENDS)
                logger.info("rocketbox: stopped pid=%d before it served", os.getpid())
                return False
        return True
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
