"""Headers longer than Apache's clients mostly write: taken up to 256 KiB, refused under their own opaque beyond."""

import json
import struct
import time

import pytest

from appliance.engine.protocol.command import CODEC_ROCKETMQ, MAX_FRAME_BYTES, MAX_HEADER_BYTES
from appliance.engine.remoting.peek import Peeked, peek
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.remoting import ECHO

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
PROPERTIES = {
    "4,000 small ones": UNIQ + "".join(f"{n:03x}\x01{n % 10}\x02" for n in range(4000)),
    "32,600 quotes": UNIQ + "k\x01" + '"' * 32_600 + "\x02",
    "control characters": UNIQ + "k\x01" + "\x03" * 32_600 + "\x02",
}
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
}  # fmt: skip


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"))
    yield engine
    engine.stop()


@pytest.fixture
def peer(engine):
    peer = Peer(engine.broker_address)
    yield peer
    peer.close()


@pytest.mark.parametrize("codec", [0, CODEC_ROCKETMQ])
@pytest.mark.parametrize("code", [310, 10])
@pytest.mark.parametrize("name", PROPERTIES)
def test_what_apache_stores_is_stored_and_pulled_back_identical(engine, peer, name, code, codec):
    properties = PROPERTIES[name]
    if name == "4,000 small ones":
        properties = properties[:32_600].rpartition("\x02")[0] + "\x02"
    topic = f"T{code}{codec}" + "".join(c for c in name if c.isalnum())
    fields = send_fields(topic, properties=properties)
    if code == 10:
        fields = {LONG[letter]: value for letter, value in fields.items() if letter in LONG}
    answer = peer.ask(code, fields, b"body", codec=codec)
    assert (answer.code, answer.remark) == (0, None)
    found = records(peer.ask(11, pull_fields(topic, 0, 0)).body)
    assert len(found) == 1
    assert found[0].body == b"body"
    assert found[0].properties.startswith(properties)


def frame(header, body=b"", codec=0):
    return struct.pack(">iI", 4 + len(header) + len(body), codec << 24 | len(header)) + header + body


def java(code, opaque, filler, flag=0):
    ext = json.dumps({"b": "T", "i": filler}, separators=(",", ":"))
    return (
        f'{{"code":{code},"extFields":{ext},"flag":{flag},"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":479}'
    ).encode()


def go(code, opaque, filler, flag=0):
    ext = json.dumps({"b": "T", "i": filler})
    return (
        f'{{"code":{code},"language":"GO","version":317,"opaque":{opaque},"flag":{flag},"remark":"","extFields":{ext}}}'
    ).encode()


def binary(code, opaque, filler, flag=0):
    raw = filler.encode()
    fields = struct.pack(">h", 1) + b"i" + struct.pack(">i", len(raw)) + raw
    return struct.pack(">hbhiii", code, 0, 479, opaque, flag, 0) + struct.pack(">i", len(fields)) + fields


#: Looks like the member that is looked for, and is text.
TRAP = ',"opaque":666,"code":34,' + ',\\"opaque\\":667' + '{"opaque":668}'
CODECS = {java: 0, go: 0, binary: CODEC_ROCKETMQ}


@pytest.mark.parametrize("size", [MAX_HEADER_BYTES, 1 << 20, 3 << 20])
@pytest.mark.parametrize("write", CODECS)
@pytest.mark.parametrize(("code", "answered"), [(310, 13), (10, 13), (320, 13), (11, 1), (34, 1)])
def test_a_longer_one_gets_its_own_opaque_and_the_connection_stays(engine, peer, write, code, answered, size):
    before = engine.broker.store.put_count
    for opaque in (77, -1, 2**31 - 1):
        header = write(code, opaque, TRAP + "x" * size + TRAP)
        peer.send_bytes(frame(header, b"body", CODECS[write]))
        answer = peer.receive()
        assert (answer.code, answer.opaque, answer.flag) == (answered, opaque, 1)
        assert f"{len(header)} bytes" in answer.remark
    peer.send_bytes(frame(write(code, 5, "x" * size, flag=2), b"body", CODECS[write]))  # one-way: no answer
    assert peer.ask(38, {"consumerGroup": "nobody"}).code == 1
    assert engine.broker.store.put_count == before


