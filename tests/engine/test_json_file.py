"""Files that are always whole: wherever a save fails or the process ends, the old or the new content loads."""

import os
import shutil

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import CorruptFile
from appliance.engine.json_file import load_json_with_backup, save_json_atomically
from tests.support.golden import GOLDEN

OLDER, OLD, NEW = {"n": 1}, {"n": 2}, {"n": 3}


class Crash(Exception):
    """Raised in place of a call, as if the process ended there."""


class CountedCalls(Disk):
    """Counts calls; ends the process (or fails with an error) in place of the call number `last`."""

    def __init__(self, last=-1, error=None):
        self.names = []
        self.last = last
        self.error = error or Crash()

    def _note(self, name):
        if len(self.names) == self.last:
            raise self.error
        self.names.append(name)

    def open(self, path, create=False, read_only=False):
        if create:
            self._note(f"open {path.name}")
        return super().open(path, create, read_only)

    def pwrite(self, fd, data, position):
        self._note("write")
        return super().pwrite(fd, data[:7], position)  # a little at a time, as the kernel may

    def fsync(self, fd):
        self._note("fsync")
        super().fsync(fd)

    def link(self, old, new):
        self._note(f"link {old.name} {new.name}")
        super().link(old, new)

    def rename(self, old, new):
        self._note(f"rename {old.name} {new.name}")
        super().rename(old, new)

    def sync_directory(self, path):
        self._note("sync directory")
        super().sync_directory(path)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.json"
    save_json_atomically(path, '{"n":1}')
    save_json_atomically(path, '{"n":2}')
    return path


def test_a_save_keeps_the_content_before_it_as_backup(path):
    save_json_atomically(path, [b'{"n"', b":3}"])
    assert path.read_bytes() == b'{"n":3}'
    assert load_json_with_backup(path) == NEW
    assert load_json_with_backup(path.with_name("t.json.bak").rename(path.with_name("u.json"))) == OLD
    assert sorted(os.listdir(path.parent)) == ["t.json", "u.json"]


def test_the_new_file_is_synced_before_it_takes_the_name_and_the_name_before_the_return(path):
    calls = CountedCalls()
    save_json_atomically(path, '{"n":30000}', calls)
    assert calls.names == [
        "open t.json.tmp",
        *["write"] * 2,
        "fsync",
        "link t.json t.json.bak.tmp",
        "rename t.json.bak.tmp t.json.bak",
        "rename t.json.tmp t.json",
        "sync directory",
    ]


@pytest.mark.parametrize("last", range(8))
@pytest.mark.parametrize("error", [Crash(), OSError(28, "No space left on device")], ids=["crash", "full"])
def test_a_save_that_ends_anywhere_leaves_the_old_or_the_new_content(path, last, error):
    calls = CountedCalls(last, error)
    with pytest.raises(type(error)):
        save_json_atomically(path, '{"n":3}  ', calls)
    assert load_json_with_backup(path) == (NEW if last == 7 else OLD)
    path.unlink()
    assert load_json_with_backup(path) in (OLDER, OLD)
    save_json_atomically(path, '{"n":4}')
    assert load_json_with_backup(path) == {"n": 4}


def test_eight_calls_are_all_there_are(path):
    calls = CountedCalls()
    save_json_atomically(path, '{"n":3}  ', calls)
    assert len(calls.names) == 8


def test_a_file_system_without_links_gets_a_copy(path):
    class NoLinks(CountedCalls):
        def link(self, old, new):
            raise OSError(1, "Operation not permitted")

    calls = NoLinks()
    save_json_atomically(path, '{"n":3}', calls)
    assert load_json_with_backup(path) == NEW
    assert path.with_name("t.json.bak").read_bytes() == b'{"n":2}'
    assert calls.names.count("fsync") == 2


def test_names_left_by_a_crash_between_link_and_rename_do_no_harm(path):
    os.link(path, path.with_name("t.json.bak.tmp"))
    save_json_atomically(path, '{"n":3}')
    assert load_json_with_backup(path) == NEW
    assert path.with_name("t.json.bak").read_bytes() == b'{"n":2}'
    path.with_name("t.json.bak").unlink()
    os.link(path, path.with_name("t.json.bak"))  # both names of one file
    save_json_atomically(path, '{"n":4}')
    assert path.with_name("t.json.bak").read_bytes() == b'{"n":3}'
    assert not path.with_name("t.json.bak.tmp").exists()


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_file_cut_anywhere_is_read_from_its_backup(tmp_path, name):
    golden = GOLDEN / "config" / "5.3.3" / "mixed" / name
    whole = golden.read_bytes()
    good = load_json_with_backup(golden)
    path = tmp_path / name
    for size in range(0, len(whole), 97):
        shutil.copy(golden, tmp_path / f"{name}.bak")
        path.write_bytes(whole[:size])
        assert load_json_with_backup(path) == good


def test_a_damaged_file_never_takes_the_place_of_the_good_copy(path):
    path.write_bytes(b'{"n":2')
    assert load_json_with_backup(path) == OLDER
    assert path.with_name("t.json.damaged").read_bytes() == b'{"n":2'
    with pytest.raises(Crash):
        save_json_atomically(path, '{"n":3}', CountedCalls(3))  # right before the new file takes the name
    assert load_json_with_backup(path) == OLDER
    save_json_atomically(path, '{"n":3}')
    assert load_json_with_backup(path) == NEW


def test_an_empty_file_is_no_content_to_keep(path):
    path.write_bytes(b"")
    assert load_json_with_backup(path) == OLDER
    save_json_atomically(path, '{"n":3}')
    assert path.with_name("t.json.bak").read_bytes() == b'{"n":1}'


def test_nothing_at_all_is_nothing(tmp_path):
    assert load_json_with_backup(tmp_path / "none.json") is None
    (tmp_path / "empty.json").write_bytes(b" \n")
    assert load_json_with_backup(tmp_path / "empty.json") is None


def test_damage_without_a_good_copy_is_said(path):
    path.write_bytes(b"{{{")
    path.with_name("t.json.bak").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFile, match=r"t\.json is damaged"):
        load_json_with_backup(path)
    assert path.read_bytes() == b"{{{"


@pytest.mark.parametrize("content", ["[]", "null", "5", '"text"', '[{"n":2}]'])
def test_what_is_no_object_is_damage(path, content):
    path.write_text(content)
    assert load_json_with_backup(path) == OLDER
    assert path.with_name("t.json.damaged").read_text() == content
    path.write_text(content)
    path.with_name("t.json.bak").unlink()
    with pytest.raises(CorruptFile, match=r"t\.json is damaged .*: it holds no object"):
        load_json_with_backup(path)
    assert path.read_text() == content
