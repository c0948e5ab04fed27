"""A cut on a real disk: what is kept and reported of it, where the point may lie, and the effects of a failing disk."""

import errno
import json
import resource
import subprocess
import sys

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import StartError
from appliance.engine.failover import truncation
from appliance.engine.failover.member_files import MARK, MemberFiles, Place
from appliance.engine.failover.quarantine import kept_tails, read_page, read_record
from appliance.engine.failover.set_state import EpochStart
from appliance.engine.failover.truncation import CannotCut, LeaderLog, StoreCut
from appliance.engine.store.retention.deleted_topics import Begin, Deletion
from tests.support.store import FailingDisk, StoreUnderTest

HERE = Place("machine", "/rocketbox", 1, "boot")
LEADERS = (EpochStart(1, 0), EpochStart(3, 0))


class Member:
    """A store, its member's files, and the cutter."""

    def __init__(self, directory, segment_bytes=64 * 1024, disk=None):
        self.box = StoreUnderTest(directory, segment_bytes=segment_bytes, disk=disk).open()
        self.paths = self.box.store.paths
        self.files = self.load()
        self.files.begin_epoch(1, 0)
        self.files.begin_epoch(2, 100)

    def load(self):
        return MemberFiles(self.paths, self.box.disk, "set", HERE)

    @property
    def cutter(self):
        return StoreCut(self.paths, self.box.disk, self.box.settings, self.files, lambda: 1_700_000_000_000)

    def cut(self, point, end=0):
        self.cutter.begin(point, LeaderLog("leader", 3, LEADERS, end or point), "the set went on without it")
        assert self.cutter.finish()

    def put(self, number, topic="T", size=60):
        body = b"%d:" % number
        keys = b"KEYS\1k%d other\2UNIQ_KEY\1U%d\2TAGS\1tag\2" % (number, number)
        place = self.box.put(topic, 0, body + b"x" * (size - len(body)), keys)
        self.box.tick()
        return place

    def start(self):
        self.files = self.load()
        self.cutter.finish()
        self.box.open()

    def bodies(self, topic="T"):
        return [record.body for record in self.box.records(topic, 0)]

    @property
    def quarantine(self):
        return {path.name for path in self.paths.quarantine.iterdir() if path.name.startswith("diverged")}


@pytest.fixture
def member(tmp_path):
    one = Member(tmp_path)
    yield one
    if one.box.store.log.segments:
        one.box.die()


def numbers(bodies):
    return [int(body.partition(b":")[0]) for body in bodies]


@pytest.mark.parametrize("killed", [False, True])
def test_the_tail_is_cut_kept_and_replaced(member, killed):
    places = [member.put(number) for number in range(100)]
    end = member.box.store.log.written
    if killed:
        member.box.die()
    else:
        member.box.stop()
    member.cut(places[70])
    assert member.files.epochs == LEADERS
    assert member.files.seen == 3
    assert member.cutter.finish() is False
    stem = f"diverged-2-{places[70]:020d}-{end:020d}"
    assert member.quarantine == {f"{stem}.log", f"{stem}.json"}
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    assert (kept.tail.begin, kept.tail.end, kept.records, kept.topics, kept.leader) == (
        places[70], end, 30, {"T": 30}, "leader",
    )  # fmt: skip
    assert (kept.own_epochs, kept.leaders_epochs) == (((1, 0), (2, 100)), LEADERS)
    assert kept.reason == "the set went on without it"
    member.start()
    assert member.box.store.log.written == places[70]
    assert numbers(member.bodies()) == list(range(70))
    # Messages that come in its place have those offsets, and survive a kill.
    again = [member.put(number, size=90) for number in range(200, 210)]
    assert again[0] == places[70]
    member.box.store.log.sync()
    member.box.die()
    member.start()
    assert numbers(member.bodies()) == [*range(70), *range(200, 210)]
    assert member.box.store.find_queue("T", 0).max_offset == 80


def test_where_a_queue_goes_on_is_taken_back_with_what_was_noted_behind_the_cut(member):
    """A deletion that came after the topic had been made again only notes ends."""
    places = [member.put(number) for number in range(10)] + [member.put(20, "Other")]
    end, notes = member.box.store.log.written, member.box.store.files.deleted_topics
    member.box.store.log.sync()
    notes.remember(
        [Deletion("T", 0, {0: Begin(6, end), 7: Begin(3, places[4])}), Deletion("U", 0, {0: Begin(2, 90)})], 0
    )
    member.box.stop()
    member.cut(places[8])
    member.start()
    queue = member.box.store.find_queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (0, 8)
    assert numbers(member.bodies()) == list(range(8))
    member.put(30)
    assert numbers(member.bodies())[-1] == 30
    # Earlier notes stay.
    table = member.box.store.queues
    assert [table.begin_of("T", 7), table.begin_of("U", 0)] == [3, 2]
    assert member.box.store.files.deleted_topics.load_ends() == {"T": {7: Begin(3, places[4])}, "U": {0: Begin(2, 90)}}


