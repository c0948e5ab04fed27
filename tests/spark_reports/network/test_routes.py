"""Name servers and brokers that come and go: which one is asked, and the error when none answers."""

from __future__ import annotations

import contextlib
import json

import pytest

from spark_reports.source.network.access import Access
from spark_reports.source.network.errors import Refused, Unreachable
from spark_reports.source.network.routes import NameServers, Queue
from tests.spark_reports.network.reading import offsets, read, reader
from tests.spark_reports.network.servers import OneQueue, Scripted, answer, one_queue
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine, start_engine
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for


@pytest.fixture
def routes_of():
    """`routes_of(body)`: a name server that answers every request with this body."""
    with contextlib.ExitStack() as running:

        def made(body: str) -> NameServers:
            server = running.enter_context(Scripted(lambda asked: answer(asked, body=body.encode())))
            return NameServers(Access((server.address,), answer_s=60))

        yield made


def wait_routed(namesrv, brokers=1):
    names = NameServers(Access((namesrv,)))
    wait_for(
        lambda: len(names.routes(["Orders"], must_be_there=False).brokers) == brokers, "the name server knows the topic"
    )


def test_all_queues_of_all_brokers(routes_of):
    """The route as Apache writes it for old clients: with numbers as bare keys."""
    body = (
        '{"brokerDatas":[{"brokerAddrs":{1:"10.0.0.2:10911",0:"10.0.0.1:10911"},"brokerName":"b"},'
        '{"brokerAddrs":{"2":"10.0.0.4:10911"},"brokerName":"a"}],"filterServerTable":{},"queueDatas":['
        '{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":8,"topicSysFlag":0},'
        '{"brokerName":"a","perm":4,"readQueueNums":1,"writeQueueNums":1},'
        '{"brokerName":"gone","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
    )
    route = routes_of(body).routes(["Orders"])
    assert route.queues == (Queue("a", "Orders", 0), Queue("b", "Orders", 0), Queue("b", "Orders", 1))
    assert route.brokers == {"a": ("10.0.0.4:10911",), "b": ("10.0.0.1:10911", "10.0.0.2:10911")}
    assert route.masters == {"10.0.0.1:10911"}


def test_a_topic_that_must_not_be_read(routes_of):
    body = {
        "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "10.0.0.1:10911"}}],
        "queueDatas": [{"brokerName": "a", "perm": 2, "readQueueNums": 4, "writeQueueNums": 4}],
    }
    names = routes_of(json.dumps(body))
    with pytest.raises(Refused, match="topic Orders must not be read"):
        names.routes(["Orders"])
    assert names.routes(["Orders"], must_be_there=False).queues == ()


def test_the_first_name_server_that_answers_counts():
    away = f"127.0.0.1:{reserve_port()}"
    with one_queue() as (_, server):
        assert read(f"{away};{server.address}", topic="Orders").num_rows == 100
        # If a new name server has no routes yet, the topic is looked up at the other.
        with Scripted(lambda asked: answer(asked, 17)) as empty:
            assert read(f"{empty.address},{server.address}", topic="Orders").num_rows == 100


def test_no_name_server_answers():
    first, second = f"127.0.0.1:{reserve_port()}", f"127.0.0.1:{reserve_port()}"
    with pytest.raises(Unreachable) as failed:
        reader(f"{first};{second}", topic="Orders").partitions()
    assert first in str(failed.value)
    assert second in str(failed.value)


def test_the_list_of_topics_may_be_switched_off():
    with (
        Scripted(lambda asked: answer(asked, 1, remark="disable")) as server,
        pytest.raises(Refused, match="does not give the list of topics: code 1, disable"),
    ):
        reader(server.address).partitions()


def test_an_advertised_address_that_leads_nowhere_is_told_with_who_told_it():
    script = OneQueue()
    with Scripted(script) as server:
        script.addresses = {"0": f"127.0.0.1:{reserve_port()}"}
        made = reader(server.address, topic="Orders")
        object.__setattr__(made._task.access, "patience_s", 0.0)
        with pytest.raises(
            Unreachable, match=rf"{script.addresses['0']} cannot .*broker-a, as {server.address} names it"
        ):
            made.partitions()


def test_a_slave_is_read_while_the_master_is_away():
    with one_queue() as (script, server):
        script.addresses = {"0": f"127.0.0.1:{reserve_port()}", "1": server.address}
        table = read(server.address, topic="Orders")
        assert table["queue_offset"].to_pylist() == list(range(100))


def test_a_slave_is_read_on_when_the_master_goes_in_the_middle():
    with one_queue(end=500, most=8) as (script, slave), Scripted(script) as master:
        script.addresses = {"0": master.address, "1": slave.address}
        made = reader(slave.address, topic="Orders")
        (partition,) = made.partitions()
        asked_before = len(slave.asked)
        script.spoil = lambda asked, said: None if asked in master.asked and len(master.asked) > 20 else said
        found = [offset for batch in made.read(partition) for offset in batch["queue_offset"].to_pylist()]
        assert found == list(range(500))
        assert len(slave.asked) > asked_before + 20


