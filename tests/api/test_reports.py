"""Reports over the API: days, documents, plots, tables, runs, settings; and the same on the command line."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator

import pytest

from appliance import runtime
from appliance.console import reports
from appliance.console.reports import acts
from appliance.console.reports.runner import ReportRunner
from appliance.console.reports.views import day_of
from spark_reports.reports.document import REPORTS
from tests.support import report_days
from tests.support.report_days import DAY, FAILED_RUN, RUN

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _runner() -> Iterator[None]:
    """A report runner that is not started, so that runs stay waiting."""
    acts.use(ReportRunner())
    yield
    acts.use(None)


@pytest.fixture
def laid():
    """A day's reports, the run that made them, and a failed run."""
    data_dir = runtime.place().directory.parent
    directory = report_days.put(data_dir)
    report_days.put_runs(data_dir)
    return directory


def test_without_reports_there_are_no_days(viewer):
    found = answer_of(viewer.get("/reports"))
    assert (found["days"], found["next_at_ms"]) == ([], None)
    assert sorted(found["reports"]) == sorted(REPORTS)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_what_the_run_wrote(viewer, laid, report):
    found = answer_of(viewer.get(f"/reports/days/{DAY}/{report}"))
    kept = json.loads((laid / f"{report}.json").read_text())
    for part in ("report", "day", "zone", "figures", "notes"):
        assert found[part] == kept[part]
    assert found["t0_at_ms"] == kept["t0_ms"]
    assert found["tables"][0]["rows"] == kept["tables"][0]["rows"]
    assert found["tiles"][0]["trend"] == [1, 2, None, 4, 5, 6, 7]
    assert answer_of(viewer.get("/reports"))["days"] == [DAY]


def test_a_day_may_be_today_or_yesterday(viewer, laid):
    problem_of(viewer.get("/reports/days/today/digest"), 404, "not_found")
    day = day_of("today")
    today = laid.with_name(day)
    shutil.copytree(laid, today)
    (today / "digest.json").write_text((laid / "digest.json").read_text().replace(f'"{DAY}"', f'"{day}"'))
    try:
        assert answer_of(viewer.get("/reports/days/today/digest"))["day"] == day
        assert viewer.get("/reports/days/today/digest/tables/groups").status_code == 200
        problem_of(viewer.get("/reports/days/yesterday/digest"), 404, "not_found")
    finally:
        shutil.rmtree(today)


def test_a_plot_is_a_drawing_and_nothing_else(viewer, laid):
    answer = viewer.get(f"/reports/days/{DAY}/digest/plots/behind")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.content.startswith(b"<svg ")
    path = laid / "digest.json"
    path.write_text(path.read_text().replace('"table": "groups"', '"table": "no-such"'))
    problem_of(viewer.get(f"/reports/days/{DAY}/digest/plots/behind"), 503, "unavailable")
    problem_of(viewer.get(f"/reports/days/{DAY}/digest/plots/no-such"), 404, "not_found")


def test_a_table_is_a_csv(viewer, laid):
    answer = viewer.get(f"/reports/days/{DAY}/digest/tables/groups")
    assert answer.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(answer.content.decode())))
    assert rows[1] == ["shipping", "2460000", "2026-03-20T09:20:00.000Z", "4812007"]


@pytest.mark.parametrize(
    "path",
    [f"{DAY}/no-such", "2026-03-21/digest", "..%2f..%2f/digest", f"{DAY}/digest/tables/no-such", f"{DAY}/..%2fx"],
)
def test_what_is_not_there_is_not_found(viewer, laid, path):
    assert viewer.get(f"/reports/days/{path}").status_code == 404


def test_a_damaged_report_is_said_to_be_one(viewer, laid):
    (laid / "digest.json").write_text('{"report": "digest", "tiles": [{"key": 1}]}')
    problem_of(viewer.get(f"/reports/days/{DAY}/digest"), 503, "unavailable")
    (laid / "digest.json").write_text('{"repo')
    problem_of(viewer.get(f"/reports/days/{DAY}/digest"), 503, "unavailable")


