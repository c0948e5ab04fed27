"""36 read in place gives the same request as the decoder, and the answer has the same bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.broker.processors import send_back
from appliance.engine.errors import FrameError, RefusedRequest
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import FLAG_RESPONSE, RemotingCommand, decode_parts, encode_command

USUAL = {
    "delayLevel": "0", "group": "G", "maxReconsumeTimes": "16", "offset": "1234", "originMsgId": "x",
    "originTopic": "T", "unitMode": "false",
}  # fmt: skip


def header(fields, **more):
    command = {"code": 36, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 7, "version": 479} | more
    return json.dumps(command, separators=(",", ":")).encode()


def in_place(data):
    """Return the request read in place; None if it is left to the decoder."""
    try:
        return send_back._usual(send_back._decode_frame(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decoded(data):
    try:
        return send_back._asked(decode_parts(0, data, b""))
    except (RefusedRequest, FrameError):
        return None


@pytest.mark.parametrize("changes", [{}, {"delayLevel": "18"}, {"unitMode": "true"}, {"offset": "9" * 18}])
def test_what_clients_write_is_read_in_place(changes):
    data = header(USUAL | changes)
    assert in_place(data) is not None
    assert in_place(data) == decoded(data)


def test_a_client_that_says_no_limit_is_read_in_place():
    data = header({"delayLevel": "3", "group": "G", "offset": "0"})
    assert in_place(data) == decoded(data) == send_back.SentBack(0, "G", 3, None, False, 479)


@pytest.mark.parametrize("more", [{"flag": 1}, {"flag": 2}, {"opaque": 2**31}, {"version": -(2**31) - 1}])
def test_what_is_no_plain_request_is_left_to_the_decoder(more):
    assert in_place(header(USUAL, **more)) is None


@pytest.mark.parametrize("text", ["", "-1", "+5", " 5", "1.0", "٣", "²", "9" * 19, "2147483648000000000"])
@pytest.mark.parametrize("name", ["offset", "delayLevel", "maxReconsumeTimes"])
def test_a_number_of_another_form_means_what_it_always_means(name, text):
    data = header(USUAL | {name: text})
    assert in_place(data) in (None, decoded(data))


@pytest.mark.parametrize("text", ["TRUE", "True", "1", "yes", ""])
def test_a_switch_of_another_form_means_what_it_always_means(text):
    data = header(USUAL | {"unitMode": text})
    assert in_place(data) in (None, decoded(data))


ODD = st.sampled_from(
    (
        "", "0", "-1", "+5", " 5", "5 ", "1.0", "1e3", "0x10", "007", "null", "true", "TRUE", "1", "false", "٣", "²",
        "1_000", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 40, 5, -1, 1.5, True,
        None,
    )
) | st.text(max_size=3)  # fmt: skip


@given(st.dictionaries(st.sampled_from(tuple(USUAL)), ODD, max_size=4), st.sets(st.sampled_from(tuple(USUAL))))
def test_nothing_is_read_otherwise_than_it_is_decoded(changes, gone):
    fields = {name: value for name, value in (USUAL | changes).items() if name not in gone}
    data = header(fields)
    asked = in_place(data)
    if asked is not None:
        assert asked == decoded(data)


@pytest.mark.parametrize("opaque", [0, 7, -1, 2**31 - 1, -(2**31)])
def test_the_answer_has_the_bytes_of_any_other(opaque):
    answer = RemotingCommand(ResponseCode.SUCCESS, opaque=opaque, flag=FLAG_RESPONSE)
    assert send_back._stored_answer(opaque) == encode_command(answer)
