"""A header's JSON without msgspec, as in a client's wheel: the same fields and the same bytes as with it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.errors import FrameError, HeaderTextError
from appliance.engine.protocol import header_codecs, plain_json
from appliance.engine.protocol.header_codecs import decode_header, encode_header
from tests.support.golden import frames, transcripts


@pytest.fixture
def plain(monkeypatch):
    """Have `header_codecs` do as it does where msgspec is missing."""
    for name, value in (
        ("_json_decode", plain_json.decode),
        ("_json_encode", plain_json.encode),
        ("JsonError", plain_json.JsonError),
    ):
        monkeypatch.setattr(header_codecs, name, value)


def recorded():
    """Every header in JSON of one recording of each kind."""
    for path in transcripts("5.3.3"):
        if path.name.startswith(("producer", "transaction", "errors", "pull-lite", "namesrv")):
            for line, frame in frames(path):
                if line["codec"] in (0, "JSON"):
                    yield frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


#: As C++, Go and people write them, and as none should.
READ = [
    b'{"code":0}\n',
    b' { "opaque" : 7 , "code" : 1 , "unknown" : [ { } ] } ',
    b'{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":1.5,"e":"x"},"remark":""}',
    b'{"code":1,"language":3,"remark":null,"extFields":null}',
    b'{"code":1,"language":"klingon"}',
    b'{"code":1,"language":[]}',
    b'{"code":1,"language":true}',
    b'{"code":1,"language":1.5}',
    b'{"code":1,"language":{"a":[{}]}}',
    b'{"code":1,"language":-1}',
    b'{"code":1,"code":2}',
    '{"code":1,"remark":"用 \\u00e4 \\ud83d\\ude00 \\n"}'.encode(),
]
REFUSED = [
    b"",
    b"[]",
    b"{}",
    b'"code"',
    b'{"code":null}',
    b'{"code":true}',
    b'{"code":"1"}',
    b'{"code":1,"opaque":"1"}',
    b'{"code":1,"opaque":2147483648}',
    b'{"code":1,"opaque":99999999999999999999999}',
    b'{"code":1,"flag":NaN}',
    b'{"code":1,"extFields":[]}',
    b'{"code":1,"extFields":{"a":{}}}',
    b'{"code":1,"extFields":{"a":[]}}',
    b'{"code":1,"remark":5}',
    b'{"code":1',
    b'{"code":1}{',
    b'{"code":1,"remark":"\\ud800"}',
    b"[" * 100_000,
]


def test_recorded_headers_are_read_and_written_alike(monkeypatch, request):
    headers = list(recorded())
    fast = [decode_header(0, header) for header in headers]
    request.getfixturevalue("plain")
    assert [decode_header(0, header) for header in headers] == fast
    assert len(headers) > 100


@pytest.mark.parametrize("header", READ)
def test_what_others_write_is_read_alike(header, request):
    fast = decode_header(0, header)
    request.getfixturevalue("plain")
    assert decode_header(0, header) == fast


@pytest.mark.parametrize("header", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_header_is_refused_alike(header, request):
    for _ in range(2):
        with pytest.raises(FrameError):
            decode_header(0, header)
        request.getfixturevalue("plain")


def test_bytes_that_are_no_text_are_refused_alike(request):
    for _ in range(2):
        with pytest.raises(HeaderTextError):
            decode_header(0, b'{"code":1,"remark":"\xff"}')
        request.getfixturevalue("plain")


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_fields_are_written_alike(fields):
    assert plain_json.encode(fields) == header_codecs._json_encode(fields)
    assert json.loads(plain_json.encode(fields)) == fields


def test_half_a_surrogate_pair_is_refused_as_with_msgspec(plain):
    from appliance.engine.protocol.command import RemotingCommand

    with pytest.raises(FrameError):
        encode_header(RemotingCommand(1, ext_fields={"a": "\ud800"}), 0)
