"""Unique keys: of this process, this client, and this moment."""

from datetime import datetime, timedelta

import pytest

from appliance.client.core.unique_key import KeyMaker, Months, PureKeyMaker, month_of

ADDRESS, PID, SALT = b"\x7f\x00\x00\x01", 0x12345, 0xCAFEBABE
NOW = datetime(2026, 12, 31, 23, 59, 59)
#: More than a counter distinguishes.
MANY = 0x10002


def ms(moment):
    return round(moment.timestamp() * 1000)


@pytest.fixture(params=[KeyMaker, PureKeyMaker], ids=["taken", "pure"])
def keys(request):
    return request.param(Months(ADDRESS, PID, SALT))


def test_a_key_has_its_parts_where_java_has_them(keys):
    begin, _ = month_of(ms(NOW))
    assert [keys.next(ms(NOW)), keys.next(ms(NOW) + 1)] == [
        f"7F0000012345CAFEBABE{ms(NOW) - begin:08X}0001",
        f"7F0000012345CAFEBABE{ms(NOW) + 1 - begin:08X}0002",
    ]


def test_a_new_month_begins_at_zero_with_another_salt(keys):
    before = keys.next(ms(NOW))
    after = keys.next(ms(NOW + timedelta(seconds=1)))
    assert after == "7F0000012345CAFEBABF000000000001"
    assert before[20:28] > after[20:28]


@pytest.mark.parametrize(
    ("back", "many"),
    [(0, MANY), (1000, 1000), (40 * 86_400_000, MANY)],
    ids=["not", "1 s", "40 days"],
)
def test_a_clock_that_is_set_back_and_goes_on_gives_no_key_again(keys, back, many):
    found = [keys.next(ms(NOW)) for _ in range(10)]
    found += [keys.next(ms(NOW) - back) for _ in range(many)]
    found += [keys.next(ms(NOW) - back + passed) for passed in range(1100)]
    assert len(set(found)) == len(found)
    assert {len(key) for key in found} == {32}


def test_a_month_that_comes_again_gives_other_keys(keys):
    a_month = ms(datetime(2026, 12, 1)) - ms(datetime(2026, 11, 1))
    times = [ms(datetime(2026, 11, 7)) + number for number in range(5)]
    found = [keys.next(time) for time in times]
    found += [keys.next(time + a_month) for time in times]
    found += [keys.next(time) for time in times]
    assert len(set(found)) == 15
    assert len({key[20:] for key in found}) == 5
