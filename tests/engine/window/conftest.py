"""A running engine, with peers whose methods speak the trade's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.budgets import give_time
from tests.support.engine import RunningEngine


@pytest.fixture(autouse=True)
def _answers_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    give_time(monkeypatch)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def make_running(tmp_path: Path) -> Iterator[Callable[..., RunningEngine]]:
    """Make engines with options of their own."""
    made: list[RunningEngine] = []

    def make(**options: Any) -> RunningEngine:
        made.append(RunningEngine(tmp_path / str(len(made)), **options))
        return made[-1]

    yield make
    for found in made:
        found.stop()
