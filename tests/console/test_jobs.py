"""Jobs: how they run, end, are cancelled and found again after a restart; their pages and their files."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError

from appliance import runtime
from appliance.console import jobs
from appliance.console.jobs import (
    dead_letter_archive,
    job_board,
    message_copy,
    message_export,
    message_import,
    registry,
    runner,
    work,
)
from appliance.console.models import ApiToken, AuditEntry, User, now_ms
from appliance.console.sign_in.identity import Bearer
from appliance.console.users import tokens
from appliance.console.users.roles import ADMIN, OPERATOR, VIEWER
from appliance.engine.errors import Conflict, InvalidInput, Unavailable
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def kind() -> Iterator[Callable]:
    """`kind(run, start=OPERATOR)`: a kind of this test's own, by the name it returns."""
    before = dict(jobs.kinds())

    def make(run: Callable, name: str = "try", **options) -> str:
        options = {"title": "Try", "start": OPERATOR, "fetch": VIEWER} | options
        jobs.kind(name, **options)(run)
        return name

    yield make
    registry._kinds.clear()
    registry._kinds.update(before)


def new(kind: str, **more) -> jobs.Job:
    """A job that waits."""
    job = jobs.Job(jobs.new_id(), kind, "somebody", "user", now_ms(), more.pop("parameters", {}), **more)
    jobs.board().add(job)
    return job


def streamed(response) -> bytes:
    async def pieces() -> list[bytes]:
        return [piece async for piece in response]

    return b"".join(asyncio.run(pieces()))


def after_a_restart() -> jobs.Board:
    return jobs.Board(jobs.board().directory)


def test_a_job_runs_to_its_end_with_progress_result_and_files(kind):
    def run(work: jobs.Work) -> None:
        with work.file("out.ndjson").open("wb") as out:
            for done in range(1, work.parameters["count"] + 1):
                out.write(b"{}\n")
                work.progress(done, work.parameters["count"], "messages", good=done - done // 3, bad=done // 3)
        work.result({"written": done})

    job = new(kind(run), parameters={"count": 9})
    assert job.state == "waiting"
    assert runner.run_waiting() == 1
    assert (job.state, job.done, job.total, job.unit) == ("done", 9, 9, "messages")
    assert job.counts == {"good": 6, "bad": 3}
    assert (job.other, job.left) == (0, 0)
    assert job.result == {"written": 9}
    assert [(one.name, one.bytes) for one in job.files] == [("out.ndjson", 27)]
    found = after_a_restart().get(job.id)
    assert (found.state, found.result, found.files, found.counts) == (job.state, job.result, job.files, job.counts)
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.actor, entry.result, entry.after["state"]) == ("job.end", "somebody", "done", "done")


def test_jobs_come_in_turn(kind):
    order = []
    name = kind(lambda work: order.append(work.parameters["n"]))
    for n in range(3):
        new(name, parameters={"n": n})
    runner.run_waiting()
    assert order == [0, 1, 2]
    assert [job.parameters["n"] for job in jobs.board().jobs()] == [2, 1, 0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (jobs.JobFailed("There is no topic %(name)s.", name="orders"), "There is no topic orders."),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full."),
        (OSError(errno.EIO, "Input/output error"), "The disk refused the job's file: Input/output error."),
        (Unavailable("The log is read-only."), "The log is read-only."),
        (InvalidInput("topic", "100 % wrong"), "100 % wrong"),
        (ZeroDivisionError("secret"), "An error of RocketBox's own; the log has it under the number of this job."),
    ],
)
def test_a_job_that_fails_says_why(kind, client_as, engine, error, said):
    def run(work: jobs.Work) -> None:
        work.file("half").write_bytes(b"half")
        raise error

    job = new(kind(run))
    runner.run_waiting()
    assert (job.state, str(job.why)) == ("failed", said)
    assert job.files == []
    assert not (jobs.board().folder(job.id).path / "files").exists(), "half a file looks like a whole one"
    page = client_as("viewer").get(f"/jobs/{job.id}/").content.decode()
    assert said.replace("'", "&#x27;") in page
    [entry] = AuditEntry.objects.filter(action="job.end")
    assert (entry.result, entry.after["why"]) == ("failed", said)


