"""Sends that are pipelined, called back, placed, delayed and recalled, with a real broker."""

import itertools
import logging
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from appliance.client import (
    Client,
    Closed,
    InvalidMessage,
    InvalidOption,
    Message,
    RequestRefused,
    SendError,
    SendResult,
    SendTimeout,
)
from appliance.client.shells.shell import Security
from appliance.client.shells.threads import _Link, links_of
from appliance.client.wire import compression_of
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


@pytest.fixture
def client(rocketbox):
    with rocketbox.client(timeout=PATIENT) as client:
        yield client


def test_many_are_sent_in_a_window_and_come_back_in_order(client, rocketmq_topic, consumed):
    producer = client.producer()
    most = 0

    def messages():
        nonlocal most
        for number in range(100):
            most = max(most, producer.in_flight)
            # One that cannot be sent is said in its place.
            yield Message(rocketmq_topic, str(number) if number != 50 else "")

    outcomes = list(producer.send_many(messages(), window=8))
    assert len(outcomes) == 100
    assert isinstance(outcomes.pop(50), InvalidMessage)
    assert most <= 8
    stored = {message.message_id: int(message.text) for message in consumed(rocketmq_topic, 99, timeout=PATIENT)}
    assert [stored[outcome.message_id] for outcome in outcomes] == [*range(50), *range(51, 100)]


def test_many_do_not_wait_for_messages_that_are_not_there_yet(client, rocketmq_topic, consumed):
    producer = client.producer()
    producer.send(rocketmq_topic, "first")  # from now on sends are quick ones
    seen = []

    def messages():
        for number in range(5):
            yield Message(rocketmq_topic, str(number))
        # With its messages in no full write, and none that is waited for; what the I/O thread does soon.
        for link in links_of(client._session.shell):
            link.expire(time.monotonic() + 1)
            assert link.writes_at is None
        seen.extend(consumed(rocketmq_topic, 6, timeout=PATIENT))

    assert all(isinstance(outcome, SendResult) for outcome in producer.send_many(messages()))
    assert {message.text for message in seen} == {"first", *"01234"}


def test_quick_sends_have_all_that_a_message_may_have(client, rocketmq_topic, consumed):
    producer = client.producer()
    producer.send(rocketmq_topic, "first")
    sent = [
        Message(rocketmq_topic, "plain"),
        Message(rocketmq_topic, "große \U0001f680"),
        Message(rocketmq_topic, bytes(range(256)) * 8, tags="paid"),
        Message(rocketmq_topic, "again", tags="paid"),
        Message(rocketmq_topic, "all", tags='ta"g', keys=["a\\b", "ключ"], properties={"region": '"EU"'}, shard="7"),
        Message(rocketmq_topic, "compressed" * 1000),
    ]
    outcomes = list(producer.send_many(sent))
    found = {message.message_id: message for message in consumed(rocketmq_topic, 1 + len(sent), timeout=PATIENT)}
    for message, outcome in zip(sent, outcomes, strict=True):
        copy = found[outcome.message_id]
        body = message.body.encode() if isinstance(message.body, str) else message.body
        assert (copy.body, copy.tags, copy.keys) == (body, message.tags, list(message.keys))
        assert message.properties.items() <= copy.properties.items()
        assert (copy.queue, copy.queue_offset, copy.offset_id) == (
            outcome.queue,
            outcome.queue_offset,
            outcome.offset_id,
        )
    assert producer.in_flight == 0
    assert client.stats()[0].sent == 1 + len(sent)


def test_what_is_no_message_or_has_a_brokers_own_topic_is_said(client, rocketmq_topic):
    producer = client.producer()
    producer.send(rocketmq_topic, "first")
    own = "RMQ_SYS_TRANS_HALF_TOPIC"
    client.reader().queues(own)  # so its route is known
    outcomes = list(producer.send_many([rocketmq_topic, Message(own, b"x"), Message(own, "x")]))
    assert [type(one) for one in outcomes] == [InvalidMessage] * 3
    assert producer.in_flight == 0


def test_many_that_are_not_taken_to_the_end_wait_for_what_is_in_flight(rocketbox_fresh, rocketmq_topic):
    client = rocketbox_fresh.client(timeout=PATIENT)
    producer = client.producer()
    taken, left = [], []

    def messages():
        for number in range(100):
            if number == 1:
                producer.flush(PATIENT)
                rocketbox_fresh.pause()
            taken.append(number)
            yield Message(rocketmq_topic, str(number))

    sending = producer.send_many(messages(), window=4)
    assert taken == []
    assert isinstance(next(sending), SendResult)

    def close():
        sending.close()
        left.append(producer.in_flight)

    closing = threading.Thread(target=close)
    closing.start()
    wait_for(lambda: sending.gi_running or left, "the close")
    rocketbox_fresh.resume()
    closing.join(PATIENT)
    assert (left, taken) == ([0], [0, 1, 2, 3])
    client.close()
    with pytest.raises(InvalidOption, match="window"):
        producer.send_many([], window=0)


