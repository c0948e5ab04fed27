"""A topic that is deleted and made again under its consumers: every new message is ahead of each of them."""

import errno
import shutil

import pytest

from appliance.engine.protocol.message_id import decode_offset_id
from tests.engine.broker.transactions.test_transactions import COMMIT, ROLL_BACK, end
from tests.support.engine import RunningEngine, pull_fields, records, send_fields
from tests.support.figures import SkippingClock
from tests.support.waiting import wait_for

SEND, PULL, MAX_OFFSET, MIN_OFFSET, QUERY_OFFSET, DELETE_TOPIC = 310, 11, 30, 31, 14, 215


@pytest.fixture
def running(tmp_path):
    made = RunningEngine(tmp_path / "data")
    yield made
    made.stop()


def send(peer, *bodies, topic="T", queue=0):
    return [int(peer.ask(SEND, send_fields(topic, queue), body).ext_fields["queueOffset"]) for body in bodies]


def pull(peer, offset, topic="T", queue=0):
    return peer.ask(PULL, pull_fields(topic, queue, offset))


def send_half(peer, key, more="", topic="T"):
    """Send a half message; return the fields of the request that ends it."""
    properties = f"{more}TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01{key}\x02"
    answer = peer.ask(SEND, send_fields(topic, 0, properties, f=4), key.encode())
    assert answer.code == 0, answer
    place = decode_offset_id(answer.ext_fields["msgId"])[2]
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": str(place),
        "msgId": key,
        "transactionId": key,
        "fromTransactionCheck": "false",
    }


def delete(running, topic="T"):
    running.window.topic_commands.delete(topic, force=True)
    assert running.engine.broker.topics.get(topic) is None


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_consumer_that_runs_on_gets_every_new_message(running, count):
    """It goes on where it was, whether there are fewer new messages by then, as many, or more."""
    peer = running.peer()
    assert send(peer, b"0", b"1", b"2") == [0, 1, 2]
    delete(running)
    assert send(peer, *[b"new %d" % number for number in range(count)]) == list(range(3, 3 + count))
    answer = pull(peer, 3)
    assert [record.body for record in records(answer.body)] == [b"new %d" % number for number in range(count)]
    assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == ("3", str(3 + count))


@pytest.mark.parametrize("what", ["offsets", "schema"])
def test_messages_do_not_come_back_because_something_else_cannot_be_saved(running, monkeypatch, what):
    peer = running.peer()
    send(peer, b"0", b"1", b"2")
    owner, name = (
        (running.engine.broker.offsets, "persist")
        if what == "offsets"
        else (running.engine.broker.topic_service, "forget_more")
    )

    def on_a_full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, on_a_full_disk)
        answer = peer.ask(DELETE_TOPIC, {"topic": "T"})
        assert (answer.code, "try again" in answer.remark) == (1, True)
    assert send(peer, b"new") == [3]
    assert peer.ask(MIN_OFFSET, {"topic": "T", "queueId": 0}).ext_fields["offset"] == "3"
    assert [record.body for record in records(pull(peer, 3).body)] == [b"new"]


@pytest.mark.parametrize("offset", [0, 2])
def test_who_asks_for_what_was_deleted_is_sent_to_the_first_new_one(running, offset):
    peer = running.peer()
    send(peer, b"0", b"1", b"2")
    delete(running)
    send(peer, b"new")
    answer = pull(peer, offset)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "3")


def test_a_committed_offset_that_comes_after_the_deletion_steps_over_nothing(running):
    """A running client goes on committing, whatever becomes of its topic."""
    peer = running.peer()
    running.engine.broker.groups.find("CG")
    send(peer, b"0", b"1", b"2")
    delete(running)
    running.engine.loop.call_soon(lambda: running.engine.broker.offsets.commit("CG", "T", 0, 3))
    wait_for(lambda: running.engine.broker.offsets.get("CG", "T", 0) == 3, "the commit")
    send(peer, b"new 0", b"new 1")
    answer = peer.ask(QUERY_OFFSET, {"consumerGroup": "CG", "topic": "T", "queueId": 0})
    found = pull(peer, int(answer.ext_fields["offset"]))
    assert [record.body for record in records(found.body)] == [b"new 0", b"new 1"]


def test_its_queues_say_where_they_begin_before_a_message_comes_and_after_a_restart(running):
    peer = running.peer()
    send(peer, b"0", b"1", b"2")
    delete(running)
    make = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
            "topicFilterType": "SINGLE_TAG"}  # fmt: skip
    assert peer.ask(17, make).code == 0

    def ends():
        asking = running.peer()
        where = {"topic": "T", "queueId": 0}
        return [asking.ask(code, where).ext_fields["offset"] for code in (MIN_OFFSET, MAX_OFFSET)]

    wait_for(lambda: ends() == ["3", "3"], "the queue")
    running.restart()
    assert ends() == ["3", "3"]
    assert pull(running.peer(), 3).code == 19
    assert send(running.peer(), b"new") == [3]
    running.restart()
    assert [record.body for record in records(pull(running.peer(), 3).body)] == [b"new"]


def test_a_group_that_is_new_reads_a_topic_made_again_from_its_beginning(running):
    """It does the same with a topic that never existed: 14 answers the first offset while no message is old."""
    peer = running.peer()
    send(peer, b"0", b"1", b"2")
    delete(running)
    send(peer, b"new")
    running.engine.broker.groups.find("Fresh")
    answer = peer.ask(QUERY_OFFSET, {"consumerGroup": "Fresh", "topic": "T", "queueId": 0})
    assert (answer.code, answer.ext_fields["offset"]) == (0, "3")


