"""Delivery events: which ones are recorded, what the files keep of them, and what is found again."""

from __future__ import annotations

import errno
import random
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.deliveries import recorder as recorders
from appliance.engine.broker.deliveries import ring as rings
from appliance.engine.broker.deliveries.event_format import (
    EVENT,
    EVENT_BYTES,
    HEADER_BYTES,
    MOST_LOST,
    MOST_OFFSET,
    SOME,
    Definition,
    FileHeader,
    batches_of,
    decode_header,
    encode_header,
    time_of,
    whole_bytes,
)
from appliance.engine.broker.deliveries.history import MOST_FOUND, DeliveryHistory, DeliveryReader, MessagePlace
from appliance.engine.broker.deliveries.recorder import DeliveryRecorder
from appliance.engine.broker.deliveries.ring import DeliveryRing
from appliance.engine.broker.deliveries.service import DeliveryService
from appliance.engine.disk import Disk
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.filter.tags import tag_filter
from appliance.engine.store.dispatch import tag_code
from tests.support.clock import FakeClock
from tests.support.fakes import FakeConnection

BUDGET = 1 << 20


class FullDisk(Disk):
    """A disk that is full after `room` more bytes."""

    room = 1 << 40

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(self.room, len(data))
        self.room -= taken
        return super().pwrite(fd, data[:taken], position)


class Bench:
    """A recorder and its service, without threads; `restart` continues as after a kill."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.disk = FullDisk(directory)
        self.directory = directory
        self.published = 0
        self.budget = BUDGET
        self.start()

    def start(self) -> None:
        self.ring = DeliveryRing(self.directory / "deliveries", self.disk)
        self.times = SimpleNamespace(wall_ms=self.clock.wall_ms())
        self.recorder = DeliveryRecorder(self.times, lambda: self.published, True)
        self.service = DeliveryService(
            self.recorder, self.ring, lambda: self.budget, lambda: self.published, self.clock
        )
        self.reader = DeliveryReader(self.ring, lambda: 0.0)  # however long a look takes

    def restart(self, published: int | None = None) -> None:
        self.ring.close()
        if published is not None:
            self.published = published
        self.start()

    def pulled(
        self, first: int, count: int, group: str = "G", topic: str = "T", queue_id: int = 0,
        conn: Any = None, wanted: MessageFilter = EVERYTHING,
    ) -> None:  # fmt: skip
        self.times.wall_ms = self.clock.wall_ms()
        request: Any = SimpleNamespace(
            conn=conn or FakeConnection("10.0.0.1:5"), wanted=wanted, queue_id=queue_id, offset=first,
            group=SimpleNamespace(group_name=group), topic=SimpleNamespace(topic_name=topic),
        )  # fmt: skip
        self.recorder.record(request, first + count)

    def write(self) -> None:
        """Do the work of the end of a second."""
        self.recorder.hand_over()
        self.service.work()

    def find(
        self, offset: int, topic: str = "T", physical: int | None = None, tag: str | None = None, stored_ms: int = 0
    ) -> DeliveryHistory:
        where = self.published - 1 if physical is None else physical
        return self.reader.find([MessagePlace(topic, 0, offset, where, stored_ms, tag_code(tag))])[0]

    def groups(self, offset: int, **more: Any) -> list[str]:
        return [one.group for one in self.find(offset, **more).deliveries]

    def data(self) -> list[bytes]:
        return [file.path.read_bytes() for file in self.ring.files()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_delivery_is_found_by_every_message_of_the_answer(bench):
    conn = FakeConnection()
    conn.client_id = "10.0.0.1@7"
    bench.published = 900
    bench.clock.advance(1234)
    bench.pulled(5, 3, conn=conn)
    bench.write()
    for offset in (5, 6, 7):
        found = bench.find(offset, physical=0)
        assert [one[:2] for one in found.deliveries] == [("G", "10.0.0.1@7")]
        assert found.deliveries[0].at_ms == bench.clock.wall_ms()
        assert found.deliveries[0].certain
    assert bench.groups(4) == bench.groups(8) == bench.groups(5, topic="Other") == []


def test_what_the_filter_kept_out_was_not_delivered(bench):
    bench.published = 900
    bench.pulled(0, 10, group="A", wanted=tag_filter("TagA || TagB"))
    bench.pulled(0, 10, group="C", wanted=tag_filter("TagC"))
    many = tag_filter(" || ".join(f"T{number}" for number in range(70)))
    bench.pulled(0, 10, group="Many", wanted=many)
    bench.pulled(0, 10, group="Reads", wanted=MessageFilter(None, True))
    bench.write()
    assert bench.groups(3, tag="TagA") == ["A", "Many", "Reads"]
    assert bench.groups(3, tag="TagC") == ["C", "Many", "Reads"]
    assert [one.certain for one in bench.find(3, tag="TagC").deliveries] == [True, False, False]
    definitions = [one for data in bench.data() for batch in batches_of(data) for one in batch.definitions.values()]
    assert [one.codes for one in definitions][2:] == [SOME, SOME]


def test_a_definition_is_written_once_a_file(bench):
    conn = FakeConnection()
    for _ in range(3):
        bench.pulled(0, 1, conn=conn)
        bench.write()
    (data,) = bench.data()
    assert [len(batch.definitions) for batch in batches_of(data)] == [1, 0, 0]


def test_a_client_that_said_who_it_is_later_is_called_so_from_then_on(bench):
    conn = FakeConnection("10.0.0.1:5")
    bench.published = 9
    bench.pulled(0, 1, conn=conn)
    conn.client_id = "c@1"
    conn.told.clear()  # what ClientProcessor does
    bench.pulled(0, 1, conn=conn)
    bench.write()
    assert [one.client for one in bench.find(0).deliveries] == ["10.0.0.1:5", "c@1"]


# --- another message at the same place


def test_deliveries_of_a_deleted_topic_are_not_those_of_the_new_one(bench):
    bench.published = 500
    for _ in range(2):
        bench.pulled(0, 1, group="Old")
        bench.write()
    bench.clock.advance(5)
    stored_ms = bench.clock.wall_ms()
    bench.published = 700  # the new topic's first message lies at 600
    bench.clock.advance(5)
    bench.pulled(0, 1, group="New")
    bench.write()
    found = bench.find(0, physical=600, stored_ms=stored_ms)
    assert [one.group for one in found.deliveries] == ["New"]
    assert found.complete
    assert bench.groups(0, physical=100) == ["Old", "Old", "New"]


def test_within_one_batch_the_store_time_tells(bench):
    bench.pulled(0, 1, group="Old")
    bench.clock.advance(5)
    stored_ms = bench.clock.wall_ms()
    bench.published = 700
    bench.pulled(0, 1, group="New")
    bench.write()
    assert bench.groups(0, physical=600, stored_ms=stored_ms) == ["New"]


def test_deliveries_of_messages_that_a_crash_took_are_not_those_of_their_successors(bench):
    """With asynchronous flush a crash can cut the log's end, and other messages get the offsets."""
    bench.published = 1000
    for _ in range(2):
        bench.pulled(7, 1, group="Old")
        bench.write()
    bench.restart(published=600)
    bench.published = 800
    bench.clock.advance(5)
    bench.pulled(7, 1, group="New")
    bench.write()
    found = bench.find(7, physical=700, stored_ms=bench.clock.wall_ms())
    assert [one.group for one in found.deliveries] == ["New"]
    assert found.complete
    assert bench.groups(7, physical=500) == ["Old", "Old", "New"]


