"""A connection without its socket: recorded frames in any pieces, deadlines, and bytes that are no frame."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.client.core.connection import Connection
from appliance.client.core.requests import request
from appliance.engine.protocol.command import decode_frame, encode_command
from tests.support.client_steps import answer
from tests.support.effort import effort
from tests.support.golden import GOLDEN, VERSIONS, frames


def recorded(version):
    """Yield recorded frames that servers sent to clients, in both encodings."""
    wire = GOLDEN / "wire" / version
    for name in ("pull-lite.jsonl.gz", "all-binary-producer.jsonl.gz"):
        for line, frame in frames(wire / name):
            if line["dir"] == "response" or line["code"] == 40:
                yield frame


def connection_with(opaques):
    """Return a connection with a pending call for each of these opaques."""
    connection = Connection()
    for opaque in opaques:
        connection._opaque = opaque - 1
        assert connection.call(request(105, {"topic": "T"}), 10.0, opaque) == opaque
    return connection


def fed(connection, data):
    """Return (answers with their waiters, requests of the server)."""
    answers = []
    return answers, connection.feed(data, answers)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_recorded_answers_reach_who_waits_in_any_pieces(version, piece):
    sent = {}
    for frame in recorded(version):
        command = decode_frame(frame)
        if command.is_response and command.opaque:
            sent[command.opaque] = frame
    assert len(sent) > 30
    connection = connection_with(sent)
    stream = b"".join(sent.values())
    found = []
    for at in range(0, len(stream), piece):
        answers, questions = fed(connection, stream[at : at + piece])
        assert not questions
        found += [(waiting, command.opaque, command.body) for waiting, command in answers]
    assert found == [(opaque, opaque, decode_frame(frame).body) for opaque, frame in sent.items()]
    assert connection.lost() == []


def test_a_server_that_stops_is_left_unless_it_has_answered_nothing_else_and_calls_are_repeated_once():
    connection, told = Connection(), answer(1500)
    for told.opaque in (1, 2):
        connection.call(request(11, {}), 10.0, told.opaque)
        answers, _ = fed(connection, encode_command(told))
        assert [waiting for waiting, _ in answers] == [told.opaque]
    assert not connection.goes_away
    connection.call(request(11, {}), 10.0, 3)
    served = answer()
    served.opaque = 3
    fed(connection, encode_command(served))
    for told.opaque in (4, 5):
        connection.call(asked := request(11, {}), 10.0, told.opaque, is_repeated=told.opaque == 5)
        answers, _ = fed(connection, encode_command(told))
        assert [waiting for waiting, _ in answers] == [5] * (told.opaque == 5)
        assert connection.goes_away
        assert connection.take_turned_away() == [(10.0, 4, asked, False)] * (told.opaque == 4)


def test_requests_of_the_server_are_told_apart_and_answered_unless_one_way():
    connection = Connection()
    asked = request(307, {"consumerGroup": "g"})
    asked.opaque = 5
    answers, questions = fed(connection, encode_command(asked))
    assert not answers
    assert [question.code for question in questions] == [307]
    connection.answer(questions[0], answer(3))
    sent = decode_frame(connection.take_output())
    assert (sent.opaque, sent.is_response, sent.code) == (5, True, 3)
    questions[0].flag = 2
    connection.answer(questions[0], answer(3))
    assert connection.take_output() == b""


def test_an_answer_that_nobody_waits_for_is_dropped():
    connection = connection_with([1])
    assert connection.expire(10.0) == [1]
    late = answer()
    late.opaque = 1
    assert fed(connection, encode_command(late)) == ([], [])


def test_deadlines_are_kept_over_many_answered_calls():
    connection = Connection()
    for number in range(1000):
        connection.call(request(105, {"topic": "T"}), 5.0 + number, number)
        if number != 700:
            done = answer()
            done.opaque = number + 1
            fed(connection, encode_command(done))
    assert len(connection._deadlines) < 200
    assert connection.next_deadline() <= 705.0
    assert connection.expire(704.9) == []
    assert connection.expire(705.0) == [700]


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b"SSH-2.0-OpenSSH\r\n", b"-ERR x\r\n"],
)
def test_another_protocol_is_said_to_be_one(begin):
    connection = Connection()
    assert fed(connection, begin) == ([], [])
    assert "does not speak RocketMQ's protocol: its answer begins with b" in str(connection.broken)


def test_what_comes_before_a_broken_frame_reaches_who_waits():
    connection = connection_with([1, 2])
    good = answer()
    good.opaque = 1
    answers, _ = fed(connection, encode_command(good) + b"\0\0\0\x08\0\0\0\x04{}{}")
    assert [waiting for waiting, _ in answers] == [1]
    assert "broken frame" in str(connection.broken)
    assert connection.lost() == [2]


@settings(max_examples=effort(60, 2000, 20_000), deadline=None)
@given(st.data())
def test_whatever_comes_is_an_answer_or_a_broken_connection(data):
    frame = bytearray(data.draw(st.sampled_from(FRAMES)))
    for _ in range(data.draw(st.integers(1, 6))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    connection = connection_with(range(1, 200))
    answers, questions = fed(connection, bytes(frame))
    assert len(answers) + len(questions) + (connection.broken is not None) <= frames_in(bytes(frame))


def frames_in(data: bytes) -> int:
    """Return how many frames begin in the data, by their lengths: more than one if a length became smaller."""
    count = 0
    while data:
        count += 1
        data = data[4 + int.from_bytes(data[:4], "big") :]
    return count


FRAMES = list(recorded("5.3.3"))[:40]


def test_what_has_expired_before_there_was_a_connection_is_not_sent_later():
    """Its sender was told that nothing was sent, and may have sent it again."""
    connection = Connection()
    for number in range(3):
        connection.call(request(11, {"number": str(number)}), 1.0 + number % 2, number)
    assert connection.expire(1.5) == [0, 2]
    sent = connection.take_output()
    assert b'"number":"1"' in sent
    assert b'"number":"0"' not in sent
    assert b'"number":"2"' not in sent
