"""Bodies of clients: whatever a stranger sends, reading it takes the I/O thread hardly any time."""

import json
import time
from contextlib import suppress

import pytest

from appliance.engine.broker.heartbeat import (
    MAX_BODY_BYTES,
    CheckClientBody,
    HeartbeatData,
    LockBody,
    decode_body,
)
from appliance.engine.errors import RefusedRequest

from .conftest import consumer, subscription

#: In the thread's own time. On a quiet machine no body takes 2.5 ms; before the bounds these took 75 ms to hours.
LIMIT_S = 0.03


def filled(head: bytes, item: bytes, end: bytes) -> bytes:
    """Return the largest body that is taken, filled with one item."""
    return head + item * ((MAX_BODY_BYTES - len(head) - len(end)) // len(item) - 1) + item.rstrip(b",") + end


def fan_out(levels: int) -> bytes:
    rows = b",".join(b'"a%d":[{"$ref":"$.a%d"},{"$ref":"$.a%d"}]' % (n, n + 1, n + 1) for n in range(levels))
    consumer = b'{"groupName":"g","subscriptionDataSet":{"$ref":"$.a0"}}'
    return b'{"clientID":"c","consumerDataSet":[%b],%b,"a%d":[{}]}' % (consumer, rows, levels)


#: Numbers that are 2^61 - 1 apart have the same hash: all of them fall into one place of a set.
SAME_PLACE = b",".join(b'"%d"' % (n * ((1 << 61) - 1) << 10) for n in range(9000))
WORST = {
    "references that double": fan_out(35),
    "keys in keys": b"{" * 60 + b'"a":1' + b"}:1" * 60,
    "empty consumers": filled(b'{"consumerDataSet":[', b"{},", b"]}"),
    "empty producers": filled(b'{"producerDataSet":[', b"{},", b"]}"),
    "empty subscriptions": filled(b'{"consumerDataSet":[{"subscriptionDataSet":[', b"{},", b"]}]}"),
    "empty lists behind a null": filled(b'{"clientID":null,"x":[', b"[],", b"]}"),
    "numbers behind a null": filled(b'{"clientID":null,"x":[', b"1,", b"]}"),
    "objects as keys": filled(b'{"x":{', b'{"a":1}:2,', b"}}"),
    "codes that collide": b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":[%b]}]}]}' % SAME_PLACE,
    "a number of 32,000 digits": b'{"clientID":null,"x":' + b"9" * 32_000 + b"}",
    "a quoted number": b'{"heartbeatFingerprint":"' + b"9" * 250_000 + b'"}',
    "bare digits": b"{" + b"1" * 32_000 + b"}",
    "blanks": b"{" + b" " * 32_000 + b"0" + b" " * 500 + b"}",
    "a long text behind a null": b'{"clientID":null,"x":"' + b"\\n" * 15_000 + b'"}',
    "many keys": b'{"clientID":null,"x":{' + b",".join(b'"%d":1' % n for n in range(1900)) + b"}}",
    "nested lists": b"[" * MAX_BODY_BYTES,
    "nested objects": b'{"a":' * 50_000,
}


@pytest.mark.parametrize("kind", [HeartbeatData, CheckClientBody, LockBody])
@pytest.mark.parametrize("body", WORST.values(), ids=WORST.keys())
def test_no_body_holds_up_the_thread_that_reads_it(body, kind):
    took = []
    for _ in range(3):
        before = time.thread_time()
        with suppress(RefusedRequest):
            decode_body(body, kind)
        took.append(time.thread_time() - before)
    assert min(took) < LIMIT_S


def test_a_heartbeat_as_large_as_honest_clients_send_is_read_whole():
    wanted = [
        consumer(f"group-of-a-service-{n}", f"TopicOfAService{n}", f"%RETRY%group-of-a-service-{n}")
        for n in range(1000)
    ]
    body = json.dumps({"clientID": "10.0.0.1@4711", "consumerDataSet": wanted}).encode()
    assert len(body) > MAX_BODY_BYTES * 3 // 4
    assert len(decode_body(body, HeartbeatData).consumer_data_set) == 1000


def test_a_subscription_that_is_referred_to_is_the_one_that_was_written():
    """msgspec alone would read a reference as an empty subscription."""
    first = json.dumps(consumer("a", subscription("T", "x || y")))
    second = '{"groupName":"b","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}'
    body = f'{{"clientID":"c","consumerDataSet":[{first},{second}]}}'.encode()
    a, b = decode_body(body, HeartbeatData).consumer_data_set
    assert a.subscription_data_set == b.subscription_data_set
    assert b.subscription_data_set[0].sub_string == "x || y"


@pytest.mark.parametrize(
    "field", [b'"subVersion":"%d"' % (1 << 63), b'"codeSet":[%d]' % (1 << 31), b'"codeSet":["-%d"]' % (1 << 40)]
)
def test_a_number_that_no_answer_could_hold_is_refused(desk, field):
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T",%b}]}]}' % field
    assert desk.ask(34, body=body).code == 1
    assert desk.clients.consumer_group("g") is None


@pytest.mark.parametrize("number", [b"2147483648", b'"9999999999999999999999"'])
def test_a_queue_has_a_number_of_32_bits(desk, number):
    body = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":%b}]}' % number
    assert [desk.ask(code, body=body).code for code in (41, 42)] == [1, 1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"\\ud800","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[]}]}',
        b'{"clientID":"\\ud800","x":null,"consumerDataSet":[{"groupName":"g"}],"producerDataSet":null}',
        b'{"clientID":"c\\udfff","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"\\udc00"}]}]}',
        b'{"clientID":"\xed\xa0\x80","consumerDataSet":[{"groupName":"g"}]}',
    ],
)
def test_a_client_whose_name_is_half_a_surrogate_pair_breaks_nothing_for_its_group(desk, body):
    desk.heartbeat(desk.peer, "honest", consumerDataSet=[consumer("g", "T")])
    assert desk.ask(34, body=body, peer=type(desk.peer)("127.0.0.1:2")).code == 1
    answer = desk.ask(38, {"consumerGroup": "g"})
    assert (answer.code, json.loads(answer.body)) == (0, {"consumerIdList": ["honest"]})


def test_half_a_surrogate_pair_is_no_value_of_an_option(desk):
    answer = desk.ask(25, body=b"brokerName=\\ud800")
    assert (answer.code, answer.remark) == (1, "the body is not UTF-8 text")
