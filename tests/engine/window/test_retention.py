"""Retention in the window: settings, a topic's own time, cleaning on request."""

import pytest

from appliance.engine.errors import InvalidInput, NotFound
from tests.support.waiting import wait_for

from .test_commands import fields


def test_a_topics_own_time_is_an_attribute_that_can_be_taken_back(running):
    running.window.topic_commands.create("Orders")
    change = running.window.topic_commands.edit("Orders", reserve_hours=24)
    assert fields(change) == {"reserve.time": (None, "24")}
    assert running.window.topics.settings("Orders").attributes["reserve.time"] == "24"
    assert running.window.retention.snapshot().topic_hours == {"Orders": 24}
    running.restart()
    assert running.window.retention.snapshot().topic_hours == {"Orders": 24}
    assert fields(running.window.topic_commands.edit("Orders", reserve_hours=24)) == {}
    assert fields(running.window.topic_commands.edit("Orders", order=True)) == {"order": ("false", "true")}
    assert fields(running.window.topic_commands.edit("Orders", reserve_hours=0)) == {"reserve.time": ("24", None)}
    assert running.window.retention.snapshot().topic_hours == {}


@pytest.mark.parametrize("hours", [-1, 1 << 40])
def test_hours_that_are_none(running, hours):
    running.window.topic_commands.create("Orders")
    with pytest.raises(InvalidInput) as caught:
        running.window.topic_commands.edit("Orders", reserve_hours=hours)
    assert caught.value.field == "reserve_hours"


def test_what_is_kept_is_said(running):
    running.put("Orders", b"a")
    kept = running.window.retention.snapshot()
    assert (kept.reserved_hours, kept.delete_when, kept.log_files, kept.log_begin) == (72, "04", 1, 0)
    assert kept.log_end > 100
    assert kept.earliest_ms == running.window.messages.detail("Orders/0/0").stored_at_ms
    assert (kept.refusing, kept.failure, kept.clock_ahead_ms, kept.deleted_at_ms) == (None, None, 0, None)
    assert 0 < wait_for(lambda: running.window.retention.snapshot().used_share, "the first look") <= 1
    running.window.option_commands.change({"fileReservedTime": "5", "deleteWhen": "03;22"})
    assert (running.window.retention.snapshot().reserved_hours, running.window.retention.snapshot().delete_when) == (
        5,
        "03;22",
    )
    with pytest.raises(InvalidInput, match="hours from 0 to 23"):
        running.window.option_commands.change({"deleteWhen": "25"})


def test_cleaning_is_asked_for(running, monkeypatch):
    running.put("Orders", b"a")
    running.put("Gone", b"a")
    cleaner = running.engine.broker.store.cleaner
    asked, request = [], cleaner.request
    monkeypatch.setattr(cleaner, "request", lambda: (asked.append("log"), request()))
    assert running.window.retention.clean("log", by="me") == ()
    assert asked == ["log"]
    assert running.window.retention.snapshot().deleted_log_files == 0, "nothing has expired"
    running.engine.broker.topics.delete("Gone")
    assert running.window.retention.clean("queues") == ()
    assert running.window.retention.clean("topics") == ("Gone",)
    assert running.engine.broker.store.find_queue("Gone", 0) is None
    assert running.window.messages.detail("Orders/0/0")
    with pytest.raises(NotFound):
        running.window.messages.detail("Gone/0/0")
    with pytest.raises(InvalidInput):
        running.window.retention.clean("everything")


def test_metrics_say_whether_sends_are_taken(running):
    wait_for(lambda: running.window.metrics()["disk_used_ratio"] > 0, "the first look")
    assert running.window.metrics()["commit_log_writable"] == 1
    assert running.window.metrics()["commit_log_files"] == 1
    running.engine.broker.store.log.refuse("the disk is full", "test")
    assert running.window.metrics()["commit_log_writable"] == 0
    assert running.window.metrics()["commit_log_files_deleted_total"] == 0
