"""When groups had members."""

from __future__ import annotations

from appliance.engine.broker import attendance
from appliance.engine.broker.attendance import MOST_SPELLS, Attendance, Spell
from tests.support.clock import FakeClock


def test_only_the_time_counts_in_which_somebody_was_there():
    clock = FakeClock()
    kept = Attendance(clock)
    begin = clock.monotonic()
    assert kept.attended_s("CG", begin) == 0
    kept.came("CG")
    clock.advance(100_000)
    kept.left("CG")
    clock.advance(1000_000)
    kept.came("CG")
    clock.advance(10_000)
    assert kept.attended_s("CG", begin) == 110
    assert kept.attended_s("CG", begin + 60) == 50
    assert kept.attended_s("CG", begin + 500) == 10
    assert kept.attended_s("Other", begin) == 0


def test_a_client_that_comes_and_goes_keeps_its_time_in_a_few_spells():
    clock = FakeClock()
    kept = Attendance(clock)
    begin = clock.monotonic()
    for _ in range(100):
        kept.came("CG")
        clock.advance(10_000)
        kept.left("CG")
        clock.advance(1_000)
    assert len(kept.spells("CG")) == MOST_SPELLS
    assert kept.attended_s("CG", begin) == 1000


def test_groups_that_have_gone_longest_are_forgotten(monkeypatch):
    monkeypatch.setattr(attendance, "MOST_GONE", 3)
    kept = Attendance(FakeClock())
    kept.came("stays")
    for number in range(5):
        kept.came(f"g{number}")
        kept.left(f"g{number}")
    assert [name for name in ("stays", "g0", "g1", "g2", "g3", "g4") if kept.spells(name)] == [
        "stays",
        "g2",
        "g3",
        "g4",
    ]


def test_what_an_earlier_process_saw_counts():
    clock = FakeClock()
    kept = Attendance(clock)
    now = clock.monotonic()
    kept.take_earlier("CG", [Spell(now - 500, now - 100)])
    kept.came("CG")
    clock.advance(5_000)
    assert kept.attended_s("CG", now - 200) == 105
    other = Attendance(clock)
    other.take_over(kept)
    assert other.spells("CG") == kept.spells("CG")