def test_what_is_cancelled_while_it_waits_never_runs(kind):
    job = new(kind(lambda work: pytest.fail("it ran")))
    jobs.board().cancel(job.id, "me")
    assert runner.run_waiting() == 0
    assert job.state == "cancelled"
    with pytest.raises(Conflict):
        jobs.board().cancel(job.id, "me")


def test_what_is_cancelled_while_it_runs_ends_at_its_next_step(kind):
    steps = []

    def run(work: jobs.Work) -> None:
        work.file("half").write_bytes(b"half")
        for step in range(10):
            if step == 4:
                jobs.board().cancel(work.job.id, "me")
            work.progress(step, 10)
            steps.append(step)

    job = new(kind(run))
    runner.run_waiting()
    assert (job.state, steps) == ("cancelled", [0, 1, 2, 3])
    assert job.files == []


# --- restarts


def test_what_was_cancelled_does_not_go_on_after_a_kill(kind):
    class Killed(BaseException):
        pass

    def run(work: jobs.Work) -> None:
        jobs.board().cancel(work.job.id, "somebody")
        raise Killed  # before its next step

    job = new(kind(run, goes_on=True))
    with pytest.raises(Killed):
        runner.run_waiting()
    again = after_a_restart()
    assert again.get(job.id).state == "cancelled"
    assert runner.run_waiting(again) == 0


def test_what_ran_when_the_process_died_is_interrupted_and_its_files_go(kind):
    job = new(kind(lambda work: None))
    assert jobs.board().take_next() is job
    jobs.board().folder(job.id).new_file("half").write_bytes(b"half")
    found = after_a_restart().get(job.id)
    assert (found.state, str(found.why)) == ("interrupted", "RocketBox ended while it ran. Start it again.")
    assert not (jobs.board().folder(job.id).path / "files").exists()
    assert after_a_restart().get(job.id).ended_at_ms == found.ended_at_ms


def test_a_kind_that_can_goes_on_from_what_it_kept(kind):
    seen = []

    def run(work: jobs.Work) -> None:
        seen.append(work.kept.get("at", 0))
        work.keep({"at": 7})
        raise work_stop

    work_stop = work.Stopping()
    job = new(kind(run, goes_on=True))
    board = jobs.board()
    runner.run(board.take_next(), board, lambda: True)
    assert job.state == "waiting"
    board = after_a_restart()
    runner.run(board.take_next(), board, lambda: True)
    assert seen == [0, 7]


def test_a_killed_job_that_can_waits_again(kind):
    job = new(kind(lambda work: None, goes_on=True))
    jobs.board().take_next()
    board = after_a_restart()
    assert board.get(job.id).state == "waiting"
    assert board.take_next().id == job.id


def test_a_stop_interrupts_and_says_so(kind):
    def run(work: jobs.Work) -> None:
        work.progress(1, 2)
        pytest.fail("it went on")

    job = new(kind(run))
    board = jobs.board()
    runner.run(board.take_next(), board, lambda: True)
    assert (job.state, str(job.why)) == ("interrupted", "RocketBox was stopped while it ran. Start it again.")


def test_the_engine_gone_at_a_stop_is_no_failure(kind):
    def run(work: jobs.Work) -> None:
        raise runtime.EngineNotRunning("stopped")

    job = new(kind(run))
    board = jobs.board()
    runner.run(board.take_next(), board, lambda: True)
    assert job.state == "interrupted"


def test_the_thread_runs_what_comes_and_ends_with_its_job(kind, monkeypatch, transactional_db):
    begun = threading.Event()

    def run(work: jobs.Work) -> None:
        begun.set()
        while True:
            work.progress(0, 1)
            time.sleep(0.001)

    monkeypatch.setattr(runner, "BEGIN_S", 0.0)
    name = kind(run)
    thread = runner.JobRunner(1)
    thread.start()
    job = new(name)
    assert begun.wait(60)
    assert thread.stop(60), "it ends with its job"
    assert not thread.alive
    assert job.state == "interrupted"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("odd")])