def test_many_end_with_the_client(client, rocketmq_topic):
    producer = client.producer()
    sending = producer.send_many((Message(rocketmq_topic, "x") for _ in range(9)), window=1)
    next(sending)
    client.close()
    with pytest.raises(Closed):
        list(sending)


def test_a_callback_gets_the_result_and_what_it_raises_is_logged(client, rocketmq_topic, caplog):
    producer = client.producer()
    got = []

    def callback(outcome):
        got.append((outcome, threading.current_thread().name))
        if len(got) == 1:
            raise ZeroDivisionError("the user's")

    with caplog.at_level(logging.ERROR, "rocketbox.client"):
        pending = [producer.submit(rocketmq_topic, str(number), callback=callback) for number in range(3)]
        assert producer.flush(PATIENT) == 0
    assert {outcome.message_id for outcome, _ in got} == {one.result().message_id for one in pending}
    assert {name for _, name in got} == {"rocketbox-callbacks"}
    assert "the user's" in caplog.text


def test_a_message_is_in_flight_until_its_callback_has_returned(client, rocketmq_topic):
    producer = client.producer(max_in_flight=1)
    go_on = threading.Event()
    pending = producer.submit(rocketmq_topic, "x", callback=lambda outcome: go_on.wait(PATIENT))
    pending.result(PATIENT)
    assert producer.in_flight == 1
    go_on.set()
    producer.send(rocketmq_topic, "y")
    assert producer.flush(PATIENT) == 0


def test_a_callback_gets_the_error_also_of_what_close_gives_up(rocketbox_fresh, rocketmq_topic):
    client = rocketbox_fresh.client(timeout=PATIENT)
    producer = client.producer()
    producer.send(rocketmq_topic, "0")
    got = []
    rocketbox_fresh.pause()
    try:
        producer.submit(rocketmq_topic, "1", callback=got.append, timeout=0.1)
        wait_for(lambda: got, "the time-out")
        producer.submit(rocketmq_topic, "2", callback=got.append)
        report = client.close(timeout=0.1)
    finally:
        rocketbox_fresh.resume()
    wait_for(lambda: len(got) == 2, "the end of the second")
    assert isinstance(got[0], SendTimeout)
    assert "client was closed" in str(got[1])
    assert report.unconfirmed == 1


def test_a_batch_takes_consecutive_places(client, rocketmq_topic, consumed):
    messages = [
        Message(rocketmq_topic, f"{number} ä", "paid", [f"k{number}"], {"n": str(number)}) for number in range(5)
    ]
    sent = client.producer().send_batch(messages)
    came = consumed(rocketmq_topic, 5, timeout=PATIENT)
    assert [message.text for message in came] == [message.body for message in messages]
    assert [(one.message_id, one.offset_id, one.queue, one.queue_offset) for one in sent] == [
        (message.message_id, message.offset_id, message.queue, message.queue_offset) for message in came
    ]
    assert (came[3].tags, came[3].keys, came[3].properties["n"]) == ("paid", ["k3"], "3")


def test_a_large_batch_is_split_and_stays_in_order(client, rocketmq_topic, consumed):
    bodies = [bytes([number]) * (1_500_000 + number) for number in range(5)]
    sent = client.producer().send_batch([Message(rocketmq_topic, body) for body in bodies])
    assert len({one.queue for one in sent}) == 1
    assert [message.body for message in consumed(rocketmq_topic, 5, timeout=PATIENT)] == bodies


def test_a_batch_that_fails_in_the_middle_says_how_far_it_came(rocketbox_fresh, rocketmq_topic, monkeypatch):
    with rocketbox_fresh.client(timeout=PATIENT) as client:
        producer = client.producer()
        launching = producer._launching

        def launched(*asked, **more):
            done = yield from launching(*asked, **more)
            done.result()
            rocketbox_fresh.kill()
            return done

        monkeypatch.setattr(producer, "_launching", launched)
        with pytest.raises(SendError) as raised:
            producer.send_batch([Message(rocketmq_topic, bytes(3 << 20)) for _ in range(2)])
    assert raised.value.maybe_stored
    assert raised.value.__notes__ == ["The first 1 of the 2 messages are stored."]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "a message at least"),
        ([Message("T", "x"), Message("U", "x")], "one topic"),
        ([Message("T", "x", shard=1), Message("T", "x", shard=2)], "same shard"),
        ([Message("T", "x"), Message("T", "x", delay=1)], "no delay"),
        ([Message("T", "x"), Message("T", "")], "1 to"),
    ],
)
def test_a_batch_that_cannot_be_sent_is_refused_before_anything_is_done(messages, text):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match=text):
        client.producer().send_batch(messages)
    assert not client._session.shell.is_running


