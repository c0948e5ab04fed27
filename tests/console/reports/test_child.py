"""The part of the broker's environment that a run's processes get."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import spark_reports
from appliance.console.reports.child import PASSED_ON, environment
from spark_reports.run.keeper import environment_of
from spark_reports.run.plan import MARK, Plan, scratch_as_spark_has_it
from spark_reports.run.session import settings_of


def test_only_what_is_named_is_passed_on():
    given = {"ADMIN_PASSWORD": "s3cret", "AWS_SECRET_ACCESS_KEY": "s3cret", "PYTHONSTARTUP": "/evil.py",
             "LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil", "JAVA_TOOL_OPTIONS": "-javaagent:evil", "PATH": "/bin",
             "JAVA_HOME": "/java", "LANG": "C"}  # fmt: skip
    found = environment("20260101-000000-0000abcd", given)
    assert "s3cret" not in str(found)
    assert "evil" not in str(found)
    assert {"PATH": "/bin", "JAVA_HOME": "/java", "LANG": "C"}.items() <= found.items()
    assert found[MARK] == "20260101-000000-0000abcd"
    assert Path(found["PYTHONPATH"]) == Path(spark_reports.__file__).parents[1]
    assert not any("PASSWORD" in name or "TOKEN" in name or "SECRET" in name for name in PASSED_ON)


def test_files_of_its_own_lie_in_the_scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    plan = Plan("20260101-000000-0000abcd", "spark", "local[2]", 512, "", str(tmp_path))
    found = environment_of(plan)
    for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS"):
        assert Path(found[name]).is_relative_to(tmp_path)
    assert found["PYSPARK_PYTHON"] == found["PYSPARK_DRIVER_PYTHON"] != "/elsewhere/python"


def plan_of(scratch: Path, master: str = "local[2]") -> Plan:
    return Plan("20260101-000000-0000abcd", "spark", master, 512, "", str(scratch))


def test_a_directory_with_a_name_that_spark_would_take_for_something_else(tmp_path):
    scratch = tmp_path / "a b,{c} ä"
    found = environment_of(plan_of(scratch))
    told = [found[name] for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS")] + list(
        settings_of(plan_of(scratch)).values()
    )
    assert not any("{c}" in one for one in told)
    assert scratch_as_spark_has_it(plan_of(scratch, "spark://other:7077")) == scratch, "executors work elsewhere"
    assert found["LC_ALL"] == "C.UTF-8", "Java reads names of files by it"


def test_nobody_else_on_the_machine_is_listened_to(tmp_path):
    found = settings_of(plan_of(tmp_path))
    assert found["spark.authenticate"] == "true"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"


def test_a_disk_that_runs_no_programs_gets_no_libraries(tmp_path, monkeypatch):
    assert "spark.io.compression.codec" not in settings_of(plan_of(tmp_path))
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(os, "statvfs", lambda place: flags)
    assert settings_of(plan_of(tmp_path))["spark.sql.parquet.compression.codec"] == "lz4_raw"