def test_the_thread_outlives_an_end_that_cannot_be_written_down(kind, monkeypatch, transactional_db, error):
    monkeypatch.setattr(runner, "BEGIN_S", 0.0)
    name = kind(lambda work: None)
    real, failing = runner.write_down, [error]

    def write_down(*arguments, **named):
        if failing:
            raise failing.pop()
        real(*arguments, **named)

    monkeypatch.setattr(runner, "write_down", write_down)
    first, second = new(name), new(name)
    thread = runner.JobRunner(2)
    thread.start()
    try:
        wait_for(lambda: first.ended and second.ended, "both have ended")
        assert (first.state, second.state) == ("done", "done")
    finally:
        assert thread.stop(60)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"id": 1}', b'{"id": "20200101-000000-00000000"}', b"\xff"])
def test_a_file_that_is_no_job_hides_no_other(kind, text):
    job = new(kind(lambda work: None))
    broken = jobs.board().directory / "20200101-000000-00000000"
    broken.mkdir()
    (broken / "job.json").write_bytes(text)
    assert [one.id for one in after_a_restart().jobs()] == [job.id]
    os.utime(broken, (0, 0))
    after_a_restart().sweep()
    assert not broken.exists()


# --- bounds


def test_a_full_disk_is_said_before_anything_is_promised(kind, client_as, engine, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(job_board.JobFolder, "write", full)
    answer = client_as("admin").post("/system/audit/check/")
    assert answer.status_code == 503
    assert "The disk is full." in answer.content.decode()
    assert jobs.board().jobs() == []


def test_files_may_not_grow_for_ever(kind, monkeypatch):
    monkeypatch.setattr(work, "TELL_S", 0.0)

    def run(work: jobs.Work) -> None:
        work._file_bytes = 1000
        with work.file("large").open("wb", buffering=0) as out:
            for step in range(100):
                out.write(b"x" * 100)
                work.progress(step, 100)

    job = new(kind(run))
    runner.run_waiting()
    assert job.state == "failed"
    assert job.done == 10
    assert "larger than 1000 bytes" in str(job.why)


def test_files_of_the_oldest_make_room(kind, monkeypatch):
    monkeypatch.setattr(job_board, "ALL_FILE_BYTES", 2500)
    name = kind(lambda work: work.file("kb").write_bytes(bytes(1000)))
    first, second, third = (new(name) for _ in range(3))
    for number, job in enumerate((first, second, third)):
        job.created_at_ms += number
    runner.run_waiting()
    assert (first.files, first.files_removed) == ([], True)
    assert not (jobs.board().folder(first.id).path / "files").exists()
    assert [len(job.files) for job in (second, third)] == [1, 1]


def test_what_ended_long_ago_is_removed(kind):
    name = kind(lambda work: None)
    old, young = new(name), new(name)
    runner.run_waiting()
    old.ended_at_ms -= 8 * 86_400_000
    jobs.board().sweep()
    assert [job.id for job in jobs.board().jobs()] == [young.id]
    assert not jobs.board().folder(old.id).path.exists()


def test_a_clock_that_is_set_forward_for_a_while_removes_no_job(kind):
    name = kind(lambda work: None)
    done, interrupted = new(name), new(name)
    runner.run_waiting()
    interrupted.state, interrupted.ended_at_ms = "running", None
    jobs.board()._save(interrupted, durable=True)
    clock = FakeClock(now_ms() + 30 * 86_400_000)
    board = jobs.Board(jobs.board().directory, clock)
    board.sweep()
    assert {job.id for job in board.jobs()} == {done.id, interrupted.id}
    clock.advance(3_600_000)
    board.sweep()
    assert done.id not in {job.id for job in board.jobs()}, "it has stayed so"


def test_only_so_many_wait(kind, monkeypatch):
    monkeypatch.setattr(job_board, "WAITING_AT_MOST", 2)
    name = kind(lambda work: None)
    new(name)
    new(name)
    with pytest.raises(Unavailable, match="2 jobs are waiting"):
        new(name)


def test_of_some_kinds_there_is_one_at_a_time(kind):
    name = kind(lambda work: None, alone=True)
    new(name)
    with pytest.raises(Conflict, match="has not ended yet"):
        new(name)
    runner.run_waiting()
    new(name)


def disabled(user: User) -> None:
    user.is_active = False


def demoted(user: User) -> None:
    user.role = "viewer"


def of_other_topics(user: User) -> None:
    user.topic_pattern = "mine-*"


@pytest.mark.parametrize("loses", [disabled, demoted, of_other_topics])
@pytest.mark.parametrize(("who", "who_kind"), [("olga", "user"), ("olga/ci", "token")])
def test_a_job_does_not_begin_when_who_left_it_may_not_do_it_any_more(kind, loses, who, who_kind):
    olga = User.objects.create(username="olga", role="operator")
    ran = []
    name = kind(lambda work: ran.append(work.job.id))
    jobs_ = [
        jobs.Job(jobs.new_id(), name, who, who_kind, now_ms(), {}, names=["orders"]),
        jobs.Job(jobs.new_id(), name, "schedule", "system", now_ms(), {}, names=["orders"]),
    ]
    for job in jobs_:
        jobs.board().add(job)
    loses(olga)
    olga.save()
    runner.run_waiting()
    assert ran == [jobs_[1].id]
    assert (jobs_[0].state, str(jobs_[0].why)) == ("failed", "Who started it may not do this any more.")


@pytest.mark.parametrize(("about", "name"), [("topic", "orders-1"), ("group", "billing-1")])
def test_a_job_about_a_topic_is_not_ended_by_the_groups_that_its_user_is_kept_to(kind, about, name):
    User.objects.create(username="olga", role="operator", topic_pattern="orders-*", group_pattern="billing-*")
    made = kind(lambda work: None, about=about)
    own, other = (jobs.Job(jobs.new_id(), made, "olga", "user", now_ms(), {}, names=[one]) for one in (name, "stock"))
    jobs.board().add(own)
    jobs.board().add(other)
    runner.run_waiting()
    assert (own.state, other.state) == ("done", "failed")


def test_a_job_about_the_whole_broker_is_not_for_who_is_kept_to_some_names(kind):
    User.objects.create(username="olga", role="operator", topic_pattern="mine-*")
    job = jobs.Job(jobs.new_id(), kind(lambda work: None), "olga", "user", now_ms(), {})
    jobs.board().add(job)
    runner.run_waiting()
    assert (job.state, str(job.why)) == ("failed", "Who started it may not do this any more.")


def test_jobs_say_whether_they_are_about_topics_or_groups():
    about = {name: one.about for name, one in jobs.kinds().items() if one.about}
    assert {name for name, one in about.items() if one == "topic"} == {
        message_export.EXPORT, message_export.SEARCH, message_export.BODY_SEARCH,
        message_import.CHECK, message_import.NAME, message_copy.CHECK, message_copy.NAME,
    }  # fmt: skip
    assert {name for name, one in about.items() if one == "group"} == {dead_letter_archive.NAME}


def test_a_job_that_runs_ends_when_its_user_is_disabled(kind, monkeypatch):
    monkeypatch.setattr(work, "SAVE_S", 0.0)
    olga = User.objects.create(username="olga", role="operator")

    def run(work: jobs.Work) -> None:
        work.file("out").write_bytes(b"half")
        work.progress(1)
        disabled(olga)
        olga.save()
        work.progress(2)
        pytest.fail("it went on")

    job = jobs.Job(jobs.new_id(), kind(run), "olga", "user", now_ms(), {})
    jobs.board().add(job)
    runner.run_waiting()
    assert (job.state, job.files) == ("failed", [])


@pytest.mark.parametrize("revoked", ["itself", "its maker"])
def test_a_job_of_a_token_ends_when_the_token_is_revoked(kind, monkeypatch, revoked):
    monkeypatch.setattr(work, "SAVE_S", 0.0)
    olga = User.objects.create(username="olga", role="operator")
    maker, _ = tokens.create(olga, "maker", "operator")
    token, _ = tokens.create(olga, "ci", "operator", made_by=maker)
    other, _ = tokens.create(olga, "other", "operator")

    def run(work: jobs.Work) -> None:
        tokens.revoke(token if revoked == "itself" else maker)
        work.progress(1)

    name = kind(run)
    job = jobs.start(request_by(token), name, {})
    of_other = jobs.start(request_by(other), name, {})
    runner.run_waiting()
    assert (job.state, str(job.why)) == ("failed", "Who started it may not do this any more.")
    assert of_other.state == "done"


def test_a_job_outlives_the_token_of_one_command(kind):
    olga = User.objects.create(username="olga", role="operator")
    token, _ = tokens.create(olga, "command line", "operator", passing=True)
    job = jobs.start(request_by(token), kind(lambda work: None), {})
    token.delete()
    runner.run_waiting()
    assert job.state == "done"


def request_by(token: ApiToken) -> Any:
    return SimpleNamespace(user=Bearer(token), client_address="192.0.2.1")


def test_a_settings_database_that_does_not_answer_ends_no_job(kind, monkeypatch):
    def fails(job: jobs.Job) -> bool:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(runner, "may_go_on", fails)
    job = new(kind(lambda work: None))
    runner.run_waiting()
    assert job.state == "done"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\x00b", "x" * 200, "a\nb"])
def test_a_file_lies_in_its_job(kind, name):
    job = new(kind(lambda work: None))
    with pytest.raises(ValueError, match="no name for a file"):
        jobs.board().folder(job.id).new_file(name)


def test_everything_is_private_whatever_the_umask(kind):
    before = os.umask(0)
    try:
        job = new(kind(lambda work: work.file("out").write_bytes(b"x")))
        runner.run_waiting()
    finally:
        os.umask(before)
    folder: Path = jobs.board().folder(job.id).path
    modes = {
        str(path.relative_to(folder.parent.parent)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")
    }
    assert set(modes.values()) == {0o600, 0o700}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_counts_are_parts_of_what_is_done(kind):
    job = new(kind(lambda work: work.progress(5, 10, found=2)))
    runner.run_waiting()
    assert (job.other, job.left) == (3, 5)
    job = new(kind(lambda work: work.progress(1, 10, found=2), name="wrong"))
    runner.run_waiting()
    assert job.state == "failed"


def test_a_job_that_works_hard_rests(kind):
    def run(work: jobs.Work) -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            work.progress(0)

    new(kind(run))
    began = time.monotonic()
    runner.run_waiting()
    assert time.monotonic() - began > 0.2, "it takes a third of the processor at most"


# --- pages


def test_the_list_and_its_filters(kind, client_as, engine):
    name = kind(lambda work: None)
    new(name, target="<b>orders</b>")
    runner.run_waiting()
    new(name, target="refunds")
    viewer = client_as("viewer")
    page = viewer.get("/jobs/").content.decode()
    assert "&lt;b&gt;orders" in page
    assert "refunds" in page
    assert "orders" in (found := viewer.get("/jobs/?state=done").content.decode())
    assert "refunds" not in found
    assert "No job is of this kind" in viewer.get("/jobs/?kind=audit-check").content.decode()
    rows = viewer.get("/jobs/?format=csv").content.decode().splitlines()
    assert [row.split(",")[3] for row in rows[1:]] == ["waiting", "done"]


def test_no_jobs_teach_how_there_come_some(client_as, engine):
    assert "One begins when" in client_as("viewer").get("/jobs/").content.decode()


def test_the_parts_of_the_progress_add_up_on_its_page(kind, client_as, engine):
    words = {"sent": "sent", "lost": "lost", "messages": "messages"}
    job = new(kind(lambda work: None, words=words, bad=("lost",)))
    jobs.board().take_next()
    job.done, job.total, job.unit, job.counts = 1400, 2000, "messages", {"sent": 1000, "lost": 300}
    page = client_as("operator").get(f"/jobs/{job.id}/").content.decode()
    for part in ("sent 1 000", "lost 300", "other 100", "left 600", "<b>1 400</b> of 2 000"):
        assert part in " ".join(page.split()).replace("\u202f", " ").replace("\u00a0", " "), part
    assert '<rect class="good" x="0.0" y="0" width="500.0"' in page
    assert '<rect class="bad" x="500.0" y="0" width="150.0"' in page
    assert '<rect class="soft" x="650.0" y="0" width="50.0"' in page


def test_progress_is_sent_when_it_changes_and_the_page_loads_again_at_the_end(kind, client_as, engine):
    job = new(kind(lambda work: None))
    jobs.board().take_next()
    client = client_as("operator")
    address = f"/jobs/{job.id}/progress/?seen={job.changes}"
    assert address in client.get(f"/jobs/{job.id}/").content.decode()
    began = time.monotonic()
    timer = threading.Timer(0.3, lambda: setattr(job, "changes", job.changes + 1))
    timer.start()
    text = streamed(client.get(address)).decode()
    assert time.monotonic() - began > 0.25
    timer.join()
    assert f"seen={job.changes}" in text
    jobs.board().end(job, "done")
    assert client.get(address).headers["HX-Refresh"] == "true"
    assert "progress/?seen" not in client.get(f"/jobs/{job.id}/").content.decode()


def test_who_sees_cancels_and_fetches(kind, client_as, engine):
    job = new(kind(lambda work: work.file("f.csv").write_bytes(b"a,b\n"), start=ADMIN, fetch=OPERATOR))
    viewer, operator, admin = (client_as(role) for role in ("viewer", "operator", "admin"))
    assert viewer.get(f"/jobs/{job.id}/").status_code == 404
    assert job.id not in viewer.get("/jobs/").content.decode()
    assert "Cancel the job" not in operator.get(f"/jobs/{job.id}/").content.decode()
    assert operator.post(f"/jobs/{job.id}/cancel/").status_code == 404
    assert "Cancel the job" in admin.get(f"/jobs/{job.id}/").content.decode()
    runner.run_waiting()
    assert viewer.get(f"/jobs/{job.id}/files/f.csv/").status_code == 404
    answer = operator.get(f"/jobs/{job.id}/files/f.csv/")
    assert streamed(answer) == b"a,b\n"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="f.csv"'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert operator.get(f"/jobs/{job.id}/files/job.json/").status_code == 404
    [entry] = AuditEntry.objects.filter(action="job.download")
    assert (entry.actor, entry.target, entry.after["file"]) == ("the-operator", job.id, "f.csv")


@pytest.mark.parametrize("job", ["no-such", "..", "%2e%2e%2fx", "0" * 300, "%00", "<b>", "20200101-000000-00000000"])
def test_a_job_that_is_none(client_as, engine, job):
    admin = client_as("admin")
    for path in (f"/jobs/{job}/", f"/jobs/{job}/progress/", f"/jobs/{job}/files/x/"):
        assert admin.get(path).status_code == 404, path
    assert admin.post(f"/jobs/{job}/cancel/").status_code == 404


def test_a_job_of_a_kind_that_is_gone_is_for_administrators(client_as, engine):
    job = new("of-a-newer-version")
    assert client_as("viewer").get(f"/jobs/{job.id}/").status_code == 404
    assert "of-a-newer-version" in client_as("admin").get(f"/jobs/{job.id}/").content.decode()
    runner.run_waiting()
    assert job.state == "failed"


# --- the check of the audit log


def test_the_audit_log_is_checked_as_a_job(client_as, engine):
    admin = client_as("admin")
    place = admin.post("/system/audit/check/").headers["Location"]
    runner.run_waiting()
    page = admin.get(place).content.decode()
    assert "Verify the audit log" in page
    [job] = jobs.board().jobs()
    assert job.state == "done", str(job.why)
    assert job.result["intact"] is True
    assert job.done == 1, "its own start"
    assert [(one.action, one.result) for one in AuditEntry.objects.order_by("id")] == [
        ("job.start", "done"), ("job.end", "done")
    ]  # fmt: skip
    AuditEntry.objects.filter(action="job.start").update(actor="nobody")
    admin.post("/system/audit/check/")
    runner.run_waiting()
    job = jobs.board().jobs()[0]
    assert job.state == "failed"
    assert "does not match the one before it" in str(job.why)
    assert job.result["intact"] is False


def test_one_users_jobs_leave_room_for_those_of_others(kind, monkeypatch):
    name = kind(lambda work: None)
    for number in range(job_board.WAITING_EACH):
        job = jobs.Job(jobs.new_id(), name, f"viewer/token-{number}", "token", now_ms(), {})
        jobs.board().add(job)
    with pytest.raises(Unavailable):
        jobs.board().add(jobs.Job(jobs.new_id(), name, "viewer", "user", now_ms(), {}))
    backup = jobs.Job(jobs.new_id(), name, "admin", "user", now_ms() + 60_000, {})
    jobs.board().add(backup)
    first = jobs.board().take_next()
    assert first is not None
    assert first.who == "viewer/token-0"
    assert jobs.board().take_next() is backup, "whoever has nothing running comes first"
