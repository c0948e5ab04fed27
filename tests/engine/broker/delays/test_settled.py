"""Delayed messages that were settled early: kept on disk, stepped over by delivery, and no other message is lost."""

from __future__ import annotations

import errno
import random
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.broker.delays import settled
from appliance.engine.broker.delays.settled import (
    DAMAGED_NAME,
    HEADER,
    NAME,
    RECORD_BYTES,
    Claim,
    How,
    Settled,
    SettledDelays,
    decode,
    encode,
)
from appliance.engine.broker.slave_sync import SlaveSync
from appliance.engine.broker.topic_places import TopicPlacesProcessor
from appliance.engine.clock import Clock
from appliance.engine.disk import Disk
from tests.crash.recording_disk import RecordingDisk
from tests.engine.test_format_pages import blocks_of, bytes_of_dump

#: Nothing that a copy of deletions and settled messages reads.
NO_TABLES: Any = SimpleNamespace(topics=None, groups=None, offsets=None)
INLINE: Any = SimpleNamespace(clock=Clock(), call_soon=lambda call: call())

PATH = Path("/rocketbox") / NAME


def message(offset: int, level: int = 3, how: How = How.DROPPED) -> Settled:
    return Settled(level, offset, offset * 200, 1_700_000_000_000 + offset, how)


class Opened(SettledDelays):
    """Settled messages on a disk in memory; `said` holds the reports. there: messages in the log, None for all."""

    def __init__(self, disk: Disk, there: set[Settled] | None = None, path: Path = PATH) -> None:
        self.said: list[str] = []
        super().__init__(path, disk, self.said.append)
        self.load(lambda record: there is None or record in there)

    def take(self, *offsets: int, level: int = 3) -> None:
        for offset in offsets:
            assert self.claim(level, offset) is Claim.YOURS
        self.settle([message(offset, level) for offset in offsets])

    def held(self, level: int = 3, end: int = 64) -> set[int]:
        return {offset for offset in range(end) if self.holds(level, offset)}


@pytest.fixture
def disk() -> RecordingDisk:
    made = RecordingDisk()
    made._mkdir(PATH.parent)
    return made


def file_of(disk: RecordingDisk) -> bytearray:
    return disk.files[disk._node(PATH)]


def test_what_was_settled_is_held_after_a_restart(disk: RecordingDisk) -> None:
    first = Opened(disk)
    assert not disk.exists(PATH), "no file before anything is settled"
    first.take(5, 7)
    first.take(7, level=4)
    first.close()
    second = Opened(disk)
    assert second.held() == {5, 7}
    assert second.held(4) == {7}
    assert second.between(3, 0, 6) == 1
    assert second.between(3, 6, 64) == 1
    assert second.said == []
    assert second.claim(3, 5) is Claim.SETTLED


def test_it_is_on_the_disk_when_settle_returns(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1)
    opened.take(2)
    after = len(disk.record)
    assert any(kind == "sync" for kind, *_ in disk.record[after - 2 :])
    stored, pending = disk._stored[disk._node(PATH)]
    assert bytes(stored) == HEADER + encode(message(1)) + encode(message(2))
    assert not pending


