"""The part of the window for replication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import Unavailable
from .replicas.replica_set import seen
from .report_window import ReportWindow
from .sentences import say

if TYPE_CHECKING:
    from .replicas.quarantine import QuarantinePage, SentAgain
    from .replicas.snapshots import Replication

logger = logging.getLogger(__name__)


class ReplicationWindow(ReportWindow):
    """Any thread."""

    def replication(self) -> Replication:
        """Return the slaves of this broker, or its master, as they are now."""
        return self._running().replication.snapshot()

    def quarantined(self, name: str, *, offset: int | None = None, limit: int = 50) -> QuarantinePage:
        """Return messages that were cut from this broker's log and are kept in a file, without bodies. name: of the
        file, from `replica_set().quarantine`.

        offset: physical offset at which the page begins; None: the first message. limit: 1 to 500. NotFound (file),
        InvalidInput, Unavailable (it cannot be read).
        """
        return self._running().quarantine.page(name, offset, limit)

    def send_quarantined(
        self, name: str, *, offset: int | None = None, limit: int = 50, by: str = ""
    ) -> tuple[list[SentAgain], int | None]:
        """Send some of these messages to the present leader. Return (their results, offset of the next ones, None
        behind the last). A message with a unique id that the leader already has is not sent; a repeated call sends only
        messages without one twice.

        Errors as `quarantined`; Unavailable also if there is no leader, or it accepts nothing now.
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
        """True if this broker copies a master, so that changes are possible only there. Costs nothing."""
        return self._parts is not None and self._parts.is_slave

    @property
    def is_member(self) -> bool:
        """True if this broker is a member of a set with fail-over. Costs nothing."""
        return self._set is not None

    def master_address(self) -> str | None:
        """Return the clients' address of this slave's master, or of the leader of its set; None on a master, and while
        it is not known."""
        if self._set is not None:
            view = seen(self._set)
            return None if view is None or view.leader in ("", view.uuid) else view.leader_addr
        return self._parts.replication.master_address() if self._parts is not None else None
