"""Consumer offsets: Apache's file, commits while it is being saved, removal."""

import json
import shutil
import threading
from types import SimpleNamespace

import pytest

from appliance.engine import fastjson
from appliance.engine.broker import offsets as offsets_module
from appliance.engine.broker.offsets import VERSION_STEP, ConsumerOffsetManager
from appliance.engine.broker.promotion import cut_offsets
from appliance.engine.errors import StartError
from tests.support.clock import FakeClock
from tests.support.golden import GOLDEN
from tests.support.waiting import wait_for

RECORDED = GOLDEN / "config" / "5.3.3" / "mixed" / "consumerOffset.json"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "consumerOffset.json"


@pytest.fixture
def offsets(path):
    return ConsumerOffsetManager(path, 5000, FakeClock())


def reopened(offsets):
    return ConsumerOffsetManager(offsets._path, 5000, FakeClock())


def table_of(offsets):
    return {f"{entry.topic}@{entry.group}": dict(entry.queues) for entry in offsets.all()}


def test_a_file_of_5_3_3_is_read_and_comes_back_the_same_but_for_the_order_of_its_map(path):
    shutil.copy(RECORDED, path)
    offsets = ConsumerOffsetManager(path, 5000, FakeClock())
    assert offsets.get("CG_Store", "StoreTagged", 3) == 10
    assert offsets.get("CG_Store", "%RETRY%CG_Store", 0) == 4
    offsets.commit("CG_Store", "StoreTagged", 3, 10)
    offsets.persist()
    old, new = RECORDED.read_text(), path.read_text()
    derived = '\t"groupTopicMap":{'
    assert new.index(derived) == old.index(derived)
    assert new[new.index('\t"offsetTable"') :] == old[old.index('\t"offsetTable"') :]
    groups = fastjson.loads(new)["groupTopicMap"]
    assert {g: sorted(t) for g, t in groups.items()} == {
        g: sorted(t) for g, t in fastjson.loads(old)["groupTopicMap"].items()
    }


def test_a_file_of_4_9_8_is_read(path):
    shutil.copy(GOLDEN / "config" / "4.9.8" / "mixed" / "consumerOffset.json", path)
    offsets = ConsumerOffsetManager(path, 5000, FakeClock())
    assert offsets.get("CG_StoreSql", "StoreTagged", 1) == 12
    assert len(offsets.all()) == 6


def test_offsets_come_back_after_a_restart(offsets):
    assert offsets.get("g", "T", 0) == -1
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 11, (1 << 63) - 1)
    offsets.commit("g", "T", 2, 0)
    offsets.commit("g", "T", 0, 3)  # back
    offsets.persist()
    again = reopened(offsets)
    assert table_of(again) == {"T@g": {0: 3, 2: 0, 11: (1 << 63) - 1}}
    assert again.get("g", "T", 1) == -1


@pytest.mark.parametrize(("queue_id", "offset"), [(-1, 5), (1 << 31, 5), (0, -1), (0, 1 << 63)])
def test_what_fits_no_queue_is_dropped(offsets, queue_id, offset):
    offsets.commit("g", "T", queue_id, offset)
    assert offsets.all() == []


def test_nothing_is_written_when_nothing_changed(offsets, path):
    offsets.persist()
    assert not path.exists()
    offsets.commit("g", "T", 0, 5)
    offsets.persist()
    inode = path.stat().st_ino
    offsets.persist()
    assert path.stat().st_ino == inode


def test_an_entry_is_encoded_anew_when_it_changed_and_only_then(offsets, path):
    for number in range(5):
        offsets.commit("g", f"T{number}", 0, 1)
    offsets.persist()
    before = {entry.topic: entry.encoded for entry in offsets.all()}
    offsets.commit("g", "T2", 0, 2)
    offsets.persist()
    after = {entry.topic: entry.encoded for entry in offsets.all()}
    assert [topic for topic in before if before[topic] is not after[topic]] == ["T2"]
    assert reopened(offsets).get("g", "T2", 0) == 2


