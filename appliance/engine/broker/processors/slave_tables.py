"""Requests that only slaves send to their master: 45 delay offsets, 402 request modes, 60 progress of its timers."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher

POOL = "admin"
#: A field of the answer to 60, which Apache's slaves ignore: this broker's wall clock in ms since 1970, for members of
#: a set (`replication/leader_clock.py`).
CLOCK_MS = "rocketboxClockMs"


class SlaveTablesProcessor:
    """On the pool's thread."""

    def __init__(
        self,
        delay_offsets: Callable[[], bytes],
        timer_checkpoint: Callable[[], bytes],
        timers_done: Callable[[], dict[str, str]],
        wall_ms: Callable[[], int],
    ) -> None:
        """delay_offsets: returns the text of `delayOffset.json`. timer_checkpoint: the 56 bytes of Apache's checkpoint.
        timers_done: more fields, for RocketBox slaves (`timers/apache_files.py`); none while that is not known."""
        self._delay_offsets = delay_offsets
        self._timer_checkpoint = timer_checkpoint
        self._timers_done = timers_done
        self._wall_ms = wall_ms

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.GET_ALL_DELAY_OFFSET, self.handle_delays, POOL)
        dispatcher.add(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self.handle_modes, POOL)
        dispatcher.add(RequestCode.GET_TIMER_CHECK_POINT, self.handle_timers, POOL)

    def handle_delays(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        return RemotingCommand.response(ResponseCode.SUCCESS, body=self._delay_offsets())

    def handle_modes(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """402: every group pulls; there is no other mode here."""
        return RemotingCommand.response(ResponseCode.SUCCESS, body=b'{"messageRequestModeMap":{}}')

    def handle_timers(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        done, body = self._timers_done(), self._timer_checkpoint()
        fields = {CLOCK_MS: str(self._wall_ms())} | done
        return RemotingCommand.response(ResponseCode.SUCCESS, None, fields, body=body)
