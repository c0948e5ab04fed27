"""A slave's tables are its master's: topics, groups, offsets, how far delays and timers are (21, 201, 43, 45, 60).

Asked for again and again; what the master says replaces what is here, but for offsets, which are added: one that the
master does not know stays. Follows RocketMQ `SlaveSynchronize`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from ..clock import Clock
from ..errors import ConnectError, FrameError, RefusedRequest, RemotingError
from ..fastjson import encode_pretty, loads
from ..json_file import save_json_atomically
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.client import RemotingClient
from ..replication.log_clock import LogClock
from ..service_thread import ServiceThread
from ..store.disk import Disk
from .config_table import ConfigTable
from .delays.progress import FILE_NAME as DELAY_PROGRESS
from .offsets import ConsumerOffsetManager
from .timers.apache_files import CHECKPOINT_BYTES, checkpoint_path

logger = logging.getLogger(__name__)

#: As Apache's slaves ask for their timers, and for the rest once a minute: all of it is little.
PERIOD_S = 3.0
ASK_MS = 3000
#: Offsets that are taken over in one turn of the I/O thread.
_OFFSETS_A_TURN = 2000
#: What a master answers to 60.
_TIMER_BYTES = 56


class SlaveSync(ServiceThread):
    """The thread `sync-from-master`. Owns: the connection for requests to the master."""

    def __init__(
        self,
        master: Callable[[], str],
        find_master: Callable[[], None],
        tables: tuple[tuple[int, ConfigTable], ...],
        offsets: ConsumerOffsetManager,
        on_loop: Callable[[Callable[[], object]], object],
        store_dir: Path,
        disk: Disk,
        clock: Clock,
        period_s: float = PERIOD_S,
        ask_ms: int = ASK_MS,
    ) -> None:
        """master: its address, "" while it is not known; find_master: have somebody ask. tables: (request, table).
        ask_ms: so long a request may take, connecting included."""
        super().__init__("sync-from-master", clock)
        # Constant after construction.
        self._period_s = period_s
        self._ask_ms = ask_ms
        self._master = master
        self._find_master = find_master
        self._tables = tables
        self._offsets = offsets
        self._on_loop = on_loop
        self._store_dir = store_dir
        self._disk = disk
        # Owned by this thread; `request_stop` ends a call of the client's that waits.
        self._client: RemotingClient | None = None
        self._saved: dict[Path, bytes] = {}
        #: What went wrong the last time; None when all is well. Read by anyone.
        self.failure: str | None = None
        #: Where the master's log ended when it was last asked, None before that; and when it had come how far.
        self.master_end: int | None = None
        self.master_log = LogClock()

    def request_stop(self) -> None:
        super().request_stop()
        client = self._client
        if client is not None:
            client.hang_up()  # a master that says nothing holds nobody up

    def run(self) -> None:
        while not self.stopped:
            address = self._master()
            if not address:
                self._find_master()
            else:
                self.work(address)
            self.wait(self._period_s)
        if self._client is not None:
            self._client.close()

    def work(self, address: str) -> None:
        """One round; what fails is logged once, and tried again in the next."""
        failure = None
        for step in (self._look_at_log, self._take_tables, self._take_offsets, self._take_delays, self._take_timers):
            if self.stopped:
                return
            try:
                step(address)
            except (RemotingError, FrameError, RefusedRequest, msgspec.ValidationError, OSError, ValueError) as error:
                failure = f"{step.__name__.rpartition('_')[2]}: {error or type(error).__name__}"
                if isinstance(error, RemotingError):
                    break
        if failure is not None and failure != self.failure:
            logger.warning("replication: tables of the master=%s not taken over: %s", address, failure)
        self.failure = failure

    def _ask(self, address: str, code: int) -> bytes:
        if self._client is None or self._client.address != address:
            if self._client is not None:
                self._client.close()
            self._client = RemotingClient(address, self._ask_ms, self.clock)
        if self.stopped:
            raise ConnectError("nobody is asked any more")
        answer = self._client.invoke_sync(RemotingCommand(code), self._ask_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(f"the master answers {code} with {answer.code}: {answer.remark}")
        return bytes(answer.body)

    def _look_at_log(self, address: str) -> None:
        """How far the master is: what a slave is behind it."""
        document = loads(self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO))
        table = document.get("table") if isinstance(document, dict) else None
        end = int(table.get("commitLogMaxOffset", "")) if isinstance(table, dict) else -1
        if end < 0:
            raise ValueError("there is no commitLogMaxOffset")
        self.master_log.saw(end, self.clock.monotonic())
        self.master_end = end

    def _take_tables(self, address: str) -> None:
        for code, table in self._tables:
            if table.take_copy(loads(self._ask(address, code))):
                logger.info("replication: %s taken over from the master", table.table)

    def _take_offsets(self, address: str) -> None:
        document = loads(self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        table = document.get("offsetTable") if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ValueError("there is no offsetTable")
        found: list[tuple[str, str, int, int]] = []
        for key, queues in table.items():
            topic, at, group = key.partition("@")
            if not at or not isinstance(queues, dict):
                continue
            for queue_id, offset in queues.items():
                number = int(queue_id)
                if type(offset) is int and self._offsets.get(group, topic, number) != offset:
                    found.append((group, topic, number, offset))
        while found and not self.stopped:
            some, found = found[:_OFFSETS_A_TURN], found[_OFFSETS_A_TURN:]
            self._on_loop(partial(self._offsets.take_copies, some))

    def _take_delays(self, address: str) -> None:
        """The file is written for whoever becomes master here; nothing on a slave reads it."""
        body = self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        document = loads(body)
        if not isinstance(document, dict) or not isinstance(document.get("offsetTable"), dict):
            raise ValueError("there is no offsetTable")
        path = self._store_dir / "config" / DELAY_PROGRESS
        if self._saved.get(path) != body:
            save_json_atomically(path, encode_pretty(document))
            self._saved[path] = body

    def _take_timers(self, address: str) -> None:
        """The same, of timers. A 4.9 master has none."""
        try:
            body = self._ask(address, RequestCode.GET_TIMER_CHECK_POINT)
        except ValueError:
            return
        if len(body) != _TIMER_BYTES:
            return
        path = checkpoint_path(self._store_dir)
        if self._saved.get(path, b"")[:40] != body[:40]:
            self._disk.replace(path, body.ljust(CHECKPOINT_BYTES, b"\0"))
            self._saved[path] = body