def test_a_second_deletion_behind_the_cut_leaves_the_queues_of_the_first_alone(member):
    places = [member.put(number) for number in range(10)]
    notes = member.box.store.files.deleted_topics
    member.box.store.log.sync()
    notes.remember([Deletion("T", places[9], {1: Begin(4, places[2]), 0: Begin(9, places[9])})], 0)
    member.box.stop()
    member.cut(places[5])
    assert (notes.load(), notes.load_ends()) == ({}, {"T": {1: Begin(4, places[2])}})


def test_a_start_behind_a_cut_does_not_read_the_whole_log(member):
    places = [member.put(number) for number in range(100)]
    member.box.wait_recovery_position()
    member.box.die()
    member.cut(places[70])
    member.start()
    position = member.box.store.files.recovery_position
    assert position.position.offset == places[70]
    assert not [one for one in member.box.store.files.findings() if one.kind == "queues"]


def test_messages_that_were_cut_off_are_read_in_pages(member):
    places = [member.put(number, "AB"[number % 2], 60 + number) for number in range(40)]
    member.box.stop()
    member.cut(places[10])
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    assert kept.topics == {"A": 15, "B": 15}
    found, at, pages = [], kept.tail.begin, 0
    while at >= 0:
        page = read_page(kept, member.box.disk, at, 7)
        assert len(page.messages) == 7 or page.next < 0
        found += page.messages
        at, pages = page.next, pages + 1
    assert pages == 5
    assert [one.offset for one in found] == places[10:]
    assert [(one.topic, one.queue_id, one.queue_offset) for one in found[:3]] == [("A", 0, 5), ("B", 0, 5), ("A", 0, 6)]
    assert (found[0].keys, found[0].unique_key, found[0].tags) == ("k10 other", "U10", "tag")
    assert found[0].store_time_ms == member.box.scheduler.wall_ms
    assert read_record(kept, member.box.disk, places[12]).body.startswith(b"12:")
    assert read_record(kept, member.box.disk, places[12] + 1) is None
    assert read_record(kept, member.box.disk, places[9]) is None
    assert read_record(kept, member.box.disk, kept.tail.end) is None


def test_damage_in_what_was_kept_costs_no_other_message(member):
    places = [member.put(number, size=5000 if number == 25 else 60) for number in range(40)]
    member.box.stop()
    member.cut(places[10])
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    with kept.tail.path.open("r+b") as file:
        file.seek(places[20] - kept.tail.begin + 60)
        file.write(b"\xff" * 80)
        file.seek(places[25] - kept.tail.begin + 2000)
        file.write(b"x" * 7 + b"y")
    found = read_page(kept, member.box.disk, kept.tail.begin, 1000)
    assert [one.offset for one in found.messages] == [
        place for number, place in enumerate(places) if number >= 10 and number not in (20, 25)
    ]
    assert found.next == -1


