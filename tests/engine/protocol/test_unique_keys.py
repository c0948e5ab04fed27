"""Unique keys that the broker makes: each one once, whatever the clock does."""

from types import SimpleNamespace

import pytest

from appliance.engine.broker.sending.fields import SendFields
from appliance.engine.broker.sending.properties import SendProperties
from appliance.engine.protocol.message_id import UniqueKeys, key_prefix

BEGAN_MS = 1_793_000_000_000
DAY_MS = 86_400_000


def make():
    return UniqueKeys(key_prefix(bytes((10, 0, 0, 9)), 0x1_2345, 0xDEADBEEF), BEGAN_MS)


def test_a_key_has_the_form_of_javas():
    assert make().next(BEGAN_MS + 0x1234) == "0A0000092345DEADBEEF000012340001"


@pytest.mark.parametrize("back_ms", [0, 5, DAY_MS, 40 * DAY_MS], ids=["stands", "ms", "day", "before-the-month"])
def test_a_clock_that_stands_or_is_set_back_repeats_no_key(back_ms):
    keys, now = make(), BEGAN_MS + 10 * DAY_MS
    made = [keys.next(now)] + [keys.next(now - back_ms) for _ in range(140_000)]
    made += [keys.next(now + ms) for ms in range(20)]
    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}


def test_the_time_of_keys_follows_the_clock_again_once_it_is_ahead():
    keys = make()
    assert [int(keys.next(BEGAN_MS + ms)[20:28], 16) for ms in (7, 3, 7, 9)] == [7, 7, 7, 9]
    assert [int(keys.next(BEGAN_MS + ms)[20:28], 16) for ms in (-1, 10)] == [9, 10]


def test_a_producer_whose_clock_is_ahead_moves_no_key_ahead():
    waits_nowhere = SimpleNamespace(place_of=lambda found, target: None)
    properties = SendProperties("r", "c", True, make(), waits_nowhere)
    ahead = SendFields("g", "t", "TBW102", 4, 0, 0, BEGAN_MS + 30 * DAY_MS, 0, "WAIT\x01true\x02")
    keys = [properties.stored(ahead, "t", 0, store_ms)[0] for store_ms in (0, BEGAN_MS + 7)]
    assert [key[20:28] for key in keys] == ["00000000", "00000007"]