def test_a_file_that_a_start_begins_does_not_hide_those_before(bench):
    bench.published = 900
    bench.pulled(7, 1, group="Old")
    bench.write()
    bench.restart()
    bench.pulled(0, 1)
    bench.write()
    bench.restart()
    conn = FakeConnection()
    for number in range(BUDGET // rings.FILES // EVENT_BYTES - 20):  # as many as a file holds
        bench.pulled(100 + number, 1, conn=conn)
    bench.write()
    assert len(bench.ring.files()) == 2
    assert bench.groups(7, physical=500) == ["Old"]


# --- what a crash leaves


def test_a_file_is_read_up_to_its_last_whole_batch_wherever_it_was_cut(bench):
    bench.published = 9
    for group in "ABC":
        bench.pulled(0, 1, group=group)
        bench.write()
    (file,) = bench.ring.files()
    whole = file.path.read_bytes()
    ends = [HEADER_BYTES]
    while ends[-1] < len(whole):
        ends.append(whole_bytes(whole[: next(n for n in range(ends[-1] + 1, len(whole) + 1)
                                             if whole_bytes(whole[:n])[0] > ends[-1])])[0])  # fmt: skip
    for size in range(len(whole)):
        file.path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends[1:])
        assert bench.groups(0, physical=0) == list("ABC")[:kept]
    for size in (0, 10, ends[1] + 5, len(whole) - 1):
        file.path.write_bytes(whole[:size])
        bench.restart()
        bench.published = 12
        bench.pulled(0, 1, group="After")
        bench.write()
        kept = sum(end <= size for end in ends[1:])
        got = bench.groups(0, physical=0)
        assert got[-1] == "After"
        assert got[:-1] == list("ABC")[:kept]
        for one in bench.ring.files()[1:]:
            one.path.unlink()


