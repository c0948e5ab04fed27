"""The part of a slave that follows its master."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..config import StoreConfig
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.event_loop import EventLoop
from ..replication.follower import Follower, Master
from ..replication.log_copy import CopySettings, read_record
from ..store.message_store import MessageStore
from .delays.settled import SettledDelays
from .followed import Followed
from .registration import Registration
from .role import NO_TIES, Role, Ties
from .slave_sync import FAILURES, SlaveSync, log_end_in
from .tables import Tables


class _TablesOfMaster(SlaveSync):
    """The thread `sync-from-master` of a plain slave, which notes how far the topics cover the log. followed: that
    note."""

    followed: Followed

    def _take_topics(self, address: str) -> None:
        end = self._store.log.written
        super()._take_topics(address)
        if not self.stopped:
            self.followed.covers(end, self._topics.data_version)

    def _is_behind(self, call: Callable[[RemotingCommand], RemotingCommand]) -> bool:
        """Compare the begin of the newest file of which the master shows anything. With inSyncReplicas above 2 a record
        is not shown there before further slaves have it."""
        end = log_end_in(bytes(call(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)).body))
        file = self._store.log.segment_at(end - 1)
        if file is None or not self._store.log.min_offset <= file.start < self._store.last_record_offset:
            return False
        answer = call(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(file.start)}))
        return answer.code == ResponseCode.SUCCESS and bytes(answer.body) == read_record(self._store, file.start)

    def rest(self, address: str) -> None:
        """Take over users that change meanwhile: the master's answers to their changes wait for it."""
        ends = self.clock.monotonic() + self._period_s
        while address and self.failure is None and not self.stopped:
            began = self.clock.monotonic()
            left_ms = int((ends - began) * 1000)
            if left_ms <= 0:
                break
            try:
                changed = self._take_users(address, left_ms)
            except FAILURES:  # the next round says why
                break
            # Nothing waits where there are no users to copy, or the master has an older version.
            if not changed and self.clock.monotonic() - began < left_ms / 2000:
                break
        self.wait(max(ends - self.clock.monotonic(), 0))

    def run(self) -> None:
        super().run()
        self.followed.save()


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
        followed: Path,
        ties: Ties = NO_TIES,
    ) -> None:
        """followed: where the note for a later master is, see `Followed`."""
        # Constant after construction.
        self._registration = registration
        self._ha_address = config.ha_master_address
        self._own_address = registration.address
        self.follower = Follower(
            store,
            loop,
            self.master,
            registration.register_all,
            CopySettings(config.ha_send_heartbeat_interval_ms / 1000, config.ha_housekeeping_interval_ms / 1000),
            ties.greeting,
            ties.guard,
        )
        self.sync = _TablesOfMaster(
            # The tables of a master with another log would remove entries that are needed to read this one.
            lambda: found.address if (found := self.master()) and self.follower.agrees else "",
            registration.register_all,
            tables,
            loop,
            store,
            settled,
            ties=ties,
        )
        self.sync.followed = Followed(followed, store, loop.clock)
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
