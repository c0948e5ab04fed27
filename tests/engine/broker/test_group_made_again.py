"""A group that is deleted with its offsets and made again: nothing that waited for the old one comes to the new one."""

import errno

import pytest

from tests.support.engine import RunningEngine, pull_fields, records
from tests.support.waiting import wait_for

PULL, SEND_BACK, DELETE_GROUP, QUERY_OFFSET, CREATE_GROUP, DELETE_TOPIC = 11, 36, 207, 14, 200, 215
RETRIES = "%RETRY%G"


@pytest.fixture
def running(tmp_path):
    made = RunningEngine(tmp_path / "data", store={"message_delay_level": "0s 1h"})
    yield made
    made.stop()


def send_back(peer, body, level):
    """Send a message and have G send it back."""
    offset = next(
        one.physical_offset for one in records(peer.ask(PULL, pull_fields("T", 0, 0)).body) if one.body == body
    )
    assert peer.ask(SEND_BACK, {"offset": offset, "group": "G", "delayLevel": level, "originTopic": "T"}).code == 0


def with_retries(running):
    """A group with an offset, a retry that is ready, and one that waits."""
    peer = running.peer()
    running.put("T", b"ready", b"waits", b"later")
    assert peer.ask(CREATE_GROUP, {}, b'{"groupName":"G"}').code == 0
    running.commit("G", "T", 0, 2)
    send_back(peer, b"ready", 1)
    wait_for(lambda: running.engine.broker.store.max_offset(RETRIES, 0) == 1, "the retry")
    send_back(peer, b"waits", 2)
    return peer


def retries(running):
    """The bodies that a new group reads of its retry topic, from the beginning."""
    begin, end = running.engine.broker.store.offset_range(RETRIES, 0)
    if begin == end:
        return []
    return [one.body for one in records(running.peer().ask(PULL, pull_fields(RETRIES, 0, begin)).body)]


def end_waiting(running):
    """Restart, so that what waits is due."""
    running.options["store"] = {"message_delay_level": "0s 0s"}
    running.restart()


@pytest.mark.parametrize("restarts_first", [False, True])
@pytest.mark.parametrize("field", ["cleanOffset", "removeOffset"])
def test_no_retry_of_the_old_group_comes_to_the_new_one(running, field, restarts_first):
    peer = with_retries(running)
    assert peer.ask(DELETE_GROUP, {"groupName": "G", field: "true"}).code == 0
    if restarts_first:
        end_waiting(running)
        peer = running.peer()
    assert peer.ask(CREATE_GROUP, {}, b'{"groupName":"G"}').code == 0
    asked = {"consumerGroup": "G", "topic": "T", "queueId": 0, "setZeroIfNotFound": "false"}
    assert peer.ask(QUERY_OFFSET, asked).code == 22
    send_back(peer, b"later", 1)
    if not restarts_first:
        end_waiting(running)
    broker = running.engine.broker
    wait_for(lambda: broker.delays.deliver.given_up["no topic"] == 1, "the old retry is given up")
    wait_for(lambda: retries(running) == [b"later"], "the new group's own retry")


def test_a_group_that_is_deleted_without_its_offsets_goes_on_with_its_retries(running):
    peer = with_retries(running)
    assert peer.ask(DELETE_GROUP, {"groupName": "G"}).code == 0
    assert peer.ask(CREATE_GROUP, {}, b'{"groupName":"G"}').code == 0
    end_waiting(running)
    wait_for(lambda: retries(running) == [b"ready", b"waits"], "both")
    assert running.engine.broker.offsets.get("G", "T", 0) == 2


def test_the_retry_topics_of_its_pop_consumers_go_and_those_of_another_group_stay(running):
    """%RETRY%G_T may be that of pop consumers of G and T, or of a group G_T."""
    broker = running.engine.broker
    for topic in ("T", "U", "Other"):
        running.put(topic, b"x")
    for group in ("G", "G_U"):
        broker.groups.find(group)
    for topic in ("T", "U"):
        running.commit("G", topic, 0, 1)
    for name in ("G", "G_T", "G_U", "G_Other"):
        assert broker.topics.create_retry_topic(f"%RETRY%{name}", 1, 6)
    assert running.peer().ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"}).code == 0
    left = {one.topic_name for one in broker.topics.all() if one.topic_name.startswith("%RETRY%")}
    assert left == {"%RETRY%G_U", "%RETRY%G_Other"}