def test_runs_are_listed_and_told(viewer, laid):
    found = answer_of(viewer.get("/reports/runs?limit=1"))
    assert [one["id"] for one in found["items"]] == [FAILED_RUN]
    second = answer_of(viewer.get(f"/reports/runs?limit=1&cursor={found['next_cursor']}"))
    assert [one["id"] for one in second["items"]] == [RUN]
    run = answer_of(viewer.get(f"/reports/runs/{RUN}"))
    assert (run["state"], run["rows"], run["gaps"], run["peak_mib"]) == ("done", 41_200_000, 1, 1420)
    assert run["steps"][1] == {"step": "counting", "ms": 120_000}
    assert run["progress"] is None
    assert "time is over" in answer_of(viewer.get(f"/reports/runs/{FAILED_RUN}/log"))["text"]
    problem_of(viewer.get("/reports/runs/no-such"), 404, "not_found")


def test_a_run_is_started_once_for_each_key_and_cancelled(operator):
    answer = operator.post("/reports/runs", {"day": "today"}, idempotency_key="k1")
    made = answer_of(answer, 202)
    assert answer.headers["Location"] == f"/api/v1/reports/runs/{made['id']}"
    again = operator.post("/reports/runs", {"day": "today"}, idempotency_key="k1")
    assert answer_of(again, 202) == made
    problem_of(operator.post("/reports/runs", {"day": "today"}), 409, "conflict")
    assert len(reports.runs()) == 1
    cancelled = answer_of(operator.ask("POST", f"/reports/runs/{made['id']}/cancel"))
    assert cancelled["state"] == "cancelled"
    problem_of(operator.ask("POST", f"/reports/runs/{made['id']}/cancel"), 409, "conflict")


@pytest.mark.parametrize("day", ["2999-01-01", "0001-01-01", "2026-02-30", "tomorrow", "", 7, None])
def test_a_day_that_cannot_be_is_refused(operator, day):
    problem_of(operator.post("/reports/runs", {"day": day}), 422, "invalid_input")
    assert not reports.runs()


def test_settings_are_changed_one_by_one(admin, viewer):
    before = answer_of(viewer.get("/reports/settings"))
    found = answer_of(admin.patch("/reports/settings", {"on": True, "limits": {"a=b": 7}, "at": "03:15"}))
    assert found == before | {"on": True, "limits": {"a=b": 7}, "at": "03:15"}
    assert answer_of(admin.patch("/reports/settings", {})) == found
    assert answer_of(viewer.get("/reports/settings")) == found
    limits = {f"{number:0255}": 5 for number in range(1000)}
    assert answer_of(admin.patch("/reports/settings", {"limits": limits}))["limits"] == limits


@pytest.mark.parametrize(
    ("field", "value"),
    [("zone", "Mars/Olympus"), ("at", "24:00"), ("keep_days", 0), ("master", "mesos://x"), ("memory_mib", 600),
     ("digest_channels", ["nobody"]), ("limits", {"x": 0}), ("engine", "duckdb"), ("on", None), ("no-such", 1)],
)  # fmt: skip
def test_a_wrong_setting_names_its_field(admin, field, value):
    problem = problem_of(admin.patch("/reports/settings", {field: value}), 422, "invalid_input")
    assert any(field in one["field"] for one in problem["errors"])
    assert reports.settings() == reports.ReportSettings()


def test_callers_with_a_pattern_get_nothing(by_token, laid):
    caller = by_token("admin", pattern="orders-*")
    for path in ("/reports", f"/reports/days/{DAY}/digest", f"/reports/days/{DAY}/digest/tables/groups",
                 f"/reports/days/{DAY}/digest/plots/behind", "/reports/runs", f"/reports/runs/{RUN}",
                 f"/reports/runs/{RUN}/log", "/reports/settings"):  # fmt: skip
        problem_of(caller.get(path), 403, "outside_pattern")
    problem_of(caller.post("/reports/runs", {"day": "today"}), 403, "outside_pattern")
    problem_of(caller.patch("/reports/settings", {"on": True}), 403, "outside_pattern")
    assert not any("reports" in one["kind"] for one in answer_of(caller.get("/needs")))


def test_that_the_last_run_failed_is_a_need(viewer, laid):
    (found,) = [one for one in answer_of(viewer.get("/needs")) if one["kind"] == "reports"]
    assert found["sentence"]["text"].startswith("The reports of 2026-03-21 failed: The run was not done after 60")
    assert found["key"] == "reports:reports:nightly"
