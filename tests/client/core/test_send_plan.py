"""One send against a scripted cluster: attempts, queues, and errors that state the message's fate."""

import pytest

from appliance.client.core import requests
from appliance.client.core.directory import Directory
from appliance.client.core.selection import Faults, NoFaults, RoundRobin, queue_of_shard
from appliance.client.core.send_plan import Envelope, Sending
from appliance.client.core.steps import Call, CallFailed
from appliance.client.errors import (
    NoNameServer,
    NoRoute,
    NotConnected,
    Refused,
    SendError,
    SendTimeout,
    StoredUnconfirmed,
    Unsupported,
)
from appliance.client.message import MessageQueue
from tests.support.client_steps import Driver, SetClock, answer, route

STORED = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "1", "queueOffset": "7", "transactionId": "K"}


class Cluster:
    """A name server with routes of `topics`, and brokers that answer each send with the next item of `sends`."""

    def __init__(self, sends, topics=("T",), brokers=("a", "b")):
        self.sends = list(sends)
        self.topics = topics
        self.brokers = brokers
        self.sent_to = []
        #: What brokers answer to a heartbeat.
        self.heard = answer()

    def __call__(self, call):
        if call.address == "ns:9876":
            known = call.request.ext_fields["topic"] in self.topics
            return answer(body=route(*self.brokers)) if known else answer(17, remark="No topic route info")
        if call.request.code == 34:
            return self.heard
        self.sent_to.append(call.request.ext_fields["n"])
        return self.sends.pop(0)


def send(cluster, timeout=3.0, retries=2, accept_unconfirmed=False, **where):
    clock = SetClock()
    directory = Directory(["ns:9876"], clock, 3.0)
    driver = Driver(cluster, clock)

    def beat(address):
        outcome = yield Call(address, requests.heartbeat("c", ["g"], []), clock.now + 3.0)
        if not isinstance(outcome, CallFailed):
            directory.versions[address] = outcome.version

    sending = Sending(directory, clock, Faults(), 0, retries, beat, accept_unconfirmed)
    envelope = Envelope("g", "T", b"x", "UNIQ_KEY\x01K\x02", 0, "K", **where)
    cluster.driver, cluster.clock, cluster.directory = driver, clock, directory
    cluster.notes, cluster.news = [], []
    directory.note, directory.tell = cluster.notes.append, cluster.news.append
    cluster.sending = sending
    return driver.run(sending.send(envelope, clock.now + timeout))


AWAY = CallFailed("connect", "Connection refused", sent=False)
SILENT = CallFailed("timeout", "no answer in time")
LOST = CallFailed("lost", "it closed the connection")


def test_a_send_is_stored():
    result = send(Cluster([answer(**STORED)]))
    assert (result.message_id, result.queue, result.queue_offset) == ("K", MessageQueue("T", "a", 1), 7)


@pytest.mark.parametrize("first", [AWAY, SILENT, LOST, answer(2, remark="busy"), answer(14), answer(1)])
def test_another_broker_gets_what_one_did_not_take(first):
    cluster = Cluster([first, answer(**STORED)])
    send(cluster)
    assert cluster.sent_to == ["a", "b"]


def test_a_silent_broker_leaves_time_for_another():
    cluster = Cluster([SILENT, answer(**STORED)])
    began = 1000.0
    send(cluster, timeout=4.0)
    sends = [call for call in cluster.driver.calls if call.address != "ns:9876"]
    assert [call.deadline - began for call in sends] == [2.0, 3.0]


def test_the_only_broker_is_tried_again_after_a_pause():
    cluster = Cluster([AWAY, AWAY, answer(**STORED)], brokers=("a",))
    send(cluster)
    assert cluster.driver.slept == pytest.approx([0.1, 0.5])


@pytest.mark.parametrize(
    ("sends", "kind", "maybe_stored", "attempts", "text"),
    [
        ([AWAY] * 3, NotConnected, False, 3, "Connection refused (3 attempts, topic T). The message is not stored"),
        ([LOST] * 3, NotConnected, True, 3, "sending it again may store it twice"),
        ([SILENT], SendTimeout, True, 1, "broker a at a:10911 did not answer in time"),
        ([LOST, answer(16, remark="no"), answer(16)], Refused, True, 3, "may be stored"),
        ([answer(13, remark="too long")], Refused, False, 1, "code 13, MESSAGE_ILLEGAL: too long"),
        ([answer(14, remark="full")] * 3, Refused, False, 3, "its disk may be full"),
        ([CallFailed("closed", "closed")], NotConnected, True, 1, "closed before broker a at a:10911 answered"),
        ([CallFailed("broken", "does not speak")] * 3, NotConnected, True, 3, "does not speak"),
        ([answer(0, queueId="x")], SendError, True, 1, "without a proper queueId"),
    ],
)  # fmt: skip
def test_an_error_says_what_became_of_the_message(sends, kind, maybe_stored, attempts, text):
    only = len(sends) == 1 and isinstance(sends[0], CallFailed) and sends[0].kind == "timeout"
    with pytest.raises(kind) as raised:
        send(Cluster(sends, brokers=("a",) if only else ("a", "b")))
    error = raised.value
    assert (error.maybe_stored, error.attempts, error.message_id) == (maybe_stored, attempts, "K")
    assert text in str(error)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_stored_and_not_safe_is_an_error_with_its_place(code):
    with pytest.raises(StoredUnconfirmed) as raised:
        send(Cluster([answer(code, **STORED)]))
    assert (raised.value.code, raised.value.result.queue_offset) == (code, 7)


