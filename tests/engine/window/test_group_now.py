"""A group as it stands: its queues a page at a time with their holders, its rate, whether it ever catches up."""

from __future__ import annotations

import time
from typing import Any

import pytest

from appliance.engine.errors import InvalidInput, NotFound
from appliance.engine.window.health import limits
from tests.support.engine import Peer, RunningEngine, pull_fields
from tests.support.members import heartbeat
from tests.support.waiting import wait_for

#: Number of samples that rates are computed from.
SAMPLES = 61


@pytest.fixture
def filled(running: RunningEngine) -> RunningEngine:
    """Orders: ten messages in queue 0, five in 1. CG has read seven of 0, and committed nothing of 1."""
    running.put("Orders", *[b"%d" % number for number in range(10)], queue=0)
    running.put("Orders", *[b"%d" % number for number in range(5)], queue=1)
    running.window.group_commands.create("CG")
    running.commit("CG", "Orders", 0, 7)
    return running


def rows(running: RunningEngine, **asked: Any) -> dict[int, Any]:
    return {row.queue_id: row for row in running.window.group_now.queues("CG", **asked).rows}


def member(running: RunningEngine) -> Peer:
    peer = running.peer()
    assert peer.ask(34, {}, heartbeat("c1", "CG", "Orders")).code == 0
    return peer


def test_the_queues_and_the_next_message_of_each(filled):
    found = rows(filled)
    assert [(row.lag, row.next_offset) for row in found.values()] == [(3, 7), (None, None)]
    assert (found[1].lag_why.code, found[1].lag_why.args) == ("queue_never_committed", {"queue": 1})
    assert found[0].lag_ms >= 0
    assert found[0].pulled_by is None
    assert not found[0].waits
    assert [row.queue_id for row in filled.window.group_now.queues("CG", sort="queue").rows] == [0, 1]
    page = filled.window.group_now.queues("CG", sort="-queue", page=2, page_size=1)
    assert ([row.queue_id for row in page.rows], page.total, page.pages) == ([0], 2, 2)
    assert filled.window.group_now.queues("CG", q="no-such").total == 0
    assert filled.window.group_now.queues("CG", "Orders").total == 2
    for sort in ("lag_time", "-lag_time", "committed", "end", "idle"):
        assert len(rows(filled, sort=sort)) == 2
    with pytest.raises(InvalidInput):
        filled.window.group_now.queues("CG", sort="colour")
    for ask in (filled.window.group_now.queues, filled.window.group_now.pace):
        with pytest.raises(NotFound):
            ask("no-such")


def test_who_pulled_last_and_who_waits(filled):
    peer = member(filled)
    begin_ms = int(time.time() * 1000)
    assert peer.ask(11, pull_fields("Orders", 0, 7)).code == 0
    found = wait_for(lambda: row if (row := rows(filled)[0]).pulled_by else None, "the pull was seen")
    assert (found.pulled_by, found.in_flight, found.waits) == ("c1", 3, False)
    assert begin_ms <= found.pulled_at_ms <= time.time() * 1000
    peer.send(11, pull_fields("Orders", 1, 5, sysFlag=6, suspendTimeoutMillis=20_000))
    held = wait_for(lambda: row if (row := rows(filled)[1]).waits else None, "the pull is held")
    assert (held.pulled_by, held.pulled_at_ms) == ("c1", None)


def test_the_pace_is_unknown_with_a_reason_at_first(filled):
    assert filled.window.group_now.pace("CG").trend == "never", "no member is there"
    filled.join("c1", "CG")
    pace = filled.window.group_now.pace("CG")
    assert (pace.trend, pace.why.code, pace.in_rate) == ("unknown", "not_measured_yet", None)


class Beats:
    """A broker's sampler that is given movements and times, a second a step."""

    def __init__(self, running: RunningEngine) -> None:
        self.running = running
        self._sampler = running.engine.broker.sampler
        self._sampler.stop()
        self._now = time.monotonic()
        self.committed = 0
        with self._sampler._sampling:  # one sample is before all steps, however many its thread has taken
            self._sampler.count = 0
            self._sampler._sample(self._now)

    def step(self, came: int, went: int) -> None:
        if came:
            self.running.put("Paced", *[b"x"] * came, queue=0)
        if went:
            self.committed += went
            self.running.commit("PG", "Paced", 0, self.committed)
        self._now += 1
        with self._sampler._sampling:
            self._sampler._sample(self._now)


@pytest.mark.parametrize(
    ("first", "steps", "trend"),
    [
        (10, (2, 2), "keeps_up"),  # messages of the last seconds are always behind
        (400, (1, 5), "catches_up"),
        (400, (5, 5), "never"),
        (400, (5, 0), "never"),
        (0, (5, 5), "caught_up"),
    ],
)
def test_whether_it_ever_catches_up(running, first, steps, trend, monkeypatch):
    running.window.topic_commands.create("Paced", read_queues=1, write_queues=1)
    running.window.group_commands.create("PG")
    running.join("c1", "PG", topic="Paced")
    beats = Beats(running)
    came, went = steps
    running.put("Paced", *[b"x"] * (first or 1), queue=0)
    beats.committed = 0 if first else 1
    running.commit("PG", "Paced", 0, beats.committed)
    for _ in range(SAMPLES):
        beats.step(0, 0)
    for _ in range(SAMPLES):
        beats.step(came, went)
    pace = running.window.group_now.pace("PG")
    lag = running.window.groups.detail("PG").lag
    assert pace.trend == trend, (pace, lag)
    assert lag == (first + SAMPLES * (came - went))
    assert pace.in_rate == pytest.approx(came, abs=0.5)
    assert pace.out_rate == pytest.approx(went, abs=0.5)
    if trend == "catches_up":
        assert pace.catches_up_ms == pytest.approx(1000 * lag / (went - came), rel=0.2)
        # A late group is judged by the last five minutes, as its need is; then the first 400 count among what came.
        monkeypatch.setattr(limits, "LATE_S", 0.0)
        assert running.window.group_now.pace("PG").trend == "never"
    assert pace.lags[-1] == lag
    assert pace.lags[0] == pytest.approx(first, abs=came + went + 1), "ten minutes back, from what came and went"
