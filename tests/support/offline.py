"""Looking at a store from outside, as `rocketbox store` does, and harming it byte by byte."""

from __future__ import annotations

from pathlib import Path

from appliance.engine.store_tools.offline_store import find_store
from appliance.engine.store_tools.problems import Problem, Problems
from appliance.engine.store_tools.verification import Verified, verify


def verified(directory: Path) -> tuple[Verified, list[Problem]]:
    """Return what `verify` finds in a data directory, and its problems."""
    store = find_store(directory)
    problems = Problems()
    try:
        return verify(store, problems), problems.kept
    finally:
        store.close()


def damage(directory: Path) -> list[Problem]:
    """Return the problems that are damage, without notes."""
    return [problem for problem in verified(directory)[1] if problem.level == "damage"]


def change(path: Path, at: int, data: bytes) -> bytes:
    """Overwrite some bytes of a file; returns what was there."""
    with open(path, "r+b") as file:
        file.seek(at)
        before = file.read(len(data))
        file.seek(at)
        file.write(data)
    return before


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """name -> (bytes, time of the last change) of everything in a directory."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
