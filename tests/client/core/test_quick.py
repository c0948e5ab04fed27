"""Sends in their usual form: the same bytes and the same places as on the long way."""

import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.client import ForkedError, Message
from appliance.client.core import requests
from appliance.client.core.connection import Connection
from appliance.client.core.quick import Flight, Stop, form_of, header, place_of, plain_text
from appliance.client.core.steps import CallFailed
from appliance.client.message import MessageQueue
from appliance.client.packing import properties_of, text_of
from appliance.client.shells.threads import Pending
from appliance.client.wire import RemotingCommand, encode_command
from tests.support.interrupted import interrupted
from tests.support.waiting import wait_for

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
PATIENT = 60.0
KEY = "7F00000100010000000000000000ABCD"


class Fleet:
    def __init__(self):
        self.landed, self.diverted_to = [], []

    def diverted(self, flight, outcome):
        self.diverted_to.append((flight, outcome))


def flight_of(fleet, deadline=10.0):
    queue = MessageQueue("orders", "broker-a", 3)
    return Flight(fleet, queue, KEY, plain_text(KEY, ""), b"paid", None, 1.0, deadline, deadline, lambda *_: None)


def answer(opaque, body=b"", **fields):
    stored = {"queueId": "3", "msgId": "0A", "queueOffset": "17", "MSG_REGION": "r", "TRACE_ON": "true"} | fields
    found = RemotingCommand.response(0, ext=stored, body=body)
    found.opaque = opaque
    return encode_command(found)


def fed(connection, data):
    """Return (answers with their waiters, requests of the server)."""
    answers = []
    return answers, connection.feed(data, answers)


def launched(deadline=10.0):
    fleet, connection = Fleet(), Connection()
    flight = flight_of(fleet, deadline)
    connection.launch(flight, Stop("billing", flight.queue, "host:1", False), 5)
    connection.take_output()
    return fleet, connection, flight


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 2**31 - 1), st.integers(0, 2**41))
def test_a_header_is_that_of_the_long_way(group, topic, broker, text, opaque, born_ms):
    queue = MessageQueue(topic, broker, 7)
    request = requests.send(group, queue, b"", text, 0, born_ms)
    request.opaque = opaque
    assert header(Stop(group, queue, "host:1", False), born_ms, text, opaque) == encode_command(request)[8:]


def test_properties_are_those_of_the_long_way():
    tail = text_of({"TAGS": "paid"})
    assert plain_text(KEY, tail) == text_of(properties_of(Message("orders", "x", tags="paid"), KEY))
    assert plain_text(KEY, "") == text_of(properties_of(Message("orders", "x"), KEY))


@pytest.mark.parametrize("fields", [{}, {"transactionId": KEY}, {"TRACE_ON": "false", "MSG_REGION": "größer+.*"}])
def test_an_answer_lands_with_its_place(fields):
    _, connection, flight = launched()
    assert fed(connection, answer(1, **fields)) == ([], [])
    ((landed, answered),) = connection.take_landed()
    place = place_of(landed, answered)
    assert landed is flight
    assert connection.take_landed() == []
    assert (place.message_id, place.queue, place.queue_offset, place.offset_id) == (KEY, flight.queue, 17, "0A")
    assert place.transaction_id == fields.get("transactionId")
    assert place.is_traced == (fields.get("TRACE_ON") != "false")
    assert place.region == fields.get("MSG_REGION", "r")


def test_a_signal_loses_no_flight_with_an_odd_answer():
    for behind in itertools.count():
        _, connection, flight = launched()
        answers = []
        whole = interrupted(lambda: connection.feed(answer(1, queueId=""), answers) is not None, behind)  # noqa: B023
        assert [one for one, _ in answers] + connection.lost() == [flight], behind
        if whole:
            break
    assert behind > 3


@pytest.mark.parametrize(
    "odd",
    [
        {"recallHandle": "h"},
        {"queueOffset": "-1"},
        {"queueId": ""},
        {"queueOffset": "9" * 30},
        {"msgId": 'a"b'},
        {"msgId": "ä"},
        {"transactionId": ""},
    ],
)
def test_an_odd_answer_takes_the_long_way(odd):
    _, connection, flight = launched()
    ((waiting, command),) = fed(connection, answer(1, **odd))[0]
    assert waiting is flight
    assert command.ext_fields.items() >= odd.items()
    assert connection.take_landed() == []


def test_an_answer_that_is_no_text_after_a_good_one_ends_the_connection():
    fleet, connection, flight = launched()
    connection.launch(flight_of(fleet), Stop("billing", flight.queue, "host:1", False), 5)
    assert fed(connection, answer(1) + answer(2).replace(b'"0A"', b'"\xff\xfe"')) == ([], [])
    assert [landed for landed, _ in connection.take_landed()] == [flight]
    assert connection.broken is not None
    assert len(connection.lost()) == 1


