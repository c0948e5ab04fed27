"""A member's own files: whole after every crash, damage is said, and a store that is not the one they were made for is
a stranger."""

import random
import re
from pathlib import Path

import pytest

from appliance.engine.crc_lines import line_of
from appliance.engine.disk import Disk
from appliance.engine.errors import CorruptFile, StartError
from appliance.engine.failover.member_files import (
    MARK,
    MemberFiles,
    Place,
    decode_epochs,
    encode_epochs,
    place_of,
)
from appliance.engine.failover.parts import Known
from appliance.engine.failover.set_state import EpochStart
from appliance.engine.store.paths import StorePaths
from tests.crash.recording_disk import RecordingDisk
from tests.crash.replayer import MODES, CrashedDisk

HERE = Place("machine", "/rocketbox", 17, "boot 1")


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "rocketbox").mkdir()
    return StorePaths(tmp_path / "store", tmp_path / "rocketbox")


def opened(paths, here=HERE, name="broker-a"):
    return MemberFiles(paths, Disk(paths.own), name, here)


def test_everything_is_there_after_a_restart(paths):
    files = opened(paths)
    assert (files.slot, files.seen, files.epochs, files.damage, files.stranger, files.copied) == (0, 0, (), "", "", "")
    files.take_slot(2)
    files.begin_epoch(1, 0)
    files.begin_epoch(3, 4096)
    files.see(7)
    files.see(5)
    files.join("of the set")
    again = opened(paths)
    assert (again.uuid, again.slot, again.seen, again.set_id) == (files.uuid, 2, 7, "of the set")
    assert again.epochs == files.epochs == (EpochStart(1, 0), EpochStart(3, 4096))
    assert again.same_boot
    assert not again.copied + again.stranger + again.damage
    assert not opened(paths, HERE._replace(boot="boot 2")).same_boot
    assert not opened(paths, HERE._replace(boot="")).same_boot


def test_what_was_seen_of_the_key_is_there_after_a_restart_and_not_with_another_store(paths):
    known = Known(3, 17, frozenset(["one", "other"]), True)
    files = opened(paths)
    assert files.known == Known()
    files.note(known)
    assert opened(paths).known == known
    files.renew()
    assert opened(paths).known == Known()


def test_the_files_are_ours_alone(paths):
    opened(paths).begin_epoch(1, 0)
    assert {path.name: path.stat().st_mode & 0o777 for path in (paths.own / "ha").iterdir()} == {
        "identity": 0o600, "epochs": 0o600, "seen": 0o600, "last-run": 0o600,
    }  # fmt: skip


def test_the_list_of_epochs_is_apaches_text():
    epochs = (EpochStart(1, 0), EpochStart(4, 123456))
    assert encode_epochs(epochs) == b"2\n3907284802\n1-0\n4-123456\n"
    assert decode_epochs(encode_epochs(epochs)) == epochs
    assert decode_epochs(encode_epochs(())) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2\n3907284802\n1-0\n",
        b"2\n3907284802\n1-0\n4-123457\n",
        b"3\n3907284802\n1-0\n4-123456\n",
        b"x\n0\n",
        b"0\n1\n",
        b"\xff",
        encode_epochs([EpochStart(2, 0), EpochStart(1, 5)]),
        encode_epochs([EpochStart(1, 9), EpochStart(2, 5)]),
        encode_epochs([EpochStart(1, -1)]),
        encode_epochs([EpochStart(0, 0)]),
    ],
)
def test_a_damaged_list_of_epochs_is_none(data):
    with pytest.raises(CorruptFile):
        decode_epochs(data)


