"""Findings of `store verify` in stores that are whole, left by a kill, and damaged in one place each."""

import json
import shutil
import struct

import pytest

from appliance.engine.errors import StartError
from appliance.engine.protocol.properties import java_hash
from appliance.engine.protocol.record import SYS_INNER_BATCH
from appliance.engine.store.queues.batch_queue import DIRECTORY, UNIT
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE_SIZE
from appliance.engine.store.queues.queue_extension import QueueExtension, address_of, decode_unit, is_address
from appliance.engine.store_tools.offline_store import find_store
from appliance.engine.store_tools.verification import verify
from tests.support.directories import shared_directory
from tests.support.golden import extract_store, store_manifest, store_names
from tests.support.offline import change, contents, damage, verified
from tests.support.store import BORN, StoreUnderTest

STORES = store_names()
#: Findings after a kill, apart from the abort file: (kind, file name, position).
LEFT = {
    ("4.9.8", "torn"): [
        ("torn-tail", "00000000000000786432", 125323),
        ("behind-the-queue", "00000000000000009000", 280),
        ("index", "20261121095518098", 16480),
        ("index", "20261121095518098", 16500),
    ],
    ("5.3.3", "torn"): [("torn-tail", "00000000000000917504", 81103)],
    ("4.9.8", "killed"): [],
    ("5.3.3", "killed"): [("missing-entry", "00000000000000009000", 240), ("not-indexed", "index", -1)],
}


@pytest.mark.parametrize(("version", "name"), STORES, ids=["-".join(store) for store in STORES])
def test_a_recorded_store_is_whole_and_stays_as_it_is(tmp_path, version, name):
    extract_store(version, name, tmp_path)
    before = contents(tmp_path)
    manifest = store_manifest(version, name)
    result, problems = verified(tmp_path)
    found = [(problem.kind, problem.file.rpartition("/")[2], problem.at) for problem in problems]
    expected = LEFT.get((version, name), [])
    assert [problem.level for problem in problems] == ["note"] * len(problems)
    assert sorted(found) == sorted(expected + ([] if manifest["cleanShutdown"] else [("abort", "abort", -1)]))
    assert result.records == len(manifest["messages"])
    assert result.log_end == manifest["commitLog"]["maxOffset"]
    assert contents(tmp_path) == before


@pytest.fixture(scope="module")
def stopped(request):
    """A store, stopped in order: two files of the log and a bit, queues of several files, one deleted topic."""
    directory = shared_directory(request, "stopped")
    store = StoreUnderTest(directory, segment_bytes=64 * 1024).open()
    for i in range(220):
        queue = store.store.queues.get_or_create("Orders", i % 2)
        properties = b"TAGS\x01T%d\x02KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02" % (i % 3, i, i)
        store.store.put(queue, b"\x06Orders", b"%d " % i * 150, properties, java_hash(f"T{i % 3}"), 0, 0, 1, BORN, 0)
        store.tick()
    store.write("Old", 0, b"gone")
    store.wait_recovery_position()
    store.store.delete_topic("Old")
    store.write("Old", 0, b"anew")
    while store.store.blocks.sealed < 2:
        store.store.blocks.wakeup()
    store.wait_recovery_position()
    store.stop()
    return directory


@pytest.fixture
def ours(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "data")


def log_file(directory, start=0):
    return directory / "store" / "commitlog" / f"{start:020d}"


def queue_file(directory, topic="Orders", queue_id=0, start=0):
    return directory / "store" / "consumequeue" / topic / str(queue_id) / f"{start:020d}"


def first_entry(directory, offset=0):
    return ENTRY.unpack(queue_file(directory).read_bytes()[offset * 20 : offset * 20 + 20])


def kinds(problems):
    return sorted({problem.kind for problem in problems})


def test_a_store_of_ours_is_whole(ours):
    result, problems = verified(ours)
    assert problems == []
    assert (result.records, result.sealed_files, result.queues) == (222, 2, 3)


def test_a_store_is_found_by_its_data_directory_and_by_its_own(ours):
    assert verified(ours / "store")[0].sealed_files == 2
    with pytest.raises(StartError, match="no store in"):
        find_store(ours / "store" / "config" if (ours / "store" / "config").is_dir() else ours / "rocketbox")
    with pytest.raises(StartError, match="no directory"):
        find_store(ours / "nowhere")


