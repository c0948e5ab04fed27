"""States that need a person: found by how long they stand and how they develop, not by size.

The incidents of a walk through the console, at a hundredth of their time, with peers that speak as clients do.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time

import pytest
from msgspec.structs import replace

from appliance.engine.disk import DiskUsage
from appliance.engine.errors import Blocked
from appliance.engine.protocol.names import DLQ_PREFIX
from appliance.engine.store.retention.clean_rules import Watermarks
from appliance.engine.window.health import broker_checks, disk_room, limits
from appliance.engine.window.health.disk_room import DiskFigures
from tests.support.waiting import wait_for

#: A minute of the incident is a tenth of a second here.
LIMIT_S = 0.6
GIB = 1 << 30


class Watched:
    """A broker whose needs appear soon, sampled a few times a second."""

    def __init__(self, running) -> None:
        self.running = running

    def needs(self, *codes: str) -> list[tuple[str, str, str]]:
        """Return (level, name, code) of each need, or of these codes only. The machine's own disk is left out."""
        found = self.running.window.overview.snapshot().needs
        return [
            (need.level, need.name, need.sentence.code)
            for need in found
            if need.name not in ("disk", "disk_full") and (not codes or need.sentence.code in codes)
        ]

    def need(self, code: str):
        return next(need for need in self.running.window.overview.snapshot().needs if need.sentence.code == code)

    def findings(self, group: str):
        """Return kind -> finding of the group's diagnosis."""
        return {one.kind: one for one in self.running.window.diagnosis.of(group).findings}

    def up_ms(self) -> float:
        """Return the sampler's time so far."""
        return (time.monotonic() - self.running.window._parts.sampler.started_at) * 1000

    def pass_time(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.running.sample()
            time.sleep(0.05)


@pytest.fixture
def watched(running, monkeypatch):
    for name in ("STUCK_S", "LATE_S"):
        monkeypatch.setattr(limits, name, LIMIT_S)
    return Watched(running)


@pytest.fixture
def rates_known_soon(monkeypatch):
    monkeypatch.setattr("appliance.engine.window.health.limits.RATE_KNOWN_S", 0.2)


def test_a_slow_group_is_told_with_what_comes_and_what_goes(watched, rates_known_soon):
    running = watched.running
    running.join("c-1", "slow")
    running.put("Orders", *[b"x"] * 40)
    running.commit("slow", "Orders", 0, 0)
    rounds = itertools.count(1)
    done = 0

    def told():
        """One more round: it commits one while three come. A machine that stood still makes the group stand, too."""
        nonlocal done
        done = next(rounds)
        running.put("Orders", b"x", b"x", b"x")
        running.commit("slow", "Orders", 0, done)
        watched.pass_time(0.15)
        is_told = done >= 8 and watched.needs() == [("act", "slow", "falls_behind")]
        return is_told and watched.findings("slow")["falls_behind"].level == "act" and watched.need("falls_behind")

    need = wait_for(told, "it to be told", not_yet=(KeyError, StopIteration))
    assert need.sentence.args["lag"] == 40 + 2 * done
    assert need.sentence.args["late_span"] >= 600
    assert need.sentence.args["came"] > need.sentence.args["went"] > 0
    assert "keeps falling behind" in str(need.sentence)


def test_a_group_that_works_off_what_it_missed_is_only_watched_and_told_until_when(watched, rates_known_soon):
    running = watched.running
    running.join("c-1", "fast")
    running.put("Orders", *[b"x"] * 600)
    running.commit("fast", "Orders", 0, 0)
    rounds = itertools.count(1)
    done = 0

    def told():
        """One more round. A machine that stood still makes the group stand, too."""
        nonlocal done
        done = min(29, next(rounds))
        running.commit("fast", "Orders", 0, done * 20)
        watched.pass_time(0.15)
        # What came during the last samples counts in the rate that the group must beat; here it is long past.
        watched.running.window._parts.sampler.topics["Orders"].rest()
        is_told = done >= 8 and watched.needs() == [("watch", "fast", "catching_up")]
        return is_told and watched.findings("fast")["falls_behind"].level == "watch" and watched.need("catching_up")

    need = wait_for(told, "it to be told", not_yet=(KeyError, StopIteration))
    eta_ms, whole_ms = need.sentence.args["eta_span"], watched.up_ms()
    assert eta_ms / whole_ms < 2 * (600 - done * 20) / (done * 20), "at the pace of until now"


def test_two_queues_that_stand_still_are_found_beside_two_that_move(watched):
    running = watched.running
    peers = [running.join("one", "clash", tags="paid"), running.join("two", "clash", tags="sent")]
    for queue in range(4):
        running.put("Orders", *[b"x"] * (30 if queue % 2 else 200), queue=queue)
        running.commit("clash", "Orders", queue, 0)
    running.sample()
    rounds = itertools.count(1)

    def move(*queues):
        for queue in queues:
            running.commit("clash", "Orders", queue, done)

    def told():
        """One more round. A machine that stood still makes the other queues stand, too."""
        nonlocal done
        done = next(rounds)
        move(0, 2)
        watched.pass_time(0.1)
        is_told = done > 10 and watched.needs("queues_stuck", "stuck") == [("stuck", "clash", "queues_stuck")]
        return is_told and watched.need("queues_stuck")

    done = 0
    need = wait_for(told, "it to be told", not_yet=(StopIteration,))
    assert need.sentence.args["queues"] == "Orders/1, Orders/3"
    assert need.sentence.args["lag"] == 60
    assert 600 <= need.sentence.args["idle_span"] <= watched.up_ms()
    assert ("act", "clash", "subscriptions_differ") in watched.needs()

    def goes_on():
        nonlocal done
        done = next(rounds)
        move(0, 2)
        for queue in (1, 3):
            running.commit("clash", "Orders", queue, min(29, done))
        running.sample()
        return watched.needs("queues_stuck", "stuck") == []

    wait_for(goes_on, "nothing to be told")
    del peers


def test_a_group_that_has_just_come_is_not_stuck_however_old_its_messages_are(watched):
    running = watched.running
    running.put("Orders", *[b"x"] * 5)
    running.put("Visits", *[b"x"] * 50)
    watched.pass_time(0.8)  # the sampler runs for longer than a queue may stand
    running.join("c-1", "young")
    running.join("c-2", "zoo", topic="Visits")
    running.commit("young", "Orders", 0, 0)
    running.commit("zoo", "Visits", 0, 0)
    running.sample()
    assert watched.needs() == []
    watched.pass_time(0.8)
    assert watched.needs() == [("stuck", "zoo", "stuck"), ("stuck", "young", "stuck")], "more of them wait"
    assert watched.need("stuck").sentence.args["idle_span"] < 2000


def test_members_that_come_back_are_given_their_time(watched):
    running = watched.running
    running.put("Orders", *[b"x"] * 5)
    running.window.group_commands.create("back")
    running.commit("back", "Orders", 0, 1)
    watched.pass_time(0.8)
    assert watched.needs() == [("watch", "back", "nobody_consumes_late")]
    running.join("c-1", "back")
    assert watched.needs() == []


def test_an_idle_group_that_gets_two_messages_is_not_stuck(watched):
    running = watched.running
    running.join("c-1", "idle")
    running.put("Orders", b"x")
    running.commit("idle", "Orders", 0, 1)
    watched.pass_time(0.9)
    running.put("Orders", b"y", b"z")
    running.sample()
    assert watched.needs() == []
    wait_for(lambda: watched.needs() == [("stuck", "idle", "stuck")], "it has taken none of them for long")


def test_after_a_reset_a_queue_is_given_its_time(watched):
    running = watched.running
    running.join("c-1", "moved")
    running.put("Orders", *[b"x"] * 9)
    running.commit("moved", "Orders", 0, 9)
    watched.pass_time(0.8)
    running.commit("moved", "Orders", 0, 2)
    running.sample()
    assert watched.needs() == []


def test_the_worst_is_so_by_messages_times_time(watched):
    running = watched.running
    running.put("Orders", b"old")
    time.sleep(0.1)
    running.put("Orders", *[b"x"] * 50, queue=1)
    running.engine.broker.groups.find("few")
    running.engine.broker.groups.find("many")
    running.commit("few", "Orders", 0, 0)
    running.commit("many", "Orders", 1, 0)
    behind = wait_for(
        lambda: (
            [row.group for row in found] == ["many", "few"] and found
            if (found := running.window.overview.snapshot().behind)
            else None
        ),
        "fifty that wait for half as long",
    )
    assert [row.lag for row in behind] == [50, 1]
    assert behind[0].lag_ms < behind[1].lag_ms


def test_queues_that_nobody_can_read_are_a_blocker_and_then_a_need(watched):
    running = watched.running
    with pytest.raises(Blocked) as refused:
        running.window.topic_commands.create("Orders", read_queues=4, write_queues=8)
    [blocker] = refused.value.blockers
    assert (blocker.code, blocker.args) == ("unreadable_writes", {"first": 4, "last": 7})
    assert running.window.topic_commands.create("Orders", read_queues=4, write_queues=8, dry_run=True).blockers == (
        blocker,
    )
    running.window.topic_commands.create("Orders", read_queues=4, write_queues=8, force=True)
    assert watched.needs() == [("watch", "Orders", "queues_unreadable")]
    running.put("Orders", *[b"x"] * 3, queue=6)
    assert watched.needs() == [("act", "Orders", "queues_unread")]
    assert watched.need("queues_unread").sentence.args["count"] == 3
    running.window.topic_commands.edit("Orders", reserve_hours=5)
    with pytest.raises(Blocked):
        running.window.topic_commands.edit("Orders", write_queues=9)
    running.window.topic_commands.edit("Orders", read_queues=8)
    assert watched.needs() == []
    with pytest.raises(Blocked):
        running.window.topic_commands.edit("Orders", write_queues=12)
    running.window.topic_commands.edit("Orders", write_queues=12, writable=False)
    assert watched.needs() == []


def test_dead_letters_that_expire_come_before_others(watched):
    running = watched.running
    for group in ("far", "near"):
        running.window.group_commands.create(group)
        running.put(DLQ_PREFIX + group, b"x", c="TBW102", d=1)
    running.put(DLQ_PREFIX + "far", *[b"x"] * 3, c="TBW102", d=1)
    assert watched.needs() == [("act", "far", "dead_letters"), ("act", "near", "dead_letters")]
    # A topic's retention time is shorter than the broker's: its letters are deleted first.
    table = running.engine.broker.topics
    config = table.get(DLQ_PREFIX + "near")
    table._configs[config.topic_name] = replace(config, attributes={"reserve.time": "5"})
    assert watched.needs() == [("act", "near", "dead_letters_expire"), ("act", "far", "dead_letters")]
    need = watched.need("dead_letters_expire")
    assert 4 * 3_600_000 < need.sentence.args["left_span"] <= 5 * 3_600_000
    assert str(need.sentence).startswith(f"{need.name} has 1 dead letter. It may be deleted in ")


def test_a_group_that_is_switched_off_is_not_called_stuck(watched):
    running = watched.running
    running.join("c-1", "off")
    running.put("Orders", b"x", b"y")
    running.commit("off", "Orders", 0, 1)
    running.window.group_commands.edit("off", consume_enable=False)
    watched.pass_time(0.8)
    assert watched.needs() == [("watch", "off", "consumption_is_off_behind")]


def test_a_disk_that_retention_keeps_from_filling_is_no_need(watched, monkeypatch, request):
    running = watched.running
    room = running.window._parts.overview._disk
    disk = room.figures()
    sampler = running.window._parts.sampler
    running.put("Orders", b"x" * 3_000_000)
    time.sleep(0.3)
    running.sample()
    running.sample()
    request.addfinalizer(sampler._sampling.release)
    sampler._sampling.acquire()  # the rate stays what it is
    rate = sampler.total_rate("log", 600)
    assert rate > 0
    # A disk with room for the log of 72 hours at this rate, and one without.
    # The same limit as in the reports: from there on messages are deleted before their time.
    options = running.engine.options
    store = dataclasses.replace(options.config.store, disk_space_clean_forcibly_ratio=85)
    monkeypatch.setattr(options, "_config", dataclasses.replace(options.config, store=store))
    assert running.window.report_inputs.take().disk_limit_percent == 85
    limit = 0.85

    def free(room_bytes: float):
        return disk._replace(total_bytes=10**15, free_bytes=int(room_bytes + 10**15 * (1 - limit)))

    at_ms, why = room.full_at_ms(free(rate * 80 * 3600))
    assert (at_ms, why.code) == (None, "disk_kept_by_retention")
    at_ms, why = room.full_at_ms(free(rate * 40 * 3600))
    assert why is None
    assert at_ms == pytest.approx(time.time() * 1000 + 40 * 3_600_000, rel=0.01)


@pytest.mark.parametrize(
    ("used", "level", "code"),
    [(80, "watch", "disk_filling"), (86, "act", "disk_deletes")],
)
def test_a_disk_that_takes_messages_away_comes_first_and_cannot_wait(watched, monkeypatch, used, level, code):
    running = watched.running
    running.window.topic_commands.create("Orders", read_queues=4, write_queues=8, force=True)
    running.put("Orders", b"x", queue=6)
    cleaner = running.engine.broker.store.cleaner
    monkeypatch.setattr(cleaner, "status", cleaner.status._replace(stages=Watermarks(0.75, 0.85, 0.90), refusing=False))
    options = running.engine.options
    store = dataclasses.replace(options.config.store, disk_max_used_space_ratio=75)
    monkeypatch.setattr(options, "_config", dataclasses.replace(options.config, store=store))
    monkeypatch.setattr(broker_checks, "disk_figures", lambda path: DiskFigures(100, 100 - used, float(used), None))
    found = [
        (one.level, one.sentence.code)
        for one in running.window.overview.snapshot().needs
        if one.name in ("disk", "Orders")
    ]
    first = [(level, code), ("act", "queues_unread")]
    assert found == (first if level == "act" else first[::-1])


def test_the_live_frame_tells_the_worst_of_them(watched):
    running = watched.running
    running.window.topic_commands.create("Orders", read_queues=4, write_queues=8, force=True)
    running.put("Orders", b"x", queue=6)
    frame = json.loads(running.window.live.frame()[1])
    assert [need["code"] for need in frame["needs"] if need["name"] == "Orders"] == ["queues_unread"]
    assert "nobody can read" in frame["needs"][-1]["text"]


def test_overview_need_and_report_mean_one_limit_of_the_disk(make_running, monkeypatch):
    running = make_running(
        store={
            "disk_max_used_space_ratio": 75,
            "disk_space_clean_forcibly_ratio": 85,
            "disk_space_warning_level_ratio": 90,
        }
    )
    store = running.engine.broker.store
    usage = DiskUsage(800 * GIB, 200 * GIB)  # expired messages are deleted at any hour, all others stay
    monkeypatch.setattr(store.disk, "usage", lambda path: usage, raising=False)
    monkeypatch.setattr(disk_room, "disk_usage", lambda path: usage)
    monkeypatch.setattr(running.window._parts.sampler, "total_rate", lambda which, samples=0: GIB / 3600)
    overview = running.window.overview.snapshot()
    left_h = (overview.disk_full_at_ms - time.time() * 1000) / 3_600_000
    assert left_h == pytest.approx(50, abs=0.1), "from 80 to 85 %, and a GiB an hour"
    (need,) = [need for need in overview.needs if need.sentence.code == "disk_full_soon"]
    assert need.sentence.args["full_at_ms"] == pytest.approx(overview.disk_full_at_ms, abs=60_000)
    assert running.window.report_inputs.take().disk_limit_percent == 85
