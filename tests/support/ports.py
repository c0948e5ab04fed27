"""TCP ports that belong to this process until it ends, among all test runs of a user on a machine.

A port that was free at one look may be taken when it is used. A server that starts twice, or that has to be away,
needs a number that no other process takes meanwhile. So there is one file with a byte for each block of five ports: a
process that holds a POSIX record lock on a byte has the block. The kernel releases the locks when a process ends,
however it ends. The blocks are below the range from which the kernel takes ports of outgoing connections, and below
the one from which an engine picks for port 0: it knows nothing of reservations.

    port = reserve_port()       # N - 2, N - 1, N + 1 and N + 2 are reserved with it
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
from pathlib import Path

FIRST, END = 12_000, 25_995
BLOCK = 5

#: Blocks of this process: a record lock does not exclude the process that holds it.
_own: set[int] = set()
#: First block to try. Processes that begin at different places seldom try the same block.
_begin = random.SystemRandom().randrange((END - FIRST) // BLOCK)
_one_at_a_time = threading.Lock()
#: Opened once and never closed: closing any descriptor of the file lets go of all locks that this process has on it.
_file: int | None = None


class NoPort(RuntimeError):
    """Every block is another's, or something listens in it."""


def lock_file() -> Path:
    # Wherever TMPDIR has a run put its own files: all runs have to meet here.
    return Path("/tmp") / f"rocketbox-tests-ports-{os.getuid()}"


def reserve_port() -> int:
    """A port N such that nothing listens on N - 2 .. N + 2 now, and no other call gets any of them before this process
    has ended. Raises NoPort."""
    with _one_at_a_time:
        blocks = (END - FIRST) // BLOCK
        for distance in range(blocks):
            block = (_begin + len(_own) + distance) % blocks
            if block not in _own and _take(block):
                return FIRST + block * BLOCK + BLOCK // 2
    raise NoPort(f"no five ports from {FIRST} to {END} are free; {len(_own)} blocks are this process's own")


def port_is_free(port: int) -> bool:
    """True if a server could listen on 0.0.0.0:port now."""
    return _binds(port, again=True)


def _take(block: int) -> bool:
    global _file
    if _file is None:
        _file = os.open(lock_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
    except OSError:
        return False
    begin = FIRST + block * BLOCK
    if all(_binds(port, again=False) for port in range(begin, begin + BLOCK)):
        _own.add(block)
        return True
    fcntl.lockf(_file, fcntl.LOCK_UN, 1, block)
    return False


def _binds(port: int, *, again: bool) -> bool:
    """again: also where connections of an earlier listener are still closing."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, again)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
