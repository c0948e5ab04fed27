"""The part of the window about replication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import Unavailable
from .replica_set import seen
from .report_window import ReportWindow
from .sentences import say

if TYPE_CHECKING:
    from .quarantine import QuarantinePage, SentAgain
    from .replication_snapshots import Replication

logger = logging.getLogger(__name__)


class ReplicationWindow(ReportWindow):
    """Any thread."""

    def replication(self) -> Replication:
        """Who follows this broker, or whom it follows, as it is now."""
        return self._running().replication.snapshot()

    def quarantined(self, name: str, *, offset: int | None = None, limit: int = 50) -> QuarantinePage:
        """Messages that were cut from this broker's log and are kept in a file, of which `replica_set().quarantine` has
        the names. No bodies.

        offset: of the log, where the page begins; None: at the first. limit: 1 to 500. NotFound (file), InvalidInput,
        Unavailable (it cannot be read).
        """
        return self._running().quarantine.page(name, offset, limit)

    def send_quarantined(
        self, name: str, *, offset: int | None = None, limit: int = 50, by: str = ""
    ) -> tuple[list[SentAgain], int | None]:
        """Send some of them again, to whoever leads now: (what became of each, where the next ones begin; None behind
        the last). What the leader has already, by its unique id, is left where it is: asking again sends nothing twice.

        Errors as `quarantined`; Unavailable also when nobody leads, or the leader takes nothing now.
        """
        parts = self._running()
        address = self.master_address() or (None if parts.is_slave else self.addresses().broker)
        if address is None:
            raise Unavailable(say("quarantine_nowhere"))
        if offset is None:
            logger.info("admin: quarantined messages sent again file=%s to=%s by=%s", name, address, by)
        return parts.quarantine.send(name, offset, limit, address)

    @property
    def is_slave(self) -> bool:
        """Whether what is here comes from a master, and can only be changed there. Costs nothing."""
        return self._parts is not None and self._parts.is_slave

    @property
    def is_member(self) -> bool:
        """Whether this broker is a member of a set that fails over. Costs nothing."""
        return self._set is not None

    def master_address(self) -> str | None:
        """Where clients reach the master of this slave, or the leader of its set; None on a master, and while nobody
        has told."""
        if self._set is not None:
            view = seen(self._set)
            return None if view is None or view.leader in ("", view.uuid) else view.leader_addr
        return self._parts.replication.master_address() if self._parts is not None else None
