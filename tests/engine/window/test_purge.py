"""Purging a topic: what the preview says, which messages go, and when it is refused."""

from __future__ import annotations

import pytest

from appliance.engine.clock import SYSTEM
from appliance.engine.errors import Blocked, Conflict, InvalidInput, NotFound, Unavailable
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for


def filled(running: RunningEngine, count: int = 5) -> str:
    for number in range(count):
        running.put("T", b"%d" % number)
    return "T"


def kept(running: RunningEngine, topic: str = "T"):
    return [(queue.min_offset, queue.max_offset) for queue in running.engine.broker.store.queues.of_topic(topic)]


def counts(change):
    return {one.field: (one.before, one.after) for one in change.differences}


def test_all_messages_go_and_groups_have_nothing_left_to_read(running):
    topic = filled(running)
    running.window.group_commands.create("slow")
    running.commit("slow", topic, 0, 2)
    purges = running.window.topic_purges
    seen = purges.purge(topic, dry_run=True)
    assert not seen.applied
    assert counts(seen) == {"messages": ("5", "0")}
    assert [str(one) for one in seen.blockers] == ["slow has not read 3 messages of T."]
    assert kept(running) == [(0, 5)]
    with pytest.raises(Blocked):
        purges.purge(topic, revision=seen.revision)
    assert kept(running) == [(0, 5)]
    done = purges.purge(topic, revision=seen.revision, force=True, by="ada")
    assert done.applied
    assert kept(running) == [(5, 5)]
    assert purges._lag.snapshot().backlog("slow", topic).lag == 0
    running.put(topic, b"later")
    assert kept(running) == [(5, 6)]


def test_messages_that_come_after_the_preview_stay(running):
    topic = filled(running)
    seen = running.window.topic_purges.purge(topic, dry_run=True)
    newest = int(seen.revision.partition("-")[0], 16)
    wait_for(lambda: SYSTEM.wall_ms() >= newest, "a later millisecond")
    running.put(topic, b"later")
    assert running.window.topic_purges.purge(topic, revision=seen.revision).applied
    assert kept(running) == [(5, 6)]


def test_another_selection_than_was_shown_is_refused(running):
    topic = filled(running)
    seen = running.window.topic_purges.purge(topic, dry_run=True)
    running.window.topic_purges.purge(topic)
    for revision in (seen.revision, "", "zz-1", "-5-00"):
        with pytest.raises(Conflict):
            running.window.topic_purges.purge(topic, revision=revision)


def test_only_messages_before_a_time_go(running):
    topic = filled(running, 2)
    at_ms = SYSTEM.wall_ms() + 1
    wait_for(lambda: SYSTEM.wall_ms() > at_ms, "a later millisecond")
    running.put(topic, b"kept")
    seen = running.window.topic_purges.purge(topic, before_ms=at_ms, dry_run=True)
    assert counts(seen) == {"messages": ("3", "1")}
    running.window.topic_purges.purge(topic, before_ms=at_ms)
    assert kept(running) == [(2, 3)]
    assert counts(running.window.topic_purges.purge(topic, before_ms=at_ms, dry_run=True)) == {}


def test_what_waits_in_retry_topics_is_named(running):
    topic = filled(running)
    running.window.group_commands.create("g")
    running.commit("g", topic, 0, 5)
    running.put("%RETRY%g", b"again")
    seen = running.window.topic_purges.purge(topic, dry_run=True)
    assert seen.blockers == ()
    assert "The topic %RETRY%g stays, with 1 message in it." in [str(one) for one in seen.warnings]
    retries = running.window.topic_purges.purge("%RETRY%g", dry_run=True)
    assert [str(one) for one in retries.blockers] == ["g has not read 1 message of %RETRY%g."]


def test_system_topics_and_unknown_ones_are_refused(running):
    with pytest.raises(NotFound):
        running.window.topic_purges.purge("never")
    with pytest.raises(InvalidInput):
        running.window.topic_purges.purge("SCHEDULE_TOPIC_XXXX")


def test_a_purge_that_cannot_be_written_down_says_so(running, monkeypatch):
    topic = filled(running)
    cleaner = running.engine.broker.store.cleaner

    def fails(places, seconds):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cleaner, "purge", fails)
    with pytest.raises(Unavailable, match="No space left"):
        running.window.topic_purges.purge(topic)
    assert kept(running) == [(0, 5)]
