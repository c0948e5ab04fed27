"""Backups: the list, making one now, the schedule, checking and downloading one."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...engine.errors import Conflict
from .. import jobs
from ..audit.log import audit
from ..jobs.views import stream
from ..pages.changes import form_status
from ..pages.engine_pages import refusal_text
from ..sign_in.forms import Form
from . import settings as backups_


class ScheduleForm(Form):
    """The schedule: how often a backup is made, and how many are kept."""

    every_hours = forms.IntegerField(
        label=gettext_lazy("Every (hours)"),
        min_value=0,
        max_value=backups_.MOST_HOURS,
        help_text=gettext_lazy("0: only by hand."),
    )
    keep = forms.IntegerField(
        label=gettext_lazy("Keep"),
        min_value=1,
        max_value=backups_.MOST_KEPT,
        help_text=gettext_lazy("After each backup the oldest are deleted, down to this number."),
    )


def backups(request: HttpRequest) -> HttpResponse:
    """Show the list and the schedule; change the schedule."""
    schedule = backups_.schedule()
    before = {"every_hours": schedule.every_hours, "keep": schedule.keep}
    form = ScheduleForm(request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        backups_.save_schedule(backups_.Schedule(**form.cleaned_data))
        audit(request, "backup.schedule", "", before, form.cleaned_data)
        messages.success(request, _("Saved."))
        return redirect("backups")
    found = backups_.listing()
    context = {
        "backups": found,
        "newest": next(iter(found), None),
        "schedule": schedule,
        "next_at_ms": backups_.next_at_ms(schedule),
        "directory": backups_.directory(),
        "form": form,
        "running": [job for job in jobs.seen(request.user, backups_.KIND) if not job.ended][:1],
        "failed": next((job for job in jobs.seen(request.user, backups_.KIND)[:1] if job.state == "failed"), None),
        "tab": "backups",
    }
    return render(request, "system/backups.html", context, status=form_status(form))


def backup_create(request: HttpRequest) -> HttpResponse:
    """Make a backup now, as a job."""
    try:
        job = jobs.start(request, backups_.KIND, {})
    except Conflict as error:
        messages.warning(request, refusal_text(error))
        return redirect("backups")
    return redirect("job", job.id)


def backup_check(request: HttpRequest, name: str) -> HttpResponse:
    """Compare a backup with its manifest, as a job."""
    backups_.path_of(name)
    return redirect("job", jobs.start(request, backups_.CHECK_KIND, {"backup": name}, target=name).id)


def backup_download(request: HttpRequest, name: str) -> HttpResponseBase:
    """Download a backup, to keep it elsewhere."""
    path = backups_.path_of(name)
    return stream(request, path, name, path.stat().st_size, "backup.download")
