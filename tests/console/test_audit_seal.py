"""Key and head of the audit log: what is cut off, put in or rewritten shows, and a crash is not taken for that."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection, transaction

from appliance import runtime
from appliance.console.audit import log as audit
from appliance.console.audit import seal as audit_seal
from appliance.console.audit.seal import COVERED, HEAD_FILE, KEY_FILE, digest_of
from appliance.console.models import AuditEntry, Setting
from tests.support.audit_chain import first_broken

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.django_db(transaction=True)


def act(target: str = "T") -> AuditEntry:
    return audit.record("topic.create", target, None, {"queues": 8}, by=audit.Actor("somebody", "user"))


def acts(count: int) -> list[int]:
    """So many entries; their ids."""
    return [act(f"T{number}").pk for number in range(count)]


def remove(*entries: int) -> None:
    AuditEntry.objects.filter(pk__in=entries).delete()


def directory() -> Path:
    return runtime.place().directory


def head() -> dict:
    return json.loads((directory() / HEAD_FILE).read_text())


def plain_chain(count: int) -> None:
    """Write `count` entries as an installation from before the key has them."""
    previous = ""
    for number in range(count):
        entry = AuditEntry(at_ms=number, actor="old", actor_kind="user", action="topic.create", target=f"T{number}")
        previous = entry.digest = digest_of([getattr(entry, name) for name in COVERED], previous, None)
        entry.save()


def verdicts() -> set[str]:
    return {audit.look().code, audit.check().code, audit.health_check().sentence.code}


def test_a_log_that_nobody_touched_is_whole():
    acts(5)
    assert audit.check() == ("audit_whole", {"count": 5})
    assert audit.look() == ("audit_whole", {"count": 5})
    assert first_broken() is None
    assert audit.health_check().level == "ok"
    assert (head()["count"], head()["digest"]) == (5, AuditEntry.objects.first().digest)


def test_key_and_head_are_for_their_owner_only():
    act()
    for name in (KEY_FILE, HEAD_FILE):
        assert stat.S_IMODE((directory() / name).stat().st_mode) == 0o600


def test_what_roots_command_line_writes_stays_the_servers(monkeypatch):
    acts(1)
    given = []
    monkeypatch.setattr(audit_seal.os, "geteuid", lambda: 0)
    monkeypatch.setattr(audit_seal.os, "fchown", lambda fd, uid, gid: given.append((name_of(fd), uid, gid)))
    owner = os.stat_result((0o40700, 1, 1, 1, 4711, 4712, 0, 0, 0, 0))
    monkeypatch.setattr(audit_seal.Path, "stat", lambda self, **_: owner)
    acts(1)
    (directory() / KEY_FILE).unlink()
    acts(1)
    assert set(given) == {("audit-head", 4711, 4712), ("audit-key", 4711, 4712)}


def name_of(fd: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).split(".")[1]


@pytest.mark.parametrize("file", [KEY_FILE, HEAD_FILE])
def test_a_seal_that_cannot_be_read_is_a_finding_and_no_page_that_fails(client_as, broker, file):
    client = client_as("admin")
    acts(2)
    path = directory() / file
    path.rename(path.with_suffix(".away"))
    path.mkdir()  # whoever reads it gets EISDIR, root too
    page = client.get("/system/checks/")
    assert page.status_code == 200
    assert f"The audit log cannot be checked: {file} cannot be read (Is a directory)." in page.content.decode()
    assert client.get("/api/v1/system/checks").status_code == 200
    path.rmdir()
    path.with_suffix(".away").rename(path)
    assert verdicts() == {"audit_whole"}


def test_before_the_first_entry_there_is_nothing_to_check():
    assert verdicts() == {"audit_none"}
    audit.begin()
    assert verdicts() == {"audit_whole"}


def test_the_newest_entries_cut_off_show():
    entries = acts(5)
    remove(*entries[3:])
    assert first_broken() is None, "the chain that is left is whole"
    assert audit.look() == ("audit_cut", {"last": entries[4], "missing": 2})
    assert audit.check().code == "audit_cut"
    assert audit.health_check().level == "failed"
    assert "older copy of the settings database was restored" in str(audit.look())


def test_an_emptied_table_shows():
    entries = acts(3)
    AuditEntry.objects.all().delete()
    assert audit.look() == ("audit_cut", {"last": entries[2], "missing": 3})


def test_a_cut_stays_known_when_the_log_goes_on(caplog):
    entries = acts(5)
    remove(*entries[3:])
    act("later")
    act("again")
    assert first_broken() is None
    assert audit.look() == ("audit_cut", {"last": entries[4], "missing": 2})
    assert sum("newest 2 entries of the audit log are missing" in line for line in caplog.messages) == 1


def test_what_follows_a_cut_is_vouched_for_too():
    entries = acts(3)
    remove(entries[2])
    later = acts(3)
    remove(later[2])
    act()
    audit.accept("somebody")
    act()
    assert verdicts() == {"audit_whole"}
    AuditEntry.objects.first().delete()
    assert audit.look().code == "audit_cut"


def test_a_chain_rewritten_with_digests_of_its_own_shows():
    acts(4)
    rewrite_plainly()
    assert audit.look().code == "audit_altered"
    assert audit.check().code == "audit_altered"
    assert first_broken() == AuditEntry.objects.last().pk


def test_an_entry_put_in_at_the_end_without_the_key_shows():
    acts(2)
    forged = AuditEntry(at_ms=1, actor="nobody", actor_kind="user", action="topic.delete")
    fields = [getattr(forged, name) for name in COVERED]
    forged.digest = digest_of(fields, AuditEntry.objects.first().digest, None)
    forged.save()
    assert audit.look() == ("audit_altered", {"entry": forged.pk})


def test_an_entry_taken_out_of_the_middle_shows_by_its_number_and_by_the_chain():
    entries = acts(5)
    remove(entries[1])
    assert audit.look() == ("audit_fewer", {"count": 5, "found": 4})
    assert first_broken() == entries[2]
    assert audit.check_and_note().code == "audit_fewer"
    act("later")
    assert audit.look().code == "audit_fewer"


@pytest.mark.parametrize("taken", [0, 1])
def test_entries_of_before_the_key_are_adopted_and_vouched_for(taken, caplog):
    plain_chain(3)
    audit.begin()
    assert "its entries so far (3) are adopted" in caplog.text
    act()
    assert verdicts() == {"audit_whole"}
    old = AuditEntry.objects.order_by("id")[taken]
    old.delete()
    assert audit.check().code == "audit_fewer"
    assert first_broken() is not None


def rewrite_plainly() -> None:
    """Rewrite the whole table, as an attacker does who knows the method and has no key."""
    previous = ""
    for entry in AuditEntry.objects.order_by("id"):
        entry.actor = "somebody else"
        previous = entry.digest = digest_of([getattr(entry, name) for name in COVERED], previous, None)
        entry.save()


def test_adopted_entries_rewritten_with_plain_digests_show():
    plain_chain(3)
    audit.begin()
    rewrite_plainly()
    last = AuditEntry.objects.first().pk
    assert audit.check() == ("audit_altered", {"entry": last})
    assert first_broken() == last
    act()
    rewrite_plainly()
    assert audit.check().code == "audit_altered"


def test_adoption_that_a_kill_interrupted_is_done_again():
    plain_chain(2)
    audit.begin()
    (directory() / KEY_FILE).unlink()  # the head is made first
    Setting.objects.filter(key=audit.MARK).delete()
    audit.begin()
    act()
    assert verdicts() == {"audit_whole"}


# --- the head's file


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"mac":"00"}', b'{"mac":7}', b"\xff\xfe", bytes(100)])
def test_a_head_that_is_damaged_shows_and_stays_known(content):
    acts(2)
    (directory() / HEAD_FILE).write_bytes(content)
    assert verdicts() == {"audit_bad_head"}
    act("later")
    assert verdicts() == {"audit_bad_head"}
    assert audit.accept("somebody") is not None
    assert verdicts() == {"audit_whole"}


def test_a_head_that_is_gone_shows_and_stays_known():
    acts(2)
    (directory() / HEAD_FILE).unlink()
    assert verdicts() == {"audit_no_head"}
    act("later")
    assert verdicts() == {"audit_no_head"}


@pytest.mark.parametrize("change", [{"count": 1}, {"last_id": 1}, {"digest": "0" * 64}, {"broken": None}])
def test_a_forged_head_shows(change):
    entries = acts(3)
    remove(entries[2])
    act()
    (directory() / HEAD_FILE).write_text(json.dumps(head() | change | {"broken": None}))
    assert audit.look().code == "audit_bad_head"


def test_an_old_head_of_ours_put_back_does_not_hide_a_cut_it_knew_of():
    acts(2)
    old = (directory() / HEAD_FILE).read_bytes()
    entries = acts(2)
    (directory() / HEAD_FILE).write_bytes(old)
    assert audit.look().code == "audit_whole", "it only lags"
    remove(entries[0])
    assert audit.look() == ("audit_altered", {"entry": entries[1]})


def test_a_key_that_is_gone_shows_and_later_entries_have_a_new_one():
    acts(2)
    (directory() / KEY_FILE).unlink()
    assert verdicts() == {"audit_no_key"}
    act("later")
    assert verdicts() == {"audit_no_key"}
    audit.accept("somebody")
    assert verdicts() == {"audit_whole"}
    AuditEntry.objects.filter(target="later").update(actor="else")
    assert audit.check().code == "audit_altered"


def test_key_and_head_gone_together_are_not_taken_for_a_first_start():
    acts(2)
    for name in (KEY_FILE, HEAD_FILE):
        (directory() / name).unlink()
    audit.begin()
    assert verdicts() == {"audit_no_key"}


# --- crashes


def test_a_kill_between_commit_and_head_is_no_finding(monkeypatch):
    acts(2)
    with monkeypatch.context() as killed:
        killed.setattr(audit, "_move_head", lambda: None)
        acts(3)
    assert head()["count"] == 2
    assert verdicts() == {"audit_whole"}
    audit.begin()
    assert head()["count"] == 5
    assert verdicts() == {"audit_whole"}


def test_the_head_moves_only_after_what_it_names_is_synced(monkeypatch):
    order = []
    real = audit_seal.Seal._write_head
    monkeypatch.setattr(audit, "_sync_database", lambda: order.append(("sync", AuditEntry.objects.count())))
    monkeypatch.setattr(
        audit_seal.Seal,
        "_write_head",
        lambda self, key, moved: (order.append(("head", moved.count)), real(self, key, moved))[1],
    )
    acts(2)
    assert order == [("head", 0), ("sync", 1), ("head", 1), ("sync", 2), ("head", 2)]


def test_the_write_ahead_log_is_what_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(audit.file_sync, "sync_data", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    path = tmp_path / "console.sqlite3"
    path.with_name("console.sqlite3-wal").touch()
    monkeypatch.setitem(connection.settings_dict, "NAME", path)
    audit._sync_database()
    assert [name.name for name in synced] == ["console.sqlite3-wal"]


def test_an_entry_that_is_rolled_back_moves_no_head():
    act()

    def undone() -> None:
        with transaction.atomic():
            act("never")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        undone()
    assert head()["count"] == 1
    assert verdicts() == {"audit_whole"}


def test_a_head_that_cannot_be_written_keeps_no_entry_back(monkeypatch, caplog):
    acts(1)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(audit_seal.file_sync, "replace_file", full)
        assert act("T2").pk
    assert "its head cannot be written" in caplog.text
    act("T3")
    assert (head()["count"], verdicts()) == (3, {"audit_whole"})


OTHER_PROCESS = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from appliance import runtime

place = runtime.Place(Path(sys.argv[1]))
place.directory.mkdir(parents=True, exist_ok=True)
runtime.set_place(place)
os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
import django
django.setup()
from django.db import connections
from appliance.console.audit import log as audit
from appliance.console.serving import database
from appliance.console.models import AuditEntry

def act(target):
    audit.record("topic.create", target, by=audit.Actor("somebody", "user"))

def many(threads, each):
    start = threading.Barrier(threads)
    def work(number):
        start.wait(60)
        for k in range(each):
            act(f"T{number}-{k}")
            looked = audit.look()
            assert looked.code == "audit_whole", looked
        connections.close_all()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))

database.bring_up_to_date()
audit.begin()
"""


