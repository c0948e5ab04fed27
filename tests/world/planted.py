"""Faults that the broker once had, a line each, for the world to find; none of its parts knows of them.

`python -m tests.world --plant "words of its name"` runs with the fault: the module is read with the other line. Nothing
on the disk changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENGINE = "appliance/engine/"


class Planted(NamedTuple):
    """name: what goes wrong. before: in its file once. seeds: within so many the world finds it."""

    name: str
    file: str
    before: str
    after: str
    seeds: int = 10


PLANTED = (
    Planted(
        "a recall handle names a key up to its first blank",
        ENGINE + "protocol/recall_handle.py",
        'words = raw.split(" ", 4)',
        'words = raw.split(" ")[:5]',
    ),
    Planted(
        "after a step back of the clock what waits is called delivered",
        ENGINE + "broker/timers/recall.py",
        "if out_ms < self._claims.reached_ms and not self._waits(key, out_ms):",
        "if out_ms < self._claims.reached_ms:",
    ),
    Planted(
        "queues of a topic that was made again begin at 0",
        ENGINE + "store/message_store.py",
        "            if queue.next_offset:\n                deletion.ends",
        "            if queue.next_offset < 0:\n                deletion.ends",
    ),
    Planted(
        "an offset beyond the end is kept",
        ENGINE + "broker/offsets.py",
        "return offset if offset <= end else end if self.cuts else -1",
        "return offset",
    ),
    Planted(
        "a search for now believes times that are yet to come",
        ENGINE + "store/time_search.py",
        "if is_ahead(stored_ms, now_ms) and abs(asked_ms - now_ms) < NEAR_MS:",
        "if is_ahead(stored_ms, now_ms) and asked_ms < 0:",
    ),
    Planted(
        "what was written during a sync counts as durable",
        ENGINE + "store/log/commit_log.py",
        "self.durable = max(self.durable, target)",
        "self.durable = max(self.durable, self.written)",
    ),
    Planted(
        "a mark is looked for where the clock is now",
        ENGINE + "broker/timers/delivery.py",
        "self.index.add(found, last, usual_ms, others)",
        "self.index.add([*found, *(one for some in others.values() for one in some)], last)",
    ),
)


def planted_text(fault: Planted, text: str) -> str:
    """The file with the fault. Raises ValueError when the line is not there once."""
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.file} has the line of {fault.name!r} {text.count(fault.before)} times")
    return text.replace(fault.before, fault.after)


class _Loader(SourceFileLoader):
    fault: Planted

    def get_code(self, fullname: str) -> CodeType:
        text = planted_text(self.fault, Path(self.path).read_text())
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, fault: Planted) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != str(ROOT / self._fault.file):
            return None
        loader = _Loader(fullname, spec.origin)
        loader.fault = self._fault
        spec.loader = loader
        return spec


def plant(words: str) -> None:
    """Before the engine is imported."""
    [fault] = [one for one in PLANTED if words in one.name]
    planted_text(fault, (ROOT / fault.file).read_text())
    assert fault.file[:-3].replace("/", ".") not in sys.modules, "the engine is there already"
    sys.meta_path.insert(0, _Finder(fault))
