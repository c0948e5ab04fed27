"""A running engine with dead letters in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import RunningEngine


@pytest.fixture
def make_running(tmp_path: Path) -> Iterator[Callable[..., RunningEngine]]:
    """Make engines with options of their own; with sync flush unless the options differ."""
    made: list[RunningEngine] = []

    def make(**options: Any) -> RunningEngine:
        options.setdefault("store", {}).setdefault("flush_disk_type", "SYNC_FLUSH")
        made.append(RunningEngine(tmp_path / str(len(made)), **options))
        return made[-1]

    yield make
    for found in made:
        found.stop()


@pytest.fixture
def running(make_running: Callable[..., RunningEngine]) -> RunningEngine:
    return make_running()
