"""5.3.3's recorded answers to the requests of this part, asked again: codes, remarks, fields and bodies are the same.

Left out of the comparison is what the golden README names, and three accidents of Java that are not repeated: exception
texts as remarks, "not set any response code" beside a success, and 23 for SQL that does not compile (there is no
compiler yet, and the remark says so).
"""

import json

import pytest

from appliance.engine.protocol.command import decode_frame
from tests.support.fakes import FakeConnection
from tests.support.golden import GOLDEN, frames

WIRE = GOLDEN / "wire"
TABLE_CODES = {14, 15, 17, 18, 34, 35, 38, 41, 42, 46, 200, 201, 207, 215, 225, 351, 352}


def conversation(name, version="5.3.3"):
    """Return (request line, request, answer or None) of every request to the broker, in order."""
    lines = [(line, decode_frame(frame)) for line, frame in frames(WIRE / version / f"{name}.jsonl.gz")]
    answers = {}
    for line, command in lines:
        if line["from"] == "broker" and command.flag & 1:
            answers.setdefault((line["conn"], command.opaque), []).append(command)
    for line, command in lines:
        if line["to"] == "broker" and not command.flag & 1:
            found = answers.get((line["conn"], command.opaque))
            yield line, command, found.pop(0) if found else None


def is_java_accident(remark):
    return remark is not None and (
        remark.startswith(("java.", "com.alibaba.", "org.apache.")) or remark == "not set any response code"
    )


def without_times(value):
    """Return a body without the values that differ between two runs."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if not key.endswith("ataVersion")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_the_hand_made_requests_are_answered_alike(desk):
    desk.topics.create_from_default("ProducerTopic", "TBW102", 4)
    desk.store.hot.add(("ProducerTopic", 0))
    asked = 0
    for line, request, theirs in conversation("errors"):
        if request.code not in TABLE_CODES:
            continue
        ours = desk.ask(request.code, request.ext_fields, request.body, flag=request.flag)
        where = (line["t"], request)
        asked += 1
        assert ours.code == theirs.code, where
        assert is_java_accident(theirs.remark) or ours.remark == theirs.remark, where
        assert ours.ext_fields == theirs.ext_fields, where
        if request.code in (21, 201):
            compare_tables(json.loads(ours.body), json.loads(theirs.body))
        elif theirs.body:
            assert without_times(json.loads(ours.body)) == without_times(json.loads(theirs.body)), where
        else:
            assert not ours.body, where
    assert asked > 30


def compare_tables(ours, theirs):
    """Compare the fields, and the entries that both have: each broker has its own history."""
    assert ours.keys() == theirs.keys()
    (field,) = (key for key in theirs if key.endswith("Table") and key != "forbiddenTable")
    common = ours[field].keys() & theirs[field].keys()
    assert len(common) >= 8
    for name in common:
        assert ours[field][name] == theirs[field][name]
        assert list(ours[field][name]) == list(theirs[field][name])


@pytest.mark.parametrize(
    ("name", "code"), [("mqadmin-updateSubGroup", 200), ("mqadmin-deleteSubGroup", 207), ("mqadmin-deleteTopic", 215)]
)
def test_runs_of_mqadmin_are_answered_alike(desk, name, code):
    (asked,) = ((request, theirs) for _, request, theirs in conversation(name) if request.code == code)
    request, theirs = asked
    ours = desk.ask(code, request.ext_fields, request.body)
    assert (ours.code, ours.remark, ours.body) == (theirs.code, theirs.remark, theirs.body)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("mqadmin-updateTopic", "MadeByAdmin"),
        ("mqadmin-updateTopic-broker", "MadeByAdmin"),
        ("mqadmin-updateTopic-order", "OrderedByAdmin"),
        ("mqadmin-updateTopic-attributes", "FifoByAdmin"),
        ("mqadmin-updateTopicPerm", "MadeByAdmin"),
    ],
)
def test_topics_of_mqadmin_are_made_and_registered_before_the_answer(desk, name, topic):
    for _, request, theirs in conversation(name):
        if request.code == 17:
            ours = desk.ask(17, request.ext_fields, request.body)
            assert ours.code == theirs.code == 0
            config = desk.topics.get(topic)
            assert config.perm == int(request.ext_fields["perm"])
            assert config.order == (request.ext_fields["order"] == "true")
            assert desk.name_servers.registered == [topic]
            return
    raise AssertionError("no 17 in the recording")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        *(("5.3.3", name) for name in ("push-concurrent", "push-orderly", "push-broadcasting", "pull-lite")),
        # 4.9.8 notifies broadcasting groups, too.
        *(("4.9.8", name) for name in ("push-concurrent", "push-concurrent-binary", "push-orderly", "pull-lite")),
    ],
)
def test_members_of_a_group_are_told_what_they_were_told(desk, version, name):
    """Repeats the recorded clients' heartbeats, goodbyes and questions, on as many connections.

    Each connection gets as many notices of each group as recorded, and every question the same list of members.
    """
    peers = {}
    told = {}
    recorded = {}
    questions = 0
    for line, frame in frames(WIRE / version / f"{name}.jsonl.gz"):
        command = decode_frame(frame)
        if line["from"] == "broker" and command.code == 40 and not command.flag & 1:
            key = (line["conn"], command.ext_fields["consumerGroup"])
            recorded[key] = recorded.get(key, 0) + 1
    for line, request, theirs in conversation(name, version):
        if request.code not in (34, 35, 38):
            continue
        conn = line["conn"]
        peer = peers.setdefault(conn, FakeConnection(f"127.0.0.1:{conn}"))
        ours = desk.ask(request.code, request.ext_fields, request.body, peer=peer)
        assert ours.code == theirs.code, line["t"]
        assert version == "4.9.8" or ours.ext_fields == theirs.ext_fields, line["t"]
        if request.code == 38 and theirs.code == 0:
            questions += 1
            ids = json.loads(theirs.body)["consumerIdList"]
            assert sorted(json.loads(ours.body)["consumerIdList"]) == sorted(ids)
        for number, other in peers.items():
            for group in other.noticed():
                told[number, group] = told.get((number, group), 0) + 1
    assert told == recorded
    is_clustering = name != "push-broadcasting"
    assert bool(told) == is_clustering
    assert bool(questions) == is_clustering


def test_leases_are_granted_as_recorded(desk):
    granted = 0
    for _, request, theirs in conversation("push-orderly"):
        if request.code not in (41, 42):
            continue
        asked = json.loads(request.body)
        desk.groups.find(asked["consumerGroup"])
        for queue in asked["mqSet"]:
            desk.topics.create_retry_topic(queue["topic"], 16, 6)  # whatever its name
        ours = desk.ask(request.code, request.ext_fields, request.body, flag=request.flag)
        if request.flag & 2:
            continue
        assert ours.code == theirs.code == 0
        if request.code == 41:
            assert in_order(ours) == in_order(theirs)
            granted += len(in_order(ours))
    assert granted


def in_order(answer):
    """Return the queues of an answer to 41, sorted."""
    queues = json.loads(answer.body)["lockOKMQSet"]
    return sorted(queues, key=lambda queue: (queue["topic"], queue["queueId"]))