def test_the_examples_of_the_page_are_what_the_files_hold(paths):
    page = (Path(__file__).parents[3] / "docs" / "formats" / "ha.md").read_text(encoding="utf-8")
    epochs, identity = re.findall(r"^```\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert decode_epochs(epochs.encode()) == (EpochStart(1, 0), EpochStart(4, 123456))
    opened(paths)
    (paths.own / "ha" / "identity").write_text(identity)
    (paths.root / MARK).write_bytes(line_of(b"8d0b5c2e-6d6f-4d0e-9a7b-0c5f5a3f1b11"))
    files = opened(paths)
    assert (files.uuid, files.slot) == ("8d0b5c2e-6d6f-4d0e-9a7b-0c5f5a3f1b11", 2)
    files.take_slot(2)
    assert (paths.own / "ha" / "identity").read_text() == identity


def test_epochs_only_grow(paths):
    files = opened(paths)
    files.begin_epoch(2, 100)
    files.begin_epoch(2, 100)  # a repeat, after an answer that was lost
    for wrong in [(2, 200), (1, 200), (2, 99)]:
        with pytest.raises(ValueError, match="cannot follow"):
            files.begin_epoch(*wrong)
    with pytest.raises(ValueError, match="cannot follow"):
        files.adopt_epochs([EpochStart(3, 9), EpochStart(4, 8)])
    assert files.epochs == opened(paths).epochs == (EpochStart(2, 100),)
    assert files.seen == 2


def test_who_leads_forgets_epochs_of_which_its_log_has_nothing(paths):
    files = opened(paths)
    files.adopt_epochs([EpochStart(1, 0), EpochStart(2, 100), EpochStart(3, 200)])
    files.begin_epoch(4, 100)
    assert files.epochs == (EpochStart(1, 0), EpochStart(2, 100), EpochStart(4, 100))


def test_an_older_turn_than_was_announced_is_that_of_an_old_copy(paths):
    files = opened(paths)
    assert not files.is_older_than(0)
    files.advance()
    files.advance()
    again = opened(paths)
    assert (again.turn, again.is_older_than(2), again.is_older_than(3)) == (2, False, True)
    files.renew()
    assert opened(paths).turn == 2, "the next copy of this directory is told from it, too"


@pytest.mark.parametrize("name", ["identity", "epochs", "seen", "turn"])
def test_a_damaged_file_is_said_until_a_leaders_list_is_adopted(paths, name):
    files = opened(paths)
    files.advance()
    files.begin_epoch(1, 0)
    files.see(5)
    path = paths.own / "ha" / name
    raw = bytearray(path.read_bytes())
    raw[-2] ^= 1
    path.write_bytes(raw)
    again = opened(paths)
    if name == "identity":  # its identity is lost: it is a new member
        assert again.uuid != files.uuid
        assert again.stranger
        assert again.epochs == ()
        return
    assert (again.uuid, again.damage) == (files.uuid, f"{path} is damaged.")
    assert again.seen == (1 if name == "seen" else 5)
    with pytest.raises(CorruptFile, match="is damaged"):
        again.begin_epoch(6, 100)
    assert opened(paths).damage
    again.adopt_epochs([EpochStart(1, 0), EpochStart(6, 50)])
    assert not again.damage
    last = opened(paths)
    assert (last.damage, last.seen, last.epochs) == ("", 6, (EpochStart(1, 0), EpochStart(6, 50)))


@pytest.mark.parametrize("how", ["emptied", "another's", "damaged", "files gone"])
def test_a_store_that_is_not_the_one_is_a_stranger(paths, how):
    files = opened(paths)
    files.take_slot(3)
    files.join("of the set")
    files.begin_epoch(4, 0)
    mark = paths.root / MARK
    if how == "emptied":
        mark.unlink()
    elif how == "another's":
        mark.write_bytes(line_of(b"another"))
    elif how == "damaged":
        mark.write_bytes(b"xxx")
    else:
        (paths.own / "ha" / "identity").unlink()
    again = opened(paths)
    assert again.uuid != files.uuid
    assert (again.slot, again.epochs, again.seen) == (0, (), 4)
    assert again.stranger
    # A store without a set's name, such as an emptied one, may join a set that was begun anew.
    assert again.set_id == ("of the set" if how == "another's" else "")
    last = opened(paths)
    assert (last.uuid, last.stranger) == (again.uuid, "")


def test_another_set_is_refused(paths):
    opened(paths)
    with pytest.raises(StartError, match="set 'broker-a', but haSet is 'broker-b'"):
        opened(paths, name="broker-b")


def test_a_copied_directory_is_said(paths):
    files = opened(paths)
    copy = opened(paths, HERE._replace(inode=18, directory="/copy"))
    assert f"used last as /rocketbox: if that one is still there, two brokers pass for the member {files.uuid}" in (
        copy.copied
    )
    assert "on another machine" in opened(paths, Place("other", "/copy", 18, "boot 9")).copied
    assert not opened(paths, Place("other", "/elsewhere", 18, "boot 9")).copied


def test_where_a_directory_is(paths):
    place = place_of(paths.own)
    assert (place.directory, place.inode) == (str(paths.own), paths.own.stat().st_ino)
    assert place == place_of(paths.own)


def test_a_disk_that_refuses_ends_the_start_with_a_sentence(paths):
    paths.root.write_text("a file")
    with pytest.raises(StartError, match="cannot be used: File exists"):
        opened(paths)


def test_no_crash_leaves_anything_half_done():
    """After a crash each call is done or not, whatever the disk kept; a call that returned is done."""
    disk = RecordingDisk({"/store": None, "/rocketbox": None})
    paths = StorePaths(Path("/store"), Path("/rocketbox"))
    disk.mark(("", 0, 0, ()))
    files = MemberFiles(disk=disk, paths=paths, set_name="s", here=HERE)

    def done():
        disk.mark((files.uuid, files.slot, files.seen, files.epochs))

    done()
    steps = [
        lambda: files.take_slot(1),
        lambda: files.begin_epoch(1, 0),
        lambda: files.see(4),
        lambda: files.adopt_epochs([EpochStart(1, 0), EpochStart(5, 700)]),
        lambda: files.renew(),
        lambda: files.take_slot(2),
    ]
    for step in steps:
        step()
        done()
    states = [operation[1] for operation in disk.record if operation[0] == "mark"]
    crashed = CrashedDisk({"/store": None, "/rocketbox": None}, disk.kinds)
    passed, tried = -1, 0
    for operation in disk.record:
        crashed.follow(operation)
        if operation[0] == "mark":
            passed += 1
        for mode in MODES:
            after = RecordingDisk(crashed.image(mode, random.Random(tried)))
            found = MemberFiles(paths, after, "s", HERE)
            tried += 1
            assert not found.damage
            uuid, slot, seen, epochs = states[passed]
            following = states[min(passed + 1, len(states) - 1)]
            assert seen <= found.seen <= max(seen, following[2])
            if found.uuid == uuid:
                assert found.slot in (slot, following[1])
                # Epochs are removed before the uuid.
                assert found.epochs in (epochs, following[3])
            elif found.uuid == following[0]:
                assert (found.slot, found.epochs) == following[1:2] + following[3:]
            else:
                assert uuid == "" or following[0] != uuid, "a member was forgotten"
                assert (found.slot, found.epochs) == (0, ())
    assert tried > 400
