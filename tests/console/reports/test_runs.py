"""Runs from the button to the day's reports, by plain Python and by really started processes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.console import reports
from appliance.console.models import AuditEntry, now_ms
from appliance.console.reports import published, records, room, schedule
from appliance.console.reports import runner as runners
from appliance.console.reports.report_settings import ReportSettings
from appliance.console.system import support
from appliance.engine.errors import Conflict, InvalidInput, NotFound, Unavailable
from spark_reports import machine
from spark_reports.facts import keeping
from spark_reports.facts.hours import day_of
from spark_reports.facts.tables import TABLES
from spark_reports.reports.document import REPORTS
from spark_reports.run import plan as files
from spark_reports.run.processes import members_of
from tests.spark_reports.run.again import make_again, reports_of
from tests.support.report_box import worker_of

PLAIN = ReportSettings(engine="python")
DAY_MS = 86_400_000


@pytest.fixture
def asked(running, runner, request_of):
    """An administrator's request, of a broker with three messages whose reports plain Python makes."""
    running.put("Orders", b"a", b"b", b"c" * 1000)
    reports.save_settings(request_of("admin"), PLAIN)
    return request_of("admin")


def made(asked, runner, day: str | None = None):
    record = reports.start(asked, day)
    assert runner.step()
    return reports.run(record.id)


def done(asked, runner, day: str | None = None):
    found = made(asked, runner, day)
    assert (found.state, found.error) == ("done", ""), reports.log_tail(found.id)
    return found


# --- what a run makes


def test_a_run_by_hand_makes_the_reports_of_today(asked, runner):
    assert reports.start(asked).state == "waiting"
    assert runner.step()
    (found,) = reports.runs()
    assert (found.state, found.error, found.engine, found.rows) == ("done", "", "python", 3), reports.log_tail(found.id)
    assert reports.days() == [found.day]
    for report in REPORTS:
        document = reports.document(found.day, report)
        assert (document["report"], document["day"]) == (report, found.day)
    files = {path.name for path in (records.directory() / "days" / found.day).iterdir()}
    assert files == {*(f"{report}.json" for report in REPORTS), "made.json"}, "no drawing leaves the run"
    assert {name for name, _ in found.steps} >= {"counting", "writing", "reports"}
    assert found.versions["rocketbox"]
    assert found.inputs["log_end"] > 0
    assert not published.made(found.day).whole
    acts = list(AuditEntry.objects.order_by("id").values_list("action", "result"))
    assert ("reports.run", "done") in acts
    assert ("reports.run_end", "done") in acts
    assert not runner.step()


def test_the_same_snapshot_gives_the_same_bytes(asked, runner, running, tmp_path):
    """Though the broker has gone on, and groups have come."""
    running.join("c1", "billing")
    found = done(asked, runner)
    running.put("Orders", b"later" * 100)
    running.join("c2", "another")
    folder = records.folder(found.id)
    outcome, again = make_again(folder, tmp_path)
    assert outcome.ok, outcome.error
    assert reports_of(again) == reports_of(folder)
    assert len(reports_of(folder)) >= len(REPORTS)


def test_what_a_run_writes_is_for_this_user_only(asked, runner):
    before = os.umask(0)
    try:
        done(asked, runner)
    finally:
        os.umask(before)
    loose = [
        path
        for path in [records.directory(), *records.directory().rglob("*")]
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
    assert not loose


def test_a_run_leaves_no_scratch_and_bounded_records(asked, runner, monkeypatch):
    monkeypatch.setattr(records.prune, "__defaults__", (2,))
    for _ in range(3):
        last = done(asked, runner)
        time.sleep(0.002)
    assert not any((records.directory() / "scratch").iterdir())
    assert len(reports.runs()) == 2
    assert reports.runs()[0].id == last.id
    kept = {path.name for path in records.folder(last.id).iterdir()}
    assert kept == {"plan.json", "snapshot.json", "deliveries", "process", "progress.json", "outcome.json", "log",
                    "lag.jsonl", "incidents.jsonl", "reports", "record.json"}  # fmt: skip
    older = {path.name for path in records.folder(reports.runs()[1].id).iterdir()}
    assert kept - older == {"deliveries", "reports"}
    assert 0 < reports.used_bytes() < 1 << 20


def test_the_days_reports_are_on_the_disk_before_they_take_the_place_of_others(asked, runner, monkeypatch):
    """A power cut must not leave names without bytes behind them."""
    synced: set[int] = set()
    rename = os.rename

    def sync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)

    def seen(old, new) -> None:
        late = [path.name for path in Path(old).iterdir() if path.stat().st_ino not in synced]
        assert late == []
        renamed.append(new)
        rename(old, new)

    renamed: list[Path] = []
    monkeypatch.setattr("appliance.engine.file_sync.sync_data", sync)
    monkeypatch.setattr(os, "rename", seen)
    found = done(asked, runner)
    assert records.directory() / "days" / found.day in renamed


