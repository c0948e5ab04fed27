"""How long queues have been standing, over restarts of the broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker import standing_queues
from appliance.engine.broker.broker import STANDING_QUEUES
from appliance.engine.broker.standing_queues import StandingQueues
from tests.support.engine import RunningEngine, start_engine


@pytest.fixture
def running(tmp_path: Path) -> Any:
    found = RunningEngine(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_queues, "STOOD_S", 0.0)


def part(running: RunningEngine) -> StandingQueues:
    return running.engine.broker.standing_queues


def stands(running: RunningEngine, queues: int = 1) -> None:
    running.join("c1", "CG")
    for queue in range(queues):
        running.put("Orders", b"x", b"y", queue=queue)
        running.commit("CG", "Orders", queue, 1)
    running.sample()


def since_of(running: RunningEngine, queue: int = 0) -> float:
    """Return the time in wall ms."""
    sampler = running.engine.broker.sampler
    [entry] = [one for one in running.engine.broker.offsets.all() if one.group == "CG"]
    return (time.time() - time.monotonic() + sampler.queue_since(entry, queue)) * 1000


def file_of(running: RunningEngine) -> Path:
    return running.data_dir / "rocketbox" / STANDING_QUEUES


def test_where_nothing_stands_there_is_no_file(running, at_once):
    running.join("c1", "CG")
    running.put("Orders", b"x")
    running.commit("CG", "Orders", 0, 1)
    running.sample()
    part(running).save()
    assert not file_of(running).exists()


def test_a_queue_that_stands_for_a_moment_only_is_not_written_down(running):
    stands(running)
    part(running).save()
    assert not file_of(running).exists()


def test_it_is_known_after_a_restart_and_again_after_the_next(running, at_once):
    stands(running)
    before = since_of(running)
    for _ in range(2):
        running.restart()
        running.sample()
        assert since_of(running) == pytest.approx(before, abs=50)
    document = json.loads(file_of(running).read_text())
    assert document["queues"][0][:4] == ["CG", "Orders", 0, 1]
    assert len(document["groups"]["CG"]) == 1
    assert file_of(running).stat().st_mode & 0o777 == 0o600


def test_what_was_kept_goes_when_the_queue_goes_on(running, at_once):
    stands(running)
    part(running).save()
    running.commit("CG", "Orders", 0, 2)
    running.sample()
    part(running).save()
    assert json.loads(file_of(running).read_text())["queues"] == []


def test_it_is_saved_beside_the_offsets_once_a_minute(running, at_once, monkeypatch):
    stands(running)
    running.engine.broker.offsets.persist()
    assert not file_of(running).exists()
    monkeypatch.setattr(part(running), "_due_at", 0.0)
    running.engine.broker.offsets.persist()
    assert file_of(running).exists()
    assert part(running)._due_at > time.monotonic() + 50


def test_the_table_is_bounded(running, at_once, monkeypatch):
    monkeypatch.setattr(standing_queues, "MOST_QUEUES", 2)
    stands(running, queues=4)
    part(running).save()
    assert len(json.loads(file_of(running).read_text())["queues"]) == 2


def _garbage(document: dict[str, Any]) -> str:
    return "{not json"


def _other_shape(document: dict[str, Any]) -> str:
    return json.dumps({"queues": 3})


def _of_tomorrow(document: dict[str, Any]) -> str:
    return json.dumps(document | {"savedAt": document["savedAt"] + 86_400_000})


@pytest.mark.parametrize("spoil", [_garbage, _other_shape, _of_tomorrow])
def test_a_file_that_says_nothing_sound_costs_the_count_and_nothing_else(
    running: RunningEngine, at_once: None, spoil: Callable[[dict[str, Any]], str]
) -> None:
    stands(running)
    running.stop()
    path = file_of(running)
    text = spoil(json.loads(path.read_text()))
    for one in path.parent.glob(STANDING_QUEUES + "*"):
        one.write_text(text)
    begin = time.time() * 1000
    running.engine = start_engine(running.data_dir)
    running.sample()
    assert since_of(running) >= begin - 50