def test_a_topic_that_nobody_has_is_made_by_the_send_where_brokers_make_topics():
    cluster = Cluster([answer(**STORED)], topics=("TBW102",))
    send(cluster)
    assert cluster.directory.known("T") is None


def test_without_a_route_the_error_says_how_to_make_the_topic():
    with pytest.raises(NoRoute, match="rocketbox topic create T"):
        send(Cluster([], topics=()))


def test_a_topic_that_the_broker_does_not_know_any_more_is_looked_up_again():
    cluster = Cluster([answer(17, remark="gone"), answer(**STORED)])
    send(cluster)
    assert [call.address for call in cluster.driver.calls] == ["ns:9876", "a:10911", "ns:9876", "b:10911"]


def test_without_a_name_server_the_error_says_where_one_is_named():
    clock = SetClock()
    driver = Driver(lambda call: AWAY, clock)
    directory = Directory(["n1:1", "n2:2"], clock, 3.0)
    with pytest.raises(NoNameServer, match=r"n1:1 cannot be reached \(Connection refused\); n2:2 .*NAMESRV_ADDR"):
        driver.run(directory.look_up("T", clock.now + 3))
    with pytest.raises(NoNameServer, match="No name server is configured"):
        driver.run(Directory([], clock, 3.0).look_up("T", clock.now + 3))


def test_the_name_server_that_answered_is_asked_first_from_then_on():
    clock = SetClock()
    driver = Driver(lambda call: AWAY if call.address == "n1:1" else answer(body=route("a")), clock)
    directory = Directory(["n1:1", "n2:2"], clock, 3.0)
    for _ in range(2):
        driver.run(directory.look_up("T", clock.now + 3))
    assert [call.address for call in driver.calls] == ["n1:1", "n2:2", "n2:2"]


def test_a_queue_or_a_shard_has_one_attempt():
    for where in ({"queue": MessageQueue("T", "b", 3)}, {"shard": "user-7"}):
        cluster = Cluster([LOST, answer(**STORED)])
        with pytest.raises(NotConnected):
            send(cluster, **where)
        assert len(cluster.sent_to) == 1


def test_shards_go_where_javas_selector_sends_them():
    queues = [MessageQueue("T", "b", number) for number in range(8)]
    shards = {
        "order-1001": 7,
        "order-1002": 0,
        "user-7": 3,
        "用户42": 5,
        "a": 1,
        15103111039: 4,
        42: 2,
        -7: 6,
    }
    assert {shard: queue_of_shard(shard, queues).queue_id for shard in shards} == shards


def test_a_time_of_delivery_goes_to_a_broker_that_keeps_it():
    cluster = Cluster([answer(**STORED)])
    assert send(cluster, since=413).queue_offset == 7
    assert [call.request.code for call in cluster.driver.calls] == [105, 34, 310]


def test_a_broker_that_would_not_keep_a_time_of_delivery_gets_no_message():
    cluster = Cluster([])
    cluster.heard.version = 409
    with pytest.raises(Unsupported, match="delay_level"):
        send(cluster, since=413)
    assert cluster.sent_to == []


def test_an_old_broker_does_not_hide_what_an_attempt_before_may_have_stored():
    class Mixed(Cluster):
        def __call__(self, call):
            self.heard.version = 413 if call.address.startswith("a") else 409
            return super().__call__(call)

    cluster = Mixed([LOST])
    with pytest.raises(NotConnected, match="may be stored") as raised:
        send(cluster, since=413)
    assert (raised.value.maybe_stored, raised.value.attempts) == (True, 1)


def test_a_broker_that_does_not_say_its_version_gets_no_time_of_delivery():
    cluster = Cluster([])
    cluster.heard = AWAY
    with pytest.raises(NotConnected, match="its version") as raised:
        send(cluster, since=413)
    assert not raised.value.maybe_stored
    assert cluster.sent_to == []


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_stored_and_not_safe_may_be_accepted_and_says_so(code):
    result = send(Cluster([answer(code, **STORED)]), accept_unconfirmed=True)
    assert result.queue_offset == 7
    assert result.unconfirmed
    assert send(Cluster([answer(**STORED)]), accept_unconfirmed=True).unconfirmed is None


def test_a_broker_that_failed_takes_its_turn_if_none_is_to_be_avoided():
    clock = SetClock()
    queues = [MessageQueue("T", name, 0) for name in "ab"]
    for faults, taken in ((Faults(), "bb"), (NoFaults(), "ab")):
        in_turn = RoundRobin(0)
        faults.failed("a", clock.now)
        faults.answered("a", 20.0, clock.now)
        assert "".join(in_turn.choose(queues, faults, clock.now, None).broker_name for _ in "12") == taken


def test_shards_of_a_topic_whose_queues_change_are_a_warning():
    cluster = Cluster([answer(**STORED)])
    send(cluster, shard="s")
    queues = [MessageQueue("T", "a", number) for number in range(8)]
    before = cluster.sending.queue_of("s", queues[:4])
    assert cluster.sending.queue_of("s", queues[:4]) == before
    assert len(cluster.notes) <= 1  # the cluster's topic may have another number
    del cluster.notes[:]
    cluster.sending.queue_of("s", queues)
    assert [note.partition(":")[0] for note in cluster.notes] == ["T has 8 queues to send to, and had 4"]


def test_a_topic_that_is_made_by_the_send_is_news():
    cluster = Cluster([answer(**STORED)], topics=("TBW102",))
    send(cluster)
    assert cluster.news == ["the topic T does not exist yet: brokers make it with the first message"]
