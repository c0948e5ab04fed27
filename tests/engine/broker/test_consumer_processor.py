"""14, 15: progress of a group; 41, 42: leases, over the wire."""

import json

import pytest

from appliance.engine.broker import offsets as offsets_module
from appliance.engine.errors import QueueBroken

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def query(desk, topic="T", group="g", queue_id="0", **more):
    return desk.ask(14, {"consumerGroup": group, "topic": topic, "queueId": queue_id, **more})


def commit(desk, offset, topic="T", group="g", queue_id="0", **more):
    ext = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": str(offset)}
    return desk.ask(15, ext, **more)


@pytest.fixture
def desk(open_desk):
    desk = open_desk()
    desk.topics.create_from_default("T", "TBW102", 4)
    desk.groups.find("g")
    return desk


def test_what_was_committed_is_found(desk):
    assert commit(desk, 5).code == 0
    assert query(desk).ext_fields == {"offset": "5"}
    assert commit(desk, 3).code == 0  # backwards is fine
    assert query(desk).ext_fields == {"offset": "3"}
    assert query(desk, setZeroIfNotFound="false").ext_fields == {"offset": "3"}


def test_progress_that_is_not_kept_is_not_acknowledged(desk, monkeypatch):
    monkeypatch.setattr(offsets_module, "MOST_ENTRIES", 1)
    desk.groups.find("h")
    assert commit(desk, 5).code == 0
    answer = commit(desk, 5, group="h")
    assert (answer.code, "is not kept" in answer.remark) == (1, True)
    assert commit(desk, 6).code == 0
    assert query(desk).ext_fields == {"offset": "6"}


def test_a_young_queue_is_read_from_its_beginning(desk):
    desk.store.hot.add(("T", 0))
    answer = query(desk)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})


def test_nothing_is_found_for_an_empty_an_unknown_and_an_old_queue(desk):
    for topic, queue_id in (("T", "0"), ("T", "1"), ("T", "2"), ("NoSuchTopic", "0"), ("T", "-1")):
        answer = query(desk, topic, queue_id=queue_id)
        assert (answer.code, answer.remark) == (22, NOT_FOUND)


def test_who_wants_no_zero_gets_none(desk):
    desk.store.hot.add(("T", 0))
    answer = query(desk, setZeroIfNotFound="false")
    assert (answer.code, answer.remark) == (22, "Not found, do not set to zero, maybe this group boot first")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), QueueBroken("it is being built anew")])
def test_what_cannot_be_said_now_gets_no_answer_but_a_closed_connection(desk, error):
    """An error would let a 4.9 consumer skip to the end of the queue."""
    desk.store.error = error
    with pytest.raises(AssertionError, match="exactly one answer"):
        query(desk)
    assert desk.peer.answers == []
    assert desk.peer.closed


def test_a_commit_needs_a_group_and_a_topic(desk):
    answer = commit(desk, 1, group="NoSuchGroup")
    assert (answer.code, answer.remark) == (26, "Group NoSuchGroup not exist!")
    answer = commit(desk, 1, topic="NoSuchTopic")
    assert (answer.code, answer.remark) == (17, "Topic NoSuchTopic not exist!")
    assert desk.groups.get("NoSuchGroup") is None
    assert desk.offsets.all() == []


@pytest.mark.parametrize(("offset", "queue_id"), [(-1, "0"), (5, "-1"), (5, "65536")])
def test_numbers_no_queue_has_are_refused(desk, offset, queue_id):
    commit(desk, 9)
    assert commit(desk, offset, queue_id=queue_id).code == 29
    assert query(desk).ext_fields == {"offset": "9"}


@pytest.mark.parametrize("missing", ["consumerGroup", "topic", "queueId", "commitOffset"])
def test_a_field_that_is_missing_or_no_number_is_refused(desk, missing):
    ext = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
    assert desk.ask(15, {name: value for name, value in ext.items() if name != missing}).code == 1
    assert desk.ask(15, {**ext, "commitOffset": "1.5"}).code == 1
    assert desk.ask(15, {**ext, "queueId": "x" * 100_000}).code == 1
    if missing != "commitOffset":
        assert desk.ask(14, {name: value for name, value in ext.items() if name != missing}).code == 1


def test_one_way_commits_count(desk):
    commit(desk, 5, flag=2)
    commit(desk, 6, group="NoSuchGroup", flag=2)
    assert query(desk).ext_fields == {"offset": "5"}


# --- leases


def queues(*ids):
    return [{"brokerName": "broker-a", "queueId": number, "topic": "T"} for number in ids]


def lock(desk, client_id, ids, code=41, **more):
    return desk.ask(code, body={"clientId": client_id, "consumerGroup": "g", "mqSet": queues(*ids), **more})


def held(answer):
    assert answer.code == 0
    return sorted(queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"])


def test_queues_are_held_by_one_and_given_back(desk):
    answer = lock(desk, "c1", [0, 1])
    assert held(answer) == [0, 1]
    assert json.loads(answer.body)["lockOKMQSet"][0].keys() == {"brokerName", "queueId", "topic"}
    assert held(lock(desk, "c2", [1, 2], onlyThisBroker=True)) == [2]
    assert held(lock(desk, "c2", [])) == []
    assert lock(desk, "c1", [0, 1], code=42).code == 0
    assert held(lock(desk, "c2", [0, 1])) == [0, 1]


@pytest.mark.parametrize("code", [41, 42])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"not json",
        b'{"clientId":"c","consumerGroup":"a b","mqSet":[]}',
        b'{"clientId":"","consumerGroup":"g","mqSet":[]}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[5]}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":{"0":1}}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"queueId":"x"}]}',
    ],
)
def test_a_body_that_is_none_is_refused(desk, code, body):
    assert desk.ask(code, body=body).code == 1


def test_null_sets_are_empty_ones(desk):
    assert held(desk.ask(41, body={"clientId": "c", "consumerGroup": "g", "mqSet": None})) == []