def test_a_tail_of_several_files_is_kept_in_one_piece(tmp_path):
    member = Member(tmp_path, segment_bytes=4096)
    places = [member.put(number, size=700) for number in range(30)]
    member.box.stop()
    files = sorted(path.name for path in member.paths.commit_log.iterdir())
    member.cut(places[9])
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    assert kept.records == 21
    assert [one.offset for one in read_page(kept, member.box.disk, kept.tail.begin, 100).messages] == places[9:]
    assert kept.tail.path.stat().st_size == kept.tail.end - kept.tail.begin
    left = sorted(path.name for path in member.paths.commit_log.iterdir())
    assert left == files[: places[9] // 4096 + 1]
    member.start()
    assert numbers(member.bodies()) == list(range(9))
    member.box.stop()


@pytest.mark.parametrize("where", ["in a record", "at a file's start", "at the log's first byte", "at its end"])
def test_where_a_point_may_lie(tmp_path, where):
    member = Member(tmp_path, segment_bytes=4096)
    places = [member.put(number, size=700) for number in range(30)]
    end = member.box.store.log.written
    member.box.stop()
    point = {
        "in a record": places[17] + 100,
        "at a file's start": 8192,
        "at the log's first byte": 0,
        "at its end": end,
    }[where]
    member.cut(point)
    member.start()
    left = [place for place in places if place < (places[17] if where == "in a record" else point)]
    assert numbers(member.bodies()) == list(range(len(left)))
    assert member.box.store.log.written == (places[17] if where == "in a record" else point)
    assert bool(list(member.quarantine)) == (where != "at its end") if member.paths.quarantine.exists() else True
    member.put(99)
    assert numbers(member.bodies())[-1] == 99
    member.box.stop()


def test_a_point_before_the_first_file_sets_the_store_aside(tmp_path):
    member = Member(tmp_path, segment_bytes=4096)
    for number in range(30):
        member.put(number, size=700)
    member.box.stop()
    for name in ("00000000000000000000", "00000000000000004096"):
        (member.paths.commit_log / name).unlink()
    log = {path.name: path.read_bytes() for path in member.paths.commit_log.iterdir()}
    uuid = member.files.uuid
    member.cut(5000)
    assert member.files.uuid != uuid
    aside = tmp_path / "store.aside-1700000000000"
    assert {path.name: path.read_bytes() for path in (aside / "commitlog").iterdir()} == log
    member.start()
    assert member.files.stranger == ""
    assert member.bodies() == []
    assert member.box.store.log.written == 0
    member.put(1)
    member.box.stop()


def test_a_stranger_begins_empty_beside_what_was_there(member):
    member.put(1)
    member.box.stop()
    uuid = member.files.uuid
    path = member.cutter.set_aside("it is not of this set")
    assert (path / "commitlog").is_dir()
    assert sorted(one.name for one in member.paths.root.iterdir()) == [MARK]
    assert (member.files.uuid != uuid, member.files.epochs) == (True, ())
    left = {one.name for one in member.paths.own.iterdir()}
    assert not {name for name in left if "ledger" in name or name in ("recovery-position", "index-position")}
    member.start()
    assert member.bodies() == []


def test_a_full_disk_cuts_nothing_and_says_so(tmp_path, monkeypatch):
    class FullDisk(Disk):
        free = 1 << 40
        room = 1 << 40

        def free_bytes(self, path):
            return self.free

        def pwrite(self, fd, data, position):
            if position + len(data) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwrite(fd, data, position)

    disk = FullDisk()
    member = Member(tmp_path, disk=disk)
    places = [member.put(number) for number in range(100)]
    member.box.stop()
    log = member.paths.commit_log / "00000000000000000000"
    before = log.read_bytes()
    disk.free = truncation.RESERVE_BYTES
    with pytest.raises(CannotCut, match=r"has no room to keep the \d+ bytes of the log that have to be cut off"):
        member.cut(places[70])
    disk.free, disk.room = 1 << 40, 1000  # another program has taken the space meanwhile
    with pytest.raises(CannotCut, match=r"cannot be kept in .*quarantine: No space left on device"):
        member.cut(places[70])
    assert log.read_bytes() == before
    assert list(member.paths.quarantine.iterdir()) == []
    assert not member.cutter.finish()
    disk.room = 1 << 40
    member.cut(places[70])
    member.start()
    assert numbers(member.bodies()) == list(range(70))
    member.box.stop()


def test_what_was_kept_before_is_not_kept_twice(member):
    places = [member.put(number) for number in range(10)]
    member.box.stop()
    leader = LeaderLog("leader", 3, LEADERS, places[5])
    member.cutter.begin(places[5], leader, "once")
    (member.paths.own / "ha" / "truncation").unlink()
    member.cutter.begin(places[5], leader, "twice")
    assert len(member.quarantine) == 2
    assert member.cutter.finish()
    # Other bytes at the same place are.
    member.start()
    for number in range(5, 10):
        member.put(number + 30)
    member.box.stop()
    member.files.adopt_epochs([EpochStart(1, 0), EpochStart(2, 100)])
    member.cut(places[5])
    assert len(member.quarantine) in (2, 4)
    assert sum(kept.records for kept in kept_tails(member.paths.quarantine, member.box.disk)) == 10


@pytest.mark.parametrize("damage", [b"[]", b"null", b"{", b'{"v":99}'])
def test_a_tail_whose_description_is_damaged_is_said_and_its_bytes_stay(member, damage, caplog):
    places = [member.put(number) for number in range(10)]
    member.box.stop()
    leader = LeaderLog("leader", 3, LEADERS, places[5])
    member.cutter.begin(places[5], leader, "once")
    (member.paths.own / "ha" / "truncation").unlink()
    log, described = (next(member.paths.quarantine.glob(f"diverged-*.{end}")) for end in ("log", "json"))
    described.write_bytes(damage)
    log.write_bytes(b"other bytes")
    assert kept_tails(member.paths.quarantine, member.box.disk) == []
    assert "its messages are not listed" in caplog.text
    member.cutter.begin(places[5], leader, "twice")
    assert log.read_bytes() == b"other bytes"
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    assert kept.records == 5


def test_a_damaged_intent_is_moved_away_and_said(member):
    places = [member.put(number) for number in range(10)]
    member.box.stop()
    member.cutter.begin(places[5], LeaderLog("leader", 3, LEADERS, places[5]), "a reason")
    intent = member.paths.own / "ha" / "truncation"
    intent.write_bytes(intent.read_bytes()[:-9])
    member.files = member.load()
    assert not member.cutter.finish()
    assert member.files.damage == f"{intent} was damaged."
    assert member.files.epochs[-1] == EpochStart(2, 100)
    member.cut(places[5])  # as the next handshake says
    assert not member.files.damage
    member.start()
    assert numbers(member.bodies()) == list(range(5))


def test_a_store_in_use_is_not_touched(member):
    places = [member.put(number) for number in range(10)]
    script = (
        "import sys; from pathlib import Path; from appliance.engine.disk import Disk;"
        "Disk().lock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    member.box.stop()
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(member.paths.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StartError, match="is in use by another process"):
            member.cut(places[5])
        with pytest.raises(StartError, match="is in use by another process"):
            member.cutter.set_aside("a test")
    finally:
        other.communicate()
    assert member.cutter.finish()  # the next holder of the lock finishes a noted cut


def test_queues_that_were_being_rebuilt_are_rebuilt_again(member):
    places = [member.put(number) for number in range(100)]
    member.box.wait_recovery_position()
    member.box.stop()
    for path in (member.paths.consume_queues / "T" / "0").iterdir():
        path.unlink()  # as if deleted by hand
    member.cut(places[70])
    member.start()
    assert numbers(member.bodies()) == list(range(70))


def test_a_cut_that_failed_on_its_way_is_finished_before_the_next(tmp_path):
    disk = FailingDisk()
    member = Member(tmp_path, disk=disk)
    places = [member.put(number) for number in range(20)]
    member.box.stop()
    leader = LeaderLog("leader", 3, LEADERS, places[10])
    member.cutter.begin(places[10], leader, "once")
    disk.failing["fdatasync"] = errno.EIO
    with pytest.raises(OSError, match="EIO"):
        member.cutter.finish()
    assert member.files.epochs[-1] == EpochStart(2, 100)
    disk.failing.clear()
    newer = (*LEADERS, EpochStart(4, 500))
    member.cutter.begin(places[5], LeaderLog("leader", 4, newer, places[5]), "twice")
    assert member.files.epochs == LEADERS
    assert member.cutter.finish()
    assert member.files.epochs == newer
    assert sorted(kept.records for kept in kept_tails(member.paths.quarantine, disk)) == [5, 10]
    member.start()
    assert numbers(member.bodies()) == list(range(5))
    member.box.stop()


def test_without_a_leaders_list_the_own_one_is_cut(member):
    places = [member.put(number) for number in range(10)]
    member.files.begin_epoch(5, places[8])
    member.box.stop()
    member.cutter.begin(places[5], LeaderLog("leader", 6, (), -1), "a test")
    assert member.cutter.finish()
    assert member.files.epochs == (EpochStart(1, 0), EpochStart(2, 100))


def test_the_json_is_what_the_page_says(member):
    places = [member.put(number) for number in range(10)]
    member.box.stop()
    member.cut(places[5])
    (name,) = [name for name in member.quarantine if name.endswith(".json")]
    found = json.loads((member.paths.quarantine / name).read_bytes())
    assert set(found) == {
        "v", "epoch", "from", "to", "file_bytes", "crc32", "records", "topics", "own_epochs", "leaders_epochs",
        "leader", "leaders_end", "uuid", "reason", "cut_ms",
    }  # fmt: skip


def test_a_large_tail_is_streamed(tmp_path):
    member = Member(tmp_path, segment_bytes=64 << 20)
    first = member.put(0)
    for number in range(1, 2000):
        member.put(number, size=100_000)
    member.box.store.log.sync()
    member.box.stop()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    member.cut(first + 200)
    (kept,) = kept_tails(member.paths.quarantine, member.box.disk)
    assert kept.records == 1999
    assert kept.tail.end - kept.tail.begin > 190 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
