"""Message trace: a hook that sends records to a topic of RocketMQ's, for `mqadmin queryMsgTraceById` and consoles."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .core import trace
from .core.names import without_namespace
from .core.send_plan import Envelope, Sending
from .core.steps import Sleep, Steps
from .errors import ClientError, InvalidOption, Reject, Retry, Suspend
from .hooks import ConsumeCall, Hook, SendCall
from .message import ReceivedMessage, SendResult
from .packing import text_of
from .wire import KEYS, UNIQUE_KEY, WAIT_STORE, topic_name_error

if TYPE_CHECKING:
    from .session import Session

_GROUP = "_INNER_TRACE_PRODUCER-PYTHON"
#: Calls and seconds for which records wait, and the most that do; as Java 5.3.3 has them. More are dropped.
_CALLS, _SECONDS, _MOST_CALLS = 10, 5.0, 2048
_TIMEOUT_S = 5.0
_REGION = "DefaultRegion"


class Tracer(Hook):
    """Sends are traced once they are stored, handlers before and after. A trace that cannot be sent is lost."""

    def __init__(self, given: bool | str) -> None:
        """given: the topic; True for RocketMQ's."""
        topic = trace.TRACE_TOPIC if given is True else given
        if not isinstance(topic, str) or topic_name_error(topic) is not None:
            raise InvalidOption(f"trace is True, or the name of a topic, not {given!r}.")
        self.topic = topic
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._calls: deque[list[trace.Traced]] = deque()
        self._in_flight = 0
        self._is_beating = False

    def bind(self, session: Session) -> None:
        """Belong to a session: called once, before anything else."""
        self._session = session
        core = session.core
        self._sending = Sending(core.directory, session.clock, core.faults, 0, 1, core.beat)
        #: Rings when no trace is in flight.
        self._idle = session.bell(self._lock)

    # --- what is traced

    def before_send(self, call: SendCall) -> None:
        call.state[self] = (self._session.clock.wall_ms(), self._session.clock.monotonic())

    def after_send(self, call: SendCall, result: SendResult | None, error: BaseException | None) -> None:
        result = result or getattr(error, "result", None)
        message = call.message
        if result is None or not result.is_traced or message.topic == self.topic:
            return
        began_ms, began = call.state[self]
        with self._session.shell.lock:
            host = self._session.core.directory.master(result.queue) or ""
        delayed = any(one is not None for one in (message.delay_level, message.delay, message.at))
        kind = trace.HALF if call.is_half else trace.DELAYED if delayed else trace.NORMAL
        size = len(message.body.encode() if isinstance(message.body, str) else message.body)
        keys = (message.keys,) if isinstance(message.keys, str) else tuple(message.keys)
        cost = round((self._session.clock.monotonic() - began) * 1000)
        self._keep(
            [
                trace.Sent(
                    began_ms, result.region, self._bare(call.group), message.topic, result.message_id,
                    message.tags or "", keys, host, size, cost, kind, result.offset_id, error is None,
                ).traced()
            ]
        )  # fmt: skip

    def before_consume(self, call: ConsumeCall) -> None:
        with self._session.shell.lock:
            request_id = self._session.keys.next(self._session.clock.wall_ms())
        call.state[self] = (request_id, self._session.clock.monotonic())
        now = self._session.clock.wall_ms()
        self._keep(
            [
                handed.before(now, one.properties.get("MSG_REGION", _REGION), one.attempt - 1)
                for one, handed in self._handed(call, request_id)
            ]
        )

    def after_consume(self, call: ConsumeCall, error: BaseException | None) -> None:
        request_id, began = call.state[self]
        cost = round((self._session.clock.monotonic() - began) * 1000 / len(call.messages))
        again = isinstance(error, Retry | Reject | Suspend)
        code = trace.DONE if error is None else trace.AGAIN if again else trace.RAISED
        now = self._session.clock.wall_ms()
        self._keep([handed.after(now, cost, code) for _, handed in self._handed(call, request_id)])

    def _handed(self, call: ConsumeCall, request_id: str) -> Iterator[tuple[ReceivedMessage, trace.Handed]]:
        group = self._bare(call.group)
        for one in call.messages:
            if one.properties.get("TRACE_ON") != "false":
                yield one, trace.Handed(request_id, group, one.topic, one.message_id, tuple(one.keys))

    def _bare(self, group: str) -> str:
        return without_namespace(self._session.namespace, group)

    # --- on its way

    def _keep(self, records: list[trace.Traced]) -> None:
        if not records:
            return
        with self._lock:
            if len(self._calls) >= _MOST_CALLS:
                return
            self._calls.append(records)
            full = len(self._calls) >= _CALLS
            begins, self._is_beating = not self._is_beating, True
        if full:
            self.flush()
        if begins:
            self._session.shell.start(self._send_in_time())

    def _send_in_time(self) -> Steps[None]:
        while True:
            yield Sleep(self._session.clock.monotonic() + _SECONDS)
            yield from self._send_all(self._take())

    def _take(self) -> list[trace.Traced]:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._in_flight += 1
        return [record for call in calls for record in call]

    def flush(self) -> None:
        """Send what waits, without waiting for it."""
        self._session.shell.start(self._send_all(self._take()))

    def _send_all(self, records: list[trace.Traced]) -> Steps[None]:
        """Send records that were taken."""
        try:
            for body, keys in trace.messages_of(records):
                key = self._session.keys.next(self._session.clock.wall_ms())
                try:
                    properties = text_of({KEYS: " ".join(keys), UNIQUE_KEY: key, WAIT_STORE: "true"})
                    envelope = Envelope(_GROUP, self.topic, body.encode(errors="replace"), properties, 0, key)
                    yield from self._sending.send(envelope, self._session.clock.monotonic() + _TIMEOUT_S)
                except ClientError as error:
                    self._session.notes.keep(f"a trace of messages is lost: {error}")
        finally:
            with self._lock:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.ring()

    def draining(self, timeout: float) -> object:
        """Send what waits; return what waits until it is sent, or the time is over."""
        self.flush()
        return self._idle.wait_for(lambda: not self._in_flight, timeout)