def test_other_bytes_are_no_events(bench):
    bench.pulled(0, 1)
    bench.write()
    (file,) = bench.ring.files()
    whole = file.path.read_bytes()
    chance = random.Random(3)
    for _ in range(300):
        at = chance.randrange(len(whole))
        file.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        assert bench.groups(0, physical=0) == []
    file.path.write_bytes(whole)
    assert decode_header(whole) is not None


# --- the budget


def test_the_files_stay_within_the_budget_and_the_oldest_go(bench):
    bench.published = 10
    for round_ in range(60):
        conn = FakeConnection()
        for number in range(3000):
            bench.pulled(round_ * 3000 + number, 1, conn=conn)
        bench.write()
        assert sum(map(len, bench.data())) <= BUDGET
    assert len(bench.data()) > 10
    old = bench.find(0, physical=5)
    assert (old.deliveries, old.complete) == ((), False)
    assert old.kept_from_ms is not None
    assert bench.groups(60 * 3000 - 1) == ["G"]
    assert bench.groups(50 * 3000) == ["G"], "in a closed file"
    assert bench.groups(50 * 3000) == ["G"], "and again, when it is known what is where"


def test_a_smaller_budget_counts_with_the_next_write(bench):
    bench.budget = 8 * BUDGET
    for round_ in range(60):
        for number in range(3000):
            bench.pulled(round_ * 3000 + number, 1)
        bench.write()
    assert sum(map(len, bench.data())) > 2 * BUDGET
    bench.budget = 0  # the least possible
    bench.pulled(0, 1)
    bench.write()
    assert sum(map(len, bench.data())) <= BUDGET + 8 * BUDGET // 16, "the file that was being written is whole"


