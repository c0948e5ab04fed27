"""Checks the machine: packages, descriptors, clock, kernel."""

from __future__ import annotations

import os
import resource
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from ..engine import hotpath
from ..engine.disk import Disk
from ..engine.hotpath.building import what_is_missing
from ..engine.hotpath.choice import Choice
from ..engine.window.health import limits
from .diagnosis import Diagnosis

#: No RocketBox ran before 2025.
_EARLIEST_S = 1_735_689_600


def look_at_machine(found: Diagnosis, directory: Path, console: bool) -> None:
    """directory: the data directory, or the part of its path that exists."""
    _packages(found, console)
    look_at_hot_path(found, hotpath.CHOICE)
    _descriptors(found)
    _clock(found)
    _kernel(found, directory)


def _packages(found: Diagnosis, console: bool) -> None:
    wanted = ["msgspec", "zlib_ng", *(["django", "gunicorn", "ninja"] if console else [])]
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        advice = "install rocketbox[console], or leave console out of --roles"
        found.fail("packages", f"Missing: {', '.join(missing)}.", advice)
    else:
        found.ok("packages", f"Python {sys.version.split()[0]} and all packages are installed.")


def look_at_hot_path(found: Diagnosis, choice: Choice) -> None:
    """choice: what this process runs, and `serve` in the same environment."""
    text = f"The hot path is {choice.text}."
    if choice.reason in ("", "pure_asked"):
        found.ok("hot-path", text)
        return
    missing = what_is_missing()
    again = "install RocketBox again, or run script/server in its checkout"
    advice = f"everything works, only slower; {f'{missing}: install it, then ' if missing else ''}{again}"
    found.warn("hot-path", text, advice)


def _descriptors(found: Diagnosis) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    advice = "raise the limit of open files: LimitNOFILE=1048576 in the unit, or ulimit -n in the shell"
    if hard != resource.RLIM_INFINITY and hard < limits.DESCRIPTORS_NEEDED:
        found.fail("descriptors", f"At most {hard} files and connections may be open.", advice)
    elif hard != resource.RLIM_INFINITY and hard < limits.DESCRIPTORS_WANTED:
        found.warn("descriptors", f"At most {hard} files and connections may be open.", advice)
    else:
        found.ok("descriptors", f"{'Any number of' if hard < 0 else hard} files and connections may be open.")


def _clock(found: Diagnosis) -> None:
    if time.time() < _EARLIEST_S:
        found.fail("clock", f"The clock says {time.strftime('%Y-%m-%d')}.", "set the clock, and keep it with NTP")
        return
    synchronised = _is_synchronised()
    if synchronised is False:
        text = "The kernel says that the clock is not synchronised."
        found.warn("clock", text, "run an NTP client: store times, delays and retention depend on this clock")
    else:
        found.ok("clock", time.strftime("It is %Y-%m-%d %H:%M:%S %z."))


def _is_synchronised() -> bool | None:
    """What adjtimex(2) says; None where there is no such call."""
    if sys.platform != "linux":
        return None
    import ctypes

    buffer = ctypes.create_string_buffer(512)  # struct timex with modes = 0, which changes nothing
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != 5  # TIME_ERROR


def _kernel(found: Diagnosis, directory: Path) -> None:
    """Whether it says which parts of a file are in the page cache (D2). Without that, large messages are copied."""
    fd = os.open(_any_file(directory), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.pread(fd, 1, 0)
        known = Disk().is_resident(fd, 0, 1)
    finally:
        os.close(fd)
    system, release = os.uname().sysname, os.uname().release
    if known:
        found.ok("kernel", f"{system} {release} can send large messages from the page cache straight to the socket.")
    else:
        text = f"{system} {release} does not say here what is in the page cache: large messages are copied first."
        found.warn("kernel", text, "nothing is lost; Linux 6.5 and newer, with ext4 or xfs, send them faster")


def _any_file(directory: Path) -> Path:
    """A file of the store that is not empty; else the Python program."""
    for pattern in ("store/commitlog/*", "commitlog/*", "rocketbox/*"):
        for path in directory.glob(pattern):
            if path.is_file() and path.stat().st_size:
                return path
    return Path(sys.executable)
