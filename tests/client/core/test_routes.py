"""Routes from name servers, recorded and damaged."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.client import allocation
from appliance.client.core.rebalance import difference, read_connections, read_members, share
from appliance.client.core.records import read_messages
from appliance.client.core.requests import Subscription
from appliance.client.core.routes import read_route
from appliance.client.errors import BadAnswer
from appliance.client.message import MessageQueue
from appliance.engine.protocol.command import decode_frame
from tests.support.client_steps import route
from tests.support.effort import effort
from tests.support.golden import GOLDEN, VERSIONS, frames


def bodies(version, begin, name="pull-lite"):
    for _, frame in frames(GOLDEN / "wire" / version / f"{name}.jsonl.gz"):
        body = decode_frame(frame).body
        if body.startswith(begin):
            yield body


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_route_has_its_queues(version):
    found = read_route(next(bodies(version, b'{"brokerDatas"')))
    queues = found.publish_queues("T")
    assert queues == found.read_queues("T")
    assert queues[0] == MessageQueue("T", "broker-a", 0)
    assert list(found.addresses()) == ["127.0.0.1:20911"]


def test_the_order_of_queues_is_javas():
    found = read_route(route("b", "a", queues=2))
    assert [str(queue) for queue in found.publish_queues("T")] == ["T/a/0", "T/a/1", "T/b/0", "T/b/1"]
    ordered = json.loads(route("b", "a")) | {"orderTopicConf": "b:1;a:2"}
    assert [str(queue) for queue in read_route(json.dumps(ordered).encode()).publish_queues("T")] == [
        "T/b/0", "T/a/0", "T/a/1",
    ]  # fmt: skip


def test_permissions_and_a_missing_master_take_queues_away():
    assert not read_route(route("a", perm=4)).publish_queues("T")
    assert not read_route(route("a", perm=2)).read_queues("T")
    without_master = route("a").replace(b'{"0":', b'{"1":').replace(b'{"0": ', b'{"1": ')
    found = read_route(without_master)
    assert not found.publish_queues("T")
    assert len(found.read_queues("T")) == 4


def test_a_topic_to_be_made_has_four_queues_on_each_broker():
    assert len(read_route(route("a", "b", queues=8)).borrowed().publish_queues("T")) == 8
    assert len(read_route(route("a", queues=2)).borrowed().publish_queues("T")) == 2


@pytest.mark.parametrize(
    ("queues", "members", "shares"),
    [(7, 3, [[0, 1, 2], [3, 4], [5, 6]]), (2, 3, [[0], [1], []]), (4, 1, [[0, 1, 2, 3]])],
)
def test_members_share_queues_as_javas_do(queues, members, shares):
    all_queues = [MessageQueue("T", "b", number) for number in range(queues)]
    ids = [f"c{number}" for number in range(members)]
    assert [
        [one.queue_id for one in share(allocation.average, all_queues, reversed(ids), own)] for own in ids
    ] == shares
    assert not share(allocation.average, all_queues, ids, "no member")


def test_members_are_sorted_as_java_sorts_text():
    """By UTF-16 units: a sign beyond the basic plane comes before U+FFFF."""
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    assert share(allocation.average, queues, ["\uff41", "\U0001f600"], "\U0001f600") == queues[:1]


CONNECTIONS = b"""{"connectionSet":[{"clientAddr":"10.0.0.5:53211","clientId":"10.0.0.5@1#2","language":"JAVA",
"version":453}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",
"messageModel":"CLUSTERING","subscriptionTable":{"TopicA":{"classFilterMode":false,"codeSet":[],"expressionType":"TAG",
"subString":"b || a","subVersion":1700000000000,"tagsSet":["a","b"],"topic":"TopicA"},"TopicB":{"expressionType":
"SQL92","subString":"a > 1","topic":"TopicB"},"TopicC":{"expressionType":null,"subString":""}}}"""


def test_what_a_group_subscribes_to_is_compared_by_what_it_means():
    ids, theirs = read_connections(CONNECTIONS)
    assert ids == ["10.0.0.5@1#2"]
    same = {
        "TopicA": Subscription("TopicA", "a||b"),
        "TopicB": Subscription("TopicB", sql="a > 1"),
        "TopicC": Subscription("TopicC"),
    }
    assert not difference(same, theirs)
    assert difference({**same, "TopicB": Subscription("TopicB", "a > 1")}, theirs).startswith("TopicB with")
    many = {f"T{number}": Subscription(f"T{number}", "x" * 1000) for number in range(5000)}
    assert "and 4995 more" in difference(many, theirs)
    assert len(difference(many, theirs)) < 2000


def damaged(data, body):
    found = bytearray(body)
    for _ in range(data.draw(st.integers(1, 8))):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(st.integers(0, 255))
    return bytes(found[: data.draw(st.integers(0, len(found)))])


@settings(max_examples=effort(60, 2000, 20_000), deadline=None)
@given(st.data())
def test_damaged_answers_are_refused_or_read(data):
    queue = MessageQueue("LiteTopic", "broker-a", 0)
    record = next(body for body in bodies("5.3.3", b"\x00\x00\x00") if b"LiteTopic" in body)
    for body, read in (
        (route("a", "b"), read_route),
        (b'{"consumerIdList":["10.0.0.5@1#2","10.0.0.6@1#2"]}', read_members),
        (CONNECTIONS, read_connections),
        (record, lambda body: read_messages(body, queue)),
    ):
        try:
            read(damaged(data, body))
        except BadAnswer:
            pass
