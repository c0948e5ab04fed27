"""Sends after a commit, and the outbox, in a Django project against a real broker."""

import contextlib
import datetime
import time
import types

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import TestCase
from shop.models import Order

from appliance.client import Closed, InvalidMessage, InvalidOption, Message, MessageQueue
from appliance.client_django import client, producer, send_by_outbox, send_on_commit, sending
from appliance.client_django.models import LANES, OUTBOX_ID, OutboxLane, OutboxMessage
from appliance.client_django.relay import LaneLost, Relay
from appliance.client_django.testing import messages_in_outbox, messages_on_commit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def server(rocketbox_env):
    """The broker that this process's client uses."""
    return rocketbox_env


@pytest.fixture
def relay(server):
    made = Relay("default", producer(), time.monotonic)
    made.prepare()
    return made


class Failure(Exception):
    pass


@contextlib.contextmanager
def rolled_back(error=Failure):
    """A transaction, or a savepoint, that the error ends."""
    with pytest.raises(error), transaction.atomic():  # noqa: PT012
        yield
        raise Failure


def test_a_message_is_sent_when_its_transaction_commits(consumed, rocketmq_topic):
    with transaction.atomic():
        Order.objects.create(name="17")
        send_on_commit(rocketmq_topic, "17", tags="paid", keys=["order-17"])
        consumed.none(rocketmq_topic, within=0.05)
    (message,) = consumed(rocketmq_topic, 1, timeout=60)
    assert (message.text, message.tags, message.keys) == ("17", "paid", ["order-17"])


def test_nothing_is_sent_of_what_is_rolled_back(consumed, rocketmq_topic):
    with rolled_back():
        send_on_commit(rocketmq_topic, "of the transaction")
    with transaction.atomic():
        with rolled_back():
            send_on_commit(rocketmq_topic, "of the savepoint")
        send_on_commit(Message(rocketmq_topic, "kept"))
    assert consumed(rocketmq_topic, 1, timeout=60)[0].text == "kept"
    consumed.none(rocketmq_topic, within=0.05)


def test_without_a_transaction_it_is_sent_at_once(consumed, rocketmq_topic):
    send_on_commit(rocketmq_topic, "now")
    assert consumed(rocketmq_topic, 1, timeout=60)[0].text == "now"


@pytest.mark.parametrize("send", [send_on_commit, send_by_outbox])
def test_a_message_that_cannot_be_sent_rolls_the_transaction_back(send):
    for wrong in ({"body": ""}, {"body": "x", "keys": ["a b"]}, {"body": "x", "properties": {"KEYS": "x"}}):
        with rolled_back(InvalidMessage):
            Order.objects.create(name="never")
            send("orders", **wrong)
    assert not Order.objects.exists()


@pytest.mark.parametrize("other", [{"shard": 1}, {"queue": MessageQueue("orders", "broker-a", 0)}])
def test_two_ways_to_choose_a_queue_roll_the_transaction_back(other):
    with rolled_back(InvalidMessage):
        Order.objects.create(name="never")
        send_on_commit("orders", "x", select=min, **other)
    assert not Order.objects.exists()


def test_a_failed_send_is_raised_behind_the_commit_or_logged(monkeypatch, caplog):
    monkeypatch.setattr(sending, "producer", closed_producer)
    with pytest.raises(Closed):
        send_in_transaction()
    with transaction.atomic():
        Order.objects.create(name="2")
        send_on_commit("orders", "x", robust=True)
    assert Order.objects.count() == 2
    assert "Closed" in caplog.text


def send_in_transaction():
    with transaction.atomic():
        Order.objects.create(name="1")
        send_on_commit("orders", "x")


def closed_producer():
    from appliance.client import Client

    ended = Client("127.0.0.1:9")
    made = ended.producer()
    ended.close()
    return made


class InDjangosTestCase(TestCase):
    def test_messages_are_captured(self):
        with messages_on_commit() as sent:
            with self.captureOnCommitCallbacks(execute=True):
                send_on_commit("orders", "17", shard=17)
            with self.captureOnCommitCallbacks():
                send_on_commit("orders", "not committed")
        assert sent == [Message("orders", "17", shard=17)]


def test_the_outbox_holds_what_committed(relay, consumed, rocketmq_topic):
    with rolled_back():
        send_by_outbox(rocketmq_topic, "rolled back")
    with transaction.atomic():
        row = send_by_outbox(
            rocketmq_topic, "äpfel", tags="paid", keys=["a", "b"], properties={"region": "用"}, shard=17
        )
    (waiting,) = messages_in_outbox()
    assert (waiting.body, waiting.shard) == ("äpfel".encode(), 17)
    assert relay.send_all() == 1
    (message,) = consumed(rocketmq_topic, 1, timeout=60)
    assert (message.text, message.tags, message.keys) == ("äpfel", "paid", ["a", "b"])
    assert message.properties["region"] == "用"
    assert message.properties["__SHARDINGKEY"] == "17"
    assert len(message.properties[OUTBOX_ID]) == 32
    assert not OutboxMessage.objects.filter(pk=row.pk).exists()
    assert relay.send_all() == 0


def test_options_of_a_send_are_refused():
    for options in ({"timeout": 3.0}, {"select": min}):
        with pytest.raises(InvalidOption, match="sent later"):
            send_by_outbox("orders", "x", **options)


