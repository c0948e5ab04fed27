"""Messages sent back in the last minute: counted in pieces of 10 s, each dropped when it is old."""

from appliance.engine.broker.sending.send_back_counts import MOST_PAIRS, SendBackCounts
from tests.support.clock import FakeClock


def test_each_piece_is_gone_a_minute_later():
    clock = FakeClock()
    counts = SendBackCounts(clock)
    seen = []
    for number in (1, 2, 3):
        for _ in range(number):
            counts.add("T", "G", False)
        clock.advance(10_000)
    for _ in range(6):
        seen.append(counts.of_last_minute("T", "G"))
        clock.advance(10_000)
    assert seen == [6, 6, 6, 5, 3, 0]
    counts.add("T", "G", True)
    assert counts.of_last_minute("T", "G") == 1
    assert (counts.sent_back, counts.dead_letters) == (7, 1)


def test_a_pause_of_more_than_a_minute_leaves_nothing_behind():
    clock = FakeClock()
    counts = SendBackCounts(clock)
    counts.add("T", "G", False)
    clock.advance(1_000_000)
    counts.add("T", "G", False)
    assert counts.of_last_minute("T", "G") == 1
    clock.advance(50_000)
    assert counts.of_last_minute("T", "G") == 1


def test_the_pair_that_was_quiet_for_longest_makes_room():
    counts = SendBackCounts(FakeClock())
    for number in range(MOST_PAIRS):
        counts.add("T", f"G{number}", False)
    counts.add("T", "G0", False)
    counts.add("T", "one more", False)
    assert counts.of_last_minute("T", "G0") == 2
    assert counts.of_last_minute("T", "G1") is None
