"""Retention in the window: what is kept, a topic's own time, cleaning on request."""

import pytest

from appliance.engine.errors import InvalidInput, NotFound
from tests.support.waiting import wait_for

from .test_commands import fields


def test_a_topics_own_time_is_an_attribute_that_can_be_taken_back(house):
    house.window.create_topic("Orders")
    change = house.window.edit_topic("Orders", reserve_hours=24)
    assert fields(change) == {"reserve.time": (None, "24")}
    assert house.window.topic_settings("Orders").attributes["reserve.time"] == "24"
    assert house.window.retention().topic_hours == {"Orders": 24}
    house.restart()
    assert house.window.retention().topic_hours == {"Orders": 24}
    assert fields(house.window.edit_topic("Orders", reserve_hours=24)) == {}
    assert fields(house.window.edit_topic("Orders", order=True)) == {"order": ("false", "true")}
    assert fields(house.window.edit_topic("Orders", reserve_hours=0)) == {"reserve.time": ("24", None)}
    assert house.window.retention().topic_hours == {}


@pytest.mark.parametrize("hours", [-1, 1 << 40])
def test_hours_that_are_none(house, hours):
    house.window.create_topic("Orders")
    with pytest.raises(InvalidInput) as caught:
        house.window.edit_topic("Orders", reserve_hours=hours)
    assert caught.value.field == "reserve_hours"


def test_what_is_kept_is_said(house):
    house.put("Orders", b"a")
    kept = house.window.retention()
    assert (kept.reserved_hours, kept.delete_when, kept.log_files, kept.log_begin) == (72, "04", 1, 0)
    assert kept.log_end > 100
    assert kept.earliest_ms == house.window.message("Orders/0/0").row.stored_at_ms
    assert (kept.refusing, kept.failure, kept.clock_ahead_ms, kept.deleted_at_ms) == (None, None, 0, None)
    assert 0 < wait_for(lambda: house.window.retention().used_share, "the first look") <= 1
    house.window.change_configuration({"fileReservedTime": "5", "deleteWhen": "03;22"})
    assert (house.window.retention().reserved_hours, house.window.retention().delete_when) == (5, "03;22")
    with pytest.raises(InvalidInput, match="hours from 0 to 23"):
        house.window.change_configuration({"deleteWhen": "25"})


def test_cleaning_is_asked_for(house, monkeypatch):
    house.put("Orders", b"a")
    house.put("Gone", b"a")
    cleaner = house.engine.broker.store.cleaner
    asked, request = [], cleaner.request
    monkeypatch.setattr(cleaner, "request", lambda: (asked.append("log"), request()))
    assert house.window.clean("log", by="me") == ()
    assert asked == ["log"]
    assert house.window.retention().deleted_log_files == 0, "nothing has expired"
    house.engine.broker.topics.delete("Gone")
    assert house.window.clean("queues") == ()
    assert house.window.clean("topics") == ("Gone",)
    assert house.engine.broker.store.find_queue("Gone", 0) is None
    assert house.window.message("Orders/0/0")
    with pytest.raises(NotFound):
        house.window.message("Gone/0/0")
    with pytest.raises(InvalidInput):
        house.window.clean("everything")


def test_metrics_say_whether_sends_are_taken(house):
    wait_for(lambda: house.window.metrics()["disk_used_ratio"] > 0, "the first look")
    assert house.window.metrics()["commit_log_writable"] == 1
    assert house.window.metrics()["commit_log_files"] == 1
    house.engine.broker.store.log.refuse("the disk is full")
    assert house.window.metrics()["commit_log_writable"] == 0
    assert house.window.metrics()["commit_log_files_deleted_total"] == 0
