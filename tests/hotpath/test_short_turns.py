"""With the shortest possible turns of a connection, answers and stored messages are the same, whichever twin takes its
sends and pulls."""

from __future__ import annotations

import random

import pytest

from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.remoting import connection, server
from tests.hotpath import inputs
from tests.support.twins import Setting, Step, outcome

NOBODY_SERVES = 999


def reads(chance: random.Random) -> list[Step]:
    """Return reads of usual frames of three peers with other frames between them, cut anywhere."""
    steps: list[Step] = [*inputs.PREPARED]
    for _ in range(12):
        peer = chance.randrange(3)
        frames = []
        for _ in range(chance.randrange(1, 25)):
            other = RemotingCommand(NOBODY_SERVES, opaque=chance.randrange(1 << 20))
            usual = inputs.usual(chance, chance.choice(list(inputs.USUAL_KINDS)))
            frames.append(usual if chance.random() < 0.6 else encode_command(other))
        data = b"".join(frames)
        cut = chance.randrange(len(data) + 1)
        steps += [("read", peer, data[:cut]), ("read", peer, data[cut:])]
    return steps


def answered(data: bytes) -> list[tuple[int, int]]:
    """Return (opaque, code) of each answer."""
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        frame = decode_frame(data[:size])
        found.append((frame.opaque, frame.code))
        data = data[size:]
    return sorted(found)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.compiled)])
@pytest.mark.parametrize("seed", range(4))
def test_short_turns_change_nothing(seed: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = reads(random.Random(seed))
    setting = Setting(segment_bytes=16 << 20, max_message_size=1 << 20)
    whole = outcome(steps, setting, compiled)
    monkeypatch.setattr(connection, "TURN_S", 0.0)
    monkeypatch.setattr(server, "TURNS_S", 0.0)
    short = outcome(steps, setting, compiled)
    assert short.exceptions == whole.exceptions == []
    assert [answered(data) for data in short.answers] == [answered(data) for data in whole.answers]
    for name in ("messages", "put bytes", "partial frames", "outboxes"):
        assert short.counters[name] == whole.counters[name], name
