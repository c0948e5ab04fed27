"""Topics, groups and messages as programs administer them, by threads and by asyncio; and by a scripted cluster of
brokers that differ."""

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from appliance.client import AdminError, BadAnswer, BrokerAway, Client, InvalidOption, NoRoute, RequestRefused, aio
from appliance.client.core.administration import Administration, QueueLag, read_brokers, read_groups, read_lags
from appliance.client.core.directory import Directory
from appliance.client.core.steps import CallFailed
from appliance.client.message import MessageQueue
from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from tests.support.client_steps import Driver, SetClock, answer, route
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0
ROOT = Path(__file__).resolve().parents[2]


def by_threads(box, **options):
    """Return a function that calls a method of a client's administrator."""

    def call(name, *arguments, **named):
        with box.client(timeout=PATIENT, **options) as client:
            return getattr(client.admin(), name)(*arguments, **named)

    return call


def by_asyncio(box, **options):
    async def work(name, arguments, named):
        async with aio.Client(box.namesrv, timeout=PATIENT, **options) as client:
            return await getattr(client.admin(), name)(*arguments, **named)

    return lambda name, *arguments, **named: asyncio.run(work(name, arguments, named))


@pytest.fixture(params=[by_threads, by_asyncio], ids=["threads", "asyncio"])
def kind(request):
    return request.param


@pytest.fixture
def admin(kind, rocketbox):
    return kind(rocketbox)


def test_a_topic_is_made_once_and_deleted(admin, rocketbox, rocketmq_topic):
    topic = f"{rocketmq_topic}-made"
    (broker,) = admin("brokers")
    assert broker.master == rocketbox.broker
    assert admin("create_topic", topic, queues=3)
    with rocketbox.client(timeout=PATIENT) as client:
        queues = wait_for(lambda: client.reader().queues(topic), "its route", not_yet=(NoRoute,))
        assert len(queues) == 3
        client.producer().send(topic, "x")
    assert not admin("create_topic", topic, queues=5)  # it stays as it is
    with rocketbox.client(timeout=PATIENT) as client:
        assert len(client.reader().queues(topic)) == 3
    assert topic in admin("topics")
    assert not {broker.name, broker.cluster, "TBW102", "SCHEDULE_TOPIC_XXXX"} & set(admin("topics"))
    assert {topic, "TBW102"} <= set(admin("topics", internal=True))
    admin("delete_topic", topic)
    wait_for(lambda: topic not in admin("topics"), "the name server has been told")
    with pytest.raises(NoRoute, match="no topic"):
        admin("delete_topic", topic)
    with pytest.raises(AdminError, match="nowhere"):
        admin("create_topic", topic, cluster="nowhere")


def test_a_group_is_measured_and_moved(admin, client, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0").queue
    produce(rocketmq_topic, "1", queue=place)
    with client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic) as consumer:
        wait_for(lambda: len(consumer.poll(1.0)) == 2, "both messages")
        consumer.commit()
    produce(rocketmq_topic, "2", queue=place)
    lag = admin("lag", rocketmq_group)
    (behind,) = [one for one in lag.queues if one.queue == place]
    assert (behind.committed, behind.end, behind.behind, lag.total) == (2, 3, 1, 1)
    assert behind.handled_until == client.reader().pull(place, 1).messages[0].stored_at
    assert rocketmq_group in admin("groups")
    assert "TOOLS_CONSUMER" not in admin("groups")

    assert admin("reset", rocketmq_group, rocketmq_topic, "first")[place] == 0
    with client.pull_consumer(rocketmq_group).subscribe(rocketmq_topic) as consumer:
        wait_for(lambda: len(consumer.poll(1.0)) == 3, "all messages again")
        consumer.commit()
    assert admin("lag", rocketmq_group).total == 0
    before = client.reader().pull(place, 0).messages[0].stored_at - timedelta(hours=1)
    assert admin("reset", rocketmq_group, rocketmq_topic, before)[place] == 0
    assert admin("reset", rocketmq_group, rocketmq_topic, "last")[place] == 3
    with pytest.raises(AdminError, match="No broker knows the group"):
        admin("lag", "nobody")
    with pytest.raises(RequestRefused, match="code 26"):
        admin("reset", "nobody", rocketmq_topic, "first")
    with pytest.raises(InvalidOption, match="to is"):
        admin("reset", rocketmq_group, rocketmq_topic, "begin")