def test_refusals_and_answers_with_a_body_take_the_long_way():
    for frame in (answer(1, b"x"), encode_command(RemotingCommand(14, 1, 1, remark="full"))):
        _, connection, flight = launched()
        ((waiting, _),) = fed(connection, frame)[0]
        assert waiting is flight
        assert not connection.take_landed()


def test_an_answer_tells_the_queue_and_that_of_another_call_goes_there():
    _, connection, flight = launched()
    other = RemotingCommand(310)
    connection.call(other, 10.0, "another")
    ((waiting, _),) = fed(connection, answer(2) + answer(1, queueId="5"))[0]
    assert waiting == "another"
    ((landed, answered),) = connection.take_landed()
    assert landed is flight
    assert place_of(landed, answered).queue == MessageQueue("orders", "broker-a", 5)


def test_bytes_that_a_lost_connection_dropped_do_not_count_for_the_next_ones():
    connection, flight = Connection(), flight_of(Fleet())
    stop = Stop("billing", flight.queue, "host:1", False)
    first = connection.launch(flight, stop, 5)
    connection.lost()
    assert connection.launch(flight, stop, 5) == first


def test_a_form_that_changes_is_learned_again():
    fleet, connection, _ = launched()
    stop = Stop("billing", flight_of(fleet).queue, "host:1", False)
    for _ in range(3):
        connection.launch(flight_of(fleet), stop, 5)
    frames = [answer(1), answer(2, TRACE_ON="false"), answer(3, transactionId=KEY), answer(4)]
    assert fed(connection, b"".join(frames)) == ([], [])
    assert len(connection.take_landed()) == 4


def test_an_answer_to_nothing_or_after_the_deadline_lands_nowhere():
    fleet, connection, flight = launched(deadline=10.0)
    assert fed(connection, answer(77)) == ([], [])
    assert not connection.take_landed()
    assert connection.expire(10.0) == [flight]
    assert fed(connection, answer(1)) == ([], [])
    assert not connection.take_landed()
    flight(CallFailed("timeout", "no answer in time"))
    assert fleet.diverted_to[0][0] is flight


@given(st.binary(max_size=300))
def test_whatever_a_header_is_it_has_a_form_or_none(data):
    form_of(data)
    form = form_of(answer(1)[8:])
    assert form is not None
    assert form.match(data) is None


def in_a_fork(act):
    """Return the exit code of a fork that does something: 0 if it gets through."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(PATIENT))
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_was_begun_before_a_fork_is_an_error_in_it():
    pending = Pending()

    def wait():
        assert pending.done()
        for timeout in (None, 0.0):
            with pytest.raises(ForkedError):
                pending.result(timeout)
        own = Pending()
        assert not own.done()
        threading.Timer(0.01, own.complete, (7, None)).start()
        assert own.result() == 7

    making = getattr(Pending, "_making", contextlib.nullcontext())
    with making:  # by a thread that the fork does not have
        assert in_a_fork(wait) == 0
    assert not pending.done()
    pending.complete(1, None)
    assert pending.result() == 1

    def has_it():
        assert pending.done()
        assert pending.result() == 1

    assert in_a_fork(has_it) == 0


def test_waits_that_end_too_early_leave_nothing_behind():
    pending = Pending()

    def locks():
        lists = [one for one in gc.get_referents(pending) if isinstance(one, list)]
        return sum(map(len, lists))

    waiter = threading.Thread(target=pending.result)
    waiter.start()
    wait_for(lambda: locks() == 1, "the thread waits")
    for _ in range(100):
        with pytest.raises(TimeoutError):
            pending.result(0.0)
    assert locks() == 1
    pending.complete(1, None)
    waiter.join(PATIENT)
    assert not waiter.is_alive()


#: Calls of Python and C functions for each plain send: into the output, and its answer to its place.
SEND_CALLS = 26


def test_a_plain_send_costs_few_calls():
    _, connection, flight = launched()
    stop = Stop("billing", flight.queue, "host:1", False)
    fed(connection, answer(1))  # the form of an answer is learned from the first
    connection.take_landed()
    flights = [flight_of(Fleet()) for _ in range(64)]
    answers = b"".join(answer(opaque) for opaque in range(2, 66))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for one in flights:
            connection.launch(one, stop, 5)
        connection.take_output()
        connection.feed(answers, [])
        landed = [place_of(*one) for one in connection.take_landed()]
    finally:
        sys.setprofile(None)
    assert len(landed) == 64
    assert calls / 64 <= SEND_CALLS, f"{calls / 64:.1f} calls a send"
