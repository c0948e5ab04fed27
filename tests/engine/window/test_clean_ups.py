"""Unused groups, topics and offsets are found and deleted; used ones never are."""

from __future__ import annotations

import pytest

from appliance.engine.broker import clean_up
from appliance.engine.broker.groups import is_system_group
from appliance.engine.errors import Conflict, InvalidInput, RefusedRequest, Unavailable
from tests.support.engine import RunningEngine


def names(found):
    return [(one.group, one.topic) for one in found.items]


def clean(running: RunningEngine, kind: str, **options):
    return running.window.clean_ups.clean(kind, **({"idle_hours": 0} | options))


def group(running, name):
    running.window.group_commands.create(name)
    return name


def test_a_group_that_was_never_used_goes_with_its_empty_retry_topic(running):
    running.join("client", "made-by-a-heartbeat").close()
    running.hang_up()
    group(running, "made-by-hand")
    seen = clean(running, "groups", dry_run=True)
    assert (seen.applied, seen.count) == (False, 2)
    assert names(seen) == [("made-by-a-heartbeat", None), ("made-by-hand", None)]
    assert running.engine.broker.topics.get("%RETRY%made-by-a-heartbeat") is not None
    done = clean(running, "groups", revision=seen.revision)
    assert (done.applied, done.count, done.left) == (True, 2, 0)
    assert clean(running, "groups", dry_run=True).count == 0
    groups, topics = running.engine.broker.groups, running.engine.broker.topics
    assert groups.get("made-by-hand") is None
    assert groups.get("made-by-a-heartbeat") is None
    assert topics.get("%RETRY%made-by-a-heartbeat") is None
    assert groups.get("TOOLS_CONSUMER") is not None


def test_a_group_that_somebody_uses_stays(running):
    running.put("T", b"one")
    group(running, "committed")
    running.commit("committed", "T", 0, 1)
    running.join("client", "online", "T")
    for name in ("retried", "failed"):
        group(running, name)
    running.put("%RETRY%retried", b"again")
    running.put("%DLQ%failed", b"letter")
    assert clean(running, "groups").count == 0
    assert {"committed", "online", "retried", "failed"} <= {
        config.group_name for config in running.engine.broker.groups.all()
    }


def test_a_group_whose_retry_waits_at_a_delay_level_stays(running):
    group(running, "waiting")
    running.put("%RETRY%waiting", b"again", properties="DELAY\x0118\x02")
    group(running, "other")
    assert names(clean(running, "groups")) == [("other", None)]


def test_what_was_heard_of_lately_stays(running):
    group(running, "new")
    assert clean(running, "groups", idle_hours=1).count == 0
    running.window.topic_commands.create("new")
    assert clean(running, "topics", idle_hours=1).count == 0
    assert names(clean(running, "topics")) == [(None, "new")]


def test_a_topic_that_goes_takes_its_schema_along(running):
    running.window.topic_commands.create("Unused")
    running.window.schemas.put("Unused", kind="avro", data=b'{"type": "string"}')
    assert clean(running, "topics").count == 1
    running.window.topic_commands.create("Unused")
    assert running.window.schemas.find("Unused") is None


