"""Backups in the console: made as a job, listed, checked, fetched; how often, and how many are kept."""

from __future__ import annotations

import os
import tarfile
import time

import pytest
from django.db import DatabaseError

from appliance.console.backups import clock as backup_clock
from appliance.console.backups import settings as backups
from appliance.console.backups.clock import BackupClock
from appliance.console.jobs import board
from appliance.console.jobs.runner import run_waiting
from appliance.console.live import streams
from appliance.console.models import AuditEntry
from appliance.doctor.backups import look_at_backups
from appliance.doctor.diagnosis import Diagnosis
from appliance.engine.backup import check_backup
from tests.console.conftest import age_login


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


@pytest.fixture
def some(broker):
    """Files that look like backups, the newest last."""
    directory = backups.made_directory()
    names = [f"rocketbox-2026010{day}-000000.tar" for day in range(1, 6)]
    for day, name in enumerate(names):
        (directory / name).write_bytes(b"x" * 10)
        at = time.time() - 86_400 * (5 - day)
        os.utime(directory / name, (at, at))
    return names


def test_the_list_and_who_sees_it(client_as, some):
    admin = client_as("admin")
    page = content(admin.get("/system/backups/"))
    assert page.index(some[-1]) < page.index(some[0]), "newest first"
    assert "The last good one was made" in page
    assert "/download/" not in page, "without the right to export it cannot be taken along"
    assert client_as("operator").get("/system/backups/").status_code == 403
    fetcher = client_as("admin", "may_read_bodies", "may_export")
    assert f"/system/backups/{some[0]}/download/" in content(fetcher.get("/system/backups/"))
    answer = fetcher.get(f"/system/backups/{some[0]}/download/")
    assert answer.headers["Content-Length"] == "10"
    assert AuditEntry.objects.filter(action="backup.download").count() == 1
    for name in ("no-such.tar", "..%2F..%2Fsecret-key", "rocketbox-20260101-000009.tar"):
        assert fetcher.get(f"/system/backups/{name}/download/").status_code == 404, name
    age_login(fetcher)
    assert fetcher.get(f"/system/backups/{some[0]}/download/").headers["Location"].startswith("/confirm/")


def test_a_download_that_is_refused_is_not_in_the_audit_log(client_as, people, some, monkeypatch):
    fetcher = client_as("admin", "may_read_bodies", "may_export")
    monkeypatch.setitem(streams._open, people["admin"].pk, streams.STREAMS_EACH)
    assert fetcher.get(f"/system/backups/{some[0]}/download/").status_code == 429
    assert fetcher.get(f"/api/v1/system/backups/{some[0]}/file").status_code == 429
    assert not AuditEntry.objects.exists()


def test_the_schedule_and_how_many_are_kept(client_as, some):
    admin = client_as("admin")
    for wrong in ({"every_hours": "-1", "keep": "3"}, {"every_hours": "1", "keep": "0"}, {"every_hours": "x"}):
        assert admin.post("/system/backups/", wrong).status_code == 422
    assert not AuditEntry.objects.exists()
    clock = BackupClock()
    assert not clock.look(), "by hand only"
    assert admin.post("/system/backups/", {"every_hours": "48", "keep": "2"}).status_code == 302
    assert AuditEntry.objects.get().after == {"every_hours": 48, "keep": 2}
    assert not clock.look(), "the last one is a day old"
    admin.post("/system/backups/", {"every_hours": "12", "keep": "2"})
    assert clock.look()
    assert not clock.look(), "once"
    [job] = [one for one in board().jobs() if one.kind == backups.KIND]
    assert job.who == "schedule"
    assert backups.prune(2) == some[2::-1]
    assert [one.name for one in backups.listing()] == some[:2:-1]


def test_a_backup_of_a_time_to_come_stops_no_schedule_and_costs_no_new_one(client_as, broker, some):
    """The clock was wrong when it was made."""
    later = time.time() + 400 * 86_400
    os.utime(backups.directory() / some[0], (later, later))
    admin = client_as("admin")
    admin.post("/system/backups/", {"every_hours": "12", "keep": "1"})
    assert BackupClock().look()
    run_waiting()
    [job] = [one for one in board().jobs() if one.kind == backups.KIND]
    assert job.state == "done", job.why
    assert [one.name for one in backups.listing()] == [job.result["backup"]]


def test_made_and_checked_as_jobs(client_as, broker, topic):
    broker.sender.send(topic, b"x")
    admin = client_as("admin")
    answer = admin.post("/system/backups/now/")
    assert answer.headers["Location"].startswith("/jobs/")
    again = admin.post("/system/backups/now/", follow=True)
    assert "has not ended yet" in content(again)
    run_waiting()
    [made] = backups.listing()
    assert check_backup(backups.path_of(made.name)).end_offset > 0
    job = board().jobs()[0]
    assert (job.state, job.result["backup"]) == ("done", made.name), job.why
    assert made.name in content(admin.get("/system/backups/"))
    with tarfile.open(backups.path_of(made.name)) as tar:
        assert not [name for name in tar.getnames() if "/backups/" in name or "/jobs/" in name], "none within another"
    admin.post(f"/system/backups/{made.name}/check/")
    run_waiting()
    assert board().jobs()[0].result["whole"]
    path = backups.path_of(made.name)
    found = Diagnosis()
    look_at_backups(found, backups.directory().parent)
    [line] = found.lines
    assert (line.level, made.name in line.text) == ("ok", True)
    path.write_bytes(path.read_bytes()[:2000])
    admin.post(f"/system/backups/{made.name}/check/")
    run_waiting()
    newest = board().jobs()[0]
    assert newest.state == "failed"
    assert "cannot be restored" in str(newest.why)
    look_at_backups(found, backups.directory().parent)
    assert found.lines[-1].level == "fail"
    assert admin.post("/system/backups/no-such.tar/check/").status_code == 404


def test_a_settings_database_that_cannot_be_read_is_one_line_until_it_could_be_read(monkeypatch, caplog):
    clock = BackupClock()
    looks = ["bad", "bad", "bad", "good", "bad", "bad"]

    def unreadable() -> backups.Schedule:
        if looks.pop(0) == "good":
            return backups.Schedule(every_hours=0, keep=1)
        if not looks:
            clock.request_stop()
        raise DatabaseError("file is not a database")

    monkeypatch.setattr(backup_clock, "_LOOK_S", 0)
    monkeypatch.setattr(backup_clock, "schedule", unreadable)
    monkeypatch.setattr(backup_clock, "close_old_connections", lambda: None)  # of this thread, which may have none
    clock.run()
    assert [(one.getMessage(), one.exc_info) for one in caplog.records] == [
        ("backups: none was started: file is not a database", None)
    ] * 2
