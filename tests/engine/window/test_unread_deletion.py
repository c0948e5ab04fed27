"""Groups that will lose messages are shown before it happens, by age, by a topic's own retention and by the disk."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from appliance.engine.broker.deleted_unread import DeletedUnread
from appliance.engine.store.retention.clean_queues import Raised
from appliance.engine.window.health import unread_deletion
from appliance.engine.window.health.disk_room import DiskFigures, DiskRoom
from appliance.engine.window.health.unread_deletion import Ahead
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000


@pytest.fixture
def losing(running, monkeypatch):
    """A broker whose rates are known at once, with a topic whose messages are kept for 40 hours."""
    monkeypatch.setattr("appliance.engine.window.health.limits.RATE_KNOWN_S", 0.05)
    running.put("Orders", b"x")
    table = running.engine.broker.topics
    config = table.get("Orders")
    table._configs["Orders"] = replace(config, attributes={"reserve.time": "40"})
    running.window.group_commands.create("gone")
    running.commit("gone", "Orders", 0, 0)
    sampler = running.window._parts.sampler
    wait_for(lambda: running.sample() or sampler.span(300)[1] > 0.05, "rates are known")
    return running


def later(monkeypatch, hours: float) -> None:
    monkeypatch.setattr(
        unread_deletion, "time", SimpleNamespace(time=lambda: time.time() + hours * 3600, monotonic=time.monotonic)
    )


def needs(running):
    found = [one for one in running.window.overview.snapshot().needs if one.sentence.code == "deleted_unread_soon"]
    return [
        (one.level, one.name, one.sentence.args["topic"], round(one.sentence.args["left_span"] / HOUR_MS))
        for one in found
    ]


def diagnosed(running, kind):
    """Return what the diagnosis says: (state of the look, level, topic, numbers)."""
    found = running.window.diagnosis.of("gone")
    (look,) = [one for one in found.looked if one.kind == kind]
    return look.state, [
        (one.level, one.sentence.args["topic"], {part.name: part.value for part in one.evidence})
        for one in found.findings if one.kind == kind
    ]  # fmt: skip


def passed(running):
    found = [
        one for some in running.window.measurements.take(30) for one in some if one.name == "group_deletion_percent"
    ]
    return {one.label: one.value if one.value is None else round(one.value) for one in found}


@pytest.mark.parametrize(
    ("hours", "expected", "percent"),
    [
        (2, [], 5),
        (15, [], 38),  # 25 hours are left
        (30, [("watch", "gone", "Orders", 10)], 75),
        (38, [("act", "gone", "Orders", 2)], 95),
        (50, [("act", "gone", "Orders", 0)], 100),
    ],
)
def test_a_topics_own_retention(losing, monkeypatch, hours, expected, percent):
    later(monkeypatch, hours)
    assert needs(losing) == expected
    assert passed(losing) == {"gone": percent}
    (group,) = [one for one in losing.window.report_inputs.take().groups if one.name == "gone"]
    assert group.ahead.is_soon == bool(expected), "the reports hear the same"
    assert (group.ahead.topic, round(group.ahead.passed)) == ("Orders", percent)
    state, findings = diagnosed(losing, "deleted_soon")
    assert state == ("found" if expected else "clear")
    assert [(level, "gone", topic, round(told["left"] / 3600)) for level, topic, told in findings] == expected
    assert [(told["lag"], round(told["oldest"] / 3600)) for _, _, told in findings] == [(1, hours)] * len(expected)


def test_with_a_short_retention_most_of_it_must_have_passed(losing, monkeypatch):
    table = losing.engine.broker.topics
    table._configs["Orders"] = replace(table.get("Orders"), attributes={"reserve.time": "2"})
    later(monkeypatch, 0.5)
    assert needs(losing) == []
    later(monkeypatch, 1.25)
    assert needs(losing) == [("act", "gone", "Orders", 1)]


@pytest.mark.parametrize(("done", "expected"), [(0, 10), (20, 20), (40, None), (41, None)])
def test_the_rate_at_which_a_group_falls_behind_counts(losing, monkeypatch, done, expected):
    """It commits `done` of 40 that come: none, half, all, and one more than that."""
    losing.put("Orders", *[b"x"] * 40)
    losing.commit("gone", "Orders", 0, done)
    losing.sample()
    losing.put("Orders", b"x")
    later(monkeypatch, 30)
    found = needs(losing)
    assert [one[3] for one in found] == ([] if expected is None else [expected])


def test_a_disk_that_fills_takes_the_oldest_file_first(losing, monkeypatch):
    later(monkeypatch, 2)
    monkeypatch.setattr(DiskRoom, "until_forced", lambda self: (3_600_000.0, 1000.0))
    assert needs(losing) == [("act", "gone", "Orders", 1)]
    monkeypatch.setattr(DiskRoom, "until_forced", lambda self: (3_600_000.0, 0.0))
    assert needs(losing) == []
    monkeypatch.setattr(DiskRoom, "until_forced", lambda self: (-1.0, 0.0))
    assert needs(losing) == [("act", "gone", "Orders", 0)]


def test_the_room_until_files_go_whatever_their_age(losing, monkeypatch):
    room = losing.window._parts.overview._disk
    monkeypatch.setattr(DiskRoom, "figures", lambda self: DiskFigures(1000, 400, 60.0, None))
    options = losing.engine.options

    def set_to(**values):
        store = dataclasses.replace(options.config.store, **values)
        monkeypatch.setattr(options, "_config", dataclasses.replace(options.config, store=store))

    set_to(disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=True)
    left, rate = room.until_forced()
    assert (round(left), rate >= 0) == (250, True)
    set_to(disk_space_clean_forcibly_ratio=100)
    assert room.until_forced() is None
    set_to(disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=False)
    assert room.until_forced() is None


def test_nothing_is_said_of_groups_that_have_read_all_or_before_rates_are_known(losing, monkeypatch):
    later(monkeypatch, 39)
    monkeypatch.setattr("appliance.engine.window.health.limits.RATE_KNOWN_S", 3600.0)
    assert needs(losing) == []
    assert diagnosed(losing, "deleted_soon") == ("unknown", [])
    monkeypatch.setattr("appliance.engine.window.health.limits.RATE_KNOWN_S", 0.05)
    losing.commit("gone", "Orders", 0, 1)
    losing.sample()
    assert needs(losing) == []
    assert passed(losing) == {"gone": 0}


def test_a_look_without_time_goes_by_the_judgement_of_the_last_minute(losing, monkeypatch):
    """Else the needs of many groups would come and go."""
    monkeypatch.setattr("appliance.engine.window.health.needs.LOOK_BUDGET_MS", 0)
    later(monkeypatch, 30)
    assert needs(losing) == []
    assert passed(losing) == {"gone": 75}
    assert needs(losing) == [("watch", "gone", "Orders", 10)]
    monkeypatch.setattr(unread_deletion, "KEPT_S", -1.0)
    assert needs(losing) == []


def test_the_share_that_has_passed():
    assert Ahead("t", 0, 0).passed == 0
    assert Ahead("t", 30, 90).passed == 75


def test_a_diagnosis_names_what_was_deleted_unread_in_the_last_day(losing, monkeypatch):
    """Also once the group's offset has moved on."""
    assert diagnosed(losing, "deleted_unread") == ("clear", [])
    losing.put("Orders", b"x", queue=3)
    losing.commit("gone", "Orders", 3, 0)
    losing.put("Orders", b"x", b"x")
    table = losing.engine.broker.deleted_unread
    table.deleted([Raised("Orders", 0, 0, 2), Raised("Orders", 3, 0, 1)])
    losing.commit("gone", "Orders", 0, 3)
    losing.commit("gone", "Orders", 3, 1)
    losing.window.group_commands.create("another")
    state, [(level, topic, told)] = diagnosed(losing, "deleted_unread")
    assert (state, level, topic, told["lost"], told["queues"]) == ("found", "act", "Orders", 3, 2)
    (one,) = [one for one in losing.window.diagnosis.of("gone").findings if one.kind == "deleted_unread"]
    assert one.queues == (("Orders", 0), ("Orders", 3))
    assert "deleted 3 messages of Orders before the group had read them" in str(one.sentence)
    (need,) = [one for one in losing.window.overview.snapshot().needs if one.sentence.code == "deleted_unread"]
    assert (need.level, need.kind, need.name) == ("act", "group", "gone")
    assert "deleted 3 messages of Orders before gone had read them" in str(need.sentence)
    assert losing.window.diagnosis.of("another").findings == ()
    later(monkeypatch, 25)
    assert diagnosed(losing, "deleted_unread") == ("clear", [])
    assert all(one.sentence.code != "deleted_unread" for one in losing.window.overview.snapshot().needs)


def test_what_a_deleted_topic_lost_needs_nobody_and_the_sum_of_many_groups_does(losing):
    def told():
        found = losing.window.overview.snapshot().needs
        return [(one.kind, one.name, str(one.sentence)) for one in found if "Retention deleted" in str(one.sentence)]

    table = losing.engine.broker.deleted_unread
    now_ms = int(time.time() * 1000)
    table.rows = (DeletedUnread("gone", "Orders", 0, 0, 2, 2, now_ms), DeletedUnread("*", "*", -1, 0, 7, 7, now_ms))
    (system, _, said), (group, name, _) = told()
    assert (system, group, name) == ("system", "group", "gone")
    assert said.startswith("Retention deleted 7 messages before they were read, the last 0 s ago. It is")
    losing.put("another", b"x")
    losing.commit("gone", "another", 0, 1)
    losing.window.topic_commands.delete("Orders", force=True)
    assert [one[0] for one in told()] == ["system"]
    assert diagnosed(losing, "deleted_unread") == ("clear", [])
