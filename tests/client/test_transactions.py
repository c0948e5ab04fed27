"""Transactions of the client with a real broker: a message is delivered exactly if the decision is to commit, also over
kills of the producer's process and of the broker."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.client import (
    BrokerAway,
    Client,
    Closed,
    Decision,
    InvalidMessage,
    InvalidOption,
    Message,
    RequestRefused,
)
from appliance.client.core import client_core
from appliance.client.core.requests import HalfPlace
from appliance.client.core.transactions import Half
from appliance.client.message import MessageQueue
from tests.support.client_steps import SetClock
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.waiting import ends, wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]
PATIENT = 60.0
#: Brokers ask early and often, and are not weary of it.
OFTEN = "transactionTimeOut=100\ntransactionCheckInterval=200\ntransactionCheckMax=254\n"


def made(directory):
    from appliance.pytest_rocketbox import RocketBox  # pytest loads it as a plugin first

    (directory / "broker.conf").write_text(OFTEN)
    port = reserve_port()
    ports = ("--broker-port", str(port), "--namesrv-port", str(port + 2))
    server = RocketBox(directory, "-c", str(directory / "broker.conf"), *ports)
    server.start()
    return server


@pytest.fixture(scope="module")
def box(request):
    server = made(shared_directory(request, "box"))
    yield server
    server.stop()


@pytest.fixture
def own_box(tmp_path):
    server = made(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def client(box):
    with box.client(timeout=PATIENT) as client:
        yield client


class Check:
    """A `check` that keeps what it is asked, and says UNKNOWN until it has an answer to give."""

    def __init__(self, *says):
        self.asked = []
        self.says = list(says)
        self.end = Decision.UNKNOWN

    def __call__(self, message):
        self.asked.append(message)
        said = self.says.pop(0) if self.says else self.end
        if isinstance(said, Exception):
            raise said
        return said


def delivered(server, topic, count):
    """Read the next messages of a topic from its beginning."""
    with server.client(timeout=PATIENT) as client:
        consumer = client.pull_consumer(f"reads-{topic}", start="first", auto_commit=None).subscribe(topic)
        found = []
        wait_for(lambda: found.extend(consumer.poll(1.0)) or len(found) >= count, f"{count} messages")
        return found


def test_the_end_of_the_block_delivers_and_a_rollback_removes(box, client, rocketmq_topic, rocketmq_group):
    producer = client.transactional_producer(rocketmq_group, check=Check())
    with producer.transaction(rocketmq_topic, "rolled back", shard=1) as transaction:
        transaction.rollback()
    with producer.transaction(Message(rocketmq_topic, "committed", "paid", ["order-17"], {"a": "b"}, shard=1)) as kept:
        producer.send(rocketmq_topic, "between", shard=1)
    first, second = delivered(box, rocketmq_topic, 2)
    assert (first.text, second.text) == ("between", "committed"), "the message comes when it is committed"
    assert second.message_id == kept.result.message_id
    assert (second.tags, second.keys, second.properties["a"]) == ("paid", ["order-17"], "b")


def leave_by_an_error(producer, *message, **options):
    with pytest.raises(ZeroDivisionError), producer.transaction(*message, **options) as transaction:
        raise ZeroDivisionError
    return transaction.result


def test_what_an_error_leaves_open_is_asked_for(box, client, rocketmq_topic, rocketmq_group):
    check = Check(RuntimeError("not now"), "COMMIT", None, Decision.UNKNOWN)
    check.end = Decision.COMMIT
    producer = client.transactional_producer(rocketmq_group, check=check)
    sent = leave_by_an_error(producer, rocketmq_topic, "left", keys=["order-18"])
    (message,) = delivered(box, rocketmq_topic, 1)
    assert (message.text, message.message_id) == ("left", sent.message_id)
    assert len(check.asked) >= 5, "the failed check, two that decided nothing, UNKNOWN, and the commit"
    asked = check.asked[-1]
    assert (asked.topic, asked.text, asked.keys, asked.message_id) == (
        rocketmq_topic, "left", ["order-18"], sent.message_id,
    )  # fmt: skip


def test_a_check_may_roll_back(box, client, rocketmq_topic, rocketmq_group):
    asked = []

    def check(message):
        asked.append(message.text)
        return Decision.COMMIT if message.text == "kept" else Decision.ROLLBACK

    producer = client.transactional_producer(rocketmq_group, check=check)
    leave_by_an_error(producer, rocketmq_topic, "left", shard=1)
    wait_for(lambda: asked, "the broker's question")
    leave_by_an_error(producer, rocketmq_topic, "kept", shard=1)
    assert [message.text for message in delivered(box, rocketmq_topic, 1)] == ["kept"]


def test_a_connection_that_was_open_before_is_the_groups_too(box, rocketmq_topic, rocketmq_group, monkeypatch):
    monkeypatch.setattr(client_core, "_HEARTBEAT_S", 3600.0)
    with box.client(timeout=PATIENT) as client:
        client.producer().send(rocketmq_topic, "x", shard=1)
        check = Check()
        check.end = Decision.COMMIT
        leave_by_an_error(client.transactional_producer(rocketmq_group, check=check), rocketmq_topic, "left", shard=1)
        assert [message.text for message in delivered(box, rocketmq_topic, 2)] == ["x", "left"]


DIES = """
import signal, sys
from appliance.client import Client, Decision

