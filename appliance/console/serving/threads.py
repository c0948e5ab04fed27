"""The console's own threads, beside those of requests."""

from __future__ import annotations

from pathlib import Path

from ...engine.service_thread import ServiceThread
from ..alerts.figures import FIGURES, NEEDS
from ..alerts.teller import teller
from ..alerts.watch import AlertSender, AlertWatch
from ..audit.wire_entries import Follower
from ..backups.clock import BackupClock
from ..history import series
from ..history.recorder import Recorder
from ..jobs.runner import AT_ONCE, JobRunner
from ..pages.look_ahead import LookAhead
from ..reports import thread as reports
from ..reports.thread import ReportThread


def threads(directory: Path) -> list[ServiceThread]:
    """Return the console's threads, not started. directory: that of the console's files."""
    recorder = Recorder(directory)
    series.use(recorder)
    sender = AlertSender()
    report_thread = ReportThread()
    reports.use(report_thread)
    watched = {figure.metric for figure in FIGURES.values() if figure.code != NEEDS}
    return [
        Follower(),
        LookAhead(),
        BackupClock(),
        recorder,
        AlertWatch(lambda: recorder.newest(watched), teller, sender.wakeup),
        sender,
        report_thread,
        *(JobRunner(number) for number in range(1, AT_ONCE + 1)),
    ]
