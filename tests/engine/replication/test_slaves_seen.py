"""A master's record of its slaves for people: delay in time, rates, which ones left and which were turned away."""

from appliance.engine.replication.log_clock import MOST_LOOKS, LogClock
from appliance.engine.replication.slaves_seen import MOST_HOSTS, SlavesSeen
from tests.support.clock import FakeClock


class Link:
    def __init__(self, peer: str, acknowledged: int = 0, sent: int = 0) -> None:
        self.peer = peer
        self.acknowledged = acknowledged
        self.sent = sent


def test_bytes_behind_are_told_as_time_behind():
    log = LogClock()
    log.saw(100, 1.0)
    log.saw(200, 2.0)
    log.saw(200, 50.0)  # nothing came
    log.saw(300, 60.0)
    assert log.behind_s(300, 61.0) == 0.0
    assert log.behind_s(999, 61.0) == 0.0
    assert log.behind_s(250, 61.0) == 1.0
    assert log.behind_s(200, 61.0) == 1.0, "the byte at 200 came with the third look"
    assert log.behind_s(150, 61.0) == 59.0
    assert log.behind_s(50, 61.0) is None, "it was there before the first look"


def test_many_looks_are_thinned_and_old_delays_get_coarser():
    log = LogClock()
    looks = 20 * MOST_LOOKS
    for n in range(looks):
        log.saw(n * 10, float(n))
    assert len(log._ends) <= MOST_LOOKS
    # A tenth of a delay is near enough for a person who waits that long.
    for late in (1, 10, 100, 1000, looks // 2):
        behind = log.behind_s((looks - 1 - late) * 10, float(looks - 1))
        assert behind is not None
        assert (late - 1) * 0.9 <= behind < late, late


def test_a_log_that_was_cut_is_looked_at_anew():
    log = LogClock()
    log.saw(100, 1.0)
    log.saw(50, 2.0)
    assert log.behind_s(40, 3.0) is None
    assert log.behind_s(50, 3.0) == 0.0


def test_a_slave_that_leaves_is_told_of_until_one_comes_from_its_host():
    clock = FakeClock()
    seen = SlavesSeen(clock)
    one, other, stranger = Link("10.0.0.6:4001", 70), Link("10.0.0.7:4002", 90), Link("10.0.0.8:4003", -1)
    seen.look([one, other, stranger], 100)
    seen.left(one, "it closed the connection")
    seen.left(stranger, "nothing was heard of it")
    assert [(gone.host, gone.acknowledged, gone.why) for gone in seen.gone()] == [
        ("10.0.0.6", 70, "it closed the connection")
    ]
    back = Link("10.0.0.6:5000", -1)
    seen.look([other, back], 100)
    assert seen.gone(), "it has not said yet that it follows"
    back.acknowledged = 70
    seen.look([other, back], 100)
    assert seen.gone() == []
    # It came back and left between two looks.
    seen.left(back, "x")
    seen.left(Link("10.0.0.6:6000", 80), "y")
    assert [(gone.acknowledged, gone.why) for gone in seen.gone()] == [(80, "y")]


def test_rates_are_those_of_the_last_second():
    clock = FakeClock()
    seen = SlavesSeen(clock)
    link = Link("10.0.0.6:4001")
    assert seen.bytes_per_s(link) == 0.0
    seen.look([link], 0)
    clock.advance(500)
    link.sent = 400
    seen.look([link], 400)
    assert seen.bytes_per_s(link) == 0.0
    clock.advance(500)
    link.sent = 1000
    seen.look([link], 1000)
    assert seen.bytes_per_s(link) == 1000.0
    clock.advance(2000)
    seen.look([link], 1000)
    assert seen.bytes_per_s(link) == 0.0


def test_who_was_turned_away_is_counted_and_the_list_is_bounded():
    clock = FakeClock()
    seen = SlavesSeen(clock)
    for n in range(MOST_HOSTS + 5):
        clock.advance(1)
        seen.refused(f"10.0.0.{n}", "haSlaveAddresses does not name it")
        seen.left(Link(f"10.1.0.{n}:1", 1), "x")
    seen.refused("10.0.0.20", "again")
    strangers = seen.strangers()
    assert len(strangers) == len(seen.gone()) == MOST_HOSTS
    assert (strangers[0].host, strangers[0].times, strangers[0].why) == ("10.0.0.20", 2, "again")
    assert "10.0.0.0" not in [one.host for one in strangers]
