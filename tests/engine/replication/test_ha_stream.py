"""Reports and frames, in whatever pieces they arrive."""

import random
import struct

import pytest

from appliance.engine.errors import FrameError
from appliance.engine.protocol.ha_stream import Frames, Reports, pack_header, pack_report
from tests.support.ha import VERSIONS, recorded


def pieces(data: bytes, seed: int):
    dice = random.Random(seed)
    while data:
        size = dice.choice((1, 2, 7, 11, 12, 13, 100, 5000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_a_recorded_stream_is_read_in_any_pieces(version, seed):
    events = [event for event in recorded(version) if event.conn == 1]
    sent = b"".join(pack_header(e.offset, len(e.body)) + e.body for e in events if e.body is not None)
    frames = Frames(65_536)
    log: dict[int, bytes] = {}
    beats = 0
    for piece in pieces(sent, seed):
        for offset, data in frames.feed(memoryview(piece)):
            beats += not data
            for at, byte in enumerate(data, offset):
                log[at] = byte
    expected = {at: byte for e in events if e.body for at, byte in enumerate(e.body, e.offset)}
    assert log == expected
    assert beats == sum(e.body == b"" for e in events)
    reports = Reports()
    said = [e.offset for e in events if e.body is None]
    heard = [o for piece in pieces(b"".join(map(pack_report, said)), seed) for o in reports.feed(piece)]
    assert heard == said


@pytest.mark.parametrize(
    "header",
    [(-1, 5), (0, -1), (0, 1 << 31 - 1), (65_536, 65_537), (65_535, 2), (0x4745_5420_2F20_4854, 0x5450_2F31)],
)
def test_a_header_no_master_sends_is_refused(header):
    with pytest.raises(FrameError):
        list(Frames(65_536).feed(memoryview(struct.pack(">qi", *header) + bytes(100))))
