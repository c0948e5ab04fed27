"""A fault that stands still is reported once, from when it began: over connections, restarts and both views."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from appliance.engine.broker import standing_queues
from appliance.engine.fastjson import loads
from appliance.engine.window.health import limits
from tests.support.engine import RunningEngine, pull_fields, start_engine
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (limits, "STUCK_S", 0.2), (limits, "LATE_S", 0.3), (limits, "RATE_KNOWN_S", 0.0), (limits, "SILENT_S", 0.1),
        (standing_queues, "STOOD_S", 0.0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def stuck(running: RunningEngine) -> Any:
    """Return the only finding of a stuck queue; None without one."""
    found = [one for one in running.window.diagnosis.of("ledger").findings if one.kind == "queue_stuck"]
    return found[0] if found else None


def idle_s(finding: Any) -> float:
    return next(one.value for one in finding.evidence if one.name == "idle")


def stands(running: RunningEngine) -> Any:
    """Have a member take the message at offset 1 and never finish it, until the finding is there."""
    peer = running.join("c1", "ledger")
    running.put("Orders", *[b"x"] * 3)
    running.commit("ledger", "Orders", 0, 1)
    assert peer.ask(11, pull_fields("Orders", 0, 1, consumerGroup="ledger")).code == 0
    running.sample()
    return wait_for(lambda: stuck(running), "it is stuck")


def test_it_goes_on_over_a_new_connection(running: RunningEngine) -> None:
    before = idle_s(stands(running))
    running.hang_up()
    wait_for(lambda: not running.window.clients.page().rows, "it has gone")
    assert stuck(running) is None
    running.join("c1", "ledger")
    assert idle_s(stuck(running)) >= before


def test_a_connection_that_was_not_read_from_for_a_while_says_nothing(running: RunningEngine) -> None:
    before = idle_s(stands(running))
    for conn in running.engine.broker.clients.consumer_group("ledger").channels:
        conn.listening_since = time.monotonic()
    assert idle_s(stuck(running)) >= before


def test_it_goes_on_over_a_restart(running: RunningEngine) -> None:
    before = idle_s(stands(running))
    kept = running.data_dir / "store/config/consumerOffset.json"
    running.restart()
    assert "since" not in kept.read_text().lower(), "Apache's file has no times"
    running.join("c1", "ledger")
    running.sample()
    one = stuck(running)
    assert idle_s(one) >= before
    assert one.message.delivered == 1, "it was given out before the restart"
    running.commit("ledger", "Orders", 0, 3)
    running.sample()
    assert stuck(running) is None


def test_an_offset_that_moved_meanwhile_begins_anew(running: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    stands(running)
    running.stop()
    offsets = running.data_dir / "store/config/consumerOffset.json"
    document = loads(offsets.read_bytes())
    document["offsetTable"]["Orders@ledger"]["0"] = 2
    offsets.write_text(json.dumps(document))
    begun = time.monotonic()
    running.engine = start_engine(running.data_dir)
    assert running.engine.broker.offsets.get("ledger", "Orders", 0) == 2
    running.join("c1", "ledger")
    running.sample()
    monkeypatch.setattr(limits, "STUCK_S", 0.0)
    idle = idle_s(stuck(running))
    since_start = time.monotonic() - begun
    assert idle <= since_start, "it counts from before the start"


#: Need in the overview -> findings of the group's diagnosis, at least one of which must be there.
FOUND = {
    "stuck": {"queue_stuck", "nobody_pulls", "silent_lock"},
    "queues_stuck": {"queue_stuck", "nobody_pulls", "silent_lock"},
    "falls_behind": {"falls_behind"},
    "catching_up": {"falls_behind"},
    "nobody_consumes": {"no_consumer"},
    "nobody_consumes_late": {"no_consumer"},
    "consumption_is_off_behind": {"consumption_off"},
    "subscriptions_differ": {"subscriptions_differ"},
    "client_id_twice": {"client_id_twice"},
    "deleted_unread_soon": {"deleted_soon"},
}


_TRENDS = ("caught_up", "keeps_up", "catches_up", "never", "unknown", None)
#: Codes of needs -> the trends, of the group and of its queues that move, that the group's page may show beside them.
TRENDS: tuple[tuple[set[str], set[tuple[str, str | None]]], ...] = (
    ({"stuck", "queues_stuck"}, {("stands", moving) for moving in _TRENDS}),
    ({"falls_behind"}, {("never", "never"), ("stands", "never")}),
    ({"catching_up"}, {("catches_up", "catches_up"), ("stands", "catches_up")}),
    ({"nobody_consumes", "nobody_consumes_late", "consumption_is_off_behind"}, {("never", "never")}),
)


@pytest.mark.parametrize("seed", range(6))
def test_what_needs_somebody_is_never_said_to_be_well(running: RunningEngine, seed: int) -> None:
    """Random scenes of groups that go on, stand, fall behind and lose members; both views are compared after each."""
    dice = random.Random(seed)
    groups = ["ledger", "mail", "audit"]
    peers: dict[str, Any] = {}
    ends, done = [0] * 4, {(group, queue): 0 for group in groups for queue in range(4)}

    def join(group: str) -> None:
        if group not in peers:
            peers[group] = running.join(f"c-{group}", group)

    def leave(group: str) -> None:
        if group in peers:
            peers.pop(group).close()
            clients = running.engine.broker.clients
            wait_for(lambda: clients.consumer_group(group) is None, "the broker knows")

    def pull(group: str) -> None:
        queue = dice.randrange(4)
        if group in peers and ends[queue] > done[group, queue]:
            fields = pull_fields("Orders", queue, done[group, queue], consumerGroup=group)
            peers[group].ask(11, fields)

    def commit(group: str) -> None:
        queue = dice.randrange(4)
        done[group, queue] = min(ends[queue], done[group, queue] + dice.randrange(4))
        running.commit(group, "Orders", queue, done[group, queue])

    def put(group: str) -> None:
        queue = dice.randrange(4)
        count = dice.randrange(1, 12)
        running.put("Orders", *[b"x"] * count, queue=queue)
        ends[queue] += count

    def switch(group: str) -> None:
        running.window.group_commands.edit(group, consume_enable=dice.random() < 0.7)

    acts: list[Callable[[str], None]] = [join, join, leave, pull, pull, commit, commit, put, switch]
    put("")
    for group in groups:
        running.window.group_commands.create(group)
        join(group)
        running.commit(group, "Orders", 0, 0)

    def needs() -> dict[str, set[str]]:
        """Return group -> codes of its needs."""
        found: dict[str, set[str]] = {}
        for need in running.window.overview.snapshot().needs:
            if need.kind == "group":
                found.setdefault(need.name, set()).add(need.sentence.code)
        return found

    def look() -> int:
        """Check that each need of a group has a finding; return their number. A need that appears or goes between the
        two views is skipped."""
        running.sample()
        before = needs()
        told = {name: running.window.diagnosis.of(name) for name in before}
        paces = {name: running.window.group_now.pace(name) for name in groups}
        after = needs()
        for name, pace in paces.items():
            steady = before.get(name, set()) & after.get(name, set())
            gone_or_new = before.get(name, set()) ^ after.get(name, set())
            for codes, trends in TRENDS:
                if codes & steady:
                    assert (pace.trend, pace.moving) in trends, (name, codes, pace)
            if pace.trend == "stands" and not gone_or_new:
                assert steady & {"stuck", "queues_stuck"}, (name, steady, pace)
        for name, codes in before.items():
            for code in codes & after.get(name, set()):
                assert FOUND[code] & {one.kind for one in told[name].findings}, (name, code, told[name])
        return len(before)

    def one_figure() -> bool:
        """True if the tile, the list, the group's page, reports and diagnosis have one figure of what is behind, and
        the tile has the worst first. A costly look of the overview is some seconds old."""
        behind = running.window.overview.snapshot().behind
        shown = {
            "tile": {row.group: row.lag for row in behind},
            "list": {row.name: row.lag for row in running.window.groups.page().rows},
            "page": {name: running.window.groups.detail(name).lag for name in groups},
            "report": {one.name: one.lag for one in running.window.report_inputs.take().groups},
        }
        harm = [(row.lag_ms or 0) * row.lag for row in behind if row.clients and row.lag]
        assert harm == sorted(harm, reverse=True)
        for name in groups:
            for one in running.window.diagnosis.of(name).findings:
                if one.kind == "no_consumer":
                    assert next(part.value for part in one.evidence if part.name == "lag") == shown["page"][name]
        return all(lags == shown["page"] for lags in shown.values())

    for number in range(60):
        dice.choice(acts)(dice.choice(groups))
        look()
        if number % 10 == 9:
            wait_for(one_figure, "all views to tell one figure")
    put("")
    wait_for(look, "the scene has a fault")


def test_queues_that_move_are_judged_without_those_that_stand(running: RunningEngine) -> None:
    """Three queues keep up, one stands: half of what comes goes to that one, and is not held against the others."""
    running.join("c1", "ledger")
    running.put("Orders", *[b"x"] * 5)
    for queue in range(1, 4):
        running.put("Orders", b"x", b"x", queue=queue)
    for queue in range(4):
        running.commit("ledger", "Orders", queue, 0)
    running.sample()
    done = 0

    def goes_on() -> Any:
        nonlocal done
        running.put("Orders", *[b"x"] * 3)
        done += 1
        for queue in range(1, 4):
            running.put("Orders", b"x", queue=queue)
            running.commit("ledger", "Orders", queue, done)
        running.sample()
        pace = running.window.group_now.pace("ledger")
        # On a busy machine the first seconds have few samples, and the messages of before weigh much in them. If it
        # stands still for a moment, so do the other queues.
        codes = {need.sentence.code for need in running.window.overview.snapshot().needs if need.name == "ledger"}
        told = pace.trend, pace.moving, codes
        return pace if told == ("stands", "keeps_up", {"queues_stuck"}) and done > 20 else None

    pace = wait_for(goes_on, "one queue stands and the others keep up", every=0.02)
    assert (pace.standing, pace.catches_up_ms) == (1, None)
