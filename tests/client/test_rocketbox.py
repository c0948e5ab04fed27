"""The client against a real broker: sent messages are consumed, over kills, pauses and closes."""

import itertools
import json
import os
import signal
import threading
import traceback
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from appliance.client import (
    BrokerAway,
    Client,
    Closed,
    CloseReport,
    ForkedError,
    InvalidMessage,
    InvalidOption,
    Message,
    NoNameServer,
    NoRoute,
    NotConnected,
    NotPermitted,
    RequestRefused,
    SendError,
    SendTimeout,
)
from appliance.client.shells.threads import links_of
from tests.support.interrupted import interrupted
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

#: A deadline long enough that only a hang misses it.
PATIENT = 60.0


@pytest.fixture
def client(rocketbox):
    with rocketbox.client(timeout=PATIENT) as client:
        yield client


@pytest.fixture
def own_server(tmp_path):
    """A server that keeps its ports over a restart."""
    from appliance.pytest_rocketbox import RocketBox  # pytest loads it as a plugin first

    port = reserve_port()
    (tmp_path / "box").mkdir()
    server = RocketBox(tmp_path / "box", "--broker-port", str(port), "--namesrv-port", str(port + 2))
    server.start()
    yield server
    server.kill()


def taken(consumer, count):
    found = []
    wait_for(lambda: found.extend(consumer.poll(1.0)) or len(found) >= count, f"{count} messages")
    return found


def test_a_message_comes_as_it_was_sent(client, rocketmq_topic, rocketmq_group):
    body = bytes(range(256)) * 40
    sent = client.producer().send(
        rocketmq_topic, body, tags="paid", keys=["k1", "k2"], properties={"region": "EU 用"}, shard="order-1001"
    )
    consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    (message,) = taken(consumer, 1)
    assert message.body == body
    assert (message.topic, message.tags, message.keys, message.attempt) == (rocketmq_topic, "paid", ["k1", "k2"], 1)
    assert message.properties["region"] == "EU 用"
    assert message.properties["__SHARDINGKEY"] == "order-1001"
    assert (message.message_id, message.offset_id) == (sent.message_id, sent.offset_id)
    assert (message.queue, message.queue_offset) == (sent.queue, sent.queue_offset)
    assert abs(message.stored_at - datetime.now(UTC)) < timedelta(hours=1)


def test_many_sends_in_flight_are_all_stored_once(client, rocketmq_topic, consumed):
    producer = client.producer("many", max_in_flight=50)
    pending = [producer.submit(Message(rocketmq_topic, str(number))) for number in range(300)]
    assert len({one.result(PATIENT).message_id for one in pending}) == 300
    assert producer.flush() == 0
    assert {int(message.text) for message in consumed(rocketmq_topic, 300, timeout=PATIENT)} == set(range(300))
    consumed.none(rocketmq_topic, within=0.05)


def test_a_one_way_message_arrives(client, rocketmq_topic, consumed):
    client.producer().send_oneway(rocketmq_topic, "and away")
    assert consumed(rocketmq_topic, 1, timeout=PATIENT)[0].text == "and away"


