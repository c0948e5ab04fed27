"""Where two logs part, checked against logs whose every byte says which leader wrote it in which epoch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.failover.member_files import with_epoch
from appliance.engine.failover.set_state import EpochStart
from appliance.engine.failover.truncation import consistent_point
from tests.support.effort import effort


def epochs(*pairs):
    return tuple(EpochStart(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("own", "own_end", "leaders", "leaders_end", "point"),
    [
        # It follows, and is behind, or as far.
        (epochs((1, 0)), 100, epochs((1, 0)), 300, 100),
        (epochs((1, 0)), 300, epochs((1, 0)), 300, 300),
        # The old leader has a tail that the new one never got.
        (epochs((1, 0)), 300, epochs((1, 0), (2, 200)), 500, 200),
        # It lacks the end of the epoch before.
        (epochs((1, 0)), 150, epochs((1, 0), (2, 200)), 500, 150),
        # Two switches at once: it led an epoch that no other member has.
        (epochs((1, 0), (2, 100)), 150, epochs((1, 0), (3, 120)), 500, 100),
        (epochs((1, 0), (2, 130)), 150, epochs((1, 0), (3, 120)), 500, 120),
        # It led, and wrote nothing.
        (epochs((1, 0), (2, 100)), 100, epochs((1, 0), (3, 120)), 500, 100),
        (epochs((1, 0), (4, 200)), 200, epochs((1, 0), (5, 200)), 200, 200),
        # Its list is ahead of its log: it adopted one, and got nothing yet.
        (epochs((1, 0), (2, 200), (3, 300)), 250, epochs((1, 0), (2, 200), (3, 300), (4, 400)), 500, 250),
        (epochs((1, 0), (2, 200), (3, 300)), 150, epochs((1, 0), (3, 120)), 500, 120),
        # The same number is not the same epoch.
        (epochs((1, 0), (2, 100)), 300, epochs((1, 0), (2, 90)), 500, 90),
        (epochs((1, 10)), 300, epochs((1, 0)), 500, None),
        # Nothing in common, or nothing known.
        (epochs((3, 0)), 100, epochs((1, 0), (2, 50)), 500, None),
        ((), 100, epochs((1, 0)), 500, None),
        (epochs((1, 0)), 100, (), 500, None),
        # An empty log is the beginning of every other.
        ((), 0, epochs((1, 0)), 500, 0),
        # The leader forgot the oldest ones.
        (epochs((1, 0), (2, 100), (3, 200)), 300, epochs((3, 200), (4, 250)), 500, 250),
    ],
)
def test_the_place_where_two_logs_part(own, own_end, leaders, leaders_end, point):
    assert consistent_point(own, own_end, leaders, leaders_end) == point


class Set:
    """Three members; a byte of a log is (epoch, leader)."""

    def __init__(self):
        self.logs = [[], [], []]
        self.lists = [(), (), ()]
        self.leader = 0
        self.epoch = 0

    def elect(self, who):
        """Elect any member: elections that lose acknowledged bytes part logs more often."""
        self.epoch += 1
        self.leader = who
        self.lists[who] = with_epoch(self.lists[who], EpochStart(self.epoch, len(self.logs[who])))

    def point(self, who):
        return consistent_point(
            self.lists[who], len(self.logs[who]), self.lists[self.leader], len(self.logs[self.leader])
        )

    def follow(self, who, count):
        """Cut to the point, adopt the list, take some bytes."""
        point = self.point(who)
        if point is None:  # it would be set aside
            point = 0
        log = self.logs[self.leader]
        self.logs[who] = self.logs[who][:point] + log[point : point + count]
        self.lists[who] = self.lists[self.leader]

    def common(self, who):
        """Count the bytes that are the same in both logs."""
        count = 0
        for one, other in zip(self.logs[who], self.logs[self.leader], strict=False):
            if one != other:
                break
            count += 1
        return count


MEMBER = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), MEMBER),
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("follow"), MEMBER, st.integers(0, 5)),
        st.tuples(st.just("lose"), MEMBER, st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=effort(400, 1_500, 20_000), deadline=None)
@given(STEPS)
def test_it_is_where_the_bytes_part(steps):
    brokers = Set()
    brokers.elect(0)
    for step in steps:
        if step[0] == "elect":
            brokers.elect(step[1])
        elif step[0] == "write":
            brokers.logs[brokers.leader] += [(brokers.epoch, brokers.leader)] * step[1]
        elif step[0] == "lose":  # a power cut; an epoch is never gone on with after it
            del brokers.logs[step[1]][-step[2] :]
            if step[1] == brokers.leader:
                brokers.elect(step[1])
        elif step[1] != brokers.leader:
            brokers.follow(*step[1:])
        for who in range(3):
            if who != brokers.leader:
                point = brokers.point(who)
                assert (point or 0) == brokers.common(who)
