"""The journal of resets: which moves are pending, against a model; and acts of many groups at once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from appliance.engine.broker.offset_resets.journal import KEPT_MS, ResetJournal
from appliance.engine.broker.offset_resets.records import Line, Move, ResetRecord, encode_line
from tests.support.clock import FakeClock

Place = tuple[str, str, int]


def record(clock: FakeClock, number: int, group: str, places: list[tuple[str, int]]) -> ResetRecord:
    moves = tuple(Move(topic, queue_id, 7, 0) for topic, queue_id in places)
    return ResetRecord(number, "reset", group, "ann", clock.wall_ms(), "earliest", moves)


def waiting(journal: ResetJournal) -> dict[Place, int]:
    return {(one.group, move.topic, move.queue_id): one.id for one, move in journal.unfinished()}


@pytest.mark.parametrize("seed", range(20))
def test_of_each_queue_the_last_act_waits_until_it_is_over(tmp_path: Path, seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    path = tmp_path / "offset-resets.journal"
    journal = ResetJournal(path, clock)
    model: dict[Place, int] = {}
    all_places = [(topic, queue_id) for topic in "TU" for queue_id in range(3)]
    for number in range(1, 60):
        group = chance.choice("GH")
        match chance.choice(("act", "act", "over", "gone", "correct", "restart", "time")):
            case "act":
                places = chance.sample(all_places, chance.randrange(1, 5))
                journal.append(record(clock, number, group, places))
                model |= {(group, *place): number for place in places}
            case "over" if model:
                place, act = chance.choice(list(model.items()))
                journal.note([(act, *place[1:]), (act, "T", 9), (number + 1000, "T", 0)])
                del model[place]
            case "correct":  # where a move leads, and nothing else
                journal.correct([(act, *place[1:], 5) for place, act in model.items()] + [(number + 1000, "T", 0, 5)])
                assert all(move.target == 5 for _, move in journal.unfinished())
            case "gone":
                kind, name = chance.choice((("topic", "T"), ("group", "G")))
                journal.note([], [(kind, name)])
                model = {place: act for place, act in model.items() if place[kind == "topic"] != name}
            case "restart":
                journal.close()
                journal = ResetJournal(path, clock)
            case "time" if chance.random() < 0.2:
                clock.advance(KEPT_MS + 3_600_000)
                journal.note([])
                model.clear()
        assert waiting(journal) == model
        assert journal._open_by == model
        assert all(journal._open.values()), "an act without a waiting caller takes no room"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_forward_for_a_while_ends_no_act(tmp_path: Path, is_restarted: bool) -> None:
    """Else it could not be taken back, and a member that had not heard of it would commit it away."""
    path, clock = tmp_path / "offset-resets.journal", FakeClock()
    journal = ResetJournal(path, clock)
    journal.append(record(clock, 1, "G", [("T", 0)]))
    clock.jump(3 * KEPT_MS)
    if is_restarted:
        journal.close()
        journal = ResetJournal(path, clock)
    journal.note([(1, "T", 9)])
    assert [one.id for one in journal.of_group("G")] == [1]
    assert waiting(journal) == {("G", "T", 0): 1}
    clock.jump(-3 * KEPT_MS)
    journal.append(record(clock, 2, "G", [("U", 0)]))
    assert [one.id for one in journal.of_group("G")] == [2, 1]
    clock.jump(3 * KEPT_MS)
    assert [one.id for one in journal.of_group("G")] == [2, 1]
    for _ in range(13):  # it stays so for more than an hour
        clock.advance(300_000)
        journal.oldest_ms()
    journal.note([(1, "T", 9)])
    assert journal.of_group("G") == []
    assert journal.get(1) is None
    journal.close()


def test_acts_of_many_groups_are_read_in_proportion(tmp_path: Path) -> None:
    """Comparing each act with all earlier ones took 8 s of CPU for 20,000 acts and 800 s for 200,000."""
    clock, path = FakeClock(), tmp_path / "offset-resets.journal"
    path.write_bytes(b"".join(encode_line(Line(reset=record(clock, n, f"G{n}", [("T", 0)]))) for n in range(1, 20_001)))
    begin = time.process_time()
    journal = ResetJournal(path, clock)
    assert time.process_time() - begin < 3
    assert len(waiting(journal)) == 20_000
