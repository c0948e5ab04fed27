"""The watermark of a leader: the least position of its awaited members, on their connections of this epoch."""

from types import SimpleNamespace

import pytest

from appliance.engine.replication.ack_pace import AckPace
from appliance.engine.replication.in_sync_position import InSyncPosition
from tests.support.clock import FakeClock


class Rig:
    def __init__(self) -> None:
        self.kept = self.published = 100
        self.progress = 0
        self.clock = FakeClock()
        self.position = InSyncPosition(lambda: self.kept, lambda: self.published, self.moved, self.clock)
        self.position.begin(100)

    def moved(self) -> None:
        self.progress += 1
        self.published = max(self.published, min(self.kept, self.position()))

    def stream(self, uuid: str, acknowledged: int = -1) -> SimpleNamespace:
        made = SimpleNamespace(
            peer=f"{uuid}:1", acknowledged=acknowledged, sent=0, moved_at=0.0, connected_at=0.0, taken=-1,
            pace=AckPace(0.5), silent_s=0.0,
        )  # fmt: skip
        self.position.bind(uuid, made)
        return made

    def reports(self, stream: SimpleNamespace, offset: int) -> None:
        stream.acknowledged = offset
        self.position.moved()


@pytest.fixture
def rig():
    return Rig()


def test_alone_it_is_what_is_kept_here(rig):
    assert rig.position() == 100
    rig.kept = 150
    assert rig.position() == 150


def test_it_is_the_least_of_the_awaited_and_of_nobody_else(rig):
    rig.kept = 500
    a, b, c = rig.stream("a"), rig.stream("b"), rig.stream("c")
    rig.position.set_awaited(frozenset("ab"))
    rig.reports(c, 500)
    rig.reports(a, 400)
    assert rig.position() == 100
    rig.reports(b, 300)
    assert rig.position() == 300
    rig.reports(b, 450)
    assert rig.position() == 400
    assert rig.published == 400


def test_a_member_without_a_connection_holds_it(rig):
    a, b = rig.stream("a", 100), rig.stream("b", 100)
    rig.position.set_awaited(frozenset("ab"))
    rig.reports(a, 200)
    rig.reports(b, 150)
    assert rig.position() == 150
    rig.position.unbind("b", b)
    rig.reports(a, 300)
    assert rig.position() == 150
    again = rig.stream("b")  # connected, but without a report yet
    rig.reports(a, 310)
    assert rig.position() == 150
    rig.reports(again, 120)  # from its last record on
    assert rig.position() == 150
    rig.reports(again, 305)
    assert rig.position() == 305


def test_the_older_connection_of_a_member_does_not_count_any_more(rig):
    old = rig.stream("a", 100)
    rig.position.set_awaited(frozenset("a"))
    new = rig.stream("a", 100)
    rig.reports(old, 900)
    assert rig.position() == 100
    rig.position.unbind("a", old)  # its thread ends after the new one was bound
    rig.reports(new, 200)
    assert rig.position() == 200


def test_a_joiner_is_waited_for_from_its_first_moment_and_not_for_what_is_shown(rig):
    """Bytes that the leader keeps and has not published yet need the joiner, too."""
    rig.kept, rig.published = 200, 180
    a = rig.stream("a", 150)
    rig.position.set_awaited(frozenset("a"))
    assert rig.position() == 180
    rig.reports(a, 190)
    assert rig.position() == 190
    b = rig.stream("b", 100)
    rig.published = 185
    rig.position.set_awaited(frozenset("ab"))
    assert rig.position() == 185
    rig.reports(a, 200)
    assert rig.position() == 185
    rig.reports(b, 200)
    assert rig.position() == 200


def test_one_that_leaves_lets_it_go_on_at_once(rig):
    rig.kept = 300
    rig.stream("a", 250)
    rig.position.set_awaited(frozenset(("a", "gone")))
    assert rig.position() == 100
    before = rig.progress
    rig.position.set_awaited(frozenset("a"))
    assert rig.position() == 250
    rig.position.set_awaited(frozenset())
    assert rig.position() == 300
    assert rig.progress == before + 2


@pytest.mark.parametrize("awaited", ["", "a"])
def test_frozen_it_stays_whatever_happens(rig, awaited):
    rig.published = 150
    rig.kept = 160
    a = rig.stream("a", 150)
    rig.position.set_awaited(frozenset(awaited))
    rig.position.freeze()
    progress = rig.progress
    assert rig.position() == 150
    rig.kept = 1000
    rig.reports(a, 900)
    rig.position.set_awaited(frozenset())
    rig.position.set_awaited(frozenset("ab"))
    assert rig.position() == 150
    assert rig.position.frozen
    assert rig.progress == progress


def test_reports_of_members_say_since_when_one_does_not_move(rig):
    a, b = rig.stream("a", 100), rig.stream("b", 80)
    a.moved_at, b.moved_at = 3.0, 4.0
    a.silent_s, b.silent_s = 7.0, 0.5
    rig.clock.advance(10_000)
    found = {one.uuid: one for one in rig.position.members()}
    assert found["a"].moved_at == 10.0  # it has everything: nothing was missing until now
    assert found["b"].moved_at == 4.0
    assert (found["a"].heard_at, found["b"].heard_at) == (3.0, 9.5)
    assert (found["b"].peer, found["b"].durable, found["b"].sent) == ("b:1", 80, 0)
    rig.position.unbind("b", b)
    assert [one.uuid for one in rig.position.members()] == ["a"]
