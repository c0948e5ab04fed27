"""The part of the window for runs of the reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backup_window import BackupWindow

if TYPE_CHECKING:
    from .process.report_inputs import ReportInputs


class ReportWindow(BackupWindow):
    """Any thread; works in the caller's, with rests."""

    def report_inputs(self) -> ReportInputs:
        """Return the data of the reports at one moment. Takes some seconds at thousands of topics and groups, most of
        it rests."""
        return self._running().report_inputs.take()

    def earliest_ms(self) -> int | None:
        """Return the store time of the log's first message, ms since 1970; None without one."""
        return self._running().report_inputs.earliest_ms()