def test_a_delay_begins_when_the_message_is_written(relay, consumed, rocketmq_topic):
    before = datetime.datetime.now(datetime.UTC)
    send_by_outbox(rocketmq_topic, "later", delay=datetime.timedelta(hours=1))
    (waiting,) = messages_in_outbox()
    assert datetime.timedelta(0) <= waiting.at - before - datetime.timedelta(hours=1) < datetime.timedelta(minutes=5)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    send_by_outbox(rocketmq_topic, "at once", at=past)
    assert relay.send_all() == 2
    assert consumed(rocketmq_topic, 1, timeout=60)[0].text == "at once"


def test_each_shard_keeps_its_order_over_many_batches(relay, consumed, rocketmq_topic):
    with transaction.atomic():
        for number in range(60):
            send_by_outbox(rocketmq_topic, f"{number % 3} {number}", shard=f"shard {number % 3}")
    assert relay.send_all() == 60
    found = [message.text.split() for message in consumed(rocketmq_topic, 60, timeout=60)]
    for shard in "012":
        numbers = [int(number) for of, number in found if of == shard]
        assert numbers == sorted(numbers)
        assert len(numbers) == 20


def test_a_message_that_is_refused_holds_up_its_own_shard_only(relay, consumed, rocketmq_topic):
    refused = send_by_outbox(rocketmq_topic, "beyond the broker's longest delay", shard="a", delay=1e8)
    send_by_outbox(rocketmq_topic, "behind it", shard="a")
    send_by_outbox(rocketmq_topic, "of another", shard="b")
    send_by_outbox(rocketmq_topic, "of none")
    assert relay.send_all() == 2
    assert {message.text for message in consumed(rocketmq_topic, 2, timeout=60)} == {"of another", "of none"}
    refused.refresh_from_db()
    assert refused.attempts == 1
    assert "13" in refused.error
    assert relay.send_all() == 0, "the second one does not overtake it"
    OutboxMessage.objects.filter(pk=refused.pk).update(next_at=None)
    assert relay.send_all() == 0
    refused.refresh_from_db()
    assert refused.attempts == 2
    refused.delete()
    assert relay.send_all() == 1
    assert consumed(rocketmq_topic, 1, timeout=60)[0].text == "behind it"


def test_a_lane_has_one_relay_until_its_row_stands_still(relay, rocketmq_topic):
    row = send_by_outbox(rocketmq_topic, "x", shard="a")
    now = [0.0]
    other = Relay("default", producer(), lambda: now[0])
    assert relay._take(row.lane)
    assert other.send_all() == 0
    now[0] = 59.0
    assert other.send_all() == 0
    now[0] = 60.0
    assert other._take(row.lane)
    relay._renew_at = 0.0
    with pytest.raises(LaneLost):
        relay._check_lease(row.lane)
    relay._let_go(row.lane)
    assert OutboxLane.objects.get(pk=row.lane).relay == other.name, "it lets go of its own only"
    other._renew_at = 0.0
    other._check_lease(row.lane)
    other._let_go(row.lane)
    assert relay.send_all() == 1


@pytest.mark.parametrize("days", [-1, 1])
def test_a_database_whose_clock_is_set_lets_no_second_relay_into_a_lane(relay, rocketmq_topic, days):
    row = send_by_outbox(rocketmq_topic, "x", shard="a")
    now = [0.0]
    other = Relay("default", producer(), lambda: now[0])
    assert relay._take(row.lane)
    OutboxLane.objects.filter(pk=row.lane).update(until=F("until") - datetime.timedelta(days=days))
    assert not other._take(row.lane)
    for _ in range(4):
        now[0] += 30.0
        relay._renew_at = 0.0
        relay._check_lease(row.lane)
        assert not other._take(row.lane), "it is renewed"
    now[0] += 60.0
    assert other._take(row.lane), "it is not any more"


def test_a_round_that_takes_long_ends_when_its_lease_is_to_be_renewed(rocketmq_topic):
    """A relay that went on would send behind the one that took the lane over."""
    now, submitted = [0.0], []

    def submit(message):
        now[0] += 15.0
        submitted.append(message)
        raise Closed("full")

    for number in range(8):
        send_by_outbox(rocketmq_topic, str(number), shard=f"shard {number}")
    slow = Relay("default", types.SimpleNamespace(submit=submit), lambda: now[0])
    slow.prepare()
    lane = OutboxMessage.objects.order_by("id")[0].lane
    OutboxMessage.objects.update(lane=lane)
    assert slow._take(lane)
    rows = slow._batch_of(lane)
    slow._round(rows)
    assert len(submitted) == 2, "20 s are a third of the lease"
    submitted.clear()
    assert slow._send(lane, rows) == 0
    assert len(submitted) == 8, "the others follow with a new lease"
    assert OutboxMessage.objects.filter(attempts=1).count() == 8


def test_a_clock_that_was_set_back_holds_up_no_message(relay, consumed, rocketmq_topic):
    now = datetime.datetime.now(datetime.UTC)
    for number, seconds in enumerate((3600, None, 20)):
        row = send_by_outbox(rocketmq_topic, f"{number}", shard=number // 2)
        if seconds is not None:
            OutboxMessage.objects.filter(pk=row.pk).update(next_at=now + datetime.timedelta(seconds=seconds))
    assert relay.send_all() == 2
    assert [message.text for message in consumed(rocketmq_topic, 2, timeout=60)] == ["0", "1"]
    assert OutboxMessage.objects.count() == 1


def test_lanes_are_made_once(relay):
    relay.prepare()
    assert OutboxLane.objects.count() == LANES
    assert connection.vendor in ("sqlite", "postgresql")


def test_the_client_is_made_once_in_each_process(server):
    assert client() is client()
    assert producer() is producer()
