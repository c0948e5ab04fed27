"""Processes of one run: lowers their priority, finds them and ends them.

A run's processes share a session, which the keeper leads: the JVM stays in it, and so do Python workers of Spark,
though their daemon makes its own process group. So the session is searched and ended, not a group.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .plan import MARK

_PR_SET_PDEATHSIG = 1
#: ioprio_set(2), by machine; it has no name in the C library.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
_IOPRIO_IDLE = 3 << 13
#: sched_setattr(2), by machine.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "ppc64le": 355, "s390x": 345}
#: The shortest slice that the kernel gives: so long at most another process that wakes up waits for one of the run's.
_SLICE_NS = 100_000
_LOWEST = 19
#: proc(5): niceness of the session among others.
_AUTOGROUP = Path("/proc/self/autogroup")
#: Share of one processor above which a broker is busy: some thousand messages a second.
BUSY_SHARE = 0.1
_PROC = Path("/proc")


class Member(NamedTuple):
    """A process as /proc shows it. started: in ticks since the machine's start."""

    pid: int
    session: int
    started: int
    state: str


def take_little() -> None:
    """Give this process, and those that it starts from now on, the lowest priority, and have them killed first when
    memory runs out. Settings that the machine does not allow are left out."""
    with suppress(OSError):
        os.nice(_LOWEST)
    if sys.platform != "linux":
        return
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        call(ctypes.c_long(number), 1, 0, _IOPRIO_IDLE)
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        # struct sched_attr: its size, policy (0: the usual one), flags, niceness, priority; runtime is the slice.
        # Before Linux 6.12 it is passed over.
        attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, os.nice(0), 0, _SLICE_NS, 0, 0)
        call(ctypes.c_long(number), 0, attributes, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


class Yielding:
    """Has this process's session as a whole yield to a busy broker. For one thread.

    Where the kernel groups processes by session (sched_autogroup), niceness counts within a session only, and the run
    as a whole would get as much of the processors as the broker. Beside an idle broker the session is like others, so
    that a run comes to its end on a machine that others keep busy."""

    def __init__(self, broker: int | None) -> None:
        """broker: its pid; None if it is not known, and may be busy."""
        self._broker = broker
        self._at, self._used = time.monotonic(), 0.0 if broker is None else cpu_seconds(broker)
        self._yields = False
        if broker is None:
            self._set(True)

    def look(self) -> None:
        """See what the broker used of a processor since the last look."""
        if self._broker is None:
            return
        at, used = time.monotonic(), cpu_seconds(self._broker)
        self._set(used - self._used > BUSY_SHARE * (at - self._at))
        self._at, self._used = at, used

    def _set(self, yields: bool) -> None:
        if yields is not self._yields:
            with suppress(OSError):  # this kernel has no such groups, or takes few changes a second
                _AUTOGROUP.write_text(str(_LOWEST if yields else 0))
                self._yields = yields


def end_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this signal when the thread that started this process ends, or its process. parent: its pid.
    Raises SystemExit when it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the process that started this one has ended")


def look_at(pid: int) -> Member | None:
    """Return a process, None if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a program's name may hold anything
    return Member(pid, int(fields[3]), int(fields[19]), fields[0])


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, 0 if there is no such process."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def members_of(session: int) -> list[Member]:
    """Return the processes that are in a session now, without zombies."""
    found = []
    for name in os.listdir(_PROC):
        if name.isdigit():
            one = look_at(int(name))
            if one is not None and one.session == session and one.state not in "ZX":
                found.append(one)
    return found


def is_marked(pid: int, run_id: str) -> bool:
    """True if a process was started as part of this run."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={run_id}".encode() in environment.split(b"\0")


def kill(one: Member) -> None:
    """Send SIGKILL to this very process, and not to another one that has its pid by now."""
    try:
        descriptor = os.pidfd_open(one.pid)
    except (OSError, AttributeError):
        return
    try:
        now = look_at(one.pid)
        if now is not None and now.started == one.started:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def end_session(session: int, run_id: str, seconds: float = 5.0) -> int:
    """End all processes of a run that are in a session, except this one; return how many there were."""
    deadline = time.monotonic() + seconds
    ended: set[int] = set()
    while True:
        left = [one for one in members_of(session) if one.pid != os.getpid() and is_marked(one.pid, run_id)]
        for one in left:
            kill(one)
            ended.add(one.pid)
        if not left or time.monotonic() > deadline:
            return len(ended)
        time.sleep(0.02)


def held_bytes(pid: int) -> int:
    """Return the bytes of memory that a process holds and cannot give back: its share of anonymous and shared pages,
    swapped ones included. Pages of mapped files belong to the page cache."""
    names = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_bytes().splitlines()
        found = [int(line.split()[1]) for line in lines if line.startswith(names)]
        if found:
            return sum(found) * 1024
        lines = (_PROC / str(pid) / "status").read_bytes().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith((b"RssAnon:", b"RssShmem:"))) * 1024
    except (OSError, ValueError, IndexError):
        return 0
