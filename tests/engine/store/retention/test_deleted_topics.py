"""Notes of deletions: which ones stay valid for a shorter log, and how they are found by topic."""

from __future__ import annotations

import json

from appliance.engine.disk import Disk
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue_table import ConsumeQueueTable
from appliance.engine.store.retention import deleted_topics
from appliance.engine.store.retention.deleted_topics import NAME, Begin, DeletedTopics, Deletion


def paths_in(directory) -> StorePaths:
    paths = StorePaths(directory / "store", directory / "rocketbox")
    paths.own.mkdir(parents=True)
    return paths


def test_a_log_that_ends_before_what_was_noted_limits_deletions_and_ends(tmp_path):
    """Records behind the log's end do not belong to the deleted topic, nor do their offsets."""
    notes = DeletedTopics(paths_in(tmp_path), Disk())
    notes.remember([Deletion("T", 500, {0: Begin(10, 500), 1: Begin(3, 100)}), Deletion("U", 0, {0: Begin(7, 450)})], 0)
    notes.limit(400)
    assert notes.load() == {"T": 400}
    assert notes.load_ends() == {"T": {0: Begin(10, 400), 1: Begin(3, 100)}, "U": {0: Begin(7, 400)}}


def test_ends_alone_are_limited_too(tmp_path):
    notes = DeletedTopics(paths_in(tmp_path), Disk())
    notes.remember([Deletion("U", 0, {0: Begin(7, 450)})], 0)
    notes.limit(400)
    assert notes.load_ends() == {"U": {0: Begin(7, 400)}}


def test_late_notes_count_for_what_waits_only_and_follow_the_log(tmp_path):
    paths = paths_in(tmp_path)
    notes = DeletedTopics(paths, Disk())
    notes.remember([Deletion("T", 0, {0: Begin(3, 500)}, 500), Deletion("U", 300, {}), Deletion("V", 0, {}, 200)], 0)
    notes.remember([Deletion("T", 0, {}, 400)], 0)
    again = DeletedTopics(paths, Disk())
    assert again.load() == {"U": 300}
    assert [again.below(topic) for topic in "TUVW"] == [500, 300, 200, 0]
    assert again.behind(450) == ["T"]
    again.limit(450)
    assert [again.below(topic) for topic in "TUV"] == [450, 300, 200]
    again.remember([Deletion("W", 460, {})], 250)
    assert again.load_late() == {"T": 450}
    again.cut(440)
    assert (again.load(), again.load_late()) == ({"U": 300}, {})
    again.remember([Deletion("T", 0, {}, 430)], 0)
    again.undo(["T"])
    assert again.below("T") == 0


def test_one_topics_begins_are_found_without_looking_at_those_of_others(tmp_path):
    class Counted(dict):
        looks = 0

        def __iter__(self):
            Counted.looks += 1
            return super().__iter__()

        def items(self):
            Counted.looks += 1
            return super().items()

        keys = values = items

    table = ConsumeQueueTable(paths_in(tmp_path), Disk(), 6_000_000)
    table.begins = Counted()
    table.take_begins({f"T{number}": {0: Begin(10, 100)} for number in range(1000)})
    assert table.begins_of("T7") == {0: Begin(10, 100)}
    table.take_begins({"T7": {0: Begin(0, 0), 1: Begin(4, 100)}})
    assert table.begins_of("T7") == {1: Begin(4, 100)}
    table.take_begins({"T7": {1: Begin(0, 0)}})
    assert "T7" not in table.begins
    assert (table.begin_of("T7", 1), table.begin_of("T8", 0), table.begin_of("T8", 1)) == (0, 10, 0)
    assert Counted.looks == 0


def test_the_file_is_as_json_writes_it_whatever_was_noted_before(tmp_path):
    paths = paths_in(tmp_path)
    notes = DeletedTopics(paths, Disk())
    for number in range(30):
        notes.remember([Deletion(f"T{number % 7}", 100 + number, {number % 3: Begin(number, 100 + number)})], number)
        if number == 20:
            notes.undo(["T3"])
        if number == 25:
            notes.cut(120)
        raw = (paths.own / NAME).read_text()
        assert raw == json.dumps(json.loads(raw))
        again = DeletedTopics(paths, Disk())
        assert (again.load(), again.load_ends()) == (notes.load(), notes.load_ends())
        assert again.load(), "its checksums match"


def test_what_somebody_else_wrote_into_the_file_is_read(tmp_path):
    paths = paths_in(tmp_path)
    notes, other = DeletedTopics(paths, Disk()), DeletedTopics(paths, Disk())
    notes.remember([Deletion("T", 500, {})], 0)
    other.remember([Deletion("U", 600, {})], 0)
    assert notes.load() == {"T": 500, "U": 600}


def test_a_note_costs_no_more_json_however_many_there_are(tmp_path, monkeypatch):
    notes = DeletedTopics(paths_in(tmp_path), Disk())
    notes.remember([Deletion(f"T{n}", 500 + n, {0: Begin(n + 1, 500 + n)}) for n in range(1000)], 0)
    sizes = []
    dumps, loads = json.dumps, json.loads
    monkeypatch.setattr(deleted_topics.json, "dumps", lambda value: sizes.append(len(value)) or dumps(value))
    monkeypatch.setattr(deleted_topics.json, "loads", lambda raw: sizes.append(len(raw)) or loads(raw))
    notes.remember([Deletion("New", 5000, {0: Begin(9, 5000)})], 0)
    assert sizes == [1, 1]
    monkeypatch.undo()
    assert len(notes.load()) == len(notes.load_ends()) == 1001