def test_a_body_that_was_altered_is_found_where_it_lies(ours):
    physical, size, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 100, b"\xff")
    found = damage(ours)
    assert kinds(found) == ["block", "record"], "the entry says the truth still"
    record = next(problem for problem in found if problem.kind == "record")
    assert (record.file, record.at) == ("commitlog/00000000000000000000", physical)
    assert record.text == f"{size} bytes are not a valid record: record: body does not match its CRC"


def test_a_byte_that_no_crc_of_apaches_covers_is_found_by_the_blocks(ours):
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 40, b"\x01")  # born time
    (block,) = damage(ours)
    assert (block.kind, block.file, block.at) == ("block", "commitlog/00000000000000000000", 0)
    (ours / "rocketbox" / "blocks" / f"{0:020d}").unlink()
    assert damage(ours) == [], "without block checksums it cannot be known"


def test_a_damaged_length_does_not_hide_what_follows(ours):
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical, struct.pack(">i", 0x7FFFFFFF))
    result, problems = verified(ours)
    assert result.records == 221
    assert [p.at for p in problems if p.kind == "record"] == [physical]
    assert kinds(problems) == ["block", "record"]


def test_the_last_record_damaged_in_a_store_that_was_stopped_is_damage(ours):
    data = log_file(ours, 65536 * 2).read_bytes()
    end = len(data.rstrip(b"\0"))
    change(log_file(ours, 65536 * 2), end - 3, b"\xff\xff\xff")
    assert "behind-the-end" in kinds(damage(ours))


@pytest.mark.parametrize("entry", [(1, 2, 3), (0, 0, 0), (-1, 5, 5)])
def test_a_queue_entry_that_names_another_place_is_found(ours, entry):
    change(queue_file(ours), 140, ENTRY.pack(*entry))
    found = damage(ours)
    assert {(p.file, p.at) for p in found} == {("consumequeue/Orders/0/00000000000000000000", 140)}
    assert kinds(found) == (["missing-entry"] if entry == (0, 0, 0) else ["queue-entry"])


def test_an_entry_with_another_tags_code_is_found(ours):
    physical, size, code = first_entry(ours, 7)
    change(queue_file(ours), 140, ENTRY.pack(physical, size, code + 1))
    assert [(p.kind, p.at) for p in damage(ours)] == [("tag-code", 140)]


def test_a_queue_file_that_is_gone_is_missed(ours):
    queue_file(ours, start=2000).unlink()
    (found,) = damage(ours)
    assert found.kind == "missing-entry"
    assert "from physical offset" in found.text


def test_an_entry_behind_the_end_is_found(ours):
    at = 20 * 12  # 112 messages in each queue of Orders, a hundred a file
    change(queue_file(ours, start=2000), at, ENTRY.pack(*first_entry(ours)))
    assert [(p.kind, p.at) for p in damage(ours)] == [("behind-the-queue", at)]


def test_a_hole_says_that_its_record_is_gone(ours):
    """Recovery leaves one where a record was damaged: it is no second finding."""
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 100, b"\xff")
    change(queue_file(ours), 100, ENTRY.pack(physical, HOLE_SIZE, 0))
    assert kinds(damage(ours)) == ["block", "record"]


def test_a_missing_log_file_is_named(ours):
    log_file(ours, 65536).unlink()
    found = damage(ours)
    assert ("log-file", "commitlog/00000000000000131072") in {(p.kind, p.file) for p in found}
    assert verified(ours)[0].records > 100, "what follows is read all the same"


def test_a_cut_log_file_is_named(ours):
    data = log_file(ours).read_bytes()
    log_file(ours).write_bytes(data[:30_000])
    assert {"log-file", "block", "record"} <= set(kinds(damage(ours)))


def test_foreign_files_are_named_and_do_no_harm(ours):
    (ours / "store" / "commitlog" / "README").write_text("hello")
    (ours / "store" / "consumequeue" / "Orders" / "x").mkdir()
    (ours / "store" / "consumequeue" / "note").write_text("hello")
    result, problems = verified(ours)
    assert result.records == 222
    assert [(p.level, p.file) for p in problems] == [
        ("note", "commitlog/README"),
        ("note", "consumequeue/Orders/x"),
        ("note", "consumequeue/note"),
    ]


def test_a_checkpoint_that_is_ahead_or_short_is_found(ours):
    change(ours / "store" / "checkpoint", 0, struct.pack(">q", 1_800_000_000_000))
    assert [(p.kind, p.at) for p in damage(ours)] == [("checkpoint", 0)]
    (ours / "store" / "checkpoint").write_bytes(b"\0" * 39)
    assert kinds(damage(ours)) == ["checkpoint"]


