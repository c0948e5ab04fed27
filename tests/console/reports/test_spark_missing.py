"""Messages where Spark cannot run; plain Python does the work where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.console import reports
from appliance.console.reports import missing
from appliance.console.reports.report_settings import ReportSettings
from spark_reports import machine

#: Answers as Java does when it is asked for its version, and dies when it is to do something.
JAVA = """#!/bin/sh
case "$*" in
*-XshowSettings*) echo "    java.home = {home}"; echo "    java.version = {version}" >&2; exit 0;;
esac
echo "this Java does nothing" >&2
exit 1
"""


@pytest.fixture
def only_java(tmp_path: Path, monkeypatch):
    """`only_java("17.0.1")`: the one Java that there is, first on the PATH."""

    def make(version: str) -> None:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(JAVA.format(home=home, version=version))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
        monkeypatch.delenv("JAVA_HOME", raising=False)

    monkeypatch.setattr(machine, "PLACES", tmp_path / "nothing")
    machine.answers.forget()
    yield make
    machine.answers.forget()


@pytest.fixture
def make(running, runner, request_of, monkeypatch):
    """`make("spark")`: a run by this engine, to its end. The day is large enough for Spark."""
    running.put("Orders", b"a")
    monkeypatch.setattr(missing, "LARGE_BYTES", 1)

    def run(engine: str):
        asked = request_of("admin")
        reports.save_settings(asked, ReportSettings(engine=engine, driver_mib=512))
        record = reports.start(asked)
        assert runner.step()
        return reports.run(record.id)

    return run


def test_an_old_java(make, only_java):
    only_java("11.0.2")
    found = make("spark")
    assert found.state == "failed"
    assert found.error.startswith("Spark cannot be used here: Java 11.0.2 in ")
    assert "install Java 17" in found.error or "script/server --reports" in found.error


def test_without_java_auto_takes_plain_python(make, only_java, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = make("auto")
    assert (found.state, found.engine, found.inputs["why"]) == ("done", "python", "not_installed")
    assert found.inputs["day_bytes"] > 0
    failed = make("spark")
    assert failed.error.startswith("Spark cannot be used here: There is no Java on this machine")
    assert (failed.engine, failed.inputs["why"]) == ("spark", "as_set"), "its page says why it was Spark"


def test_a_java_that_does_not_run(make, only_java):
    only_java("17.0.1")
    found = make("spark")
    assert (found.state, found.error) == ("failed", "Spark did not start; the log says why.")
    assert "this Java does nothing" in reports.log_tail(found.id)


def test_a_pandas_that_does_not_fit(make, monkeypatch):
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: "3.0.1" if name == "pandas" else real(name))
    found = make("spark")
    assert found.error.startswith("Spark cannot be used here: pandas 3.0.1 does not fit")
    assert make("auto").engine == "python"


def test_auto_takes_plain_python_where_memory_is_too_little_for_spark(make, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 700 << 20)
    found = make("auto")
    assert (found.state, found.engine, found.inputs["why"]) == ("done", "python", "no_room")
    assert make("spark").error.startswith("The run was not begun: it needs 1212 MiB of free memory")


@pytest.mark.parametrize(
    ("engine", "day_bytes", "choice"),
    [
        ("auto", missing.LARGE_BYTES - 1, ("python", "small")),
        ("auto", missing.LARGE_BYTES, ("spark", "large")),
        ("python", missing.LARGE_BYTES, ("python", "as_set")),
        ("spark", 1, ("spark", "as_set")),
    ],
)
def test_the_size_of_the_day_chooses(engine, day_bytes, choice, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "what_is_missing", lambda *_: ())
    monkeypatch.setattr(machine, "free_memory", lambda: 64 << 30)
    assert missing.engine_for(ReportSettings(engine=engine), tmp_path, day_bytes)[:2] == choice


def test_what_is_installed_while_the_server_runs_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert machine.installed("rocketbox-sample") is None
    place = tmp_path / "rocketbox_sample-1.2.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: rocketbox-sample\nVersion: 1.2\n")
    assert machine.installed("rocketbox-sample") == "1.2"
