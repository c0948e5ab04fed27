"""Frames that no client sends: a clear answer, a closed connection if need be, and all other peers go on."""

import re
import struct

import pytest

from appliance.engine import fastjson
from appliance.engine.protocol.command import RemotingCommand, encode_command
from tests.support.directories import shared_directory
from tests.support.engine import Peer, RunningEngine, pull_fields, send_fields, start_engine


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "data"))
    yield engine
    engine.stop()


def framed(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


LONG_NAMES = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
}  # fmt: skip
HOT = {
    310: (send_fields("T"), b"x"),
    320: (send_fields("T"), b"x"),
    10: (LONG_NAMES, b"x"),
    11: (pull_fields("T", 0, 0), b""),
    361: (pull_fields("T", 0, 0), b""),
}


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, (1 << 63) - 1, 1 << 64])
@pytest.mark.parametrize("field", ["opaque", "flag"])
@pytest.mark.parametrize("code", HOT)
def test_a_header_with_a_number_outside_32_bits_is_a_bad_frame(engine, code, field, number):
    """This holds even if the header is read in place: an answer could not be matched to such a request."""
    ext, body = HOT[code]
    whole = encode_command(RemotingCommand(code, opaque=5, ext_fields={name: str(ext[name]) for name in ext}))[8:]
    header = re.sub(rb'"%b":\d+,' % field.encode(), b'"%b":%d,' % (field.encode(), number), whole)
    assert header.startswith(b'{"code":%d,"extF' % code)
    assert header != whole
    peer = Peer(engine.broker_address)
    peer.send_bytes(framed(header, body))
    answer = peer.receive()
    assert (answer.code, answer.opaque) == (1, 0)
    assert answer.remark.startswith("bad frame: JSON header: ")
    with pytest.raises(ConnectionError):
        peer.receive()
    peer.close()


@pytest.mark.parametrize("language", [b"[]", b"true", b"1.5", b'{"a":[{}]}', b"-1"])
@pytest.mark.parametrize("code", [*HOT, 34, 36])
def test_a_language_that_is_no_text_is_another_one(engine, code, language):
    back = {"offset": 0, "group": "G", "delayLevel": 0}
    ext, body = HOT.get(code, (back, b'{"clientID":"c","producerDataSet":[{"groupName":"P"}]}'))
    peer = Peer(engine.broker_address)
    usual = peer.ask(code, ext, body)
    whole = encode_command(RemotingCommand(code, opaque=5, ext_fields={name: str(ext[name]) for name in ext}))[8:]
    peer.send_bytes(framed(whole.replace(b'"JAVA"', language), body))
    answer = peer.receive()
    assert (answer.code, answer.opaque, answer.remark) == (usual.code, 5, usual.remark)
    assert peer.ask(code, ext, body).code == usual.code
    peer.close()


GBK = "订单".encode("gbk")


def binary(code: int, fields: dict[str, bytes], opaque: int = 7, flag: int = 0) -> bytes:
    """Return a ROCKETMQ header with any values."""
    entries = b"".join(
        len(k).to_bytes(2, "big") + k.encode() + len(v).to_bytes(4, "big") + v for k, v in fields.items()
    )
    fixed = struct.pack(">hbhii", code, 1, 63, opaque, flag)
    return fixed + bytes(4) + len(entries).to_bytes(4, "big") + entries


def frame_of(codec: int, header: bytes, body: bytes = b"") -> bytes:
    whole = bytearray(framed(header, body))
    whole[4] = codec
    return bytes(whole)


@pytest.mark.parametrize(("code", "field", "refusal"), [(310, "i", 13), (10, "properties", 13), (11, "topic", 1)])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_text_that_is_not_utf8_is_refused_with_its_reason(engine, code, field, refusal, codec):
    """Old C++ programs write keys in GBK. The frames behind it are valid, and are answered."""
    ext, body = HOT[code]
    fields = {name: str(value).encode() for name, value in ext.items()} | {field: b"KEYS\x01" + GBK + b"\x02"}
    if codec:
        header = binary(code, fields)
    else:
        texts = b",".join(
            b'"%b":"%b"' % (name.encode(), value.replace(b"\x01", b"").replace(b"\x02", b""))
            for name, value in fields.items()
        )
        header = b'{"code":%d,"extFields":{%b},"flag":0,"language":"CPP","opaque":7,"version":63}' % (code, texts)
    peer = Peer(engine.broker_address)
    sound = {name: str(value) for name, value in HOT[310][0].items()}
    peer.send_bytes(frame_of(codec, header, body))
    answer = peer.receive()
    assert (answer.code, answer.opaque) == (refusal, 7)
    assert answer.remark.startswith("a text in the header is not UTF-8")
    assert codec == 0 or f" at {field}:" in answer.remark
    assert peer.ask(310, sound, b"x").code == 0
    peer.send_bytes(frame_of(1, binary(code, fields, flag=2), body))
    assert peer.ask(310, sound, b"x").code == 0, "a one-way request is not answered"
    peer.close()


@pytest.mark.parametrize("codec", [0, 1])
def test_an_answer_with_a_text_that_is_not_utf8_reaches_the_requester_at_once(engine, codec):
    """An old C++ consumer says in GBK why it refuses; mqadmin waited for 10 s, and heard nothing of it."""
    running = RunningEngine.of(engine)
    client = f"10.0.0.1@{codec}"
    member, tool = running.join(client, "CPP"), running.peer()
    tool.send(307, {"consumerGroup": "CPP", "clientId": client, "jstackEnable": "false"})
    while (question := member.receive()).code != 307:
        pass
    if codec:
        remark = len(GBK).to_bytes(4, "big") + GBK
        header = struct.pack(">hbhii", 1, 1, 63, question.opaque, 1) + remark + bytes(4)
    else:
        header = b'{"code":1,"flag":1,"language":"CPP","opaque":%d,"remark":"%b","version":63}' % (question.opaque, GBK)
    member.send_bytes(frame_of(codec, header))
    answer = tool.receive(5)
    assert answer.code == 1
    assert "the client's answer cannot be read: a text in the header is not UTF-8" in answer.remark
    assert member.ask(31, {"topic": "TBW102", "queueId": 0}).code == 0
    member.close()
    tool.close()


@pytest.mark.parametrize(
    "body",
    [
        b'{"messageQueueTable":{{{{"a":1}:1}:1}:1}}',
        b'{"messageQueueTable":{{"brokerName":"b","queueId":%b,"topic":"T"}:1}}' % (b'"' + b"9" * 4000 + b'"'),
        b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"%b"}}' % (b"9" * 4000),
        b'{"messageQueueTable":{{"brokerName":"\\ud800","queueId":0,"topic":"T"}:1}}',
        b'{"messageQueueTable":{"\\"\\\\ud800\\"":1}}',
        b'{"messageQueueTable":[]}',
        b"[" * 100_000,
        b"\xff",
    ],
    ids=range(8),
)
def test_what_a_client_says_of_its_offsets_is_left_out_when_it_cannot_be_read(engine, body):
    client, asker = Peer(engine.broker_address), Peer(engine.broker_address)
    heartbeat = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[]}]}'
    assert client.ask(34, body=heartbeat).code == 0
    asked = asker.send(223, {"group": "G", "topic": "T"})
    client.answer(next(frame for frame in iter(client.receive, None) if frame.code == 221), 0, None, body)
    answer = asker.receive()
    assert (answer.opaque, answer.code) == (asked, 0)
    assert fastjson.loads(answer.body)["consumerTable"] == {"c": {}}
    client.close()
    asker.close()
