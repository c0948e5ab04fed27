"""The status of a set without a console, from the leader store and from the files of this machine."""

import json

import pytest

from appliance.command_line import load
from appliance.commands import set_status
from appliance.commands.remote.run import run
from appliance.doctor.diagnosis import Diagnosis
from appliance.doctor.replication import look_at_replication
from appliance.engine.disk import Disk
from appliance.engine.failover import outside
from appliance.engine.failover.member_files import MemberFiles, place_of
from appliance.engine.failover.set_state import Announcement, Leader, SetState, encode
from appliance.engine.store.paths import StorePaths
from tests.engine.failover.fakes import FakeStore

ROOT = "/rocketbox/broker-a"


@pytest.fixture
def store(monkeypatch):
    made = FakeStore()
    monkeypatch.setattr(outside, "open_store", lambda url, access: made)
    return made


@pytest.fixture
def member(tmp_path):
    """(options, files) of a member that took slot 2 and was in epoch 3."""
    file = tmp_path / "m.toml"
    file.write_text(
        f'dataDir = "{tmp_path}/data"\nroles = "broker"\n[broker]\nbrokerName = "broker-a"\n'
        '[store]\nhaStore = "etcd://h1:1,h2:1,h3:1"\n'
    )
    own = tmp_path / "data" / "rocketbox"
    own.mkdir(parents=True)
    files = MemberFiles(StorePaths(tmp_path / "data" / "store", own), Disk(own), "broker-a", place_of(own))
    files.take_slot(2)
    files.begin_epoch(3, 50)
    return str(file), files


def say(store, uuid, end, epoch=4, wall_ms=1_000_000, **rest):
    one = Announcement(
        uuid=uuid, slot=1, addr=f"{uuid}:1", ha=f"{uuid}:2", version="1", role="leader", seen=epoch, log_end=end,
        epochs=((epoch, 0),), wall_ms=wall_ms, **rest,
    )  # fmt: skip
    store.write(f"{ROOT}/member/{uuid}", encode(one))


def lead(store, uuid, isr):
    leader = Leader(uuid, 1, f"{uuid}:1", f"{uuid}:2")
    state = SetState(set="broker-a", epoch=4, leader=leader, isr=isr, nonce="n", floor=0)
    store.write(f"{ROOT}/state", encode(state))


def test_a_set_is_told_without_a_console_and_without_an_administrator(store, member, capsys):
    options, files = member
    say(store, "uuid-1", 900, settings={"brokerRole": "ASYNC_MASTER"})
    say(store, files.uuid, 800, epoch=3)
    lead(store, "uuid-1", ("uuid-1", files.uuid))
    assert run("ha", ["status", "-c", options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["set"], told["epoch"], told["leader_addr"], told["uuid"]) == ("broker-a", 4, "uuid-1:1", files.uuid)
    assert told["fullest"] == "uuid-1"
    first, second = told["members"]
    assert (first["is_leader"], first["log_end"], first["last_epoch"]) == (True, 900, 4)
    assert first["differs"] == ["brokerRole=ASYNC_MASTER (here SYNC_MASTER)"]
    assert (second["is_here"], second["in_sync"], second["slot"], second["last_epoch"]) == (True, True, 2, 3)
    assert (first["role"], second["role"]) == ("leader", "unknown"), "it said so before another was elected"
    assert run("ha", ["status", "-c", options]) == 0
    assert "fullest: uuid-1" in capsys.readouterr().out


def test_the_newest_epoch_decides_whose_log_goes_furthest(store, member, capsys):
    options, _ = member
    say(store, "long", 5000, epoch=2)
    say(store, "newer", 400, epoch=3)
    say(store, "newest", 500, epoch=3)
    assert run("ha", ["status", "-c", options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fullest"] == "newest"


def test_nobody_is_named_where_a_longer_log_is_of_no_epoch(store, member, capsys):
    options, _ = member
    say(store, "begun-at-the-wrong-one", 10, epoch=4)
    one = Announcement(uuid="full", slot=3, addr="f:1", ha="f:2", version="1", role="frozen", seen=4, log_end=9000)
    store.write(f"{ROOT}/member/full", encode(one))
    assert run("ha", ["status", "-c", options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fullest"] == ""


def test_what_lies_here_is_told_while_the_store_is_silent(store, member, capsys):
    options, files = member
    store.down = True
    assert run("ha", ["status", "-c", options, "--json"]) == 7
    told = json.loads(capsys.readouterr().out)
    assert told["store_ok"] is False
    assert told["store_why"]
    assert [(one["uuid"], one["last_epoch"]) for one in told["members"]] == [(files.uuid, 3)]


def test_nothing_is_written_by_looking(store, member, tmp_path):
    options, _ = member
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    written = dict(store.keys)
    assert set_status.set_status(["-c", options]) is not None
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before
    assert store.keys == written


def test_a_broker_of_no_set_says_so(tmp_path, capsys):
    assert run("ha", ["status", "--data-dir", str(tmp_path)]) == 3
    assert "haStore is not set" in capsys.readouterr().err


def lines(options):
    found = Diagnosis()
    look_at_replication(found, load(["-c", options], {})[0])
    return {line.name: line for line in found.lines}


def test_the_doctor_asks_the_store(store, member):
    options, _ = member
    assert "has no set broker-a yet" in lines(options)["ha-store"].text
    lead(store, "uuid-1", ("uuid-1",))
    say(store, "uuid-1", 1, settings={"flushDiskType": "ASYNC_FLUSH"})
    found = lines(options)
    assert found["ha-store"].level == "ok"
    assert "uuid-1:1 leads the set broker-a in epoch 4" in found["ha-store"].text
    assert "flushDiskType=ASYNC_FLUSH (here SYNC_FLUSH)" in found["ha-settings"].text
    store.down = True
    assert lines(options)["ha-store"].level == "fail"
