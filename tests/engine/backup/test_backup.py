"""Backups of a running engine: their content, the messages of a restored one, and archives that are refused."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import random
import sqlite3
import stat
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.commands import backup as backup_command
from appliance.commands import restore as restore_command
from appliance.commands import store as store_command
from appliance.engine.backup import (
    BackupError,
    Damaged,
    LogEnd,
    check_backup,
    make_backup,
    read_manifest,
    restore_backup,
)
from appliance.engine.backup import archive as archive_module
from appliance.engine.store_tools.offline_store import OfflineStore
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

TOPIC = "Orders"
COMMIT_OFFSET = 15


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    """An engine with small log files, so that a backup has several."""
    found = RunningEngine(tmp_path / "data", store={"mapped_file_size_commit_log": 1 << 20})
    yield found
    found.stop()


class Load:
    """Sends numbered messages until stopped. sent: the acknowledged ones."""

    def __init__(self, address: str, queue: int) -> None:
        self.sent = 0
        self._peer, self._queue = Peer(address), queue
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            text = f"UNIQ_KEY\x01Q{self._queue}N{self.sent}\x02"
            answer = self._peer.ask(310, send_fields(TOPIC, self._queue, text), b"%d " % self.sent + b"x" * 900)
            assert answer.code == 0, answer
            self.sent += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        self._peer.close()
        return self.sent


def bodies(running: RunningEngine, queue: int, at: int = 0) -> list[bytes]:
    found, peer = [], running.peer()
    while True:
        answer = peer.ask(11, pull_fields(TOPIC, queue, at, maxMsgNums=32))
        if answer.code != 0:
            return found
        found += [record.body for record in records(answer.body)]
        at = int(answer.ext_fields["nextBeginOffset"])


def test_made_under_load_and_restored(running: RunningEngine, tmp_path: Path):
    address = running.engine.broker_address
    assert address is not None
    running.put(TOPIC, *(b"%d " % n + b"x" * 4000 for n in range(400)), queue=3)
    running.window.group_commands.create("readers")
    running.commit("readers", TOPIC, 3, 40)
    delayed = running.window.sender.send(TOPIC, b"later", keys=["later"], delay_level=18).offset_id
    timed = running.window.sender.send(
        TOPIC, b"timed", keys=["timed"], deliver_at_ms=int(time.time() * 1000) + 7_200_000
    ).offset_id
    running.window.sender.send(TOPIC, b"half", half_of="PG", queue_id=0)
    wait_for(lambda: running.window.waiting.page(topic=TOPIC).pending >= 2, "two that wait")
    offsets = running.data_dir / "store/config/consumerOffset.json"
    wait_for(lambda: "readers" in (offsets.read_text() if offsets.exists() else ""), "the offset on disk")
    time.sleep(1)  # the timers' state is saved each half second
    loads = [Load(address, queue) for queue in range(3)]
    wait_for(lambda: all(load.sent for load in loads), "the load begins")
    before = [load.sent for load in loads]

    steps: list[int] = []

    def step(done: int, total: int) -> None:
        wait_for(lambda: all(load.sent > was for load, was in zip(loads, before, strict=True)), "the load goes on")
        steps.append(done)

    made = running.window.backups.make(tmp_path / "one.tar", step)
    after = [load.stop() for load in loads]
    assert steps, "the load was looked at meanwhile"
    manifest = made.manifest
    assert 0 < manifest.end_offset <= running.engine.broker.store.published
    log = [one for one in manifest.files if one.name.startswith("store/commitlog/")]
    assert sum(one.bytes for one in log) == manifest.end_offset - manifest.begin_offset, "and not a byte behind"
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*partial"))
    assert check_backup(made.path) == manifest

    restored = tmp_path / "restored"
    restored.mkdir()
    assert restore_backup(made.path, restored) == manifest
    assert json.loads((restored / "rocketbox/restored-from.json").read_text())["end_offset"] == manifest.end_offset
    again = RunningEngine(restored, store={"mapped_file_size_commit_log": 1 << 20})
    try:
        window = again.window
        assert len(bodies(again, 3)) == 400
        for queue, most in enumerate(after):
            numbers = [int(body.split()[0]) for body in bodies(again, queue)]
            assert numbers == list(range(len(numbers))), "nothing is missing up to the end of the backup"
            assert before[queue] <= len(numbers) <= most

        def waiting_now() -> dict[str, str]:
            return {row.keys[0]: row.offset_id for row in window.waiting.page(topic=TOPIC).rows}

        wait_for(lambda: set(waiting_now()) == {"later", "timed"}, "those that wait are found")
        waiting = waiting_now()
        assert waiting["later"][-16:] == delayed[-16:]
        assert waiting["timed"][-16:] == timed[-16:]
        wait_for(
            lambda: [one.message.group for one in window.transactions.open(topic=TOPIC).rows] == ["PG"],
            "the open transaction is found",
        )
        assert window.groups.detail("readers") is not None
        answer = again.peer().ask(14, {"consumerGroup": "readers", "topic": TOPIC, "queueId": 3})
        assert answer.ext_fields["offset"] == "40"
        again.put(TOPIC, b"new", queue=3)
        assert bodies(again, 3)[-1] == b"new"
    finally:
        again.stop()
    assert store_command.run(["verify", str(restored), "--quiet"]) == 0


def test_by_the_command_beside_the_running_broker_and_after_it(running: RunningEngine, tmp_path: Path, capsys):
    running.put(TOPIC, *(b"%d" % n for n in range(50)))
    for name in ("while.tar", "directory"):
        assert backup_command.run([str(tmp_path / name), "--json", "--data-dir", str(running.data_dir)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["end_offset"] == running.engine.broker.store.published
        assert told["secrets"]
        assert backup_command.run(["--check", str(tmp_path / name), "--json"]) == 0
        capsys.readouterr()
    running.stop()
    assert backup_command.run([str(tmp_path / "after.tar"), "--quiet", "--data-dir", str(running.data_dir)]) == 0
    said = capsys.readouterr().out
    assert "message bodies" in said
    into = tmp_path / "again"
    assert restore_command.run([str(tmp_path / "directory"), "--into", str(into), "--quiet"]) == 0
    running.engine = start_engine(into, **running.options)
    assert len(bodies(running, 0)) == 50
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (into / "rocketbox").rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o600}
    with pytest.raises(BackupError, match="exists already"):
        backup_command.run([str(tmp_path / "after.tar"), "--data-dir", str(into)])
    assert restore_command.run([str(tmp_path / "after.tar")]) == 2
    assert backup_command.run([]) == 2


@pytest.mark.parametrize("by", ["window", "command", "window, while more is sent"])
def test_a_queue_without_messages_goes_on_where_it_ended(running: RunningEngine, tmp_path: Path, by: str):
    """Its messages expired. Consumers that keep their offsets themselves would miss as many new ones."""
    broker = running.engine.broker
    assert broker is not None
    store = broker.store
    running.put("Rare", *(b"old" for _ in range(3)), queue=1)
    running.put("Twice", b"old", b"old")
    running.put(TOPIC, *(b"%d " % n + b"x" * 4000 for n in range(600)))
    first = store.log.min_offset
    store.cleaner._count_forced = lambda usage, stages: int(store.log.min_offset == first)  # type: ignore[method-assign]
    wait_for(lambda: store.cleaner.look() or store.log.min_offset > first, "the first file is gone")
    running.put("Twice", b"new")
    low = wait_for(lambda: store.min_offset(TOPIC, 0), "the queues follow")
    kept = bodies(running, 0, low)
    assert 0 < low < 600
    assert len(kept) == 600 - low
    target = tmp_path / "one.tar"

    def end_before_more() -> int:
        end = store.published
        running.put("Rare", b"after the end", queue=1)

        def is_in_ledger() -> bool:
            position = store.files.recovery_position.position
            return position is not None and position.offset >= store.published

        wait_for(is_in_ledger, "the queue ledger has it")
        return end

    if by == "command":
        assert backup_command.run([str(target), "--quiet", "--data-dir", str(running.data_dir)]) == 0
    elif by == "window":
        running.window.backups.make(target)
    else:
        make_backup(target, store.paths.root, store.paths.own, version="x", log_end=LogEnd(end_before_more))
    restored = tmp_path / "restored"
    restore_backup(target, restored)
    again = RunningEngine(restored, store={"mapped_file_size_commit_log": 1 << 20})
    try:
        assert again.engine.broker is not None
        assert again.engine.broker.store.offset_range("Rare", 1) == (3, 3)
        assert again.engine.broker.store.offset_range("Twice", 0) == (2, 3)
        assert bodies(again, 0, low) == kept
        again.put("Rare", b"new", queue=1)
        answer = again.peer().ask(11, pull_fields("Rare", 1, 3))
        assert [record.body for record in records(answer.body)] == [b"new"]
    finally:
        again.stop()
    assert store_command.run(["verify", str(restored), "--quiet"]) == 0


@pytest.fixture
def made(running: RunningEngine, tmp_path: Path) -> Path:
    """A small backup."""
    running.put(TOPIC, *(b"%d" % n for n in range(20)))
    running.window.schemas.put(TOPIC, kind="avro", data=b'"string"')
    return running.window.backups.make(tmp_path / "made.tar").path


def test_the_schemas_of_topics_are_in_it(made: Path, tmp_path: Path):
    restore_backup(made, tmp_path / "restored")
    again = RunningEngine(tmp_path / "restored", store={"mapped_file_size_commit_log": 1 << 20})
    try:
        assert again.window.schemas.get(TOPIC).name == "string"
    finally:
        again.stop()


def test_into_an_empty_directory_only(made: Path, tmp_path: Path):
    into = tmp_path / "full"
    into.mkdir()
    (into / "mine").write_text("x")
    with pytest.raises(BackupError, match="not an empty directory"):
        restore_backup(made, into)
    assert [path.name for path in into.iterdir()] == ["mine"]
    with pytest.raises(BackupError, match="There is no backup"):
        restore_backup(tmp_path / "no-such.tar", tmp_path / "new")
    with pytest.raises(BackupError, match="There is no directory"):
        restore_backup(made, tmp_path / "no" / "such")


@pytest.mark.parametrize("where", [0.05, 0.5, 0.97])
def test_a_changed_byte_is_refused_and_leaves_nothing(made: Path, tmp_path: Path, where: float):
    data = bytearray(made.read_bytes())
    with tarfile.open(made) as tar:  # a byte of some file's content: padding does not count
        members = [one for one in tar.getmembers() if one.size]
    member = members[min(len(members) - 1, int(len(members) * where))]
    data[member.offset_data + member.size // 2] ^= 0x20
    made.write_bytes(data)
    with pytest.raises(Damaged):
        check_backup(made)
    with pytest.raises(Damaged):
        restore_backup(made, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".*partial"))
    assert backup_command.run(["--check", str(made), "--json"]) == 1


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 1.0])
def test_half_a_backup_is_refused(made: Path, tmp_path: Path, part: float):
    with tarfile.open(made) as tar:
        end = tar.getmember("manifest.json").offset_data + 100  # behind it is padding
    made.write_bytes(made.read_bytes()[: int(end * part)])
    with pytest.raises(Damaged):
        restore_backup(made, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "rocketbox/../../outside", "elsewhere/x", "store"])
def test_a_name_that_leads_out_is_refused(made: Path, tmp_path: Path, name: str):
    from appliance.engine.backup import manifest as m

    evil = tmp_path / "evil"
    evil.mkdir()
    entry = m.Entry(name, 1, 1, "0" * 64)
    sealed = m.encode(m.sealed(m.Manifest(1, "x", 0, 0, 0, [entry])))
    (evil / m.NAME).write_bytes(sealed)
    with pytest.raises(Damaged, match="no file of a data directory"):
        restore_backup(evil, tmp_path / "new")
    assert not (tmp_path / "outside").exists()


def test_a_link_in_a_backup_is_not_followed(running: RunningEngine, tmp_path: Path):
    target = running.window.backups.make(tmp_path / "directory").path
    victim = target / "rocketbox" / "format"
    secret = tmp_path / "secret"
    secret.write_bytes(victim.read_bytes())
    victim.unlink()
    victim.symlink_to(secret)
    with pytest.raises(Damaged):
        restore_backup(target, tmp_path / "new")


def hostile_tar(path: Path, *members: tarfile.TarInfo, full_bytes: int = 1) -> Path:
    """Return a backup of one file of one byte, preceded by members that do not belong in it."""
    from appliance.engine.backup import manifest as m

    entry = m.Entry("store/a", 1, full_bytes, hashlib.sha256(b"1").hexdigest())
    texts = {"store/a": b"1", m.NAME: m.encode(m.sealed(m.Manifest(1, "x", 0, 0, 0, [entry])))}
    with tarfile.TarFile(path, "w") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"2" * info.size))
        for name, data in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.mark.parametrize(
    "evil",
    [
        member("store/b", tarfile.SYMTYPE, "/etc/passwd"), member("store/b", tarfile.LNKTYPE, "store/a"),
        member("store/b", tarfile.CHRTYPE), member("store/b", tarfile.BLKTYPE), member("store/b", tarfile.FIFOTYPE),
        member("store/b", tarfile.DIRTYPE), member("store/a", size=1), member("/etc/outside", size=1),
        member("../outside", size=1), member("store/../../outside", size=1), member("store/b", size=1),
    ],
    ids=lambda info: f"{info.name} {info.type!r}",
)  # fmt: skip
def test_what_does_not_belong_into_a_tar_is_refused(tmp_path: Path, evil: tarfile.TarInfo):
    assert check_backup(hostile_tar(tmp_path / "good.tar")).files
    with pytest.raises(Damaged):
        restore_backup(hostile_tar(tmp_path / "evil.tar", evil), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar", "good.tar"]


def test_a_file_of_any_length_is_refused_in_a_sentence(tmp_path: Path):
    for number, size in enumerate((1 << 63, 1 << 70)):
        with pytest.raises(Damaged, match="no file of a data directory"):
            restore_backup(hostile_tar(tmp_path / f"{number}.tar", full_bytes=size), tmp_path / "new")


def test_bytes_that_are_no_tar_are_refused_in_a_sentence(tmp_path: Path):
    """Whatever a header holds, the command prints a sentence and no traceback."""
    good = hostile_tar(tmp_path / "good.tar").read_bytes()
    chance, path, refused = random.Random(5), tmp_path / "evil.tar", 0
    for _ in range(2500):
        evil = bytearray(good)
        for _ in range(chance.choice((1, 2, 4))):
            evil[chance.choice((chance.randrange(512), chance.randrange(len(evil))))] = chance.choice((0, 0x80, 0xFF))
        for at in range(0, len(evil) - 511, 512):
            if evil[at + 257 : at + 262] == b"ustar":  # its sum is right
                evil[at + 148 : at + 156] = b" " * 8
                evil[at + 148 : at + 156] = b"%06o\0 " % sum(evil[at : at + 512])
        path.write_bytes(evil)
        try:
            check_backup(path)
        except BackupError:
            refused += 1
    assert refused > 200


def test_a_pipe_in_a_backup_is_not_waited_for(tmp_path: Path):
    from appliance.engine.backup import manifest as m

    evil = tmp_path / "evil"
    (evil / "store").mkdir(parents=True)
    os.mkfifo(evil / "store" / "a")
    entry = m.Entry("store/a", 0, 0, hashlib.sha256(b"").hexdigest())
    (evil / m.NAME).write_bytes(m.encode(m.sealed(m.Manifest(1, "x", 0, 0, 0, [entry]))))
    with pytest.raises(Damaged, match="no file"):
        restore_backup(evil, tmp_path / "new")


class Killed(BaseException):
    """Raised as if the process had ended there."""


def test_what_is_broken_off_looks_like_nothing(running: RunningEngine, tmp_path: Path, monkeypatch):
    running.put(TOPIC, *(b"x" * 4000 for _ in range(400)))

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Killed

    with pytest.raises(Killed):
        running.window.backups.make(tmp_path / "half.tar", stop)
    assert not [path.name for path in tmp_path.iterdir() if path.name != "data"]
    assert running.engine.broker.store.cleaner.keepers, "those of the broker"
    names = {getattr(keeper, "__qualname__", "") for keeper in running.engine.broker.store.cleaner.keepers}
    assert not any("Backups" in name for name in names), "the cleaner is let go"
    # When the process is killed, the remaining file has another name, and no manifest.
    monkeypatch.setattr(archive_module.TarSink, "give_up", lambda self: None)
    with pytest.raises(Killed):
        running.window.backups.make(tmp_path / "half.tar", stop)
    assert not (tmp_path / "half.tar").exists()
    [left] = tmp_path.glob(".*partial")
    with pytest.raises(Damaged):
        read_manifest(left)
    archive_module.remove_partials(tmp_path)
    assert not list(tmp_path.glob(".*partial"))


def test_the_cleaner_waits_for_a_backup(running: RunningEngine, tmp_path: Path):
    running.put(TOPIC, *(b"x" * 4000 for _ in range(900)))
    cleaner = running.engine.broker.store.cleaner
    first = min((running.data_dir / "store/commitlog").iterdir()).name
    asked = []

    def step(done: int, total: int) -> None:
        if not asked:
            asked.append([reason for keeper in cleaner.keepers if (reason := keeper(1 << 20)) is not None])

    made = running.window.backups.make(tmp_path / "one.tar", step)
    assert "a backup is copying it" in asked[0]
    assert f"store/commitlog/{first}" in {one.name for one in made.manifest.files}
    assert len([one for one in made.manifest.files if "/commitlog/" in one.name]) >= 3


def test_a_full_disk_is_told(running: RunningEngine, tmp_path: Path, monkeypatch):
    running.put(TOPIC, b"x")
    from appliance.engine.backup import making

    class Usage:
        free = 1000

    monkeypatch.setattr(making.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(BackupError, match="1000 free; nothing was made"):
        running.window.backups.make(tmp_path / "one.tar")
    monkeypatch.undo()
    if not Path("/dev/full").exists():
        return
    real = os.open
    monkeypatch.setattr(
        archive_module.os, "open", lambda path, *rest: real("/dev/full", os.O_WRONLY)
        if str(path).endswith(".partial") else real(path, *rest),
    )  # fmt: skip
    with pytest.raises(BackupError, match="is full; nothing was kept"):
        running.window.backups.make(tmp_path / "one.tar")
    assert not (tmp_path / "one.tar").exists()


@pytest.mark.parametrize("by_command", [False, True])
def test_it_leaves_the_broker_its_room(running: RunningEngine, tmp_path: Path, monkeypatch, by_command: bool):
    """A full disk would shorten the retention of messages, and then stop all sends."""
    from appliance.engine.backup import making
    from appliance.engine.disk import DiskUsage

    running.put(TOPIC, *(b"x" * 4000 for _ in range(100)))
    cleaner = running.engine.broker.store.cleaner
    cleaner.options = dataclasses.replace(cleaner.options, disk_space_clean_forcibly_ratio=85)
    used = 0

    def make() -> None:
        if by_command:
            backup_command.run([str(tmp_path / "x.tar"), "--data-dir", str(running.data_dir), "--quiet"])
        else:
            running.window.backups.make(tmp_path / "x.tar")
        (tmp_path / "x.tar").unlink()

    total = 100 << 30
    monkeypatch.setattr(making, "disk_usage", lambda path: DiskUsage(used, total - used))
    if by_command:  # from another process
        monkeypatch.setattr(OfflineStore, "lock_holder", lambda self: 1)
    used = int(total * 0.84)
    make()
    used = int(total * 0.85) - 1000  # with this one it would be more
    with pytest.raises(BackupError, match="too little room on the broker's own disk"):
        make()
    assert not [path.name for path in tmp_path.iterdir() if path.name != "data"]
    monkeypatch.setattr(making, "_same_disk", lambda target, store: False)
    make()


def test_it_ends_rather_than_hold_files_that_have_to_go(running: RunningEngine, tmp_path: Path, monkeypatch):
    running.put(TOPIC, *(b"x" * 4000 for _ in range(900)))
    store = running.engine.broker.store
    options = dataclasses.replace(store.cleaner.options, disk_space_clean_forcibly_ratio=85)
    real = store.log.usage()

    def step(done: int, total: int) -> None:
        store.cleaner.options = options
        full = real._replace(used_bytes=900 << 20, free_bytes=100 << 20)
        monkeypatch.setattr(store.log, "usage", lambda: full, raising=False)
        store.cleaner.look()

    first = min((running.data_dir / "store/commitlog").iterdir())
    monkeypatch.setattr("appliance.engine.backup.making._same_disk", lambda target, store: False)
    store.cleaner.options = options
    with pytest.raises(BackupError, match="have to go before they are copied"):
        running.window.backups.make(tmp_path / "x.tar", step)
    assert not any("Backups" in getattr(keeper, "__qualname__", "") for keeper in store.cleaner.keepers)
    wait_for(lambda: store.cleaner.look() or not first.exists(), "the broker gets its room")
    assert not (tmp_path / "x.tar").exists()


def test_a_database_is_copied_at_one_moment(running: RunningEngine, tmp_path: Path):
    path = running.data_dir / "rocketbox" / "console.sqlite3"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE pairs (one INTEGER, other INTEGER)")
    database.commit()
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        own = sqlite3.connect(path, timeout=10)
        number = 0
        while not stop.is_set():
            own.execute("INSERT INTO pairs VALUES (?, ?)", (number, number))
            own.commit()
            begun.set()
            number += 1
        own.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(60)
    made = running.window.backups.make(tmp_path / "directory")
    stop.set()
    writer.join()
    database.close()
    copy = sqlite3.connect(made.path / "rocketbox/console.sqlite3")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    count, last = copy.execute("SELECT COUNT(*), MAX(one) FROM pairs").fetchone()
    assert count == last + 1 > 0
    assert not [one.name for one in made.manifest.files if one.name.endswith(("-wal", "-shm"))]


def test_reports_and_their_facts_are_in_and_what_runs_left_is_not(running: RunningEngine, tmp_path: Path):
    reports = tmp_path / "data" / "rocketbox" / "reports"
    kept = ["days/2026-01-01/digest.json", "facts/traffic/day=2026-01-01/facts.parquet", "facts/plain/x.jsonl.gz"]
    left_out = ["runs/20260101-000000-0000abcd/log", "scratch/x/tmp/y", "facts/.writing/z", "days/.2026-01-01.x/q"]
    for name in (*kept, *left_out):
        path = reports / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    target = tmp_path / "backup"
    running.window.backups.make(target)
    found = {str(path.relative_to(target)) for path in (target / "rocketbox" / "reports").rglob("*") if path.is_file()}
    assert found == {f"rocketbox/reports/{name}" for name in kept}
