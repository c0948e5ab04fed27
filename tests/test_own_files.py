"""Files below DATA/rocketbox/ and the ready file are accessible to this user only, whatever the umask."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from appliance.commands import doctor as doctor_command
from appliance.engine import own_files
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.client import RemotingClient
from tests.support.server import ROOT, Server

ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "correct horse battery"}
ROLES = "broker,namesrv,console"


def modes(directory: Path) -> dict[str, int]:
    """Return the modes of the directory and everything below it, by path relative to it."""
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode)
        for path in (directory, *directory.rglob("*"))
    }


def too_open(directory: Path) -> dict[str, str]:
    return {name: f"{mode:o}" for name, mode in modes(directory).items() if mode & 0o077}


def ask(address: str, code: int, fields: dict[str, str], body: bytes = b"") -> None:
    client = RemotingClient(address)
    answer = client.invoke_sync(RemotingCommand(code, ext_fields=fields, body=body), 10_000)
    assert answer.code == 0, answer.remark
    client.close()


@pytest.fixture
def watched(tmp_path):
    prefix = (sys.executable, str(ROOT / "tests/support/serve_watched.py"))
    environment = ADMIN | {"PYTHONPATH": str(ROOT), "WATCH_LOG": str(tmp_path / "watched")}
    return Server(tmp_path / "data", "--http-port", "0", roles=ROLES, environment=environment, prefix=prefix)


def test_under_umask_0_every_file_of_ours_is_private_from_its_first_byte(watched, tmp_path):
    own = tmp_path / "data" / "rocketbox"
    with watched as server:
        ask(server.namesrv, RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
        topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        ask(server.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
        assert too_open(own) == {}
        assert stat.S_IMODE(server._ready_file.stat().st_mode) == 0o600
        server.kill()
        server.start()
        assert too_open(own) == {}
    assert too_open(own) == {}
    made = [line.split(" ", 1) for line in (tmp_path / "watched").read_text().splitlines()]
    ours = [(mode, path) for mode, path in made if path.startswith(f"{own}/") or path == str(own)]
    ours += [(mode, path) for mode, path in made if Path(path).name.startswith(".data.ready")]
    names = {Path(path).name for _, path in ours}
    assert names >= {"config.journal", "namesrv", "rocketbox", "console.sqlite3", "format"}
    assert [(mode, path) for mode, path in ours if mode not in ("600", "700")] == []
    assert (tmp_path / "data/store").stat().st_mode & 0o077, "Apache's, and nothing of this"


def test_the_settings_databases_journals_are_private_too(watched):
    with watched as server:
        database = server.data_dir / "rocketbox/console.sqlite3"
        connection = sqlite3.connect(database)
        connection.execute("UPDATE console_user SET language = 'en'")
        connection.commit()
        beside = {path.name: stat.S_IMODE(path.stat().st_mode) for path in database.parent.glob("console.sqlite3*")}
        connection.close()
    assert len(beside) == 3
    assert set(beside.values()) == {0o600}


@pytest.fixture
def old(tmp_path):
    """A directory as an older version left it."""
    own = tmp_path / "data" / "rocketbox"
    (own / "quarantine").mkdir(parents=True)
    for name in ("console.sqlite3", "config.journal", "quarantine/findings.jsonl"):
        (own / name).touch()
    for path in (own, own / "quarantine"):
        path.chmod(0o755)
    for name in ("config.journal", "quarantine/findings.jsonl"):
        (own / name).chmod(0o644)
    (own / "console.sqlite3").chmod(0o666)
    return own


def test_an_installation_of_an_older_version_is_tightened_at_start(old):
    with Server(old.parent, "--http-port", "0", roles=ROLES):
        assert too_open(old) == {}


def test_a_name_server_alone_tightens_too(old):
    with Server(old.parent, roles="namesrv"):
        assert too_open(old) == {}


def test_the_owners_own_modes_stay(old):
    (old / "config.journal").chmod(0o444)
    assert own_files.tighten(old) == []
    assert stat.S_IMODE((old / "config.journal").stat().st_mode) == 0o400


def test_links_are_not_followed_and_named(old, tmp_path, caplog):
    outside = tmp_path / "outside"
    outside.mkdir(0o755)
    (outside / "file").touch()
    (outside / "file").chmod(0o644)
    (old / "link").symlink_to(outside / "file")
    (old / "linked").symlink_to(outside)
    with caplog.at_level(logging.WARNING):
        own_files.tighten_at_start(old)
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert f"{old / 'link'} (a symbolic link)" in caplog.text
    assert f"{old / 'linked'} (a symbolic link)" in caplog.text
    assert too_open(old).keys() == {"link", "linked"}, "links have no modes of their own"


def test_what_belongs_to_another_is_left_alone_and_named(old, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: old.stat().st_uid + 1)
    left = own_files.tighten(old)
    assert {one.path for one in left} == {old, *old.rglob("*")}
    assert all(one.why == f"of user {old.stat().st_uid}" for one in left)
    assert too_open(old)


def test_what_took_a_name_meanwhile_is_not_changed(old, monkeypatch):
    """Another file takes the name between the check and the change."""
    stranger = old.parent / "stranger"
    stranger.touch()
    stranger.chmod(0o644)
    look = own_files._refusal

    def swap(found):
        os.replace(stranger, old / "config.journal") if stranger.exists() else None
        return look(found)

    entries = list(own_files._entries(old))
    journal = next(one for one in entries if one[2] == "config.journal")
    monkeypatch.setattr(own_files, "_refusal", swap)
    monkeypatch.setattr(own_files, "_entries", lambda directory: [(journal[0], None, str(journal[0]), journal[3])])
    assert [one.why for one in own_files.tighten(old)] == ["replaced meanwhile"]
    assert stat.S_IMODE((old / "config.journal").stat().st_mode) == 0o644


def test_a_ready_file_that_was_there_is_replaced_and_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    server = Server(tmp_path / "data", "--http-port", "0", roles=ROLES)
    ready = server._ready_file
    ready.symlink_to(target)
    with server:
        assert not ready.is_symlink()
        assert stat.S_IMODE(ready.stat().st_mode) == 0o600
        assert json.loads(ready.read_text())["setup_url"]
    assert target.read_text() == "mine"


def lines(directory: Path) -> list:
    found = doctor_command.examine(["--data-dir", str(directory), "--roles", "namesrv", "--namesrv-port", "0"])
    return [line for line in found.lines if line.name == "own-files"]


def test_the_doctor_names_what_others_may_read(old):
    (line,) = lines(old.parent)
    assert line.level == "warn"
    assert f"{old / 'console.sqlite3'} (mode 0666)" in line.text
    assert f"{old} (mode 0755)" in line.text
    assert line.advice.startswith(f"chmod -R go-rwx {old}")
    own_files.tighten(old)
    (line,) = lines(old.parent)
    assert line.level == "ok"
    (old / "link").symlink_to("elsewhere")
    (line,) = lines(old.parent)
    assert "a symbolic link" in line.text
