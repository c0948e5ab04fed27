"""Faults of the disk and the clock for a real process, any process: a library that it preloads (tests/crash/shim).

    faults = Faults(tmp_path)
    with Server(tmp_path / "data", environment=faults.environment) as server:
        faults.arm("sync", error=errno.EIO, path="/commitlog/")     # from the next call on
        ...
        assert faults.hits("sync")                                  # it did happen
        faults.disarm()

The library is compiled with gcc once for each state of its source.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "crash" / "shim" / "faults.c"

#: sync: fsync, fdatasync. msync: of mapped files, whatever their path. write: write, pwrite, writev, pwritev.
#: allocate: posix_fallocate.
CALLS = ("sync", "msync", "write", "allocate")

# struct rule and struct control of the source.
_RULE = struct.Struct("=iiiiqqq128s")
_ARMED = struct.Struct("=i")
_CLOCK = struct.Struct("=q")
_HITS_AT = 32
_SIZE = _CLOCK.size + len(CALLS) * _RULE.size


class Faults:
    """One process's faults; as many processes as are given `environment` share them."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "faults"
        self._path.write_bytes(bytes(_SIZE))
        with open(self._path, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), _SIZE)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that the process needs."""
        return {"LD_PRELOAD": str(library()), "FAULTS_FILE": str(self._path)}

    def arm(
        self, call: str, *, error: int = 0, path: str = "", limit: int = 0, delay_ms: int = 0, skip: int = 0,
        times: int = -1,
    ) -> None:  # fmt: skip
        """Have calls of a kind fail with `error`, write at most `limit` bytes, or begin `delay_ms` late.

        path: part of the paths it is about. skip: calls that go well first. times: calls it holds for, -1 for all.
        Counts its hits from 0 again.
        """
        at = self._at(call)
        self.disarm(call)
        rule = _RULE.pack(0, error, limit, delay_ms, skip, times, 0, path.encode())
        self._control[at : at + _RULE.size] = rule
        self._control[at : at + _ARMED.size] = _ARMED.pack(1)

    def disarm(self, *calls: str) -> None:
        """All is well again with these calls, or with all; hits stay."""
        for call in calls or CALLS:
            at = self._at(call)
            self._control[at : at + _ARMED.size] = _ARMED.pack(0)

    def hits(self, call: str) -> int:
        """Calls that were changed since it was armed."""
        return int(_CLOCK.unpack_from(self._control, self._at(call) + _HITS_AT)[0])

    def move_clock(self, seconds: float) -> None:
        """Set the process's wall clock this far from the real one."""
        self._control[: _CLOCK.size] = _CLOCK.pack(int(seconds * 1e9))

    @staticmethod
    def _at(call: str) -> int:
        return _CLOCK.size + CALLS.index(call) * _RULE.size


def library() -> Path:
    """The compiled library. Raises RuntimeError with what gcc said."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketbox" / "faults"
    target = base / f"libfaults-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    if shutil.which("gcc") is None:
        raise RuntimeError("gcc is needed to build the library of faults and was not found on PATH")
    base.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    fresh.rename(target)
    return target
