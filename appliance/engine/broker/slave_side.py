"""The part of a slave that follows its master."""

from __future__ import annotations

from ..config import StoreConfig
from ..remoting.event_loop import EventLoop
from ..replication.follower import Follower, Master
from ..replication.log_copy import CopySettings
from ..store.message_store import MessageStore
from .delays.settled import SettledDelays
from .registration import Registration
from .role import NO_TIES, Role, Ties
from .slave_sync import SlaveSync
from .tables import Tables


class SlaveSide:
    """Copies the master's log and its tables."""

    def __init__(
        self,
        store: MessageStore,
        config: StoreConfig,
        registration: Registration,
        tables: Tables,
        loop: EventLoop,
        role: Role,
        settled: SettledDelays,
        ties: Ties = NO_TIES,
    ) -> None:
        # Constant after construction.
        self._registration = registration
        self._ha_address = config.ha_master_address
        self._own_address = registration.address
        self.follower = Follower(
            store,
            loop.call_soon,
            self.master,
            registration.register_all,
            CopySettings(config.ha_send_heartbeat_interval_ms / 1000, config.ha_housekeeping_interval_ms / 1000),
            loop.clock,
            ties.greeting,
        )
        self.sync = SlaveSync(
            # The tables of a master with another log would remove entries that are needed to read this one.
            lambda: found.address if (found := self.master()) and self.follower.agrees else "",
            registration.register_all,
            tables,
            loop,
            store,
            settled,
            ties=ties,
        )
        store.on_kept = self.follower.log_kept
        store.log.refuse(role.no_sends, "role")

    def master(self) -> Master | None:
        """Return the master's addresses: for its log that of the settings, else as name servers give them. None while
        no address for the log is known."""
        address, ha_address = self._registration.master or ("", "")
        if address == self._own_address:
            address = ha_address = ""
        ha_address = self._ha_address or ha_address
        return Master(address, ha_address) if ha_address else None

    def master_address(self) -> str:
        """Return the address where clients reach the master; "" while it is not known."""
        found = self.master()
        return found.address if found is not None else ""

    def start(self) -> None:
        self.follower.start()
        self.sync.start()

    def stop(self) -> None:
        """Stop both threads. Before the loop ends, because the thread that appends to the log waits for the loop."""
        self.follower.request_stop()
        self.sync.request_stop()
        self.follower.stop()
        self.sync.stop()