def test_what_a_run_says_it_read_is_of_the_days_files(asked, runner):
    found = done(asked, runner)
    assert found.bytes_read == found.inputs["log_end"] > 1000


def test_a_run_that_could_not_be_written_down_leaves_no_directory(asked, runner, monkeypatch):
    def full(path, value, durable=False):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        with pytest.raises(Unavailable):
            reports.start(asked)
    assert list((records.directory() / "runs").iterdir()) == []


def test_a_start_removes_directories_of_runs_without_a_record(asked, runner):
    found = done(asked, runner)
    for name, data in (("20260101-000000-0123abcd", None), ("20260101-000000-0123abce", b"")):
        place = records.directory() / "runs" / name
        place.mkdir()
        if data is not None:
            (place / "record.json").write_bytes(data)
    runner.sweep()
    assert [path.name for path in (records.directory() / "runs").iterdir()] == [found.id]


def test_a_run_cancelled_just_before_it_begins_does_not_begin(asked, runner):
    waiting = reports.start(asked)
    reports.cancel(asked, waiting.id)
    runner._make(waiting)
    assert reports.run(waiting.id).state == "cancelled"
    assert reports.days() == []


def test_a_later_run_of_the_day_replaces_its_reports_whole(asked, runner, running):
    first = done(asked, runner)
    stray = records.directory() / "days" / first.day / "stray.json"
    stray.write_text("{}")
    running.put("Orders", b"d")
    second = done(asked, runner)
    assert published.made(first.day).run_id == second.id
    assert not stray.exists()


def test_a_support_bundle_tells_of_the_last_run(asked, runner):
    found = done(asked, runner)
    parts = {one.name: one.data.decode() for one in support.gather().parts}
    assert found.id in parts["report-run.json"]
    assert "counting" in parts["report-run.txt"]


# --- what is refused


def test_one_at_a_time(asked, runner):
    record = reports.start(asked)
    with pytest.raises(Conflict):
        reports.start(asked)
    assert reports.cancel(asked, record.id).state == "cancelled"
    with pytest.raises(Conflict):
        reports.cancel(asked, record.id)
    assert not runner.step()
    assert reports.start(asked).state == "waiting"


@pytest.mark.parametrize("day", ["2026-13-01", "yesterday", "2026-1-1", "", "9999-12-31", "../../etc"])
def test_days_that_are_none(asked, day):
    with pytest.raises(InvalidInput):
        reports.start(asked, day)