@pytest.mark.parametrize("deleted", ["group", "topic"])
def test_the_retry_topics_of_pop_consumers_go_by_their_own_offsets_alone(running, deleted):
    """%RETRY%G_T_U, which a group G_T reads as well, stays: it may be that of G_T and U."""
    broker = running.engine.broker
    running.put("T", b"x")
    for group in ("G", "G_T"):
        broker.groups.find(group)
    for name in ("%RETRY%G_T", "%RETRY%G_T_U"):
        broker.topics.create_retry_topic(name, 1, 6)
        running.put(name, b"waits")
        running.commit("G", name, 0, 0)
    running.commit("G_T", "%RETRY%G_T_U", 0, 0)
    peer = running.peer()
    assert peer.ask(DELETE_GROUP, {"groupName": "G_T"}).code == 0
    if deleted == "group":
        assert peer.ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"}).code == 0
    else:
        assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    assert [broker.store.has_queues(name) for name in ("%RETRY%G_T", "%RETRY%G_T_U")] == [False, True]


@pytest.mark.parametrize("deleted", ["group", "topic"])
def test_the_retries_of_another_group_that_went_without_its_offsets_stay(running, deleted):
    """It is to go on with them when it is made again."""
    broker = running.engine.broker
    for group in ("G", "G_T"):
        broker.groups.find(group)
    running.put("T", b"x")
    broker.topics.create_retry_topic("%RETRY%G_T", 1, 6)
    running.put("%RETRY%G_T", b"consumed", b"waits")
    running.commit("G", "T", 0, 1)
    running.commit("G_T", "%RETRY%G_T", 0, 1)
    peer = running.peer()
    assert peer.ask(DELETE_GROUP, {"groupName": "G_T"}).code == 0
    if deleted == "group":
        assert peer.ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"}).code == 0
    else:
        assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    assert broker.store.max_offset("%RETRY%G_T", 0) == 2
    assert broker.offsets.get("G_T", "%RETRY%G_T", 0) == 1


@pytest.mark.parametrize("known_by", ["%RETRY%G_T", "T"])
def test_retries_of_pop_consumers_stay_when_a_group_that_never_was_is_deleted(running, known_by):
    """%RETRY%G_T is that of G and T, which G's offset there or of T shows."""
    broker = running.engine.broker
    running.put("T", b"x")
    broker.groups.find("G")
    broker.topics.create_retry_topic("%RETRY%G_T", 1, 6)
    running.commit("G", known_by, 0, 0)
    assert running.peer().ask(DELETE_GROUP, {"groupName": "G_T", "cleanOffset": "true"}).code == 0
    assert broker.topics.get("%RETRY%G_T") is not None


def test_whose_pop_consumers_a_retry_topic_may_serve(running):
    """G+T is how newer versions write it; no topic of that name can be made here."""
    running.put("T", b"x")
    running.engine.broker.groups.find("G")
    running.commit("G", "T", 0, 0)
    names = ("G_T", "G+T", "GT", "G_", "G_T_", "G_U", "_T")
    holds = running.engine.broker.topic_service.holds_pop_retries
    assert [name for name in names if holds(name, existed=False)] == ["G_T", "G+T"]
    assert not any(holds(name, existed=True) for name in names)


def test_retries_of_pop_consumers_stay_when_a_group_of_their_names_is_deleted(running):
    """Apache gives pop consumers an offset of their retry topic as it makes it."""
    broker = running.engine.broker
    for group in ("G", "G_T", "G_U"):
        broker.groups.find(group)
    for topic in ("T", "U", "%RETRY%G_T", "%RETRY%G_U"):
        broker.topics.create_retry_topic(topic, 1, 6)
        running.put(topic, b"waits")
    for group, topic in (("G", "T"), ("G", "U"), ("G", "%RETRY%G_T"), ("G_U", "%RETRY%G_U")):
        running.commit(group, topic, 0, 1)
    peer = running.peer()
    for group, stays in (("G_T", True), ("G_U", False)):
        preview = running.window.group_commands.delete(group, dry_run=True)
        assert [one.code for one in preview.warnings][-1] == ("leftover_topic" if stays else "retries_deleted")
        assert peer.ask(DELETE_GROUP, {"groupName": group, "cleanOffset": "true"}).code == 0
        assert broker.store.has_queues(f"%RETRY%{group}") is stays


def test_dead_letters_stay(running):
    peer = with_retries(running)
    send_back(peer, b"later", -1)
    assert peer.ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"}).code == 0
    assert running.engine.broker.store.max_offset("%DLQ%G", 0) == 1


def test_a_deletion_that_fails_half_way_is_refused_and_finished_by_the_next(running, monkeypatch):
    peer = with_retries(running)
    store = running.engine.broker.store

    def on_a_full_disk(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete_topic", on_a_full_disk)
        answer = peer.ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"})
        assert (answer.code, "try again" in answer.remark) == (1, True)
    assert peer.ask(DELETE_GROUP, {"groupName": "G", "cleanOffset": "true"}).code == 0
    assert not store.has_queues(RETRIES)
    assert running.engine.broker.offsets.get("G", "T", 0) == -1