def test_files_of_ours_are_checked(ours):
    own = ours / "rocketbox"
    (own / "config.journal").write_bytes(b'3082f583 {"table":"topics"}\n')
    change(own / "deleted-topics.json", 14, b"9")
    (own / "purged-queues.json").write_bytes(b'{"queues": {"T": {"0": 12345}}, "crc32": 1}')
    change(own / "blocks" / f"{65536:020d}", 40, b"\x11\x22")
    found = {(p.kind, p.file) for p in damage(ours)}
    assert found >= {
        ("journal", "rocketbox/config.journal"),
        ("deleted-topics", "rocketbox/deleted-topics.json"),
        ("purged-queues", "rocketbox/purged-queues.json"),
        ("blocks", f"rocketbox/blocks/{65536:020d}"),
    }


def test_both_slots_of_the_recovery_position_damaged_is_damage(ours):
    path = ours / "rocketbox" / "recovery-position"
    change(path, 3, b"\xff")
    assert kinds(damage(ours)) == ["recovery-position"]
    change(path, 4096 + 3, b"\xff")
    found = damage(ours)
    assert kinds(found) == ["recovery-position"]
    assert any("scans the whole log" in p.text for p in found)


@pytest.mark.parametrize("content", [b"[]", b"null"])
def test_configuration_that_holds_no_object_is_found(ours, content):
    (ours / "store" / "config").mkdir(exist_ok=True)
    (ours / "store" / "config" / "topics.json").write_bytes(content)
    (ours / "rocketbox" / "options.json").write_bytes(content)
    assert {(p.kind, p.file) for p in damage(ours)} >= {
        ("config", "config/topics.json"),
        ("config", "rocketbox/options.json"),
    }


def test_configuration_that_does_not_parse_is_found(ours):
    config = ours / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":{')
    (config / "topics.json.bak").write_text("{}")
    (config / "consumerOffset.json").write_text("")
    (config / "subscriptionGroup.json").write_text("")
    (config / "subscriptionGroup.json.bak").write_text("{}")
    (config / "timercheck").write_bytes(b"\xff" * 4096)
    _, problems = verified(ours)
    assert [(p.level, p.file) for p in problems] == [
        ("damage", "config/consumerOffset.json"),
        ("note", "config/subscriptionGroup.json"),
        ("damage", "config/topics.json"),
    ]


# --- Apache's index and extension files


@pytest.fixture
def mixed(tmp_path):
    extract_store("5.3.3", "mixed", tmp_path)
    return tmp_path


def index_files(directory):
    return sorted((directory / "store" / "index").iterdir())


INDEX_ENTRIES = 40 + 4 * 500


@pytest.mark.parametrize(
    ("at", "data", "said"),
    [
        (INDEX_ENTRIES + 20 * 7, b"\x11", "no key of the record"),  # the hash
        (INDEX_ENTRIES + 20 * 7 + 10, b"\x55", "where no record is"),  # the physical offset
        (INDEX_ENTRIES + 20 * 7 + 4, b"\x55", "where no record is"),  # far behind
        (INDEX_ENTRIES + 20 * 7 + 14, b"\x55", "another time"),
        (INDEX_ENTRIES + 20 * 600 + 19, b"\xee", "not to the last one of its slot"),
        (24, b"\x11", "its header ends at"),
        (32, b"\x11", "slots in use"),
        (40 + 4 * 3, b"\x11", "hash slot 3 points to"),
        (36, b"\x7f", "contradict"),
    ],
)
def test_a_harmed_index_is_found(mixed, at, data, said):
    path = index_files(mixed)[0]
    change(path, at, data)
    found = damage(mixed)
    assert any(said in p.text for p in found), found
    assert {p.file for p in found} <= {f"index/{path.name}", "index"}


def test_a_hole_in_the_index_is_found(mixed):
    index_files(mixed)[1].unlink()
    (found,) = damage(mixed)
    assert found.kind == "not-indexed"
    assert "records with keys have no entry" in found.text