def test_select_chooses_the_queue(client, rocketmq_topic):
    producer = client.producer()
    for choose, number in ((max, 3), (min, 0)):
        assert producer.send(rocketmq_topic, "x", select=choose).queue.queue_id == number
    with pytest.raises(ZeroDivisionError):
        producer.send(rocketmq_topic, "x", select=lambda queues: 1 // 0)
    with pytest.raises(InvalidMessage, match="One of"):
        producer.send(rocketmq_topic, "x", shard=1, select=lambda queues: queues[0])


def test_a_time_of_delivery_is_kept(client, rocketmq_topic, consumed):
    producer = client.producer()
    producer.send(rocketmq_topic, "long ago", at=datetime.now(UTC) - timedelta(hours=1))
    soon, hour = timedelta(seconds=0.5), timedelta(hours=1)
    for number, options in enumerate([{"at": datetime.now(UTC) + soon}, {"delay": 0.5}, {"delay": soon}]):
        producer.send(rocketmq_topic, str(number), **options)
    # A time that has come before the broker has the message is none, and it has no handle.
    waiting = [{"at": datetime.now(UTC) + hour}, {"delay": 3600}, {"delay": hour}]
    later = [producer.send(rocketmq_topic, "much later", **options) for options in waiting]
    texts = {message.text for message in consumed(rocketmq_topic, 4, timeout=PATIENT)}
    assert texts == {"0", "1", "2", "long ago"}
    for one in later:
        producer.recall(one)


def test_what_is_not_delayed_cannot_be_recalled(client, rocketmq_topic):
    producer = client.producer()
    sent = producer.send(rocketmq_topic, "x")
    with pytest.raises(InvalidOption, match="recall_handle"):
        producer.recall(sent)
    wrong = SendResult(sent.message_id, sent.offset_id, sent.queue, 0, recall_handle="wrong")
    with pytest.raises(RequestRefused, match="the recall of the message"):
        producer.recall(wrong)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "one of delay_level, delay and at"),
        ({"delay": -1}, "0 seconds or more"),
        ({"delay": float("nan")}, "0 seconds or more"),
        ({"delay_level": -1}, "0 .none. or more"),
    ],
)
def test_a_time_that_is_none_is_refused_before_anything_is_done(options, text):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match=text):
        client.producer().send("T", "x", **options)
    assert not client._session.shell.is_running


def test_a_message_is_given_its_fields_itself(client, rocketmq_topic):
    with pytest.raises(InvalidMessage, match="its own fields"):
        client.producer().send(Message(rocketmq_topic, "x"), tags="paid")
    with pytest.raises(TypeError, match="tag"):
        client.producer().send(rocketmq_topic, "x", tag="paid")


class Full:
    """A socket with room for so many bytes at each call."""

    def __init__(self, *takes):
        self._takes, self.taken = list(takes), b""

    def send(self, data):
        if not (most := self._takes.pop(0)):
            raise BlockingIOError
        self.taken += data[:most]
        return min(most, len(data))


def test_what_a_server_does_not_read_waits_without_being_copied_with_each_message():
    link = _Link("host:1", SimpleNamespace(security=Security()))
    link._sock = sock = Full(10, 3, 0, 0, 4, 100, 0, 1)
    waiting = link._unsent
    left = [link._send(data) for data in (b"whole", b"abcdef", b"g", b"", b"hi", b"", b"j", b"")]
    assert left == [False, True, True, True, True, False, True, False]
    assert sock.taken == b"wholeabcdefghij"
    assert link._unsent is waiting


def test_messages_that_linger_are_stored_together_each_with_what_it_had(client, rocketmq_topic, consumed):
    producer = client.producer("lingering", linger=0.02)
    messages = [
        Message(
            rocketmq_topic, f"{number} ä", tags=f"t{number % 3}", keys=[f"k{number}"], properties={"n": str(number)}
        )
        for number in range(200)
    ]
    sent = list(producer.send_many(messages))
    came = {message.message_id: message for message in consumed(rocketmq_topic, 200, timeout=PATIENT)}
    assert [(came[one.message_id].text, came[one.message_id].tags) for one in sent] == [
        (message.body, message.tags) for message in messages
    ]
    assert all(
        (came[one.message_id].offset_id, came[one.message_id].queue) == (one.offset_id, one.queue) for one in sent
    )
    following = sum(
        (second.queue, second.queue_offset) == (first.queue, first.queue_offset + 1)
        for first, second in itertools.pairwise(sent)
    )
    assert following > 150, "but for the seams of batches they follow one another"
    assert {one.stats()[0].sent for one in (producer,)} == {200}