def test_a_message_is_found_by_ids_and_key(admin, produce, rocketmq_topic):
    produce(rocketmq_topic, "old", keys=["order-17", "x"])
    sent = produce(rocketmq_topic, "new", keys=["order-17"])
    produce(rocketmq_topic, "other", keys=["order-171"])
    found = wait_for(lambda: len(one := admin("by_key", rocketmq_topic, "order-17")) > 1 and one, "the index")
    assert [one.text for one in found] == ["old", "new"]
    assert [one.text for one in admin("by_key", rocketmq_topic, "order-17", most=1)] == ["new"]
    assert admin("by_key", rocketmq_topic, "order-17", until=found[0].stored_at - timedelta(hours=1)) == []
    assert admin("by_key", rocketmq_topic, "nothing") == []
    for one in (admin("message", sent.offset_id), admin("message", sent.message_id, rocketmq_topic)):
        assert (one.text, one.queue, one.queue_offset) == ("new", sent.queue, sent.queue_offset)
    with pytest.raises(AdminError, match="only found with topic="):
        admin("message", sent.message_id)
    with pytest.raises(AdminError, match="No broker has"):
        admin("message", "nothing", rocketmq_topic)


def test_a_namespace_has_its_own(kind, admin, rocketbox, rocketmq_topic):
    inside = kind(rocketbox, namespace="shop")
    assert inside("create_topic", rocketmq_topic)
    wait_for(lambda: inside("topics") == [rocketmq_topic], "the name server has been told")
    assert f"shop%{rocketmq_topic}" in admin("topics")
    inside("delete_topic", rocketmq_topic)
    wait_for(lambda: inside("topics") == [], "the name server has been told of that")


def section(title):
    page = (ROOT / "docs/python.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return found


@pytest.mark.parametrize("title", ["Going elsewhere", "Administration"])
def test_the_examples_of_the_page_run(title, rocketbox, client, produce, rocketmq_topic, rocketmq_group, capsys):
    sent = produce(rocketmq_topic, "the order", keys=["order-17"])
    if title == "Administration":
        with client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic) as consumer:
            wait_for(lambda: consumer.poll(1.0), "the message")
    example = section(title)
    for name, real in {
        "127.0.0.1:9876": rocketbox.namesrv,
        '"orders"': f'"{rocketmq_topic}"',
        '"billing"': f'"{rocketmq_group}"',
        '"audit"': f'"{rocketmq_group}-a"',
        "audit.poll()": f"audit.poll({PATIENT})",
    }.items():
        example = example.replace(name, real)
    wait_for(lambda: client.admin().by_key(rocketmq_topic, "order-17"), "the index")
    exec(compile(example, "docs/python.md", "exec"), {"Client": Client, "client": client})
    assert capsys.readouterr().out.endswith("the order\n")
    if title == "Administration":
        assert client.reader().committed(sent.queue, rocketmq_group) == 0


@pytest.fixture
def client(rocketbox):
    with rocketbox.client(timeout=PATIENT) as made:
        yield made


# --- brokers that differ

BROKERS = {
    "brokerAddrTable": {
        name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{name}:10911", "1": f"{name}2:10911"}}
        for name in "ab"
    },
    "clusterAddrTable": {"c": ["a", "b"]},
}


class Cluster:
    """Two brokers. answers: (address, code) or code -> answer, for what else they are asked."""

    def __init__(self, topic_at="ab", **options):
        self.answers = {
            RequestCode.GET_BROKER_CLUSTER_INFO: answer(body=json.dumps(BROKERS).encode()),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: answer(body=route(*topic_at, queues=2)),
        }
        clock = SetClock()
        self.driver = Driver(self.ask, clock)
        self.core = Administration(Directory(["ns:9876"], clock, 3.0), clock, 3.0)

    def ask(self, call):
        found = self.answers.get((call.address, call.request.code)) or self.answers.get(call.request.code)
        return found if found is not None else answer()

    def asked(self, code):
        return [call for call in self.driver.calls if call.request.code == code]