def test_extension_units_belong_to_their_messages(tmp_path):
    extract_store("4.9.8", "cqext", tmp_path)
    queue = queue_file(tmp_path, "StoreExt", 1)
    codes = [code for _, size, code in ENTRY.iter_unpack(queue.read_bytes()) if size]
    assert codes
    assert all(map(is_address, codes))
    path = tmp_path / "store" / "consumequeue_ext" / "StoreExt" / "1" / f"{0:020d}"
    at = codes[3] - address_of(0)
    assert decode_unit(path.read_bytes()[at:]).size == 20 + len(decode_unit(path.read_bytes()[at:]).bit_map)
    before = change(path, at + 9, b"\x77")
    (found,) = damage(tmp_path)
    assert (found.kind, found.at) == ("extension", 60)
    change(path, at + 9, before)
    assert damage(tmp_path) == []
    change(path, at, b"\0\0")
    assert "points to an extension unit that is not there" in damage(tmp_path)[0].text


def test_an_extension_is_read_over_its_files(tmp_path):
    extract_store("4.9.8", "cqext", tmp_path)
    store = find_store(tmp_path)
    extension = QueueExtension(store.paths, store.disk)
    assert extension.read("StoreExt", 1, address_of(0)) is not None
    assert extension.read("StoreExt", 1, address_of(60_000)) is None
    assert extension.read("StoreExt", 9, address_of(0)) is None
    extension.close()
    store.close()


def test_a_problem_told_a_thousand_times_is_counted(ours):
    queue_file(ours).write_bytes(ENTRY.pack(1, 2, 3) * 100)
    store = find_store(ours)
    from appliance.engine.store_tools.problems import TOLD_PER_KIND, Problems

    problems = Problems()
    verify(store, problems)
    store.close()
    assert problems.damaged >= 100
    assert len(problems.kept) <= TOLD_PER_KIND * len(problems.counts)
    assert problems.untold == sum(problems.counts.values()) - len(problems.kept)


def test_nothing_is_written_even_into_a_harmed_store(ours):
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 100, b"\xff")
    (ours / "store" / "abort").write_text("1")
    before = contents(ours)
    damage(ours)
    assert contents(ours) == before


def test_findings_survive_as_json(ours):
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 100, b"\xff")
    queue_file(ours).unlink()
    (ours / "store" / "abort").write_text("1")
    _, problems = verified(ours)
    assert len({problem.kind for problem in problems}) > 2
    told = [problem._asdict() for problem in problems]
    assert json.loads(json.dumps(told)) == told


def test_batch_queues_of_apache_are_looked_at_and_named(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    queue = store.store.queues.get_or_create("Batches", 2)
    places = []
    for base in (0, 5):
        queue.next_offset = base
        size = store.store.log.written
        store.store.put(queue, b"\x07Batches", b"five", b"INNER_NUM\x015\x02", 0, 0, SYS_INNER_BATCH, 1, BORN, 0)
        store.tick()
        places.append((size, store.store.log.written - size, base))
    store.stop()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    shutil.rmtree(tmp_path / "rocketbox")
    directory = tmp_path / "store" / DIRECTORY / "Batches" / "2"
    directory.mkdir(parents=True)
    units = b"".join(UNIT.pack(at, size, 0, 1_700_000_000_000, base, 5, -1, 0) for at, size, base in places)
    path = directory / f"{0:020d}"
    path.write_bytes(units.ljust(46 * 10, b"\0"))
    _, problems = verified(tmp_path)
    assert [(p.level, p.kind, p.file) for p in problems] == [("note", "batch-queue", "batchconsumequeue/Batches")]
    change(path, 46 + 35, b"\x06")  # the second one's first message
    (found,) = damage(tmp_path)
    assert (found.kind, found.file, found.at) == ("batch-queue", f"batchconsumequeue/Batches/2/{0:020d}", 46)


def test_damage_in_the_last_file_of_apaches_log_is_no_torn_tail(mixed):
    """No note of RocketBox shows what was durable there, but the queue entries behind the damage do."""
    messages = store_manifest("5.3.3", "mixed")["messages"]
    last_file = [m for m in messages if m["offset"] >= 524288]
    victim = last_file[len(last_file) // 2]
    change(log_file(mixed, 524288), victim["offset"] - 524288, b"\x7f\xff")
    result, problems = verified(mixed)
    assert result.records == len(messages) - 1
    assert [(p.kind, p.at) for p in problems if p.level == "damage"] == [("record", victim["offset"] - 524288)]


def test_an_entry_that_no_record_bears_out_is_found_in_the_middle_of_a_queue(ours):
    """The record belongs to another queue now, and the entry still points to it."""
    physical, _, _ = first_entry(ours, 5)
    change(log_file(ours), physical + 12, struct.pack(">i", 7))
    found = damage(ours)
    assert ("queue-entry", 100) in {(p.kind, p.at) for p in found}
