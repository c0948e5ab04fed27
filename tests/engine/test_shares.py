"""Shares of a resource that all peers have together."""

import pytest

from appliance.engine.protocol.message_id import encode_host
from appliance.engine.shares import LastingShares, Shares, address_of
from tests.support.clock import FakeClock

MOST = 1000


def peer(port, host="10.0.0.1"):
    return encode_host(host, port)


def take_all(shares, *peers):
    """Take one after the other for each of the peers until none gets more; return how many all got."""
    before = None
    while shares.taken != before:
        before = shares.taken
        for one in peers:
            shares.take(one, MOST)
    return shares.taken


def test_one_connection_has_a_quarter_and_one_address_half():
    assert take_all(Shares(), peer(1)) == MOST // 4
    assert 400 < take_all(Shares(), *(peer(port) for port in range(1, 50))) <= MOST // 2


def test_whoever_comes_after_somebody_who_took_all_gets_something():
    shares = Shares(few=8)
    take_all(shares, *(peer(port) for port in range(1, 200)))
    assert shares.room(peer(999), MOST) >= 8, "of the same address"
    assert shares.room(peer(1, "10.0.0.2"), MOST) >= 8 + MOST // 10, "of another one"


def test_a_few_are_there_however_full_the_table_is():
    shares = Shares(few=3)
    shares.add(None, 2 * MOST)
    assert [shares.take(peer(1), MOST) for _ in range(5)] == [True, True, True, False, False]


def test_what_is_given_back_is_there_again():
    shares = Shares(few=2)
    assert shares.take(peer(1), 8, 4)
    assert not shares.take(peer(1), 8)
    shares.give(peer(1), 3)
    assert shares.take(peer(1), 8, 3)
    shares.give(peer(1), 4)
    assert (shares.taken, shares._addresses, shares._connections) == (0, {}, {})


def test_the_broker_itself_may_have_all_of_it():
    shares = Shares()
    assert shares.take(None, 5, 5)
    assert not shares.take(None, 5)
    shares.give(None, 5)
    assert shares.taken == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("127.0.0.1", "127.9.9.9", True), ("127.0.0.1", "::1", True), ("10.0.0.1", "10.0.0.2", False),
     ("10.0.0.1", "::ffff:10.0.0.1", True), ("::ffff:127.0.0.1", "127.0.0.1", True),
     ("2001:db8::1", "2001:db8::2:3", True), ("2001:db8::1", "2001:db8:0:1::1", False)],
)  # fmt: skip
def test_an_address_is_a_machine_or_a_network(one, other, same):
    assert (address_of(peer(1, one)) == address_of(peer(2, other))) is same


def test_what_is_kept_for_ever_has_a_smaller_share_and_newcomers_get_some_of_it():
    clock = FakeClock()
    shares = LastingShares(clock)
    taken = 0

    def make(one, number):
        nonlocal taken
        made = sum(shares.take(one, MOST - taken) for _ in range(number))
        taken += made
        return made

    for port in range(1, 200):
        make(peer(port), MOST)
    assert MOST // 10 < taken <= MOST // 5 + 60
    assert make(peer(1, "10.0.0.2"), MOST) > MOST // 20, "another address has its share"
    assert make(peer(5000), 1) == 0, "what this one's newcomers may make is used up"
    clock.advance(ms=20_000)
    assert make(peer(1), 5) == 0, "no newcomer"
    assert make(peer(5000), 20) == 16
    assert make(peer(5001), 20) == 4
    taken = MOST
    clock.advance(ms=60_000)
    assert make(peer(5002), 20) == 0, "the table has an end"