server, topic, group = sys.argv[1:]
producer = Client(server, timeout=60).transactional_producer(group, check=lambda message: Decision.UNKNOWN)
with producer.transaction(topic, "half", keys=["order-19"]) as transaction:
    print(transaction.result.message_id, flush=True)
    signal.pause()
"""


def test_what_a_killed_process_left_is_asked_of_the_one_after_it(box, client, rocketmq_topic, rocketmq_group):
    process = subprocess.Popen(
        [sys.executable, "-c", DIES, box.namesrv, rocketmq_topic, rocketmq_group], cwd=ROOT, stdout=subprocess.PIPE
    )
    message_id = ends(process.stdout.readline, "the half message").decode().strip()
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENT)
    process.stdout.close()
    check = Check()
    check.end = Decision.COMMIT
    client.transactional_producer(rocketmq_group, check=check).start(rocketmq_topic)
    (message,) = delivered(box, rocketmq_topic, 1)
    assert (message.text, message.message_id) == ("half", message_id)
    assert check.asked[0].keys == ["order-19"]


def kill_within_a_block(producer, server, topic):
    with pytest.raises(BrokerAway, match="the broker asks `check`"), producer.transaction(topic, "half", shard=1):
        server.kill()


def test_a_decision_that_a_killed_broker_did_not_get_is_asked_for_when_it_is_back(own_box, rocketmq_group):
    with own_box.client(timeout=PATIENT) as client:
        check = Check()
        producer = client.transactional_producer(rocketmq_group, check=check)
        kill_within_a_block(producer, own_box, "killed")
        own_box.start()
        producer.start("killed")
        wait_for(lambda: check.asked, "the broker's question")
        check.end = Decision.COMMIT
        assert [message.text for message in delivered(own_box, "killed", 1)] == ["half"]


def test_a_decision_that_the_broker_refuses_is_an_error(client, rocketmq_topic, rocketmq_group):
    producer = client.transactional_producer(rocketmq_group, check=Check())
    with producer.transaction(rocketmq_topic, "x") as transaction:
        ours = transaction._half
        transaction._half = type(ours)("another", ours.topic, ours.queue, ours.place)
        with pytest.raises(RequestRefused, match="group"):
            transaction.commit()


def test_a_client_that_was_closed_in_a_block_cannot_decide(box, rocketmq_topic, rocketmq_group):
    client = box.client(timeout=PATIENT)
    producer = client.transactional_producer(rocketmq_group, check=Check())
    with pytest.raises(Closed), producer.transaction(rocketmq_topic, "x"):
        client.close()
    with pytest.raises(Closed):
        producer.transaction(rocketmq_topic, "x")


def test_close_lets_a_check_end_and_begins_none(box, rocketmq_topic, rocketmq_group):
    begun, go_on = threading.Event(), threading.Event()
    asked = []

    def check(message):
        asked.append(message.text)
        begun.set()
        go_on.wait(PATIENT)
        return Decision.COMMIT

    client = box.client(timeout=PATIENT)
    producer = client.transactional_producer(rocketmq_group, check=check)
    leave_by_an_error(producer, rocketmq_topic, "first", shard=1)
    assert begun.wait(PATIENT)
    leave_by_an_error(producer, rocketmq_topic, "second", shard=1)
    wait_for(lambda: producer._checks._waiting, "another question")
    closing = threading.Thread(target=client.close)
    closing.start()
    wait_for(lambda: producer._checks._is_closed, "the close")
    go_on.set()
    closing.join(PATIENT)
    assert asked == ["first"]
    assert [message.text for message in delivered(box, rocketmq_topic, 1)] == ["first"]


@pytest.mark.parametrize(("timeout", "waits"), [(0.5, 0.5), (2.0, 1.0), (3.0, 1.0), (60.0, 20.0)])
def test_a_decision_waits_for_a_second_or_a_third_of_a_long_time_out(rocketmq_group, timeout, waits):
    with Client("127.0.0.1:1", timeout=timeout) as client:
        client._session.clock = clock = SetClock()
        producer = client.transactional_producer(rocketmq_group, check=Check())
        half = Half(rocketmq_group, "T", MessageQueue("T", "b", 0), HalfPlace("id", "id", 0, 0), "127.0.0.1:1")
        call = next(producer._end(half, Decision.COMMIT))
        assert call.deadline - clock.monotonic() == waits


def test_the_group_has_one_producer(rocketmq_group):
    with Client("127.0.0.1:1") as client:
        check = Check()
        producer = client.transactional_producer(rocketmq_group, check=check)
        assert client.transactional_producer(rocketmq_group, check=check) is producer
        assert client.producer(rocketmq_group) is producer
        client.producer("plain")
        with pytest.raises(InvalidOption, match="without a check"):
            client.transactional_producer("plain", check=check)


def test_a_transaction_is_used_once_and_has_no_delay(client, rocketmq_topic, rocketmq_group):
    producer = client.transactional_producer(rocketmq_group, check=Check())
    transaction = producer.transaction(rocketmq_topic, "x")
    with pytest.raises(InvalidOption, match="in its `with` block"):
        transaction.commit()
    with transaction:
        transaction.commit()
        with pytest.raises(InvalidOption, match="decided once"):
            transaction.rollback()
    with pytest.raises(InvalidOption, match="for one block"), transaction:
        pass
    for options in ({"delay": 1}, {"delay_level": 3}):
        with pytest.raises(InvalidMessage, match="no delay"), producer.transaction(rocketmq_topic, "x", **options):
            pass