def test_threads_share_a_producer(client, rocketmq_topic, consumed):
    producer = client.producer()
    threads = [
        threading.Thread(target=lambda: [producer.send(rocketmq_topic, "x") for _ in range(10)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT)
    assert len(consumed(rocketmq_topic, 80, timeout=PATIENT)) == 80


def crash_at(rocketbox, group, topic, text):
    """Consume messages up to this one, and fail while handling it."""
    with rocketbox.client(timeout=PATIENT) as client:
        for message in client.pull_consumer(group, start="first").subscribe(topic):
            assert message.text in "34"
            if message.text == text:
                raise ZeroDivisionError


def test_a_group_goes_on_behind_what_was_done(rocketbox, produce, rocketmq_topic, rocketmq_group):
    for number in range(6):
        produce(rocketmq_topic, str(number), shard=1)
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        for message in consumer:
            if message.text == "2":
                break
    with pytest.raises(ZeroDivisionError):
        crash_at(rocketbox, rocketmq_group, rocketmq_topic, "4")
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert [message.text for message in taken(consumer, 2)] == ["4", "5"]


def test_without_auto_commit_only_commit_commits(rocketbox, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0", shard=1).queue
    produce(rocketmq_topic, "1", shard=1)
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first", auto_commit=None).subscribe(rocketmq_topic)
        iterator = iter(consumer)
        assert next(iterator).text == "0"
        consumer.commit()
        assert consumer.committed(place) == 1
        assert next(iterator).text == "1"
        iterator.close()
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert [message.text for message in taken(consumer, 1)] == ["1"]


def test_offsets_are_committed_by_themselves(rocketbox, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0").queue
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first", auto_commit=0.1).subscribe(rocketmq_topic)
        taken(consumer, 1)
        consumer.poll(0)  # the next poll confirms the last message
        wait_for(lambda: consumer.committed(place) == 1, "its offset")


def test_a_poll_that_a_signal_ends_takes_nothing(client, produce, rocketmq_topic, rocketmq_group):
    queue = produce(rocketmq_topic, "0").queue
    for number in range(1, 200):
        produce(rocketmq_topic, str(number), queue=queue)
    consumer = client.pull_consumer(rocketmq_group, start="first")
    consumer.assign([queue])
    found = taken(consumer, 1)
    for behind in itertools.count():
        wait_for(lambda: consumer._core.held[queue].messages, "what comes next")
        messages = interrupted(lambda: consumer.poll(PATIENT, most=1), behind)
        found += messages or []
        if messages is not None:
            break
    assert behind > 20
    found += taken(consumer, 200 - len(found))
    assert [message.text for message in found] == [str(number) for number in range(200)]


def test_a_new_group_begins_with_what_is_sent_from_then_on(client, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "before").queue
    consumer = client.pull_consumer(rocketmq_group, start=datetime.now(UTC) + timedelta(hours=1))
    consumer.assign([place])
    wait_for(lambda: consumer.poll(0) == [] and consumer._core.held[place].position == 1, "the end of the queue")
    client.producer().send(rocketmq_topic, "after", queue=place)
    assert [message.text for message in taken(consumer, 1)] == ["after"]


def test_tags_choose(client, produce, rocketmq_topic, rocketmq_group):
    for tag in ("paid", "open", "refunded", None):
        produce(rocketmq_topic, str(tag), tags=tag)
    consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic, tags="paid || refunded")
    assert {message.text for message in taken(consumer, 2)} == {"paid", "refunded"}


def test_seek_goes_back(client, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0").queue
    consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    taken(consumer, 1)
    consumer.seek(place, 0)
    assert [message.text for message in taken(consumer, 1)] == ["0"]
    with pytest.raises(InvalidOption, match="does not read"):
        consumer.seek(type(place)(rocketmq_topic, "nobody", 9), 0)


def test_seek_goes_to_an_end_or_a_time(client, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0").queue
    produce(rocketmq_topic, "1", queue=place)
    consumer = client.pull_consumer(rocketmq_group, start="last").subscribe(rocketmq_topic)
    consumer.seek_to_begin()
    assert [message.text for message in taken(consumer, 2)] == ["0", "1"]
    (behind,) = {message.stored_at for message in client.reader().pull(place, 1).messages}
    consumer.seek_to(behind + timedelta(seconds=1), [place])
    consumer.commit()
    assert consumer.committed(place) == 2
    consumer.seek_to(behind - timedelta(hours=1))
    assert [message.text for message in taken(consumer, 2)] == ["0", "1"]
    consumer.seek_to_begin([place])
    consumer.seek_to_end()
    produce(rocketmq_topic, "2", queue=place)
    assert [message.text for message in taken(consumer, 1)] == ["2"]
    elsewhere = type(place)(rocketmq_topic, "nobody", 9)
    with pytest.raises(InvalidOption, match="does not read"):
        consumer.seek_to_begin([place, elsewhere])
    produce(rocketmq_topic, "3", queue=place)
    assert [message.text for message in taken(consumer, 1)] == ["3"]


def test_a_queue_rests_until_it_is_resumed(client, produce, rocketmq_topic, rocketmq_group):
    place = produce(rocketmq_topic, "0").queue
    (other, *_) = [queue for queue in client.reader().queues(rocketmq_topic) if queue != place]
    consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    consumer.pause([place])
    assert consumer.paused() == [place]
    produce(rocketmq_topic, "1", queue=other)
    assert [message.text for message in taken(consumer, 1)] == ["1"]
    assert consumer.poll(0.1) == []
    consumer.resume()
    assert [message.text for message in taken(consumer, 1)] == ["0"]
    consumer.pause()
    assert set(consumer.paused()) == set(consumer.assignment())
    with pytest.raises(InvalidOption, match="does not read"):
        consumer.pause([type(place)(rocketmq_topic, "nobody", 9)])


def test_members_share_the_queues_and_hand_them_on(rocketbox, produce, rocketmq_topic, rocketmq_group):
    produce(rocketmq_topic, "x")
    with rocketbox.client(timeout=PATIENT) as one, rocketbox.client(timeout=PATIENT) as two:
        first = one.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
        second = two.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
        wait_for(lambda: first.poll(0) or len(first.assignment()) == 4, "all queues for one")
        second.poll(0)
        wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 2, "two queues for each")
        assert not set(first.assignment()) & set(second.assignment())
        second.close()
        wait_for(lambda: len(first.assignment()) == 4, "all queues again")


def test_a_topic_may_come_after_its_consumer(client, produce, rocketmq_topic, rocketmq_group):
    consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    assert consumer.poll(0) == []
    produce(rocketmq_topic, "late")
    assert [message.text for message in taken(consumer, 1)] == ["late"]


def test_a_killed_broker_is_found_again(own_server, rocketmq_topic, rocketmq_group):
    with own_server.client(timeout=PATIENT) as client:
        producer = client.producer()
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        producer.send(rocketmq_topic, "0")
        assert [message.text for message in taken(consumer, 1)] == ["0"]
        own_server.kill()
        # Until the client notices the closed connections, it cannot rule out that a sent message was stored.
        wait_for(lambda: not links_of(client._session.shell), "the client sees it")
        with pytest.raises(NotConnected, match="Is the broker running") as raised:
            producer.send(rocketmq_topic, "lost")
        assert not raised.value.maybe_stored
        with pytest.raises(BrokerAway):
            consumer.commit()
        own_server.start()
        producer.send(rocketmq_topic, "1")
        found = []  # "0" may come again, which was not committed
        wait_for(lambda: found.extend(consumer.poll(1.0)) or "1" in [one.text for one in found], "what was sent since")
        consumer.commit()


def test_a_broker_that_hangs_costs_the_time_out_and_no_more(own_server, rocketmq_topic):
    with own_server.client(timeout=PATIENT) as client:
        producer = client.producer()
        producer.send(rocketmq_topic, "0")
        own_server.pause()
        try:
            with pytest.raises(SendTimeout, match="may be stored") as raised:
                producer.send(rocketmq_topic, "1", timeout=0.3)
            assert raised.value.maybe_stored
        finally:
            own_server.resume()
        producer.send(rocketmq_topic, "2")


def test_close_waits_for_what_is_in_flight(own_server, rocketmq_topic):
    client = own_server.client(timeout=PATIENT)
    producer = client.producer()
    producer.send(rocketmq_topic, "0")
    own_server.pause()
    pending = [producer.submit(rocketmq_topic, str(number)) for number in range(20)]
    closing = threading.Thread(target=client.close)
    closing.start()
    wait_for(lambda: client._session.is_closed, "the close")
    with pytest.raises(Closed):
        producer.submit(rocketmq_topic, "too late")
    own_server.resume()
    closing.join(PATIENT)
    assert all(one.done() and one.result() for one in pending)
    assert client.close() == CloseReport()


def test_a_close_that_cannot_wait_says_what_is_left(own_server, rocketmq_topic):
    client = own_server.client(timeout=PATIENT)
    producer = client.producer()
    producer.send(rocketmq_topic, "0")
    own_server.pause()
    pending = producer.submit(rocketmq_topic, "1")
    report = client.close(timeout=0.1)
    own_server.resume()
    assert report.unconfirmed == 1
    with pytest.raises(SendError, match="client was closed") as raised:
        pending.result(PATIENT)
    assert raised.value.maybe_stored


@pytest.mark.parametrize(("kind", "seconds"), [(KeyboardInterrupt, 5.0), (ZeroDivisionError, 30.0)])
def test_ctrl_c_does_not_wait_long_for_a_server_that_hangs(kind, seconds):
    waited = []

    class Noting(Client):
        def close(self, timeout=None):
            waited.append(timeout)
            return super().close(timeout)

    with pytest.raises(kind), Noting("127.0.0.1:1"):
        raise kind
    assert waited == [seconds]


def test_a_consumer_that_waits_ends_when_it_is_closed(client, rocketmq_topic, rocketmq_group):
    consumer = client.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
    found = []
    thread = threading.Thread(target=lambda: found.extend(consumer))
    thread.start()
    wait_for(lambda: consumer._beginning and consumer._beginning.done(), "its start")
    consumer.close()
    thread.join(PATIENT)
    assert not thread.is_alive()
    with pytest.raises(Closed, match="make a new one"):
        consumer.poll()


def test_a_topic_that_may_not_be_read_is_said_to_the_one_who_polls(rocketbox, client, rocketmq_topic, rocketmq_group):
    peer = Peer(rocketbox.broker)
    fields = {
        "topic": rocketmq_topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert peer.ask(17, fields).code == 0
    (place,) = wait_for(lambda: client.reader().queues(rocketmq_topic), "its route", not_yet=(NoRoute,))
    assert peer.ask(17, fields | {"perm": 2}).code == 0
    consumer = client.pull_consumer(rocketmq_group)
    consumer.assign([place])
    with pytest.raises(NotPermitted, match="perm"):
        wait_for(lambda: consumer.poll(1.0), "the refusal")
    peer.close()


def test_a_reader_reads_anywhere(client, produce, rocketmq_topic):
    place = produce(rocketmq_topic, "0").queue
    produce(rocketmq_topic, "1", queue=place)
    reader = client.reader()
    assert place in reader.queues(rocketmq_topic)
    assert (reader.min_offset(place), reader.max_offset(place)) == (0, 2)
    pulled = reader.pull(place, 1)
    assert [message.text for message in pulled.messages] == ["1"]
    assert (pulled.next_offset, pulled.max_offset) == (2, 2)
    assert reader.pull(place, 2).messages == []
    assert reader.pull(place, 9).moved


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("a.b", "x"), {}, "illegal"),
        (("SCHEDULE_TOPIC_XXXX", "x"), {}, "broker's own"),
        (("T", ""), {}, "1 to"),
        (("T", "x"), {"keys": ["a b"]}, "without blanks"),
        (("T", "x"), {"properties": {"DELAY": "3"}}, "RocketMQ's own"),
        (("T", "x"), {"properties": {"a": "b\x01c"}}, "separate"),
        (("T", "x"), {"properties": {"a": "\ud800"}}, "no text"),
        (("T", "x"), {"properties": {"a": "y" * 40_000}}, "32767"),
        (("T",), {}, "needs a body"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_before_anything_is_done(arguments, options, text):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match=text):
        client.producer().send(*arguments, **options)
    assert not client._session.shell.is_running


def test_nothing_happens_before_the_first_use(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    before = set(threading.enumerate())
    client = Client()
    producer = client.producer()
    client.pull_consumer("g").subscribe("T")
    assert set(threading.enumerate()) <= before
    with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
        producer.send("T", "x")
    client.close()
    wait_for(lambda: set(threading.enumerate()) <= before, "the end of its thread")
    with pytest.raises(Closed):
        producer.send("T", "x")


def in_a_fork(act):
    """Return what `act` returns in a fork of this process."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(PATIENT))
        try:
            said = act()
        except BaseException:
            said = traceback.format_exc()
        os.write(into, json.dumps(said).encode())
        os._exit(0)
    os.close(into)
    with open(out, encoding="utf-8") as file:
        said = json.load(file)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return said


@pytest.mark.parametrize("linger", [0.0, 0.001])
def test_producers_go_on_in_a_fork_and_beside_it(rocketbox, rocketmq_topic, consumed, linger):
    with rocketbox.client(timeout=PATIENT) as client:
        unused, producer = client.producer("unused"), client.producer(linger=linger)
        producer.send(rocketmq_topic, "before")
        producer.send(rocketmq_topic, "before")

        def send():
            before = client.client_id
            ids = [one.send(rocketmq_topic, "fork").message_id for one in (producer, unused, client.producer("new"))]
            assert client.producer() is producer
            ids += [one.message_id for one in producer.send_many([Message(rocketmq_topic, "fork")] * 5)]
            client.close()
            return before, len(set(ids))

        name, ids = in_a_fork(send)
        assert name != client.client_id
        assert ids == 8
        producer.send(rocketmq_topic, "after")
        found = consumed(rocketmq_topic, 11, timeout=PATIENT)
        assert len({message.message_id for message in found}) == 11
        assert client.close() == CloseReport()


def test_a_client_that_was_not_used_is_a_forks_as_well(rocketbox, rocketmq_topic, rocketmq_group, produce):
    """A module makes it, and a server forks its workers afterwards."""
    produce(rocketmq_topic, "x")
    client = rocketbox.client(timeout=PATIENT, instance_name="web")
    parents = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    tx = client.transactional_producer("tx", check=print)

    def consume():
        for call in (parents.poll, partial(tx.send, rocketmq_topic, "x")):
            with pytest.raises(ForkedError):
                call()
        assert client.client_id.endswith(f"@web-{os.getpid()}")
        own = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        return own.poll(PATIENT)[0].text, client.close() == CloseReport()

    assert in_a_fork(consume) == ["x", True]
    assert parents.poll(PATIENT)[0].text == "x"
    client.close()


def test_a_closed_client_stays_closed_in_a_fork(rocketbox, rocketmq_topic):
    client = rocketbox.client()
    client.close()

    def send():
        with pytest.raises(Closed):
            client.producer().send(rocketmq_topic, "x")
        return "closed"

    assert in_a_fork(send) == "closed"


def test_a_condition_chooses_what_a_pull_consumer_gets(client, rocketmq_topic, rocketmq_group, produce):
    for region, price in (("EU", "9"), ("EU", "11"), ("US", "12")):
        produce(rocketmq_topic, f"{region} {price}", properties={"region": region, "price": price})
    consumer = client.pull_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, sql="region = 'EU' AND price > 10")
    assert [message.text for message in taken(consumer, 1)] == ["EU 11"]
    assert consumer.poll(0.2) == []
    consumer.close()
    wrong = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic, sql="region = = 'EU'")
    with pytest.raises(RequestRefused):
        wrong.poll(1.0)
    wrong.close()
    with pytest.raises(InvalidOption, match="sql"):
        client.pull_consumer(rocketmq_group).subscribe(rocketmq_topic, "paid", sql="price > 10")


def test_what_is_verified_is_received(rocketbox, rocketmq_topic, rocketmq_group, produce):
    produce(rocketmq_topic, "small")
    produce(rocketmq_topic, "large" * 10_000)
    with rocketbox.client(timeout=PATIENT, verify=True) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert sorted(len(message.body) for message in taken(consumer, 2)) == [5, 50_000]
