"""The end of a transaction, and a broker's check, as recorded from a broker of 5.3.3."""

import pytest

from appliance.client.core.directory import Directory
from appliance.client.core.steps import Call, CallFailed, Tell
from appliance.client.core.transactions import Decision, Half, HalfPlace, end, half_of, half_of_check
from appliance.client.errors import BadAnswer, BrokerAway, RequestRefused, RequestTimeout
from appliance.client.message import MessageQueue, SendResult
from appliance.engine.protocol.command import decode_frame
from tests.support.client_steps import Driver, SetClock, answer, route
from tests.support.golden import GOLDEN, frames

QUEUE = MessageQueue("T", "a", 1)
SENT = SendResult("K", "7F00000100002A9F0000000000003623", QUEUE, 7, "X")
HALF = Half("g", "T", QUEUE, HalfPlace("K", "X", 7, 0x3623))


@pytest.fixture
def checks():
    """The recorded questions."""
    return [
        decode_frame(frame)
        for line, frame in frames(GOLDEN / "wire" / "5.3.3" / "transaction.jsonl.gz")
        if line["code"] == 39 and line["codec"] in (0, "JSON")
    ]


def ended(half, decision, outcome, known=True):
    """End a transaction with a broker that reacts so; return what it was sent."""
    clock = SetClock()
    directory = Directory(["ns:9876"], clock, 3.0)
    driver = Driver(lambda call: answer(body=route("a")) if call.address == "ns:9876" else outcome, clock)
    if known:
        driver.run(directory.look_up("T", clock.now + 3))
        driver.calls.clear()
    driver.run(end(directory, half, decision, clock.now + 3))
    return driver.calls


def test_the_place_of_a_half_message_is_in_the_answer_to_its_send():
    assert half_of("g", SENT) == HALF
    with pytest.raises(BadAnswer, match="msgId"):
        half_of("g", SendResult("K", "no place", QUEUE, 7))


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
def test_a_decision_is_told_to_the_halfs_broker_and_answered(decision):
    (call,) = ended(HALF, decision, answer())
    assert isinstance(call, Call)
    assert (call.address, call.request.code) == ("a:10911", 37)
    assert call.request.ext_fields["commitOrRollback"] == str(decision.value)
    assert call.request.ext_fields["fromTransactionCheck"] == "false"


def test_no_decision_gets_no_answer():
    (call,) = ended(HALF, Decision.UNKNOWN, None)
    assert isinstance(call, Tell)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (CallFailed("connect", "Connection refused", sent=False), BrokerAway),
        (CallFailed("lost", "it closed the connection"), BrokerAway),
        (CallFailed("timeout", "no answer in time"), RequestTimeout),
    ],
)
def test_a_decision_without_an_answer_is_an_error_that_says_what_follows(outcome, kind):
    with pytest.raises(kind, match=r"the commit of the transaction X.*the broker asks `check`"):
        ended(HALF, Decision.COMMIT, outcome)


def test_a_refused_decision_is_an_error():
    with pytest.raises(RequestRefused, match="The producer group wrong"):
        ended(HALF, Decision.ROLLBACK, answer(1, remark="The producer group wrong"))
    with pytest.raises(BrokerAway, match="no master"):
        ended(HALF, Decision.COMMIT, answer(), known=False)


def test_a_check_is_answered_to_where_it_came_from(checks):
    assert checks
    for question in checks:
        half, message = half_of_check("b:10911", question)
        assert (half.group, message.topic, half.topic) == ("PG_Tx", "TxTopic", "RMQ_SYS_TRANS_HALF_TOPIC")
        assert message.message_id == question.ext_fields["msgId"]
        (call,) = ended(half, Decision.COMMIT, answer(), known=False)
        assert call.address == "b:10911"
        told = call.request.ext_fields
        assert told["fromTransactionCheck"] == "true"
        for name in ("commitLogOffset", "tranStateTableOffset", "msgId", "transactionId", "bname"):
            assert told[name] == question.ext_fields[name]


def test_a_check_that_cannot_be_read_is_a_bad_answer(checks):
    question = checks[0]
    whole = question.body
    question.body = whole[:-5]
    with pytest.raises(BadAnswer, match="cannot be read"):
        half_of_check("b:10911", question)
    question.body = whole
    question.ext_fields["commitLogOffset"] = "-1"
    with pytest.raises(BadAnswer, match="commitLogOffset"):
        half_of_check("b:10911", question)