def test_a_topic_is_made_where_it_is_missing():
    cluster = Cluster(topic_at="a")
    assert cluster.driver.run(cluster.core.create_topic("T", 4, None))
    (call,) = cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert call.address == "b:10911"
    assert (call.request.ext_fields["readQueueNums"], call.request.ext_fields["perm"]) == ("4", "6")


def test_what_is_done_at_some_brokers_only_is_said():
    cluster = Cluster()
    cluster.answers["b:10911", RequestCode.DELETE_TOPIC_IN_BROKER] = CallFailed("connect", "refused")
    with pytest.raises(BrokerAway) as raised:
        cluster.driver.run(cluster.core.delete_topic("T"))
    assert raised.value.__notes__ == ["It is done at a."]
    assert not cluster.asked(RequestCode.DELETE_TOPIC_IN_NAMESRV)  # the route says where the rest is


def test_offsets_without_a_member_are_written_to_a_broker_of_4_9():
    cluster = Cluster(topic_at="a")
    cluster.answers |= {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: answer(ResponseCode.CONSUMER_NOT_ONLINE),
        RequestCode.GET_MAX_OFFSET: answer(offset=7),
    }
    moved = cluster.driver.run(cluster.core.reset("g", "T", "max"))
    assert moved == {MessageQueue("T", "a", 0): 7, MessageQueue("T", "a", 1): 7}
    commits = cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [(one.request.ext_fields["queueId"], one.request.ext_fields["commitOffset"]) for one in commits] == [
        ("0", "7"),
        ("1", "7"),
    ]


def test_an_id_that_names_no_broker_is_asked_nowhere():
    cluster = Cluster()
    cluster.answers[RequestCode.QUERY_MESSAGE] = answer(ResponseCode.QUERY_NOT_FOUND)
    with pytest.raises(AdminError):
        cluster.driver.run(cluster.core.message("0A00000100002A9F0000000000000000", "T"))
    assert {call.address for call in cluster.driver.calls} == {"ns:9876", "a:10911", "b:10911"}
    assert not cluster.asked(RequestCode.VIEW_MESSAGE_BY_ID)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"offsetTable":{"x":{}}}',
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{}}}',
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}',
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"brokerOffset":"x","consumerOffset":1}}}',
        b'{"brokerAddrTable":[]}',
        b'{"brokerAddrTable":{"a":{"brokerName":"a","cluster":"c","brokerAddrs":{"x":"a:1"}}}}',
        b'{"subscriptionGroupTable":7}',
    ],
)
def test_a_strange_answer_is_an_error_of_the_clients(body):
    for read in (read_brokers, read_groups, read_lags):
        try:
            assert read(body) in ([], {})
        except BadAnswer:
            continue


def test_a_group_that_has_not_begun_is_behind_by_nothing_it_cannot_read():
    body = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"brokerOffset":5,"consumerOffset":-1}}}'
    assert read_lags(body) == [QueueLag(MessageQueue("t", "a", 0), 0, 5)]


def test_messages_are_found_whatever_their_store_times_say():
    cluster = Cluster(topic_at="a")
    late, early = (stored(offset, at) for offset, at in ((1, 2**62), (0, 1000)))
    cluster.answers[RequestCode.QUERY_MESSAGE] = answer(body=late + early)
    found = cluster.driver.run(cluster.core.by_key("T", "k", 5, 0, 2**63 - 1))
    assert [one.queue_offset for one in found] == [0, 1]


def stored(offset, at_ms):
    host = ("127.0.0.1", 10911)
    fields = Record(0, MAGIC_V1, 0, 0, 0, offset, 0, 0, 1, host, at_ms, host, 0, 0, b"x", "T", "KEYS\x01k\x02")
    return encode_record(fields, encode_host(*host), encode_host(*host))
