"""The part of the window about replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .report_window import ReportWindow

if TYPE_CHECKING:
    from .replication_snapshots import Replication


class ReplicationWindow(ReportWindow):
    """Any thread."""

    def replication(self) -> Replication:
        """Who follows this broker, or whom it follows, as it is now."""
        return self._running().replication.snapshot()

    @property
    def is_slave(self) -> bool:
        """Whether what is here comes from a master, and can only be changed there. Costs nothing."""
        return self._parts is not None and self._parts.is_slave

    def master_address(self) -> str | None:
        """Where clients reach the master of this slave, or the leader of its set; None on a master, and while nobody
        has told."""
        if self._set is not None:
            view = self._set.view()
            return None if view.leader in ("", view.uuid) else view.leader_addr
        return self._parts.replication.master_address() if self._parts is not None else None