def test_a_topic_with_messages_readers_or_subscribers_stays(running):
    for name in ("read", "subscribed", "unused"):
        running.window.topic_commands.create(name)
    running.put("full", b"one")
    group(running, "g")
    running.commit("g", "read", 0, 0)
    running.join("client", "g", "subscribed")
    running.put("later", b"one", properties="DELAY\x0118\x02")
    running.put("timed", b"one", properties="TIMER_DELAY_SEC\x013600\x02")
    running.put("half", b"one", properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02", sysFlag=4)
    assert names(clean(running, "topics", dry_run=True)) == [(None, "unused")]
    done = clean(running, "topics")
    assert (done.count, done.left) == (1, 0)
    running.put("unused", b"made again")
    assert clean(running, "topics").count == 0


def test_a_message_that_comes_between_the_look_and_the_act_keeps_its_topic(running, monkeypatch):
    for name in ("a", "b"):
        running.window.topic_commands.create(name)
    look = clean_up.CleanUpService.unused_topics

    def late(self, *asked):
        found = look(self, *asked)
        running.put("a", b"one")
        return found

    monkeypatch.setattr(clean_up.CleanUpService, "unused_topics", late)
    done = clean(running, "topics")
    assert names(done) == [(None, "b")]
    assert done.left == 1
    assert running.engine.broker.topics.get("a") is not None


def test_a_commit_that_comes_between_the_look_and_the_act_keeps_its_group(running, monkeypatch):
    running.put("T", b"one")
    for name in ("a", "b"):
        group(running, name)
    look = clean_up.CleanUpService.unused_groups

    def late(self, *asked):
        found = look(self, *asked)
        running.commit("a", "T", 0, 1)
        return found

    monkeypatch.setattr(clean_up.CleanUpService, "unused_groups", late)
    assert names(clean(running, "groups")) == [("b", None)]


def test_a_commit_during_the_act_is_seen(running, monkeypatch):
    """All offsets are examined again if one was committed since."""
    running.put("T", b"one")
    for name in ("a", "b", "c"):
        group(running, name)
    monkeypatch.setattr(clean_up, "SLICE", 1)
    remove = type(running.engine.broker.groups).remove_now

    def committing(self, name):
        remove(self, name)
        if name == "a":
            running.engine.broker.offsets.commit("b", "T", 0, 1)

    monkeypatch.setattr(type(running.engine.broker.groups), "remove_now", committing)
    assert names(clean(running, "groups")) == [("a", None), ("c", None)]


def test_a_topic_that_somebody_needs_during_the_act_stays(running, monkeypatch):
    for name in ("A", "B", "C"):
        running.window.topic_commands.create(name)
    find = clean_up.CleanUpService.unused_topics

    def late(self, *arguments):
        found = find(self, *arguments)
        running.join("late", "G", topic="A")
        running.put("B", b"waits", properties="DELAY\x013\x02")
        return found

    monkeypatch.setattr(clean_up.CleanUpService, "unused_topics", late)
    assert names(clean(running, "topics")) == [(None, "C")]


def test_what_was_removed_before_a_refusal_is_durable_and_told(running, monkeypatch):
    for name in ("a", "b"):
        group(running, name)
    remove = type(running.engine.broker.groups).remove_now

    def refusing(self, name):
        if name == "b":
            raise RefusedRequest(1, "the journal is broken")
        remove(self, name)

    monkeypatch.setattr(type(running.engine.broker.groups), "remove_now", refusing)
    durable = []
    monkeypatch.setattr(type(running.engine.broker.groups), "make_durable", lambda self: durable.append(1))
    assert names(clean(running, "groups")) == [("a", None)]
    assert durable


def test_offsets_of_what_is_gone_go(running):
    running.put("T", b"one")
    running.put("U", b"one")
    for name, topic in (("kept", "T"), ("gone", "T"), ("stays", "U")):
        group(running, name)
        running.commit(name, topic, 0, 1)
    running.window.group_commands.delete("gone", offsets=False)
    running.engine.broker.topics.delete("U")
    found = clean(running, "offsets", dry_run=True)
    assert names(found) == [("gone", "T"), ("stays", "U")]
    assert clean(running, "offsets", revision=found.revision).count == 2
    left = {(entry.group, entry.topic) for entry in running.engine.broker.offsets.all()}
    assert {one for one in left if not is_system_group(one[0])} == {("kept", "T")}


@pytest.mark.parametrize("kind", ["groups", "topics", "offsets"])
def test_the_members_of_a_set_have_it_before_it_is_answered(running, monkeypatch, kind):
    if kind == "groups":
        group(running, "without-a-retry-topic")
    else:
        running.window.topic_commands.create("T")
    if kind == "offsets":
        group(running, "of-it")
        running.commit("of-it", "T", 0, 0)
        running.engine.broker.topics.delete("T")
    asked = []
    monkeypatch.setattr(running.engine.broker.topic_service, "all_have", lambda changes: not asked.append(changes))
    assert clean(running, kind).count == 1
    assert asked == [running.engine.broker.topic_service.changes]


def test_it_is_gone_after_a_restart_and_nothing_was_heard_of_before(running):
    for name in ("unused", "stays"):
        group(running, name)
    running.window.topic_commands.create("unused-too")
    clean(running, "groups", q="unused")
    clean(running, "topics")
    running.restart()
    assert running.engine.broker.groups.get("unused") is None
    assert running.engine.broker.topics.get("unused-too") is None
    assert clean(running, "groups", idle_hours=1).count == 0
    assert names(clean(running, "groups")) == [("stays", None)]


def test_an_act_deletes_so_much_and_says_what_is_left(running, monkeypatch):
    monkeypatch.setattr(clean_up, "MOST", 20)
    for number in range(25):
        group(running, f"g-{number:02}")
    done = clean(running, "groups", q="G-")
    assert (done.count, done.left) == (20, 5)
    assert clean(running, "groups").count == 5


def test_something_else_than_was_shown_is_not_deleted(running):
    group(running, "a")
    seen = clean(running, "groups", dry_run=True)
    group(running, "b")
    with pytest.raises(Conflict):
        clean(running, "groups", revision=seen.revision)
    assert clean(running, "groups", q="b", dry_run=True).count == 1


@pytest.mark.parametrize("options", [{"kind": "users"}, {"idle_hours": -1}, {"idle_hours": 8761}])
def test_what_cannot_be_asked(running, options):
    with pytest.raises(InvalidInput):
        running.window.clean_ups.clean(**({"kind": "groups"} | options))


def test_nothing_is_deleted_while_it_cannot_be_told_what_waits(running, monkeypatch):
    group(running, "a")
    monkeypatch.setattr("appliance.engine.window.topics.clean_ups.BUDGET_MS", -1.0)
    running.put("T", b"one", properties="DELAY\x0118\x02")
    with pytest.raises(Unavailable):
        clean(running, "groups")