def test_delivery_and_an_act_exclude_each_other(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    assert opened.enter(3, 0, 4) == 4
    assert opened.claim(3, 3) is Claim.DELIVERED
    assert opened.claim(3, 6) is Claim.YOURS
    assert opened.claim(3, 6) is Claim.TAKEN
    assert opened.enter(3, 4, 10) == 6, "delivery stops before a message that is acted on"
    assert opened.enter(3, 6, 10) == 6
    opened.release(3, [6])
    assert opened.enter(3, 6, 10) == 10
    assert opened.claim(3, 8) is Claim.DELIVERED
    assert opened.claim(3, 12) is Claim.YOURS
    opened.settle([message(12)])
    assert opened.enter(3, 10, 20) == 20
    assert opened.held() == {12}
    assert opened.entered(3) == 20


def test_what_delivery_has_passed_is_forgotten(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1, 5, 9)
    opened.trim(3, 6)
    assert opened.held() == {9}
    assert opened.between(3, 0, 64) == 1
    assert opened.claim(3, 5) is Claim.DELIVERED
    opened.trim(3, 10)
    assert opened.held() == set()
    assert bytes(file_of(disk)) == HEADER, "nothing is left of a file whose messages are all passed"
    opened.take(20)
    opened.close()
    assert Opened(disk).held() == {20}


def test_the_file_stays_in_proportion_to_what_waits(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(100_000)
    for begin in range(0, 20_000, 1000):
        opened.take(*range(begin, begin + 1000))
        opened.trim(3, begin + 1000)
    assert len(file_of(disk)) < 7000 * RECORD_BYTES
    opened.close()
    again = Opened(disk)
    assert again.holds(3, 100_000)
    assert again.between(3, 20_000, 200_000) == 1


def test_another_log_has_other_messages_there(disk: RecordingDisk) -> None:
    """A log that was cut may have other messages at these places: they are delivered."""
    opened = Opened(disk)
    opened.take(*range(10))
    opened.close()
    cut = Opened(disk, there={message(offset) for offset in range(6)})
    assert cut.held() == set(range(6))
    assert len(cut.said) == 1
    assert "4" in cut.said[0]
    cut.close()
    again = Opened(disk, there={message(offset) for offset in range(6)})
    assert again.held() == set(range(6))
    assert again.said == [], "it was tidied up and is no news"


def test_expired_messages_need_no_record(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1, 2)
    opened.close()
    later = SettledDelays(PATH, disk, opened.said.append)
    later.load(lambda record: None)
    assert not later.holds(3, 2)
    assert opened.said == []


@pytest.mark.parametrize("cut", range(RECORD_BYTES * 4 + 1))
def test_a_file_cut_anywhere_keeps_what_is_whole(disk: RecordingDisk, cut: int) -> None:
    opened = Opened(disk)
    opened.take(1, 2, 3)
    opened.close()
    rest = RecordingDisk({"/rocketbox": None, str(PATH): bytes(file_of(disk)[:cut])})
    again = Opened(rest)
    assert again.held() == set(range(1, max(1, cut // RECORD_BYTES)))
    again.take(30)
    again.close()
    assert Opened(rest).holds(3, 30)


def test_every_flipped_bit_is_told_and_only_frees_messages(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1, 2, 3)
    opened.close()
    whole = bytes(file_of(disk))
    for bit in range(len(whole) * 8):
        image = bytearray(whole)
        image[bit // 8] ^= 1 << bit % 8
        damaged = RecordingDisk({"/rocketbox": None, str(PATH): bytes(image)})
        again = Opened(damaged)
        number = bit // 8 // RECORD_BYTES
        assert again.held() == ({1, 2, 3} - {number} if number else set()), bit
        assert len(again.said) == 1, bit
        if not number:
            assert damaged.exists(PATH.with_name(DAMAGED_NAME))


def test_a_full_disk_settles_nothing(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1)

    def full(call: str, path: str) -> None:
        if call in ("pwrite", "create"):
            raise OSError(errno.ENOSPC, "no space")

    disk.fault = full
    assert opened.claim(3, 2) is Claim.YOURS
    with pytest.raises(OSError, match="no space"):
        opened.settle([message(2)])
    assert opened.held() == {1}
    assert opened.enter(3, 0, 10) == 2, "it is still claimed"
    opened.release(3, [2])
    disk.fault = lambda call, path: None
    after_kill = Opened(RecordingDisk({"/rocketbox": None, str(PATH): bytes(file_of(disk))}))
    assert after_kill.held() == {1}
    opened.take(4)
    opened.close()
    assert Opened(disk).held() == {1, 4}


def test_a_failed_sync_is_not_believed(disk: RecordingDisk) -> None:
    opened = Opened(disk)
    opened.take(1)

    def failing(call: str, path: str) -> None:
        if call == "fdatasync":
            raise OSError(errno.EIO, "I/O error")

    disk.fault = failing
    opened.claim(3, 2)
    with pytest.raises(OSError, match="I/O error"):
        opened.settle([message(2)])
    opened.release(3, [2])
    disk.fault = lambda call, path: None
    opened.take(3)
    stored, pending = disk._stored[disk._node(PATH)]
    assert not pending
    assert {decode(bytes(stored[at : at + RECORD_BYTES])) for at in range(32, len(stored), 32)} == {
        message(1),
        message(3),
    }


def test_a_copy_in_the_log_counts_until_the_process_ends(disk: RecordingDisk) -> None:
    opened = Opened(disk)

    def full(call: str, path: str) -> None:
        raise OSError(errno.ENOSPC, "no space")

    disk.fault = full
    opened.claim(3, 2)
    with pytest.raises(OSError, match="no space"):
        opened.settle([message(2, how=How.DELIVERED)], for_now=True)
    assert opened.held() == {2}
    disk.fault = lambda call, path: None
    opened.take(9)
    opened.close()
    assert Opened(disk).held() == {2, 9}


def test_a_file_that_cannot_be_read_holds_up_nothing(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.mkdir()
    opened = Opened(Disk(tmp_path), path=path)
    assert opened.held() == set()
    assert len(opened.said) == 1
    opened.claim(3, 1)
    with pytest.raises(OSError, match="directory"):
        opened.settle([message(1)])


def test_a_file_too_large_to_be_ours_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with open(path, "wb") as file:
        file.write(HEADER + encode(message(1)))
        file.truncate(1 << 42)
    opened = Opened(Disk(tmp_path), path=path)
    assert opened.held() == set()
    assert len(opened.said) == 1
    opened.take(2)
    opened.close()
    assert Opened(Disk(tmp_path), path=path).held() == {2}
    assert path.with_name(DAMAGED_NAME).stat().st_size == 1 << 42


def test_no_act_makes_the_file_larger_than_a_start_reads(disk: RecordingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "MOST_BYTES", 8 * RECORD_BYTES)
    opened = Opened(disk)
    for round_ in range(6):  # what is passed makes room
        opened.take(2 * round_, 2 * round_ + 1)
        opened.trim(3, 2 * round_ + 1)
    for offset in range(12, 18):
        opened.take(offset)
    opened.claim(3, 18)
    with pytest.raises(OSError, match="too many"):
        opened.settle([message(18)])
    assert not opened.holds(3, 18)
    opened.close()
    assert Opened(disk).held() == set(range(11, 18))


def test_the_file_is_private(tmp_path: Path) -> None:
    opened = Opened(Disk(tmp_path), path=tmp_path / NAME)
    opened.take(1)
    opened.close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 9000)),
            st.tuples(st.just("trim"), st.integers(0, 9000)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_it_is_a_set(steps: list[tuple[str, int]]) -> None:
    disk = RecordingDisk({"/rocketbox": None})
    opened, known, floor = Opened(disk), set(), 0
    for step, number in steps:
        if step == "take":
            claim = opened.claim(3, number)
            assert (claim is Claim.YOURS) == (number not in known and number >= floor)
            if claim is Claim.YOURS:
                opened.settle([message(number)])
                known.add(number)
        elif step == "trim":
            opened.trim(3, number)
            floor = max(floor, number)
            known = {offset for offset in known if offset >= floor}
        else:
            opened.close()
            opened = Opened(disk)
            opened.trim(3, floor)
        assert opened.between(3, 0, 9001) == len(known)
        assert opened.between(3, 4000, 4200) == len([offset for offset in known if 4000 <= offset < 4200])
        assert all(opened.holds(3, offset) for offset in known)


def test_delivery_and_acts_at_the_very_moment(disk: RecordingDisk) -> None:
    """Each message goes to exactly one of the two, however the threads interleave."""
    opened = Opened(disk)
    end, delivered, settled = 3000, [], []
    turns = threading.Semaphore(0)

    def deliver() -> None:
        at, chance = 0, random.Random(1)
        while at < end:
            turns.acquire()  # another thread has had a turn, too
            upto = opened.enter(3, at, min(end, at + chance.randrange(1, 9)))
            delivered.extend(offset for offset in range(at, upto) if not opened.holds(3, offset))
            at = upto

    def act(seed: int) -> None:
        chance = random.Random(seed)
        while opened.entered(3) < end:
            offset = max(0, opened.entered(3) - 3) + chance.randrange(12)
            turns.release()
            if opened.claim(3, offset) is Claim.YOURS:
                if chance.random() < 0.3:
                    opened.release(3, [offset])
                else:
                    opened.settle([message(offset)])
                    settled.append(offset)

    threads = [threading.Thread(target=deliver), *(threading.Thread(target=act, args=(seed,)) for seed in (2, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(settled)) == len(settled)
    assert sorted(delivered + [offset for offset in settled if offset < end]) == list(range(end))
    assert settled


def test_the_worked_example_is_what_the_code_writes() -> None:
    [dump] = blocks_of("settled-delays.md")
    data = bytes_of_dump(dump)
    assert data[:RECORD_BYTES] == HEADER
    record = decode(data[RECORD_BYTES:])
    assert record == Settled(3, 17, 4096, 1_700_000_000_000, How.DROPPED)
    assert encode(record) == data[RECORD_BYTES:]
    assert re.match(r"rocketbox settled delays \d+\n", HEADER.decode())


def test_a_copy_waits_for_the_log_of_which_it_speaks(disk, monkeypatch):
    """A member that came to lead before would step over messages without having the copies in their place, or over
    others that came to their places."""
    monkeypatch.setattr("appliance.engine.broker.slave_sync.RIPE_S", 0.0)
    leader, log = Opened(disk), SimpleNamespace(written=1000)
    answering = TopicPlacesProcessor(SimpleNamespace(log=log), lambda: 0, lambda: b"{}", leader.added_since)
    own, own_log = Opened(disk, path=PATH.with_name("own")), SimpleNamespace(written=1000, durable=999)
    store = SimpleNamespace(log=own_log, paths=SimpleNamespace(root=PATH, own=PATH), disk=disk)
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store, own)
    sync._invoke = lambda address, request: answering.handle(request, None)
    assert sync._take_settled("leader")
    leader.take(1, 2)
    assert not sync._take_settled("leader")
    assert own.held() == set()
    leader.take(3)
    log.written = 2000  # it goes on, and the member is always a little behind
    own_log.durable = 1000
    assert not sync._take_settled("leader")
    assert own.held() == {1, 2}
    own_log.durable = 2000
    assert sync._take_settled("leader")
    assert own.held() == {1, 2, 3}


def test_who_is_late_writes_no_file_in_place_of_the_one_that_was_closed(disk):
    """An act, or a copy of the leader's, may take longer than the broker lasts."""
    before = Opened(disk)
    before.take(1, 2)
    before.close()
    with pytest.raises(OSError, match="stopped"):
        before.settle([message(3)])
    assert Opened(disk).held() == {1, 2}