@pytest.mark.parametrize("name", ["..", "../runs", "20260101-000000-0000abcd", ""])
def test_runs_and_reports_that_are_not_there(asked, name):
    with pytest.raises(NotFound):
        reports.run(name)
    assert reports.progress(name) is None
    assert reports.log_tail(name) == ""
    assert reports.document(name, "digest") is None
    assert reports.document("2026-01-01", name) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("at", "24:00"), ("at", "2:00"), ("at", "02:00\n"), ("zone", "Mars/Base"), ("zone", "../UTC"),
        ("engine", "java"),
        ("master", "local[0]"), ("master", "sc://host"), ("master", "local[2] --conf x=y"), ("driver_mib", 100),
        ("driver_mib", True), ("memory_mib", 1024), ("timeout_min", 0), ("keep_days", 0), ("limit_minutes", -1),
        ("limits", {"billing": 0}), ("limits", {"": 5}), ("limits", []), ("digest_channels", ("nobody",)),
        ("on", "yes"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(asked, field, value):
    with pytest.raises(InvalidInput) as refused:
        reports.save_settings(asked, replace(ReportSettings(), **{field: value}))
    assert refused.value.field == field
    assert reports.settings() == PLAIN


def test_settings_are_kept_and_recorded(asked):
    wanted = ReportSettings(True, "03:30", "Asia/Kolkata", "python", "spark://host:7077", limits={"billing": 60})
    reports.save_settings(asked, wanted)
    assert reports.settings() == wanted
    assert reports.settings().limit_ms("billing") == 3_600_000
    assert reports.settings().limit_ms("other") == 300_000
    entry = AuditEntry.objects.filter(action="reports.settings").first()
    assert entry.after["at"] == "03:30"
    assert "memory_mib" not in entry.after


# --- the schedule


def at_noon(monkeypatch, days: int) -> None:
    """Let the clock be so many days later, at noon of UTC."""
    now = now_ms() // DAY_MS * DAY_MS + days * DAY_MS + DAY_MS // 2
    for module in (runners, records):
        if hasattr(module, "now_ms"):
            monkeypatch.setattr(module, "now_ms", lambda: now)


def test_the_schedule_makes_yesterdays_reports_once_and_has_them_told(asked, runner, monkeypatch):
    told = []
    runner._tell = told.append
    assert not runner.step(), "it is off"
    reports.save_settings(asked, replace(PLAIN, on=True))
    today = day_of(now_ms(), schedule.ZoneInfo("UTC"))
    at_noon(monkeypatch, 1)
    assert runner.step()
    (found,) = reports.runs()
    assert (found.state, found.who, found.day) == ("done", "schedule", today), found.error
    assert told == [today]
    assert not runner.step()
    assert told == [today]


def test_an_unfinished_day_is_made_again_when_it_is_over(asked, runner, monkeypatch):
    by_hand = done(asked, runner)
    reports.save_settings(asked, replace(PLAIN, on=True))
    at_noon(monkeypatch, 1)
    assert runner.step()
    assert published.made(by_hand.day).run_id != by_hand.id


def test_half_a_day_is_in_no_trend(asked, runner):
    by_hand = done(asked, runner)
    half = published.made(by_hand.day)
    assert not half.whole
    assert published.figures("2999-01-01", 35) == {}
    files.write(records.directory() / "days" / by_hand.day / "made.json", replace(half, whole=True))
    assert list(published.figures("2999-01-01", 35)) == [by_hand.day]


def test_a_day_before_the_first_message(asked, runner):
    found = made(asked, runner, "2020-01-01")
    assert (found.state, found.error) == ("failed", "The log holds no messages of 2020-01-01.")
    assert reports.days() == []


# --- what goes wrong


def test_a_failed_run_leaves_the_reports_that_there_were(asked, runner, running, monkeypatch):
    first = done(asked, runner)
    before = {path.name: path.read_bytes() for path in (records.directory() / "days" / first.day).iterdir()}
    log = Path(running.engine.config.store_dir) / "commitlog"
    real = runners.Child

    def child(run_id, folder):
        (folder / "snapshot.json").write_text("{}")
        return real(run_id, folder)

    monkeypatch.setattr(runners, "Child", child)
    found = made(asked, runner)
    assert log.is_dir()
    assert found.state == "failed"
    assert "error of RocketBox's own" in found.error
    assert "Traceback" in reports.log_tail(found.id)
    after = {path.name: path.read_bytes() for path in (records.directory() / "days" / first.day).iterdir()}
    assert after == before
    monkeypatch.setattr(runners, "Child", real)
    done(asked, runner)


def test_too_little_memory(asked, runner, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 50 << 20)
    found = made(asked, runner)
    assert found.error == "The run was not begun: it needs 300 MiB of free memory, and there are 50."
    monkeypatch.undo()


def test_too_little_disk(asked, runner, monkeypatch):
    monkeypatch.setattr(room, "PYTHON_DISK_MIB", 1 << 40)
    found = made(asked, runner)
    assert found.error.startswith(f"The run was not begun: it needs {1 << 40} MiB of free disk in ")


def test_the_time_is_up(asked, runner, monkeypatch):
    real = files.Plan
    monkeypatch.setattr(runners, "Plan", lambda **values: real(**(values | {"timeout_s": 2})))
    Held(runner, monkeypatch, lambda keeper: None)
    found = made(asked, runner)
    assert (found.state, found.why) == ("failed", "timeout")


def test_log_files_that_go_while_they_are_read_are_told_as_a_gap(asked, runner, running, monkeypatch):
    running.put("Orders", *[os.urandom(1 << 20) for _ in range(20)])
    log = sorted((Path(running.engine.config.store_dir) / "commitlog").iterdir())
    assert len(log) >= 3
    real = runners.Child

    def child(run_id, folder):
        log[1].unlink()
        return real(run_id, folder)

    monkeypatch.setattr(runners, "Child", child)
    found = made(asked, runner)
    assert (found.state, found.gaps) == ("done", 1), reports.log_tail(found.id)
    assert 3 < found.rows < 23
    assert any(note["key"] == "gap" for note in reports.document(found.day, "digest")["notes"])


def test_cancelled_while_it_runs(asked, runner, monkeypatch):
    record = reports.start(asked)
    held = Held(runner, monkeypatch, lambda keeper: reports.cancel(asked, record.id))
    assert runner.step()
    found = reports.run(record.id)
    assert (found.state, found.error) == ("cancelled", "The run was cancelled.")
    assert not members_of(held.keeper)
    assert reports.days() == []
    monkeypatch.undo()
    done(asked, runner)


def test_a_keeper_that_was_killed(asked, runner, monkeypatch):
    record = reports.start(asked)
    held = Held(runner, monkeypatch, lambda keeper: os.kill(keeper, signal.SIGKILL))
    assert runner.step()
    found = reports.run(record.id)
    assert (found.state, found.why) == ("failed", "vanished")
    assert not members_of(held.keeper)
    assert not (records.directory() / "scratch" / record.id).exists()
    monkeypatch.undo()
    done(asked, runner)


def test_the_thread_is_told_to_stop(asked, runner, monkeypatch):
    record = reports.start(asked)
    held = Held(runner, monkeypatch, lambda keeper: runner.request_stop())
    assert runner.step()
    found = reports.run(record.id)
    assert (found.state, found.error) == ("interrupted", "RocketBox was stopped while the run went on.")
    assert not members_of(held.keeper)


def test_a_keeper_that_hangs_is_killed_by_who_waits_for_it(asked, runner, monkeypatch):
    monkeypatch.setattr(runners, "GRACE_S", 0.5)

    def act(keeper: int) -> None:
        os.kill(keeper, signal.SIGSTOP)
        reports.cancel(asked, record.id)

    record = reports.start(asked)
    held = Held(runner, monkeypatch, act)
    assert runner.step()
    assert (reports.run(record.id).state, reports.run(record.id).why) == ("cancelled", "cancelled")
    assert not members_of(held.keeper)


def test_a_keeper_that_hangs_beyond_its_time(asked, runner, monkeypatch):
    monkeypatch.setattr(runners, "GRACE_S", -58.0)  # a minute is the shortest time that there is
    reports.save_settings(asked, replace(PLAIN, timeout_min=1))
    held = Held(runner, monkeypatch, lambda keeper: os.kill(keeper, signal.SIGSTOP))
    found = made(asked, runner)
    assert (found.state, found.error) == ("failed", "The run was not done after 1 minutes, and was ended.")
    assert not members_of(held.keeper)


@pytest.mark.parametrize("state", ["done", "failed"])
def test_a_disk_that_refuses_the_word_of_its_end(asked, runner, monkeypatch, state):
    if state == "failed":
        monkeypatch.setattr(room, "PYTHON_DISK_MIB", 1 << 40)
    real = records.save

    def save(record):
        if record.ended:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(record)

    monkeypatch.setattr(records, "save", save)
    record = reports.start(asked)
    with pytest.raises(OSError, match="No space"):
        runner.step()
    assert reports.run(record.id).state == "running"
    monkeypatch.setattr(records, "save", real)
    assert not runner.step()
    found = reports.run(record.id)
    assert (found.state, found.why) == (state, "low_disk" if state == "failed" else "")
    reports.start(asked)


def test_a_disk_that_refuses_the_begin_leaves_no_directory(asked, runner, monkeypatch):
    def save(record):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "save", save)
    reports.save_settings(asked, replace(PLAIN, on=True))
    at_noon(monkeypatch, 1)
    with pytest.raises(OSError, match="No space"):
        runner.step()
    with pytest.raises(Unavailable):
        reports.start(asked)
    assert list((records.directory() / "runs").iterdir()) == []