@pytest.mark.parametrize("address", ["broker_address", "namesrv_address"])
def test_every_port_takes_the_same(engine, address):
    peer = Peer(getattr(engine, address))
    answer = peer.ask(105, {"topic": "no", "filler": "x" * (MAX_HEADER_BYTES - 500)})
    assert (answer.code, "bytes" in (answer.remark or "")) == (peer.ask(105, {"topic": "no"}).code, False)
    peer.send_bytes(frame(java(105, 9, "x" * MAX_HEADER_BYTES)))
    assert (peer.receive().opaque, peer.ask(105, {"topic": "no"}).is_response) == (9, True)


def test_a_header_of_very_many_fields_is_refused_under_its_own_opaque(rig):
    fields = ",".join(f'"{n:x}":1' for n in range(20_000))
    header = f'{{"code":{ECHO},"extFields":{{{fields}}},"flag":0,"opaque":31}}'.encode()
    assert 64 * 1024 < len(header) < MAX_HEADER_BYTES
    peer = rig.peer()
    peer.send_bytes(frame(header))
    answer = peer.receive()
    assert (answer.code, answer.opaque) == (1, 31)
    assert "fields" in answer.remark
    assert peer.ask(ECHO).code == 0
    assert not rig.seen[1:]


@pytest.mark.parametrize(
    "header",
    [
        b"x" * 300_000,
        b'{"code":310,"opaque":99999999999,"x":"' + b"x" * 300_000 + b'"}',
        b'{"code":310,"opaque":"5","x":"' + b"x" * 2_000_000 + b'"}',
        b'{"extFields":{"opaque":5,"code":6,"x":"' + b"x" * 2_000_000 + b'"}}',
        b"[" * 300_000,
        b"[" * 2_000_000,
        b'{"code":310,"opaque":5,"x":"' + b"x" * 300_000,
    ],
)
def test_one_that_does_not_say_whose_it_is_is_no_frame(engine, peer, header):
    peer.send_bytes(frame(header))
    answer = peer.receive()
    assert (answer.code, answer.opaque) == (1, 0)
    assert answer.remark.startswith("bad frame: ")
    with pytest.raises(ConnectionError):
        peer.receive()


def test_one_that_is_longer_than_its_frame_is_no_frame(engine, peer):
    header = java(310, 7, "x" * 300_000)
    peer.send_bytes(struct.pack(">iI", 4 + len(header), len(header) + 1) + header)
    assert peer.receive().remark.startswith("bad frame: ")


@pytest.mark.parametrize("filler", ['"', "x", "\x01", "é"])
def test_looking_takes_no_time_however_long_it_is(filler):
    for size in (1 << 19, 1 << 20, MAX_FRAME_BYTES):
        header = memoryview(java(310, 7, filler * (size // len(json.dumps(filler)))))
        best = min(_timed(header) for _ in range(5))
        assert best < 0.004, f"{best * 1000:.1f} ms for {len(header)} bytes"


def _timed(header):
    begin = time.thread_time()
    assert peek(0, header) == Peeked(310, 7, 0)
    return time.thread_time() - begin


def test_frames_that_cannot_be_read_do_not_fill_the_log(rig, caplog):
    """The log is on a disk, perhaps on that of the messages, and such a frame is shorter than its line."""
    caplog.set_level("INFO", "appliance.engine.remoting")
    header = binary(ECHO, 7, "text").replace(b"text", b"\xff\xfe\xff\xfe")
    peer = rig.peer()
    for _ in range(100):
        peer.send_bytes(frame(header, codec=CODEC_ROCKETMQ))
        assert (peer.receive().code, peer.ask(ECHO).code) == (1, 0)
    for _ in range(30):
        peer = rig.peer()
        peer.send_bytes(b"GET / HTTP/1.1\r\n")
        assert [answer.code for answer in peer.receive_all()] == [1]
    told = [line.getMessage() for line in caplog.records if "refused" in line.getMessage()]
    assert len(told) == 20
