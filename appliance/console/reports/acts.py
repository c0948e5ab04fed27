"""Starting and cancelling runs, for pages and the API alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils.translation import gettext as _

from spark_reports.facts.hours import day_of

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, Unavailable
from ..audit.log import audit
from ..models import now_ms
from ..pages import time_zones
from . import records, thread
from .records import RunRecord
from .report_settings import settings
from .runner import SCHEDULE, ReportRunner, new_record

_runner: ReportRunner | None = None


def use(runner: ReportRunner | None) -> None:
    """Set what makes reports in this process, instead of the thread's own. Called by tests."""
    global _runner
    _runner = runner


def _running() -> ReportRunner:
    runner = _runner or thread.runner()
    if runner is None:
        raise Unavailable(_("Nothing makes reports in this process."))
    return runner


def start(request: HttpRequest, day: str | None = None) -> RunRecord:
    """Start a run that makes the reports of a day, by default of today so far. The thread begins it at once. Raises
    InvalidInput (day), Conflict while another run has not ended, and Unavailable."""
    runtime.window().report_inputs.earliest_ms()  # raises if there is no broker
    runner = _running()
    zone = time_zones.zone(settings().zone) or ZoneInfo("UTC")
    today = day_of(now_ms(), zone)
    wanted = today if day is None else _checked(day, today)
    with runner.lock:
        under_way = next((one for one in records.runs() if not one.ended), None)
        if under_way is not None:
            if under_way.who == SCHEDULE:
                raise Conflict(_("The reports of %(day)s are being made.") % {"day": under_way.day})
            raise Conflict(_("Reports are being made already: %(who)s started that.") % {"who": under_way.who})
        record = new_record(wanted, request.user.label, getattr(request.user, "kind", "user"))
        try:
            records.begin(record)
        except OSError as error:
            why = error.strerror or str(error)
            raise Unavailable(_("The disk refused the run's directory: %(why)s.") % {"why": why}) from error
    audit(request, "reports.run", record.id, None, {"day": record.day})
    runner.wakeup()
    return record


def _checked(day: str, today: str) -> str:
    try:
        known = date.fromisoformat(day).isoformat() == day
    except ValueError:
        known = False
    if not known:
        raise InvalidInput("day", _("A day as YYYY-MM-DD."))
    if day > today:
        raise InvalidInput("day", _("This day is still to come."))
    if day < "1971":  # before any message; and dates near the year 1 break the calendar's arithmetic
        raise InvalidInput("day", _("The log holds no messages of %(day)s.") % {"day": day})
    return day


def cancel(request: HttpRequest, run_id: str) -> RunRecord:
    """End a run without new reports; existing reports stay. Raises NotFound, Unavailable, and Conflict if the run has
    ended."""
    record = records.run(run_id)
    runner = _running()
    with runner.lock:
        record = records.run(run_id)
        if record.ended:
            raise Conflict(_("This run has ended already."))
        record = replace(record, cancel_asked=True)
        if record.state == "waiting":
            record = replace(record, state="cancelled", ended_ms=now_ms())
        records.save(record)
    audit(request, "reports.cancel", record.id, None, {"day": record.day})
    runner.wakeup()
    return record