def test_a_topic_deleted_twice_goes_on_behind_both(running):
    peer = running.peer()
    send(peer, b"0", b"1")
    delete(running)
    assert send(peer, b"2") == [2]
    delete(running)
    delete_again = running.peer().ask(215, {"topic": "T"})
    assert delete_again.code == 0
    assert send(peer, b"3") == [3]
    assert send(peer, b"other", queue=1) == [0]


def test_a_topic_made_again_twice_at_once_outlives_a_restart_and_a_kill(running, tmp_path):
    peer = running.peer()
    assert send(peer, b"0", b"1", b"2") == [0, 1, 2]
    delete(running)
    assert send(peer, b"3", b"4") == [3, 4]
    delete(running)
    assert send(peer, b"5", b"6") == [5, 6]
    running.restart()
    assert send(running.peer(), b"7") == [7]
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "data", killed, ignore=shutil.ignore_patterns("lock"))
    after = RunningEngine(killed)
    try:
        assert not after.engine.broker.store.queues.find("T", 0).broken
        found = records(pull(after.peer(), 5).body)
        assert [(record.queue_offset, record.body) for record in found] == [(5, b"5"), (6, b"6"), (7, b"7")]
        assert send(after.peer(), b"8") == [8]
    finally:
        after.stop()


def test_the_retries_of_a_group_that_is_called_like_another_group_with_the_topic_stay(running):
    """5.3.3 takes %RETRY%billing_orders for that of pop consumers of billing and orders, and deletes it."""
    peer = running.peer()
    send(peer, b"order", topic="orders")
    send(peer, b"bill", topic="bills")
    for group in ("billing", "billing_orders"):
        running.engine.broker.groups.find(group)
    running.commit("billing", "orders", 0, 1)
    [bill] = records(pull(peer, 0, topic="bills").body)
    retry = {"offset": bill.physical_offset, "group": "billing_orders", "delayLevel": 1, "originTopic": "bills"}
    assert peer.ask(36, retry).code == 0
    delete(running, "orders")
    wait_for(lambda: running.engine.broker.store.max_offset("%RETRY%billing_orders", 0) == 1, "the retry")


def test_a_deletion_that_a_crash_ended_before_the_retry_topics_queues_went_is_finished_by_the_next(running):
    name, pop = "%RETRY%billing_orders", "billing_orders"
    peer = running.peer()
    send(peer, b"order", topic="orders")
    broker = running.engine.broker
    broker.groups.find("billing")
    running.commit("billing", "orders", 0, 1)
    broker.topics.create_retry_topic(name, 1, 6)
    send(peer, b"old", topic=name)
    broker.groups.wait_durable(broker.groups.delete(pop))  # the send has made it
    with broker.topics.deleting(name) as ticket:
        broker.topics.wait_durable(ticket)
    running.restart()
    store = running.engine.broker.store
    assert store.has_queues(name)
    delete(running, "orders")
    assert not store.has_queues(name)
    assert not store.has_queues("orders")


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_that_wait_for_a_deleted_topic_do_not_come_into_the_next_one(tmp_path, request, restarts):
    """At a delay level, for a time of their own, or for their producer's decision. They are due a minute later."""
    clock = SkippingClock()
    running = RunningEngine(tmp_path / "data", clock=clock)
    request.addfinalizer(running.stop)
    peer = running.peer()

    def send_all(key):
        assert peer.ask(SEND, send_fields("T", 0, "DELAY\x015\x02"), b"level " + key).code == 0
        assert peer.ask(SEND, send_fields("T", 0, "TIMER_DELAY_MS\x0160000\x02"), b"time " + key).code == 0
        return send_half(peer, key.decode(), topic="T")

    old_half = send_all(b"old")
    delete(running)
    if restarts:
        running.restart()
        peer = running.peer()
    new_half = send_all(b"new")
    refused = end(peer, old_half, COMMIT)
    assert (refused.code, "was deleted after" in refused.remark) == (1, True)
    assert end(peer, new_half, COMMIT).code == 0
    assert end(peer, old_half, ROLL_BACK).code == 0
    clock.skipped_ms += 61_000

    def found():
        answer = pull(running.peer(), 0, queue=0)
        first = answer.ext_fields["nextBeginOffset"] if answer.code == 21 else 0
        answer = pull(running.peer(), int(first), queue=0)
        return sorted(record.body for record in records(answer.body)) if answer.code == 0 else []

    wait_for(lambda: {b"level new", b"time new"} <= set(found()), "the new topic's own messages")
    broker = running.engine.broker
    wait_for(lambda: broker.delays.deliver.given_up["no topic"] == 1, "the old delayed message is given up")
    wait_for(lambda: broker.timers.deliver.given_up["no topic"] == 1, "the old timed message is given up")
    assert found() == [b"level new", b"new", b"time new"]


def test_a_mark_of_deleted_topics_that_a_client_sends_is_removed(running):
    peer = running.peer()
    mark = "ROCKETBOX_OF_DELETED\x011\x02"
    assert peer.ask(SEND, send_fields("T", 0, mark + "DELAY\x011\x02"), b"level").code == 0
    assert peer.ask(SEND, send_fields("T", 0, mark + "TIMER_DELAY_MS\x01500\x02"), b"time").code == 0
    half = send_half(peer, "K", mark, topic="T")
    assert end(peer, half, COMMIT).code == 0
    wait_for(lambda: len(records(pull(running.peer(), 0).body or b"")) == 3, "all three")