def test_strangers_fill_neither_memory_nor_one_batch(bench, monkeypatch):
    """Thousands of groups, each with one answer."""
    monkeypatch.setattr(recorders, "MOST_DEFINITIONS", 500)
    bench.published = 9
    conn = FakeConnection()
    for number in range(3000):
        bench.pulled(0, 1, group=f"group{number:04d}" + "x" * 240, conn=conn)
        assert len(bench.recorder._definitions) <= 500
        assert len(conn.told) <= recorders._MOST_TOLD
        if number % 700 == 0:
            bench.write()
    bench.write()
    assert sum(map(len, bench.data())) <= BUDGET
    assert len(set(bench.groups(0, physical=0))) == MOST_FOUND
    assert all(len(data) <= BUDGET // rings.FILES for data in bench.data())


def test_what_waits_for_the_disk_is_bounded(bench):
    for number in range(recorders.ROOM_BYTES // EVENT_BYTES * (recorders.MOST_WAITING + 3)):
        bench.pulled(number, 1, conn=None)
    assert len(bench.recorder.waiting) == recorders.MOST_WAITING
    assert bench.recorder.lost == 2 * recorders.ROOM_BYTES // EVENT_BYTES


def test_writing_remembers_nothing_of_how_much_there_was(bench):
    """Each second has a different number of answers; `struct` would cache a format for each number of fields."""
    bench.pulled(0, 1)
    bench.write()
    tracemalloc.start()
    try:
        for count in range(8000, 8008):
            for offset in range(count):
                bench.pulled(offset, 1)
            bench.write()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20


# --- odd answers


def test_long_and_far_ranges(bench):
    bench.published = 9
    bench.pulled(10, 200_000)
    bench.pulled(MOST_OFFSET - 1, 1)
    bench.pulled(MOST_OFFSET, 5)
    bench.write()
    assert bench.recorder.lost == 1
    for offset in (10, 65_544, 65_545, 200_009, MOST_OFFSET - 1):
        assert bench.groups(offset) == ["G"], offset
    assert bench.groups(200_010) == []
    assert bench.find(10).lost == 1


def test_times_wrap(bench):
    for wall_ms in (0, 5, (1 << 32) - 1, 1 << 32, 1_800_000_000_000):
        for apart in (-5000, 0, 3000):
            at = max(0, wall_ms + apart)
            assert time_of(at & 0xFFFF_FFFF, wall_ms) == at


def test_nothing_is_recorded_when_it_is_off(bench):
    bench.recorder.on = False
    bench.pulled(0, 1)
    bench.write()
    assert bench.data() == []
    assert bench.find(0) == DeliveryHistory((), False, None, False, 0)


def test_a_time_without_recording_is_told_of(bench):
    """Recording is switched off and on again: the history reports the gap instead of "no deliveries"."""
    bench.published = 9
    bench.pulled(0, 1, group="Before")
    bench.recorder.switch(False)
    bench.write()
    bench.published = 20
    bench.pulled(0, 1, group="Unseen")
    bench.recorder.switch(True)
    bench.write()
    bench.pulled(0, 1, group="After")
    bench.write()
    found = bench.find(0, physical=0)
    assert [one.group for one in found.deliveries] == ["Before", "After"]
    assert found.lost == MOST_LOST
    assert bench.find(0, physical=15).lost == MOST_LOST, "it was stored meanwhile"
    bench.published = 30
    bench.write()
    bench.pulled(0, 1, group="Later")
    bench.write()
    assert bench.find(0, physical=25).lost == 0, "it was stored later"


def test_a_start_without_recording_is_told_of(bench):
    bench.published = 9
    bench.pulled(0, 1)
    bench.write()
    bench.budget = 0
    bench.restart()
    bench.service._tell_of_a_gap()
    bench.budget = BUDGET
    bench.restart(20)
    bench.pulled(0, 1)
    bench.write()
    assert bench.find(0, physical=0).lost == MOST_LOST
    assert bench.find(0, physical=15).lost == MOST_LOST
    assert bench.find(0, physical=20).lost == 0


def test_what_was_lost_before_a_write_that_fails_is_told_too(bench):
    bench.published = 9
    bench.pulled(0, 1)
    bench.write()
    bench.disk.room = 0
    bench.pulled(MOST_OFFSET, 1)
    bench.pulled(0, 1)
    bench.write()
    bench.disk.room = 1 << 40
    bench.clock.advance(6000)
    bench.pulled(0, 1)
    bench.write()
    assert (bench.find(0).lost, bench.service.lost) == (2, 2)


# --- the disk


@pytest.mark.parametrize("room", [0, 7, 40])
def test_a_full_disk_drops_events_and_goes_on_later(bench, room):
    bench.published = 9
    bench.pulled(0, 1, group="Before")
    bench.write()
    bench.disk.room = room
    bench.pulled(0, 1, group="Dropped")
    bench.write()
    assert bench.service.failure == "No space left on device"
    bench.disk.room = 1 << 40
    bench.pulled(0, 1, group="Early")
    bench.write()
    assert bench.service.dropped == 2, "nothing is tried for a while"
    bench.clock.advance(6000)
    bench.pulled(0, 1, group="After")
    bench.write()
    assert bench.service.failure is None
    found = bench.find(0)
    assert [one.group for one in found.deliveries] == ["Before", "After"]
    assert found.lost == 2


def test_looking_ends_in_time(bench):
    bench.published = 9
    for number in range(20):
        bench.pulled(0, 1, group=f"G{number}")
        bench.write()
    steps = iter(range(1000))
    slow = DeliveryReader(bench.ring, lambda: next(steps))
    (found,) = slow.find([MessagePlace("T", 0, 0, 0, 0, 0)], 5)
    assert found.cut_short
    assert not found.complete
    assert 0 < len(found.deliveries) < 20


def test_foreign_files_stay(bench):
    bench.pulled(0, 1)
    bench.write()
    (bench.directory / "deliveries" / "notes.txt").write_text("mine")
    assert len(bench.ring.files()) == 1


@pytest.mark.parametrize("what", ["directory", "huge", "dangling", "foreign"])
def test_something_else_of_a_files_name_is_stepped_over(bench, what):
    """Events go on in a file of RocketBox's; the foreign one takes no memory and stays as it is."""
    bench.pulled(0, 1)
    bench.write()
    (ours,) = bench.ring.files()
    path = ours.path.with_name("0000000002")
    if what == "directory":
        path.mkdir()
    elif what == "dangling":
        path.symlink_to("nowhere")
    else:
        with open(path, "wb") as file:
            file.write(ours.path.read_bytes()[:HEADER_BYTES] if what == "huge" else b"x" * 100)
            file.truncate(1 << 42 if what == "huge" else 100)
    bench.restart(10)
    bench.budget = rings.LEAST_BUDGET_BYTES
    for _ in range(3):
        for first in range(3000):
            bench.pulled(first, 1, group="After")
        bench.write()
        assert bench.service.failure is None
    assert bench.groups(2999)[-1] == "After"
    assert "After" in bench.groups(0)


def test_a_large_budget_makes_more_files_and_not_larger_ones(bench, monkeypatch):
    monkeypatch.setattr(rings, "MOST_FILE_BYTES", 64 * 1024)
    bench.budget = 1 << 40
    for first in range(20_000):
        bench.pulled(first, 1)
    bench.write()
    sizes = [len(data) for data in bench.data()]
    assert len(sizes) > 4
    assert max(sizes) <= 64 * 1024
    assert bench.groups(0, physical=-1) == ["G"]


def test_a_header_is_what_it_was():
    header = FileHeader(77, 88)
    data = encode_header(header)
    assert len(data) == HEADER_BYTES
    assert decode_header(data) == header
    assert decode_header(data[:-1]) is None
    assert EVENT.size == EVENT_BYTES == 16
    assert Definition("G", "T", 0, "c", None).codes is None
