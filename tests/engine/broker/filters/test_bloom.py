"""Positions in Apache's bloom filters, as Apache's brokers wrote them."""

import json
from pathlib import Path

import pytest

from appliance.engine.broker.filters.bloom import bloom_of, murmur3_first_half

GOLDEN = Path(__file__).parents[3] / "golden" / "config"
#: expectConsumerNumUseFilter of the recordings.
GROUPS = {"mixed": 32, "cqext": 8}


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
@pytest.mark.parametrize("name", GROUPS)
def test_positions_are_apaches(version, name):
    document = json.loads((GOLDEN / version / name / "consumerFilter.json").read_text())
    bloom = bloom_of(20, GROUPS[name])
    seen = 0
    for topic, entry in document["filterDataByTopic"].items():
        for group, data in entry["groupFilterData"].items():
            recorded = data["bloomFilterData"]
            assert recorded == {"bitNum": bloom.bits, "bitPos": list(bloom.positions_of(group, topic))}
            seen += 1
    assert seen


def test_sizes_follow_from_the_two_settings():
    assert bloom_of(20, 32) == (112, 3)
    assert bloom_of(1, 100) == (960, 7)


def test_every_length_of_a_tail_is_hashed():
    """Uses the published test vector of murmur3_x64_128; no two lengths give the same hash."""
    assert murmur3_first_half(b"") == 0
    assert murmur3_first_half(b"hello") == 0xCBD8A7B341BD9B02
    assert len({murmur3_first_half(b"x" * size) for size in range(50)}) == 50
