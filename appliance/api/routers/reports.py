"""Reports: the days, each report as data, plot and CSV, runs, and settings."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Router

from spark_reports.run.choice import WHYS

from ...console import reports
from ...console.reports import words
from ...console.reports.setting_views import SettingsForm, initial_of
from ...console.reports.views import day_of, next_at_ms, table_csv
from ...engine.errors import NotFound, Unavailable
from ...engine.window.snapshots import fields_of
from ..errors import Refused
from ..idempotency import once
from ..job_answers import IdempotencyKey
from ..paging import Cursor, Limit, page_number, rows_page
from ..report_schemas import (
    ReportDaysOut,
    ReportLogOut,
    ReportOut,
    ReportRunIn,
    ReportRunOut,
    ReportRunPage,
    ReportSettingsIn,
    ReportSettingsOut,
)
from ..schemas import MEDIA_TYPE

router = Router(tags=["reports"])

Day = Annotated[
    str, Path(..., max_length=10, description="YYYY-MM-DD, of GET /reports; or today or yesterday, in their zone.")
]
Report = Annotated[str, Path(..., max_length=64, description="One of GET /reports, as digest.")]
Key = Annotated[str, Path(..., max_length=64, description="Its key in the report.")]
Run = Annotated[str, Path(..., max_length=64)]


@router.get("/reports", response=ReportDaysOut)
def list_reports(request: HttpRequest) -> Any:
    """The days that have reports, newest first."""
    return {
        "days": reports.days(),
        "reports": list(words.REPORTS),
        "next_at_ms": next_at_ms(reports.settings()),
        "missing": [str(one) for one in reports.what_is_missing()],
    }


@router.get("/reports/days/{day}/{report}", response=ReportOut)
def report(request: HttpRequest, day: Day, report: Report) -> Any:
    """One report as data."""
    try:
        return ReportOut.model_validate(_document(day, report))
    except ValueError as error:
        raise Unavailable(f"The file of this report is damaged: {str(error).splitlines()[0]}.") from None


@router.get(
    "/reports/days/{day}/{report}/plots/{plot}", response={200: bytes}, openapi_extra={MEDIA_TYPE: "image/svg+xml"}
)
def report_plot(request: HttpRequest, day: Day, report: Report, plot: Key) -> HttpResponse:
    """One plot of a report, as SVG; its colours are classes, for a style sheet of your own."""
    from ...console.reports import plots

    document = _document(day, report)
    found = next((one for one in document["plots"] if one["key"] == plot), None)
    if found is None:
        raise NotFound("plot", plot)
    data = plots.draw(document, found)
    if data is None:
        raise Unavailable("The numbers of this plot are missing or damaged.")
    response = HttpResponse(data, content_type="image/svg+xml")
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@router.get(
    "/reports/days/{day}/{report}/tables/{table}", response={200: bytes}, openapi_extra={MEDIA_TYPE: "text/csv"}
)
def report_table(request: HttpRequest, day: Day, report: Report, table: Key) -> HttpResponse:
    """One table of a report, as CSV."""
    return table_csv(_document(day, report), table)


@router.get("/reports/runs", response=ReportRunPage)
def list_report_runs(request: HttpRequest, cursor: Cursor, limit: Limit) -> Any:
    """Runs that are kept, newest first."""
    question = ("report-runs", limit)
    found = rows_page(reports.runs(), page_number(cursor, question), limit, question)
    return {**found, "items": [_run_out(one) for one in found["items"]]}


@router.post("/reports/runs", response={202: ReportRunOut})
def start_report_run(request: HttpRequest, body: ReportRunIn, idempotency_key: IdempotencyKey) -> HttpResponse:
    """Make the reports of a day now. 202 with the run's place; 409 while another one runs."""
    day = day_of(body.day)
    act = lambda: ReportRunOut.model_validate(_run_out(reports.start(request, day)))  # noqa: E731
    return once(request, idempotency_key, 202, act, place=lambda made: f"/api/v1/reports/runs/{made.id}")


@router.get("/reports/runs/{run}", response=ReportRunOut)
def report_run(request: HttpRequest, run: Run) -> Any:
    """One run as it is now."""
    return _run_out(reports.run(run))


@router.get("/reports/runs/{run}/log", response=ReportLogOut)
def report_run_log(request: HttpRequest, run: Run) -> Any:
    """The end of a run's output."""
    return {"text": reports.log_tail(reports.run(run).id)}


@router.post("/reports/runs/{run}/cancel", response=ReportRunOut)
def cancel_report_run(request: HttpRequest, run: Run) -> Any:
    """End a run now; earlier reports of the day stay. 409 when it has ended already."""
    reports.cancel(request, run)
    return _run_out(reports.run(run))


@router.get("/reports/settings", response=ReportSettingsOut)
def report_settings(request: HttpRequest) -> Any:
    """Settings of the reports."""
    return reports.settings()


@router.patch("/reports/settings", response=ReportSettingsOut)
def change_report_settings(request: HttpRequest, body: ReportSettingsIn) -> Any:
    """Change settings of the reports; the answer has the settings in force."""
    values = initial_of(reports.settings()) | body.model_dump(exclude_unset=True)
    if isinstance(values["limits"], dict):
        values["limits"] = "\n".join(f"{group} = {minutes}" for group, minutes in values["limits"].items())
    form = SettingsForm(values)
    if not form.is_valid():
        errors = [{"field": name, "message": str(text)} for name, texts in form.errors.items() for text in texts]
        raise Refused("invalid_input", "; ".join(f"{one['field']}: {one['message']}" for one in errors), errors=errors)
    return reports.save_settings(request, form.wanted())


def _document(day: str, report: str) -> dict[str, Any]:
    day = day_of(day)
    found = reports.document(day, report)
    if found is None:
        raise NotFound("report", f"{report} {day}")
    return found


def _run_out(run: reports.RunRecord) -> dict[str, Any]:
    return fields_of(run) | {
        "engine_why": WHYS.get(str(run.inputs.get("why", "")), ""),
        "started_at_ms": run.started_ms,
        "ended_at_ms": run.ended_ms,
        "steps": [{"step": step, "ms": ms} for step, ms in run.steps],
        "progress": reports.progress(run.id) if run.ended_ms is None else None,
    }