def test_removing_a_topic_or_a_group_lasts(offsets):
    for group in ("g", "h"):
        for topic in ("T", "U"):
            offsets.commit(group, topic, 0, 7)
    offsets.persist()
    offsets.remove_topic("T")
    assert offsets.groups_of("T") == []
    assert sorted(offsets.groups_of("U")) == ["g", "h"]
    offsets.remove_group("h")
    offsets.persist()
    assert table_of(reopened(offsets)) == {"U@g": {0: 7}}


def test_the_version_moves_every_five_hundred_commits(offsets):
    version = offsets.data_version
    for number in range(VERSION_STEP - 1):
        offsets.commit("g", "T", 0, number)
    assert offsets.data_version == version
    offsets.commit("g", "T", 0, 0)
    assert offsets.data_version.counter == version.counter + 1


def test_commits_go_on_while_the_file_is_saved(offsets):
    """No commit is lost between the encoding of an entry and the note that it is encoded."""
    stop = threading.Event()
    failures = []

    def save():
        try:
            while not stop.is_set():
                offsets.persist()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    for number in range(20_000):
        offsets.commit(f"g{number % 7}", f"T{number % 3}", number % 50, number)
    stop.set()
    thread.join(60)
    assert not failures
    offsets.persist()
    assert table_of(reopened(offsets)) == table_of(offsets)


def test_a_commit_right_after_its_entry_was_copied_shows_in_the_next_save(offsets, monkeypatch):
    offsets.commit("g", "T", 0, 5)
    encode = offsets_module.encode_pretty

    def encode_while_a_consumer_commits(value, depth=0):
        if value == {0: 5}:
            offsets.commit("g", "T", 0, 6)
        return encode(value, depth)

    monkeypatch.setattr(offsets_module, "encode_pretty", encode_while_a_consumer_commits)
    offsets.persist()
    monkeypatch.undo()
    assert reopened(offsets).get("g", "T", 0) == 5
    offsets.persist()
    assert reopened(offsets).get("g", "T", 0) == 6


def test_a_removal_whose_save_failed_is_saved_by_the_next(offsets, monkeypatch):
    offsets.commit("g", "T", 0, 5)
    offsets.persist()
    offsets.remove_group("g")
    monkeypatch.setattr(offsets_module, "save_json_atomically", lambda path, content, files: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        offsets.persist()
    monkeypatch.undo()
    offsets.persist()
    assert reopened(offsets).all() == []


def test_a_save_that_failed_is_made_good_by_the_next(offsets, path, monkeypatch):
    offsets.commit("g", "T", 0, 5)
    offsets.remove_group("nobody")
    monkeypatch.setattr(offsets, "_path", path.parent / "nowhere" / path.name)
    offsets._saver.save_now()
    assert "nowhere" in offsets.failure
    monkeypatch.undo()
    offsets._saver.save_now()
    assert offsets.failure is None
    assert reopened(offsets).get("g", "T", 0) == 5


def test_the_thread_saves_by_itself_and_stop_saves_the_rest(path):
    offsets = ConsumerOffsetManager(path, 10, FakeClock())
    offsets.start()
    offsets.commit("g", "T", 0, 5)
    wait_for(lambda: path.exists() and reopened(offsets).get("g", "T", 0) == 5, "it to be saved")
    offsets.commit("g", "T", 0, 6)
    offsets.stop()
    assert reopened(offsets).get("g", "T", 0) == 6


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]x", b'{"offsetTable":[]}', b'{"offsetTable":{"T@g":{0:"a"}}}', b'{"offsetTable":{"T@g":{"x":1}}}'],
)
def test_a_file_that_holds_something_else_stops_the_start(path, content):
    path.write_bytes(content)
    with pytest.raises(StartError):
        ConsumerOffsetManager(path, 5000, FakeClock())


def test_entries_that_name_no_group_are_left_out(path):
    path.write_text(json.dumps({"offsetTable": {"lonely": {"0": 1}, "T@g@h": {"0": 2}, "U@g": 3}}))
    assert table_of(ConsumerOffsetManager(path, 5000, FakeClock())) == {"T@g@h": {0: 2}}


