"""Which client was last given messages of a queue: the last event of each number, and the first offset recorded."""

from __future__ import annotations

import struct

import pytest

from appliance.engine.broker.deliveries import last_pulls as last_pulls_module
from appliance.engine.broker.deliveries.event_format import Definition
from appliance.engine.broker.deliveries.last_pulls import LastPull, LastPulls
from appliance.engine.broker.deliveries.recorder import Taken

NOW = 1_800_000_000_000


def taken(*events: tuple[int, int, int, int], wall_ms: int = NOW) -> Taken:
    """events: (number, ms before now, first offset, count)."""
    definitions = {
        number: Definition("g", "t", number % 10, f"client-{number}", None) for number in {event[0] for event in events}
    }
    packed = b"".join(
        struct.pack(">IIQ", number, (wall_ms - before) & 0xFFFF_FFFF, first << 16 | count)
        for number, before, first, count in events
    )
    return Taken(packed, definitions, 1 << 20, wall_ms, 0)


def test_the_last_of_each_queue_and_the_first_offset():
    last = LastPulls()
    assert last.get("g", "t", 1) is None
    last.take(taken((1, 900, 40, 8), (2, 800, 0, 3), (1, 700, 48, 8)))
    assert last.get("g", "t", 1) == LastPull("client-1", NOW - 700, 40)
    assert last.get("g", "t", 2) == LastPull("client-2", NOW - 800, 0)
    last.take(taken((1, 0, 56, 1), wall_ms=NOW + 5000))
    assert last.get("g", "t", 1) == LastPull("client-1", NOW + 5000, 40)
    assert last.get("other", "t", 1) is None


def test_of_two_members_the_later_one():
    last = LastPulls()
    last.take(taken((1, 100, 5, 1), (11, 900, 3, 1)))  # both are of queue 1
    assert last.get("g", "t", 1) == LastPull("client-1", NOW - 100, 3) or last.get("g", "t", 1).client == "client-1"


def test_numbers_beyond_a_byte_and_nothing():
    last = LastPulls()
    last.take(taken((0x01020304, 5, 1 << 40, 7)))
    assert last.get("g", "t", 0x01020304 % 10) == LastPull(f"client-{0x01020304}", NOW - 5, 1 << 40)
    last.take(taken())


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(last_pulls_module, "MOST_KEPT", 2)
    last = LastPulls()
    last.take(taken((1, 0, 0, 1), (2, 0, 0, 1)))
    last.take(taken((3, 0, 0, 1)))
    assert last.get("g", "t", 1) is None
    assert last.get("g", "t", 3) is not None
