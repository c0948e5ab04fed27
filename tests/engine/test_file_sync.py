"""A small file is replaced whole or not at all."""

import os
import stat

import pytest

from appliance.engine import file_sync
from appliance.engine.file_sync import replace_file


def test_the_file_is_for_its_owner_only_whatever_the_umask(tmp_path):
    old = os.umask(0o777)
    try:
        replace_file(tmp_path / "f", b"one")
    finally:
        os.umask(old)
    assert (tmp_path / "f").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_a_link_of_that_name_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "f").symlink_to(tmp_path / "other")
    replace_file(tmp_path / "f", b"ours")
    assert (tmp_path / "other").read_bytes() == b"theirs"
    assert (tmp_path / "f").read_bytes() == b"ours"
    assert not (tmp_path / "f").is_symlink()


def test_it_is_synced_before_it_has_its_name_and_the_name_after(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(file_sync, "sync_data", lambda fd: order.append(("data", (tmp_path / "f").exists())))
    monkeypatch.setattr(file_sync, "sync_directory", lambda path: order.append((path, (tmp_path / "f").exists())))
    replace_file(tmp_path / "f", b"one")
    assert order == [("data", False), (tmp_path, True)]
    replace_file(tmp_path / "g", b"one", durable=False)
    assert len(order) == 2


def test_one_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    replace_file(tmp_path / "f", b"one")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_sync, "sync_data", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["f"]
