"""Delivery times from messages joined with answers by numpy, on small columns."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from spark_reports.facts import answers_file, delivery_times  # noqa: E402
from spark_reports.facts.delivered import Answers, Who  # noqa: E402

NEVER = delivery_times._NEVER


def saved(tmp_path: Path, rows: list[tuple[int, ...]], whos: list[Who]) -> answers_file.OfGroup:
    answers = Answers()
    for who in whos:
        answers.number_of(who)
    for name, values in zip(
        ("first", "behind", "at_ms", "below", "doubtful", "who"), zip(*rows, strict=True), strict=True
    ):
        setattr(answers, name, array("q", values))
    answers_file.save({("T", 3): answers}, tmp_path)
    found = answers_file.Saved(str(tmp_path))
    assert found.of("T", 4) == ()
    (one,) = found.of("T", 3)
    return one


@pytest.mark.parametrize("most_pairs", [1, 7, 1 << 21])
def test_each_pair_counts_as_the_format_says(most_pairs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_times, "_MOST_PAIRS", most_pairs)
    chance = random.Random(most_pairs)
    whos = [Who("G", None), Who("G", (1, 2)), Who("G", ())]
    rows = [
        (first := chance.randrange(60), first + chance.randrange(20), *(chance.randrange(100) for _ in range(3)), who)
        for who in (chance.randrange(3) for _ in range(80))
    ]
    one = saved(tmp_path, rows, whos)
    offsets = np.array(sorted(chance.randrange(10, 70) for _ in range(50)))
    physical, store_ms, codes = (np.array([chance.randrange(top) for _ in offsets]) for top in (100, 100, 4))
    first, last = delivery_times.delivered_at(one, offsets, physical, store_ms, codes)
    for k, offset in enumerate(offsets):
        times = [
            at_ms
            for begin, behind, at_ms, below, doubtful, who in rows
            if begin <= offset < behind
            and physical[k] < below
            and (physical[k] < doubtful or at_ms >= store_ms[k])
            and (whos[who].codes is None or codes[k] in whos[who].codes)
        ]
        assert (first[k], last[k]) == ((min(times), max(times)) if times else (NEVER, NEVER))


def test_batches_are_joined_to_larger_ones() -> None:
    batches = [pa.record_batch({"n": [n]}) for n in range(7)]
    assert [one.num_rows for one in delivery_times.larger(iter(batches), 3)] == [3, 3, 1]
    assert list(delivery_times.larger(iter([]))) == []