def test_there_are_so_many_pairs_of_groups_and_topics_and_known_ones_go_on(offsets, monkeypatch, caplog):
    monkeypatch.setattr(offsets_module, "MOST_ENTRIES", 3)
    assert [offsets.commit(f"g{number}", "T", 0, 7) for number in range(5)] == [True] * 3 + [False] * 2
    assert len(offsets.all()) == 3
    assert len([line for line in caplog.records if "is not kept" in line.getMessage()]) == 1
    assert offsets.get("g4", "T", 0) == -1
    assert offsets.commit("g2", "T", 1, 8)
    assert offsets.get("g2", "T", 1) == 8
    offsets.reset("g4", "T", 0, 5)
    assert offsets.get("g4", "T", 0) == 5, "what an administrator sets is kept"
    offsets.persist()
    assert len(reopened(offsets).all()) == 4, "and so is all that a file brings"
    offsets.remove_group("g0")
    offsets.remove_group("g1")
    assert offsets.commit("g3", "T", 0, 7), "and there is room again"


@pytest.mark.parametrize("how", ["their group", "their topic", "one by one"])
def test_offsets_that_were_removed_leave_room_for_others(offsets, monkeypatch, how):
    """Groups come and go: each has new offsets, and a broker runs for years."""
    monkeypatch.setattr(offsets_module, "MOST_OFFSETS", 12)
    peer = bytes([10, 0, 0, 1, 0, 0, 4, 0])
    for number in range(10):
        group = f"g{number}"
        assert [offsets.commit(group, "T", queue, 7, peer) for queue in range(4)] == [True] * 4, number
        if how == "their group":
            offsets.remove_group(group)
        elif how == "their topic":
            offsets.remove_topic("T")
        else:
            for queue in range(4):
                offsets.forget(group, "T", queue)
    kept = [offsets.commit("last", "T", queue, 7, peer) for queue in range(20)]
    assert kept == [True] * 12 + [False] * 8


def test_offsets_of_a_queue_that_a_power_cut_took_whole_count_nothing_as_read(offsets):
    """Ten messages in a queue were read and the offset saved, but none of the messages reached the disk."""
    for topic, offset in (("Gone", 10), ("Shorter", 10), ("Whole", 7)):
        offsets.commit("Readers", topic, 0, offset)
    ends = {"Shorter": 4, "Whole": 7}
    cut_offsets(SimpleNamespace(end_of=lambda topic, queue_id: ends.get(topic, 0)), offsets)
    assert [offsets.get("Readers", topic, 0) for topic in ("Gone", "Shorter", "Whole")] == [0, 4, 7]


def test_members_are_not_told_an_offset_that_a_power_cut_took(offsets):
    offsets.reset("Readers", "T", 0, 10)
    cut_offsets(SimpleNamespace(end_of=lambda topic, queue_id: 4), offsets)
    assert offsets.get("Readers", "T", 0) == 4
    assert offsets.pending.answer(("Readers", "T", 0), 10) == 4


@pytest.mark.parametrize("content", ["null", "{}", "[]", '{"offsetTable":null}'])
def test_a_file_without_its_table_is_damage_and_is_read_from_its_backup(path, content):
    """Without offsets every group would start over."""
    path.write_text(content)
    with pytest.raises(StartError, match="damaged and there is no good copy"):
        ConsumerOffsetManager(path, 5000, FakeClock())
    shutil.copy(RECORDED, path.with_name("consumerOffset.json.bak"))
    assert ConsumerOffsetManager(path, 5000, FakeClock()).get("CG_Store", "StoreTagged", 3) == 10


def test_what_is_kept_beside_the_offsets_harms_them_not(offsets, caplog):
    def fails():
        raise OSError(28, "no room")

    offsets.beside = fails
    offsets.commit("Readers", "T", 0, 3)
    offsets.persist()
    assert reopened(offsets).get("Readers", "T", 0) == 3
    assert "no room" in caplog.text