def test_what_lingers_goes_with_a_flush_and_with_the_end(rocketbox, rocketmq_topic, consumed):
    with rocketbox.client(timeout=PATIENT) as client:
        producer = client.producer("lingering", linger=30)
        pending = [producer.submit(rocketmq_topic, str(number)) for number in range(3)]
        later = producer.submit(rocketmq_topic, "later", delay=0)
        assert later.result(PATIENT / 3).message_id, "it has a time of its own"
        assert producer.flush(PATIENT / 3) == 0
        assert [one.result().queue_offset for one in pending]
        last = producer.submit(rocketmq_topic, "last")
    assert last.result().message_id
    texts = sorted(message.text for message in consumed(rocketmq_topic, 5, timeout=PATIENT))
    assert texts == ["0", "1", "2", "last", "later"]


def test_what_lingers_keeps_the_order_of_its_shard(client, rocketmq_topic, consumed):
    producer = client.producer("lingering", linger=0.001)
    producer.send(rocketmq_topic, "0", shard="a")
    list(
        producer.send_many([Message(rocketmq_topic, str(number), shard="ab"[number % 2]) for number in range(1, 3000)])
    )
    texts: dict[str, list[int]] = {}
    for message in consumed(rocketmq_topic, 3000, timeout=PATIENT):
        texts.setdefault(message.properties["__SHARDINGKEY"], []).append(int(message.text))
    assert {shard: numbers == sorted(numbers) for shard, numbers in texts.items()} == {"a": True, "b": True}


def test_what_goes_alone_does_not_overtake_what_lingers_in_its_shard(client, rocketmq_topic):
    producer = client.producer("lingering", linger=20)
    producer.send(rocketmq_topic, "0", shard="a", queue=None, delay=0)
    bodies = ["1", "2" * 5000, "3", os.urandom(40_000), "5"]
    pending = [producer.submit(rocketmq_topic, body, shard="a") for body in bodies]
    producer.send_batch([Message(rocketmq_topic, "6", shard="a")])
    offsets = [one.result(PATIENT / 3).queue_offset for one in pending]
    assert offsets == sorted(offsets)


def test_what_lingers_makes_room_when_there_is_none(client, rocketmq_topic):
    producer = client.producer("lingering", linger=30, max_in_flight=1)
    first = producer.submit(rocketmq_topic, "1")
    second = threading.Thread(target=producer.submit, args=(rocketmq_topic, "2"))
    second.start()
    assert first.result(PATIENT / 3).message_id
    second.join(PATIENT)
    assert producer.flush(PATIENT / 3) == 0


def test_messages_of_a_namespace_linger(rocketbox, rocketmq_topic):
    with rocketbox.client(timeout=PATIENT, namespace="ns") as client:
        producer = client.producer("lingering", linger=20)
        pending = [producer.submit(rocketmq_topic, str(number)) for number in range(3)]
        producer.flush(PATIENT / 3)
        places = [one.result(0).queue_offset for one in pending]
        assert places == list(range(places[0], places[0] + 3))
        assert len({one.result(0).queue for one in pending}) == 1


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd", None])
def test_bodies_are_compressed_as_the_producer_says(rocketbox, rocketmq_topic, consumed, kind):
    body = b"a long story, " * 1000
    with rocketbox.client(timeout=PATIENT) as client:
        producer = client.producer(compress=kind)
        producer.send(rocketmq_topic, body)
        producer.send(rocketmq_topic, body[:4095])
    [came, short] = consumed(rocketmq_topic, 2, timeout=PATIENT)
    assert (came.body, short.body) == (body, body[:4095])
    assert compression_of(came.record.sys_flag) == kind
    assert (len(came.record.body) < len(body)) == (kind is not None)
    assert compression_of(short.record.sys_flag) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"linger": -1}, "linger is 0 to 30"),
        ({"linger": 31}, "linger is 0 to 30"),
        ({"linger": float("nan")}, "linger is 0 to 30"),
        ({"compress": "gzip"}, "compress is"),
        ({"compress_over": -1}, "0 or more"),
        ({"retries": -1}, "0 or more"),
    ],
)
def test_options_of_a_producer_that_are_none_are_refused(options, text):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidOption, match=text):
        client.producer(**options)