def test_a_day_older_than_those_that_are_kept_stays_until_the_next_night(asked, runner, monkeypatch):
    reports.save_settings(asked, replace(PLAIN, keep_days=1))
    old = done(asked, runner)
    at_noon(monkeypatch, 3)
    later = day_of(runners.now_ms() - DAY_MS, schedule.ZoneInfo("UTC"))
    (records.directory() / "days" / later).mkdir()
    keeping.write(records.directory() / "facts", later, {table.name: [] for table in TABLES})
    again = done(asked, runner, old.day)
    assert again.rows == 3
    assert reports.days() == [later, old.day]
    assert published.made(old.day).run_id == again.id


def test_few_kept_days_are_not_made_up_for_again_and_again(asked, runner, monkeypatch):
    reports.save_settings(asked, replace(PLAIN, keep_days=1, on=True))
    at_noon(monkeypatch, 4)
    assert runner.step()
    assert not runner.step()
    assert len(reports.runs()) == len(reports.days()) == 1


def test_runs_of_a_wrong_clock_hide_nothing_and_push_nobody_out(asked, runner):
    found = done(asked, runner)
    for n in range(3):
        records.begin(
            replace(found, id=f"20360101-00000{n}-0000abcd", state="failed", started_ms=2_082_758_400_000 + n)
        )
    assert reports.runs()[0] == found
    records.prune(2)
    assert [one.id for one in reports.runs()] == [found.id, "20360101-000002-0000abcd"]


