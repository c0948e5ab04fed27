"""Lines of the log that strangers cause: a few in a time, and one of many causes does not hide the others."""

from __future__ import annotations

import random
import re

from appliance.engine.few_lines import SharedLines
from tests.support.clock import FakeClock


def test_one_who_causes_many_lines_does_not_hide_another():
    clock, told = FakeClock(), []
    lines = SharedLines(lambda text, *arguments: told.append(text % arguments), 6, 2, 60.0, clock.monotonic)
    for _ in range(50):
        lines.log("noisy", "refused %s", "noisy")
    lines.log("quiet", "refused %s", "quiet")
    assert told == ["refused noisy"] * 2 + ["refused quiet"]
    clock.advance(60_000)
    lines.log("noisy", "refused %s", "noisy")
    assert told[3:] == ["refused noisy (48 more of the same were not told of)"]


def test_lines_of_all_and_those_who_cause_them_are_bounded():
    clock, told = FakeClock(), []
    lines = SharedLines(lambda text, *arguments: told.append(text % arguments), 6, 2, 60.0, clock.monotonic)
    for number in range(500):
        lines.log(number, "refused %d", number)
    assert told == [f"refused {number}" for number in range(6)]
    assert len(lines._each) == 6
    clock.advance(60_000)
    lines.log("last", "refused")
    assert told[6:] == ["refused (494 more were not told of)"]


def test_no_line_that_is_left_out_goes_uncounted():
    clock, told, rng = FakeClock(), [], random.Random(5)
    lines = SharedLines(lambda text, *arguments: told.append(text % arguments), 4, 2, 60.0, clock.monotonic)
    for _ in range(50):
        lines.log("a", "refused")
    for whose in "bcb":
        lines.log(whose, "refused")
    clock.advance(30_000)
    lines.log("a", "refused")
    clock.advance(30_000)
    lines.log("a", "refused")
    assert told[-1] == "refused (49 more of the same were not told of) (1 more were not told of)"
    caused = 55
    for _ in range(2000):
        if rng.random() < 0.02:
            clock.advance(rng.choice((10_000, 61_000)))
        lines.log(rng.choice("abcdefg"), "refused")
        caused += 1
    for whose in "abcdefg":  # each one's count comes with its next line
        clock.advance(61_000)
        lines.log(whose, "refused")
        caused += 1
    counted = sum(int(number) for line in told for number in re.findall(r"\((\d+) more", line))
    assert len(told) + counted == caused
