"""The same run by Spark: the same bytes, and nothing left behind."""

from __future__ import annotations

import threading

import pytest

from appliance.console import reports
from appliance.console.reports import records
from appliance.console.reports.report_settings import ReportSettings
from spark_reports.run import plan as files
from spark_reports.run.plan import Progress
from tests.console.conftest import pretend_running
from tests.spark_reports.run.again import make_again, reports_of
from tests.support.engine import RunningEngine
from tests.support.priority import hurry_run
from tests.support.spark import quick


class Seen:
    """Collects the progress of a run that a page would show while the block runs."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.progress: list[Progress] = []

    def _look(self) -> None:
        while not self._over.wait(0.2):
            hurry_run(records.folder(self._run_id))
            found = reports.progress(self._run_id)
            if found is not None and found not in self.progress:
                self.progress.append(found)

    def __enter__(self) -> Seen:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def running(tmp_path, db):
    """In a directory with a name that means something else to Spark's options, its paths and its shell script."""
    found = RunningEngine(tmp_path / "our data, [ä] {x} #1 %20'")
    pretend_running(found.engine)
    yield found
    found.stop()


SPARK = ReportSettings(engine="spark", driver_mib=768)


@pytest.mark.nightly
def test_spark_and_plain_python_make_the_same_bytes(running, runner, request_of, tmp_path, monkeypatch):
    for name, value in quick(tmp_path).items():
        monkeypatch.setenv(name, value)
    for n in range(50):
        running.put("Orders", b"x" * (n + 1), queue=n % 4)
        running.put("Bills", b"y" * 100)
    asked = request_of("admin")
    reports.save_settings(asked, SPARK)
    record = reports.start(asked)
    with Seen(record.id) as seen:
        assert runner.step()
    found = reports.run(record.id)
    folder = records.folder(record.id)
    assert (found.state, found.error, found.engine) == ("done", "", "spark"), reports.log_tail(found.id)
    assert found.rows == 100
    assert found.versions.keys() >= {"rocketbox", "python", "spark", "java"}
    counting = [one for one in seen.progress if one.step == "counting"]
    assert any(0 < one.done <= one.total for one in counting), "tasks as Spark's own status tells of them"
    assert not (records.directory() / "scratch" / record.id).exists()
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {files.DELIVERIES, files.REPORTS}

    (tmp_path / "plain").mkdir()
    outcome, again = make_again(folder, tmp_path / "plain", engine="python")
    assert outcome.ok, outcome.error
    assert reports_of(again) == reports_of(folder)