def test_what_a_killed_appliance_left_is_interrupted_and_swept(asked, runner):
    found = done(asked, runner)
    record = records.save(replace(found, state="running", ended_ms=None))
    scratch = records.directory() / "scratch" / record.id
    scratch.mkdir(parents=True)
    runner.sweep()
    swept = reports.run(record.id)
    assert (swept.state, swept.error) == ("interrupted", "RocketBox ended while the run went on.")
    assert not scratch.exists()


def test_a_kill_between_the_two_renames_of_a_day(asked, runner):
    found = done(asked, runner)
    days = records.directory() / "days"
    (days / found.day).rename(days / f".{found.day}.old")
    (days / f".{found.day}.{found.id}").mkdir()
    published.tidy(10, "9999-12-31", future_too=False)
    assert reports.days() == [found.day]
    assert [path.name for path in days.iterdir()] == [found.day]


def test_a_disk_that_is_full_when_reports_are_published_keeps_the_old_ones_alone(asked, runner, monkeypatch):
    found = done(asked, runner)
    days = records.directory() / "days"
    before = {path.name: path.read_bytes() for path in (days / found.day).iterdir()}

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(published, "replace_file", full)
    again = made(asked, runner)
    assert (again.state, again.why) == ("failed", "no_space")
    assert [path.name for path in days.iterdir()] == [found.day], "what was begun takes no room"
    assert {path.name: path.read_bytes() for path in (days / found.day).iterdir()} == before


def test_old_days_go_and_those_of_a_wrong_clock(asked, runner):
    for n in range(1, 6):
        (records.directory() / "days" / f"2026-01-0{n}").mkdir(parents=True)
    (records.directory() / "days" / "2031-01-01").mkdir()
    published.tidy(3, "1970-01-03", future_too=False)
    assert len(reports.days()) == 6, "a machine that starts without knowing the time"
    published.tidy(3, "2026-01-06", future_too=True)
    assert reports.days() == ["2026-01-05", "2026-01-04", "2026-01-03"]
    published.tidy(1, "2026-01-06", "2026-01-03", future_too=False)
    assert reports.days() == ["2026-01-05", "2026-01-03"]


class Held:
    """Stops a run's worker (SIGSTOP) as soon as it exists, and then calls `act`."""

    def __init__(self, runner, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
        self.keeper = 0
        self._act = act
        self._held = False
        self._real_wait = runner.wait
        real = runners.Child

        def child(run_id, folder):
            made = real(run_id, folder)
            self.keeper = made.pid
            return made

        monkeypatch.setattr(runners, "Child", child)
        monkeypatch.setattr(runner, "wait", self._wait)

    def _wait(self, seconds: float | None) -> bool:
        if not self._held and self.keeper:
            worker = worker_of(self.keeper)
            if worker is None:
                return self._real_wait(0.01)
            os.kill(worker, signal.SIGSTOP)
            self._held = True
            self._act(self.keeper)
        return self._real_wait(0.05)
