"""Journals of jobs: written ones are read again; torn, cut and damaged ones are recognised as such."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from appliance.engine.broker.replay.job import DONE, PAUSED, RUNNING, JobSpec, Numbering, Result, Span, Why, spans_of
from appliance.engine.broker.replay.journal import (
    CHUNK,
    JobJournal,
    JobLine,
    ProgressLine,
    StateLine,
    TargetLine,
    decode_line,
    encode_line,
    pack_results,
    progress,
    read_lines,
    state_of,
    unpack_results,
)
from appliance.engine.disk import Disk
from appliance.engine.errors import CorruptFile

PAGE = Path(__file__).parents[4] / "docs/formats/replay-job.md"


def spec(job: str = "j1", total: int = 10) -> JobSpec:
    return JobSpec(job, "G", "group", "%RETRY%G", (Span(0, 5, 5 + total),), 100, 3, "ann", 1_700_000_000_000)


@pytest.fixture
def journal(tmp_path: Path) -> JobJournal:
    return JobJournal(tmp_path / "replay", Disk(tmp_path))


def write_some(journal: JobJournal, total: int = 10) -> None:
    state = journal.create(spec(total=total))
    journal.append("j1", TargetLine("%RETRY%G", (4,)))
    journal.append("j1", progress(state, bytes((1, 2, 1)), {"%RETRY%G": (7,)}))


def test_what_was_written_is_read_again(journal: JobJournal) -> None:
    write_some(journal)
    state = journal.load("j1")
    assert (state.spec, state.state, state.next, state.targets) == (spec(), RUNNING, 3, {"%RETRY%G": (7,)})
    assert (state.counts[Result.REPLAYED], state.counts[Result.GUARD]) == (2, 1)
    assert journal.results("j1", 0, 10) == bytes((1, 2, 1))
    assert journal.results("j1", 1, 2) == bytes((2,))
    why = Why("replay_unreadable", {"reason": "x"})
    journal.append("j1", StateLine(PAUSED, False, 5, "bob", why))
    assert journal.load("j1").targets == {"%RETRY%G": (7,)}
    journal.append("j1", StateLine(DONE, True, 6, "bob"))
    state = journal.load("j1")
    assert (state.state, state.why, state.targets, state.changed_ms) == (DONE, None, {}, 6)


def test_every_cut_is_a_shorter_journal_or_an_unreadable_one(journal: JobJournal, tmp_path: Path) -> None:
    write_some(journal)
    journal.append("j1", StateLine(DONE, True, 6, "bob"))
    path = tmp_path / "replay" / "j1.job"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        if size < first:
            with pytest.raises(CorruptFile):
                journal.load("j1")
        else:
            assert journal.load("j1").next in (0, 3)
            journal.open("j1")
            assert path.read_bytes() == whole[: whole[:size].rindex(b"\n") + 1]
            journal.append("j1", TargetLine("T", ()))
            assert "T" in journal.load("j1").targets
            journal.close("j1")


def test_a_damaged_line_with_others_behind_it_is_no_torn_tail(journal: JobJournal, tmp_path: Path) -> None:
    write_some(journal)
    path = tmp_path / "replay" / "j1.job"
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for at in random.Random(1).sample(range(len(whole)), 60):
        flipped = bytearray(whole)
        flipped[at] ^= 0x04
        path.write_bytes(flipped)
        if at >= last:
            assert journal.load("j1").next == 0
        else:
            with pytest.raises(CorruptFile):
                journal.load("j1")


@pytest.mark.parametrize(
    "lines",
    [
        [TargetLine("T", (1,))],
        [JobLine(2, spec())],
        [JobLine(1, spec()), JobLine(1, spec())],
        [JobLine(1, spec()), ProgressLine(3, pack_results(bytes(2)), {})],
        [JobLine(1, spec()), ProgressLine(11, pack_results(bytes(11)), {})],
        [JobLine(1, spec()), ProgressLine(3, pack_results(bytes((1, 99, 1))), {})],
        [JobLine(1, spec()), ProgressLine(3, "no base64", {})],
        [JobLine(1, spec()), ProgressLine(3, "aGVsbG8=", {})],
        [JobLine(1, spec()), StateLine("dancing", True, 1, "")],
        [JobLine(1, spec(total=0))],
        [JobLine(1, spec(total=10_000_001))],
    ],
)
def test_lines_that_cannot_be(lines: list) -> None:
    with pytest.raises(CorruptFile):
        state_of(read_lines(b"".join(encode_line(line) for line in lines))[0])


def test_what_unpacks_to_more_than_announced_is_refused() -> None:
    with pytest.raises(ValueError, match="results"):
        unpack_results(pack_results(bytes(50_000_000)), 10)


def test_a_long_journal_is_written_anew_and_says_the_same(journal: JobJournal) -> None:
    total = 2 * CHUNK + 50
    state = journal.create(spec(total=total))
    chance = random.Random(2)
    wanted = bytes(chance.choice((1, 1, 1, 2, 3)) for _ in range(total))
    for at in range(0, total, 7_001):
        journal.append("j1", progress(state, wanted[at : at + 7_001], {"%RETRY%G": (at,)}))
        state = journal.load("j1")
    before, size = journal.load("j1"), journal.size("j1")
    journal.compact("j1")
    assert journal.load("j1") == before
    assert journal.size("j1") < size
    assert journal.results("j1", 0, total) == wanted
    assert journal.results("j1", CHUNK - 3, CHUNK + 4) == wanted[CHUNK - 3 : CHUNK + 4]
    journal.append("j1", StateLine(DONE, True, 9, "ann"))
    journal.compact("j1")
    assert (journal.load("j1").state, journal.load("j1").changed_ms) == (DONE, 9)


def test_files_are_private_and_listed_by_their_ids(journal: JobJournal, tmp_path: Path) -> None:
    assert journal.ids() == []
    journal.create(spec("b"))
    journal.create(spec("a"))
    for foreign in (b"note.txt", b"\xff.job", b"two words.job", b".job"):
        (tmp_path / "replay" / os.fsdecode(foreign)).write_text("x")
    assert journal.ids() == ["a", "b"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "replay").glob("[ab].job")} == {0o600}
    journal.delete("a")
    assert journal.ids() == ["b"]


def test_numbers_and_places() -> None:
    spans = spans_of([(1, 4), (0, 3), (0, 1), (0, 2), (1, 4), (1, 9)])
    assert spans == (Span(0, 1, 4), Span(1, 4, 5), Span(1, 9, 10))
    numbering = Numbering(spans)
    assert list(numbering.pieces(1, 5)) == [(1, Span(0, 2, 4)), (3, Span(1, 4, 5)), (4, Span(1, 9, 10))]
    assert list(numbering.pieces(4, 99)) == [(4, Span(1, 9, 10))]
    assert list(numbering.overlaps(Span(1, 0, 20))) == [(3, Span(1, 4, 5)), (4, Span(1, 9, 10))]
    assert list(numbering.overlaps(Span(0, 3, 20))) == [(2, Span(0, 3, 4))]


def test_places_in_a_span_are_those_that_a_look_at_each_would_find() -> None:
    places = [(queue, offset) for queue in (0, 2) for offset in range(40) if offset % 7 in (0, 1, 4)]
    numbering = Numbering(spans_of(places))
    for queue in range(4):
        for begin in range(42):
            for end in range(begin, 43):
                found = [
                    (first + offset - span.begin, span.queue_id, offset)
                    for first, span in numbering.overlaps(Span(queue, begin, end))
                    for offset in range(span.begin, span.end)
                ]
                wanted = [
                    (number, *place)
                    for number, place in enumerate(places)
                    if place[0] == queue and begin <= place[1] < end
                ]
                assert found == wanted


def test_the_page_says_what_the_code_writes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    example = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[-1].encode()
    lines, size = read_lines(example)
    assert size == len(example)
    assert b"".join(encode_line(*decode_line(line)) for line in example.splitlines()) == example
    state = state_of(lines)
    assert (state.state, state.counts[:3]) == (DONE, (0, 2, 1))
    for result in Result:
        assert re.search(rf"\b{int(result)} [a-z]", text), result
