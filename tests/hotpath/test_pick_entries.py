"""The compiled function and the one in Python pick the same entries of a queue for the answer to a pull."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.hotpath import pick_entries as compiled
from appliance.engine.store.message_reader import pick_entries as pure
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE_SIZE
from tests.support.effort import effort

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled part is not used")

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
CODES = st.one_of(st.integers(-3, 3), I32)
LIMIT_COUNTS = st.one_of(st.integers(1, 40), st.integers(1, 1 << 40))
LIMIT_BYTES = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 40))


@st.composite
def queues(draw) -> bytes:
    """Draw entries of a queue: adjacent or not, now and then a hole, or damage."""
    place = draw(st.integers(0, 3000))
    entries = b""
    for _ in range(draw(st.integers(1, 40))):
        kind = draw(st.integers(0, 30))
        size = draw(st.integers(1, 400))
        code = draw(CODES)
        if kind == 0:
            entries += ENTRY.pack(0, HOLE_SIZE, 0)
        elif kind == 1:
            entries += bytes(20)
        elif kind == 2:
            entries += ENTRY.pack(draw(I64), draw(I32), draw(I64))
        elif kind == 3:  # as Apache writes it with extensions
            entries += ENTRY.pack(place, size, draw(st.integers(-(1 << 63), -(1 << 31) - 1)))
        else:
            place += draw(st.sampled_from((0, 0, 0, 0, 1, 91, 10_000, -50)))
            entries += struct.pack(">qiq", max(place, 0), size, code)
            place += size
    return entries


FILTERS = st.one_of(st.none(), st.frozensets(CODES, max_size=5), st.frozensets(I32, min_size=50, max_size=90))


@settings(max_examples=effort(500, 1_500, 20_000), deadline=None, database=None)
@given(queues(), FILTERS, st.integers(0, 4000), LIMIT_COUNTS, LIMIT_BYTES, st.booleans())
def test_both_pick_the_same(entries, codes, log_begin, limit_count, limit_bytes, extension):
    asked = []

    def matches_behind(code: int) -> bool:
        asked.append(code)
        return extension

    found = compiled(entries, codes, log_begin, limit_count, limit_bytes)
    expected = pure(entries, codes, log_begin, limit_count, limit_bytes, matches_behind)
    if found is None:
        places = [physical for physical, _, _ in ENTRY.iter_unpack(entries)]
        assert asked or (codes is not None and len(codes) > 64) or max(places) > 1 << 62
    else:
        assert found == expected
        assert not asked, "the extension is Python's to ask"


@given(st.integers(1, 200), st.integers(1, 300))
def test_adjacent_records_are_one_run(count, size):
    """The most common case of a pull."""
    entries = b"".join(ENTRY.pack(1000 + number * size, size, 5) for number in range(count))
    expected = ([(1000, min(count, 32) * size)], min(count, 32), min(count, 32) * size, min(count, 32), False, False)
    assert compiled(entries, None, 0, 32, 1 << 20) == expected
    assert compiled(entries, frozenset({5}), 0, 32, 1 << 20)[:3] == expected[:3]


@pytest.mark.parametrize("entries", [b"", bytes(19), bytes(21)])
def test_what_is_no_row_of_entries_is_left_to_python(entries):
    assert compiled(entries, None, 0, 32, 1 << 20) is None
