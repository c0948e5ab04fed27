"""The watermarks of replication alone: the position of enough slaves, and how far a leader shows the log."""

import pytest

from appliance.engine.replication.acknowledged import ConfirmedPosition, ReplicatedPosition


@pytest.mark.parametrize(
    ("needed", "acknowledged", "reached"),
    [(1, [70, 50, -1], 70), (2, [70, 50, -1], 50), (2, [50, 70, 60], 60), (2, [70], 10), (3, [70, 50, -1], 10)],
)
def test_as_many_slaves_as_are_needed_hold_what_is_below(needed, acknowledged, reached):
    told = []
    position = ReplicatedPosition(needed, lambda: told.append(position()))
    position.begin(10)
    position.take(acknowledged)
    assert position() == reached
    assert told == ([reached] if reached > 10 else [])
    position.take([0] * needed)
    assert position() == reached, "it only grows"


def test_a_follower_shows_what_its_leader_shows_and_nothing_less_than_before():
    told = []
    position = ConfirmedPosition(lambda: told.append(position()))
    position.begin(100)
    position.take(40)
    assert (position(), position.covers_start) == (100, False)
    position.take(120)
    position.take(110)
    assert (position(), position.covers_start, told) == (120, True, [120])