def test_a_slave_that_is_behind_gives_what_it_has_and_the_master_the_rest():
    with one_queue(end=100) as (whole, master), one_queue(end=60) as (behind, slave):
        both = {"0": master.address, "1": slave.address}
        whole.addresses = behind.addresses = both
        made = reader(master.address, topic="Orders")
        (partition,) = made.partitions()
        # The master does not answer the first pull; it answers the one that follows the slave's refusal.
        pulls = []
        whole.spoil = lambda asked, said: None if not pulls and not pulls.append(1) else said
        found = [offset for batch in made.read(partition) for offset in batch["queue_offset"].to_pylist()]
        assert found == list(range(100))
        assert any(command.code == 11 for command in slave.asked)


def test_two_brokers_with_the_same_topic_each_with_offsets_of_its_own(engine, request):
    """Both are RocketBox, registered with one name server."""
    namesrv = engine.engine.namesrv_address
    other = start_engine(
        shared_directory(request, "other"), broker={"broker_name": "broker-b", "namesrv_addrs": (namesrv,)}
    )
    second = RunningEngine.of(other)
    try:
        for number in range(10):
            engine.put("Orders", b"a%d" % number)
            second.put("Orders", b"b%d" % number, b"B%d" % number)
        wait_routed(namesrv, 2)
        table = read(namesrv, topic="Orders", columns="body")
        bodies = table["body"].to_pylist()
        assert bodies[:10] == [b"a%d" % number for number in range(10)]
        assert bodies[10:] == [b"%c%d" % (sign, number) for number in range(10) for sign in b"bB"]
        assert offsets(table)["Orders", 0] == [*range(10), *range(20)]
        assert table["broker"].to_pylist() == ["broker-a"] * 10 + ["broker-b"] * 20
        names = {
            tuple(row.values()) for row in table.select(["broker", "topic", "queue_id", "queue_offset"]).to_pylist()
        }
        assert len(names) == 30
    finally:
        second.hang_up()
        other.stop()


@pytest.fixture
def two_topics(engine):
    """Name server of a broker with one message of each of Orders and Refunds."""
    for topic in ("Orders", "Refunds"):
        engine.put(topic, topic.encode())
    namesrv = engine.engine.namesrv_address
    names = NameServers(Access((namesrv,)))
    wait_for(lambda: {"Orders", "Refunds"} <= set(names.topics()), "the name server knows both topics")
    return namesrv


@pytest.mark.parametrize(
    ("pattern", "found"), [("Or.*", ["Orders"]), ("Order", []), ("Orders|R.*", ["Orders", "Refunds"]), (".*X{9}", [])]
)
def test_a_pattern_is_of_whole_names_and_of_users_topics(two_topics, pattern, found):
    assert sorted(read(two_topics, topicPattern=pattern)["topic"].to_pylist()) == found


def test_topics_that_are_not_there_are_an_error_unless_they_may_be_missing(two_topics):
    for topics in ("Nowhere", "Orders,Nowhere"):
        with pytest.raises(Refused, match=f"{two_topics} knows no topic Nowhere. With the option failOnMissing"):
            read(two_topics, topic=topics)
        rows = read(two_topics, topic=topics, failOnMissingTopic="false")
        assert rows["topic"].to_pylist() == ["Orders"] * ("Orders" in topics)
    with pytest.raises(Unreachable):
        read(f"127.0.0.1:{reserve_port()}", topic="Orders", failOnMissingTopic="false")


def test_host_names(engine):
    engine.put("Orders", b"one")
    wait_routed(engine.engine.namesrv_address)
    port = engine.engine.namesrv_address.rpartition(":")[2]
    assert read(f"localhost:{port}", topic="Orders").num_rows == 1


def test_a_broker_that_is_restarted_between_plan_and_read_is_read_where_it_is_then(tmp_path):
    engine = RunningEngine(tmp_path)
    try:
        engine.put("Orders", *[b"x"] * 50)
        wait_routed(engine.engine.namesrv_address)
        made = reader(engine.engine.namesrv_address, topic="Orders")
        partitions = made.partitions()
        before = engine.engine.broker_address
        engine.restart()
        assert engine.engine.broker_address != before
        wait_routed(engine.engine.namesrv_address)
        # The name server has another address, too: the new reader reads the old partitions through it.
        moved = reader(engine.engine.namesrv_address, topic="Orders")
        found = [
            offset for part in partitions for batch in moved.read(part) for offset in batch["queue_offset"].to_pylist()
        ]
        assert found == list(range(50))
    finally:
        engine.stop()