def other(data: Path, program: str, *after: str) -> str:
    """Run a program with a data directory and database file of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS + program, str(data), *after], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode in (0, 9), done.stderr
    return done.stdout.strip()


SAY = "\nprint(audit.check().code, AuditEntry.objects.count())"


def test_many_threads_and_two_processes_at_once_leave_one_whole_chain(tmp_path):
    program = "many(4, 6)"
    other(tmp_path, "act('first')")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: other(tmp_path, program), range(2)))
    assert other(tmp_path, SAY) == "audit_whole 49"
    written = json.loads((tmp_path / "rocketbox" / HEAD_FILE).read_text())
    assert (written["count"], written["broken"]) == (49, None)


@pytest.mark.parametrize("where", ["log._move_head", "log._sync_database", "seal.Seal.follow", "seal.Seal._write_head"])
def test_a_process_that_dies_between_commit_and_head_leaves_a_whole_chain(tmp_path, where):
    other(tmp_path, "act('first')")
    die = f"from appliance.console.audit import log, seal\n{where} = lambda *args: os._exit(9)\nact('second')"
    other(tmp_path, die)
    assert json.loads((tmp_path / "rocketbox" / HEAD_FILE).read_text())["count"] == 1
    assert other(tmp_path, SAY) == "audit_whole 2"
    assert json.loads((tmp_path / "rocketbox" / HEAD_FILE).read_text())["count"] == 2


def test_an_older_copy_of_the_database_shows_at_the_next_start(tmp_path):
    ours = tmp_path / "rocketbox"
    other(tmp_path, "act('first')")
    shutil.copy(ours / "console.sqlite3", tmp_path / "backup")
    other(tmp_path, "act('second'); act('third')")
    for path in ours.glob("console.sqlite3*"):
        path.unlink()
    shutil.copy(tmp_path / "backup", ours / "console.sqlite3")
    assert other(tmp_path, "act('after'); act('wards')" + SAY) == "audit_cut 3"
    environment = {"PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "appliance.main"]
    options = ["--data-dir", str(tmp_path)]

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, *arguments, *options], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    status, said = run("audit", "check")
    assert status == 1
    assert "The newest 2 entries of the audit log are missing, up to entry 3. They were cut off, or an older" in said
    status, said = run("doctor")
    assert (status, "older copy of the settings database" in said) == (1, True)
    assert run("audit", "accept") == (0, "Accepted; entry 4 of the audit log says so.\n")
    assert run("audit", "check") == (0, "The audit log is whole and has 4 entries.\n")
    assert run("audit", "accept") == (0, "There was nothing to accept.\n")
    assert "The audit log is whole" in run("doctor")[1]


# --- accepting


def test_accepting_is_an_entry_and_says_what_it_accepted():
    entries = acts(4)
    remove(entries[3])
    assert audit.look().code == "audit_cut"
    entry = audit.accept("root")
    assert (entry.action, entry.actor, entry.actor_kind) == ("audit.accept", "root", "command line")
    assert "newest 1 entry of the audit log is missing" in entry.before["found"]
    assert verdicts() == {"audit_whole"}
    assert audit.accept("root") is None


# --- what people see


def test_the_page_of_checks_and_the_api_say_it(client_as, broker):
    entries = acts(3)
    admin = client_as("admin")
    assert "The audit log is whole" in admin.get("/system/checks/").content.decode()
    remove(entries[2])
    page = admin.get("/system/checks/").content.decode()
    assert f"up to entry {entries[2]}" in page
    checks = admin.get("/api/v1/system/checks").json()
    assert checks["worst"] == "failed"
    found = next(check for check in checks["items"] if check["name"] == "audit")
    assert (found["level"], found["sentence"]["code"]) == ("failed", "audit_cut")
    page = admin.get("/system/audit/").content.decode()
    assert "newest 1 entry of the audit log is missing" in page
    assert "rocketbox audit accept" in page
    page = admin.get("/system/audit/", HTTP_ACCEPT_LANGUAGE="zh-hans").content.decode()
    assert "审计日志末尾缺失 1 条" in page
    assert "rocketbox audit accept" in page


def test_doctor_sees_the_same_without_django(tmp_path):
    from appliance.doctor.audit import look_at_audit_log
    from appliance.doctor.diagnosis import FAIL, OK, Diagnosis

    def looked() -> list[tuple[str, str]]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory(), copy)
        target = sqlite3.connect(copy / "console.sqlite3")
        connection.ensure_connection()
        connection.connection.backup(target)
        target.close()
        before = sorted(path.name for path in copy.iterdir())
        found = Diagnosis()
        look_at_audit_log(found, copy)
        assert sorted(path.name for path in copy.iterdir()) == before, "it changes nothing"
        return [(line.level, line.text) for line in found.lines]

    plain_chain(2)
    audit.record(
        "group.edit", "中文 \"'", {"a": 1.5, "b": None}, {"a": [1, {"z": 2, "y": True}]}, by=audit.Actor("é", "user")
    )
    act()
    assert looked() == [(OK, "The audit log is whole and has 4 entries.")]
    AuditEntry.objects.filter(action="group.edit").update(after={"a": 2})
    assert looked()[0][0] == FAIL
    assert "Entry 3 of the audit log does not match" in looked()[0][1].replace(
        str(AuditEntry.objects.get(action="group.edit").pk), "3"
    )
