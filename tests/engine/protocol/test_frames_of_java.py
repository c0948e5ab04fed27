"""Every recorded frame, both ways."""

import json
import struct

import pytest

from appliance.engine.errors import FrameError
from appliance.engine.protocol.command import CODEC_ROCKETMQ, RemotingCommand, decode_frame, encode_command
from tests.support.golden import VERSIONS, frames, transcripts


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_frame_decodes_to_what_its_header_says(version):
    count = 0
    for path in transcripts(version):
        for line, frame in frames(path):
            command = decode_frame(frame)
            header = line["header"]
            assert (command.code, command.opaque, command.flag) == (line["code"], line["opaque"], line["flag"])
            assert command.version == header["version"]
            assert command.language == header["language"]
            assert command.remark == header.get("remark")
            assert command.ext_fields == (header.get("extFields") or {})
            assert len(command.body) == line["body_len"]
            count += 1
    assert count > 5000


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_frame_comes_back_byte_for_byte(version):
    for path in transcripts(version):
        for line, frame in frames(path):
            command = decode_frame(frame)
            assert encode_command(command, command.codec) == frame, (path.name, line["t"])


def test_vectors_worked_by_hand():
    ext = {"topic": "TopicTest"}
    command = RemotingCommand(105, opaque=1, version=409, ext_fields=ext, body=b"hi")
    frame = encode_command(command)
    assert frame[:8] == bytes.fromhex("0000008900000083")
    assert frame[8:-2] == (
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":1,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    assert encode_command(command, CODEC_ROCKETMQ) == bytes.fromhex(
        "0000002f010000290069000199000000010000000000000000000000140005746f70696300000009546f706963546573746869"
    )


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def test_what_other_languages_write_is_read():
    cpp = decode_frame(
        json_frame(
            b'{"code":310,"extFields":{"AccessKey":"","e":3,"m":true,"big":1e3},"flag":0,"language":"CPP",'
            b'"opaque":5,"remark":"","version":333}\n'
        )
    )
    assert cpp.ext_fields == {"AccessKey": "", "e": "3", "m": "true", "big": "1000.0"}
    assert decode_frame(json_frame(b'{"code":1,"language":9,"extra":{"a":[1]}}')).language == "GO"
    for odd in (b'"klingon"', b"[]", b"true", b"1.5", b"-1", b"99", b'{"a":{}}'):
        assert decode_frame(json_frame(b'{"code":1,"language":%b}' % odd)).language == "OTHER"
    assert decode_frame(json_frame(b'{ "opaque" : -7 , "code" : 1, "extFields": null }')).opaque == -7


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        struct.pack(">iI", 4, 1),
        struct.pack(">iI", 100, 0),
        struct.pack(">iI", 4, 7 << 24),
        json_frame(b"not json"),
        json_frame(b"[]"),
        json_frame(b'{"code":"x"}'),
        json_frame(b'{"opaque":1}'),
        json_frame(b'{"code":99999999999}'),
        json_frame(b'{"code":1,"extFields":[1]}'),
        json_frame(b'{"code":1,"extFields":{"a":{"b":1}}}'),
        json_frame(b'{"code":1,"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        json_frame(b'{"code":1,"remark":"\xff\xfe"}'),
        struct.pack(">iI", 24, 1 << 24 | 20) + bytes(20),
        struct.pack(">iI", 25, 1 << 24 | 21) + struct.pack(">hbhiiii", 1, 0, 1, 1, 0, 99, 0),
        struct.pack(">iI", 25, 1 << 24 | 21) + struct.pack(">hbhiiii", 1, 0, 1, 1, 0, -1, 0),
        struct.pack(">iI", 25, 1 << 24 | 21) + struct.pack(">hbhiiii", 1, 0, 1, 1, 0, 0, 2**31 - 1),
    ],
    ids=range(18),
)
def test_hostile_frames_are_refused_as_frames(frame):
    with pytest.raises(FrameError):
        decode_frame(frame)


def test_a_frame_cut_anywhere_is_refused():
    frame = encode_command(RemotingCommand(105, ext_fields={"topic": "T", "k": "v"}, body=b"body"))
    binary = encode_command(RemotingCommand(105, ext_fields={"topic": "T", "k": "v"}, body=b"body"), CODEC_ROCKETMQ)
    for whole in (frame, binary):
        for size in range(len(whole)):
            with pytest.raises(FrameError):
                decode_frame(whole[:size])
            # A length field that fits, so that only the header's own lengths can tell.
            if size >= 8:
                cut = struct.pack(">i", size - 4) + whole[4:size]
                try:
                    decode_frame(cut)
                except FrameError:
                    continue
                assert size >= len(whole) - 4  # only the body is shorter


def test_an_oversized_answer_and_a_code_too_large_for_the_binary_header_are_refused():
    with pytest.raises(FrameError):
        encode_command(RemotingCommand(0, body=bytes(16 * 1024 * 1024)))
    with pytest.raises(FrameError):
        encode_command(RemotingCommand(200050), CODEC_ROCKETMQ)


def test_json_text_is_escaped_as_json():
    frame = encode_command(RemotingCommand(1, remark='a "quote"\nand \u0001', ext_fields={"k": "\u4e2d\u2028"}))
    header = json.loads(frame[8:])
    assert header["remark"] == 'a "quote"\nand \u0001'
    assert header["extFields"] == {"k": "\u4e2d\u2028"}


HALVES = {
    "JSON": b'{"code":10,"extFields":{"a":"\\ud800"}}',
    "JSON key": b'{"code":10,"extFields":{"\\udfff":"a"}}',
    "JSON remark": b'{"code":10,"remark":"\\ud83dx"}',
    "JSON, in bytes": b'{"code":10,"extFields":{"a":"\xed\xa0\x80"}}',
    "ROCKETMQ": struct.pack(">hbhiiiihci3s", 10, 0, 1, 1, 0, 0, 10, 1, b"a", 3, b"\xed\xa0\x80"),
    "ROCKETMQ remark": struct.pack(">hbhiii3si", 10, 0, 1, 1, 0, 3, b"\xed\xa0\x80", 0),
}


@pytest.mark.parametrize("name", HALVES)
def test_no_header_brings_half_a_surrogate_pair(name):
    codec = CODEC_ROCKETMQ if name.startswith("ROCKETMQ") else 0
    header = HALVES[name]
    with pytest.raises(FrameError):
        decode_frame(struct.pack(">iI", 4 + len(header), codec << 24 | len(header)) + header)


@pytest.mark.parametrize("codec", [0, CODEC_ROCKETMQ])
@pytest.mark.parametrize(
    "place", [{"remark": "\ud800"}, {"ext_fields": {"a": "\ud800"}}, {"ext_fields": {"\udc00": ""}}]
)
def test_an_answer_that_no_header_can_hold_is_a_frame_error(codec, place):
    """The connection answers a frame error; any other exception would end more than this request."""
    with pytest.raises(FrameError):
        encode_command(RemotingCommand(0, **place), codec)
