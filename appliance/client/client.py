"""`Client`: what speaks to one cluster. It makes producers, consumers and readers, and closes them."""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .core.client_core import ClientCore
from .core.directory import Directory
from .core.unique_key import KeyMaker
from .errors import Closed, ForkedError, InvalidOption
from .message import CloseReport
from .notes import Notes
from .shells.threads import SystemClock, ThreadShell
from .wire import is_legal_group, parse_host_port

if TYPE_CHECKING:
    from types import TracebackType

    from .core.pull_group import Begin
    from .producer import Producer
    from .pull_consumer import PullConsumer
    from .reader import Reader

Result = TypeVar("Result")

_ENVIRONMENT = "NAMESRV_ADDR"
#: What a client that nobody closed may take at the end of the process.
_EXIT_S = 5.0


class Client:
    """A connection to a cluster: Java's client instance. Nothing happens before something is sent or consumed.

        with Client("127.0.0.1:9876") as client:
            client.producer().send("orders", "paid")

    nameservers: "host:port", several with ";" between them or as a list; without it the environment variable
    NAMESRV_ADDR. timeout: seconds for a send with all its attempts, and for each other question. client_ip,
    instance_name: parts of the client id, which brokers show.

    Threads may share it. A process that was forked makes its own. Raises InvalidOption.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        timeout: float = 3.0,
        client_ip: str | None = None,
        instance_name: str | None = None,
    ) -> None:
        if not timeout > 0:
            raise InvalidOption(f"timeout is seconds, more than 0, not {timeout!r}.")
        # Constant after construction.
        self.timeout = timeout
        self._servers = _addresses(os.environ.get(_ENVIRONMENT, "") if nameservers is None else nameservers)
        self._pid = os.getpid()
        ip = client_ip or _own_ip()
        self.client_id = f"{ip}@{instance_name or f'{self._pid}#{time.monotonic_ns()}'}"
        self._clock = SystemClock()
        self._notes = Notes()
        directory = Directory(self._servers, self._clock, timeout)
        self._core = ClientCore(directory, self._clock, self.client_id, timeout, self._notes.note)
        self._keys = KeyMaker(_four_bytes(ip), self._pid, secrets.randbits(32))
        self._shell = ThreadShell("rocketbox-client", self._core.opened, self._core.asked)
        # Guarded by _closing.
        self._closing = threading.Lock()
        self._is_closed = False
        self._keeps_house = False
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, PullConsumer] = {}
        self._report: CloseReport | None = None

    # --- what it makes

    def producer(
        self,
        group: str = "PYTHON_PRODUCER",
        *,
        retries: int = 2,
        max_in_flight: int = 10_000,
        max_in_flight_bytes: int = 64 << 20,
        compress_over: int = 4096,
    ) -> Producer:
        """The producer of a group; asked twice, the same one, with the options of the first time.

        retries: attempts after the first. max_in_flight, max_in_flight_bytes: unconfirmed messages and their bodies;
        more wait. compress_over: bodies of so many bytes or more are compressed, if that makes them smaller.
        """
        from .producer import Producer

        self.check_usable()
        _check_group(group)
        with self._closing:
            found = self._producers.get(group)
            if found is None:
                found = self._producers[group] = Producer(
                    self,
                    group,
                    retries=retries,
                    max_in_flight=max_in_flight,
                    max_in_flight_bytes=max_in_flight_bytes,
                    compress_over=compress_over,
                )
            return found

    def pull_consumer(
        self,
        group: str,
        *,
        auto_commit: float | None = 5.0,
        start: Begin = "last",
        cache_messages: int = 1000,
    ) -> PullConsumer:
        """A member of a consumer group, from which messages are taken by iteration or `poll`.

        auto_commit: seconds between commits of what the user is done with; None: only `commit` commits. start: where a
        queue begins of which the group has no offset yet: "last" - with what is sent from now on, "first", or a time.
        cache_messages: fetched ahead, for each queue.
        """
        from .pull_consumer import PullConsumer

        self.check_usable()
        _check_group(group)
        with self._closing:
            known = self._consumers.get(group)
            if known is not None and not known.is_closed:
                raise InvalidOption(
                    f"This client has a consumer of group {group} already; a second member needs a Client of its own."
                )
            consumer = self._consumers[group] = PullConsumer(
                self, group, auto_commit=auto_commit, start=start, cache=cache_messages
            )
            return consumer

    def reader(self) -> Reader:
        """Reads queues at places of your choice: no group, no commits."""
        from .reader import Reader

        self.check_usable()
        return Reader(self)

    # --- for what it makes

    @property
    def core(self) -> ClientCore:
        return self._core

    @property
    def shell(self) -> ThreadShell:
        return self._shell

    @property
    def clock(self) -> SystemClock:
        return self._clock

    @property
    def keys(self) -> KeyMaker:
        """Guarded by the shell's lock."""
        return self._keys

    @property
    def note(self) -> Callable[[str], None]:
        return self._notes.note

    def check_usable(self) -> None:
        """Raise Closed or ForkedError."""
        if self._is_closed:
            raise Closed("This client is closed: make a new one.")
        if os.getpid() != self._pid:
            raise ForkedError(
                "This process is a fork of the one that made this client, whose connections and threads stayed there: "
                "make a Client after the fork, in the process that uses it."
            )

    def wait(self, procedure: Generator[Any, Any, Result]) -> Result:
        """Run a procedure of the core and return what it returns, or raise."""
        self.begin()
        return self._shell.wait(procedure)

    def begin(self) -> None:
        """Called before the first procedure: from then on heartbeats are sent and routes kept fresh."""
        self.check_usable()
        if not self._keeps_house:
            with self._closing:
                fresh, self._keeps_house = not self._keeps_house, True
            if fresh:
                _open_clients.add(self)
                self._shell.start(self._core.keep_house())

    # --- the end

    def close(self, timeout: float = 30.0) -> CloseReport:
        """Take no new work, wait for sends in flight, commit what consumers are done with, unregister, disconnect.

        Returns what was left undone within `timeout` seconds. A second call returns the first one's report.
        """
        with self._closing:
            first = not self._is_closed
            self._is_closed = True
            producers = list(self._producers.values())
            consumers = list(self._consumers.values())
        if not first:
            return self._report or CloseReport()
        _open_clients.discard(self)
        if os.getpid() != self._pid:
            return CloseReport()  # all of it is the parent's
        deadline = self._clock.monotonic() + timeout
        for producer in producers:
            producer.flush(max(0.0, deadline - self._clock.monotonic()))
        uncommitted = sum(consumer.leave(deadline) for consumer in consumers)
        if self._shell.is_running:
            for producer in producers:
                self.wait_until(self._core.leave(producer.group), deadline)
        unconfirmed = sum(producer.in_flight for producer in producers)
        ended = self._shell.close(max(1.0, deadline - self._clock.monotonic()))
        report = CloseReport(unconfirmed, uncommitted, () if ended else ("rocketbox-client",))
        if report != CloseReport():
            self._notes.note(f"client {self.client_id} was closed with work undone: {report}")
        self._notes.flush()
        self._report = report
        return report

    def wait_until(self, procedure: Generator[Any, Any, Result], deadline: float) -> Result | None:
        """The same, also while closing; None if it goes on at the deadline."""
        try:
            return self._shell.wait(procedure, max(0.0, deadline - self._clock.monotonic()))
        except TimeoutError:
            return None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for consumer in list(self._consumers.values()):
                consumer.done_with_current()
        self.close()


#: Clients that have begun and are not closed.
_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        warnings.warn(
            f"client {client.client_id} was not closed: use `with Client(...)`, or call close()", ResourceWarning, 1
        )
        client.close(_EXIT_S)


def _check_group(group: str) -> None:
    if not is_legal_group(group):
        raise InvalidOption(
            f"A group's name has 1 to 255 letters, digits and the signs % | - _, so it cannot be {group[:300]!r}."
        )


def _addresses(given: str | Sequence[str]) -> tuple[str, ...]:
    texts = given.split(";") if isinstance(given, str) else list(given)
    # Apache's tools also take http://host:port.
    found = [text.strip().rpartition("/")[2] for text in texts if text.strip()]
    try:
        return tuple(map(parse_host_port, found))
    except ValueError as error:
        raise InvalidOption(f"A name server {error}.") from None


def _own_ip() -> str:
    """An address of this machine, as others may know it: for names only. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _four_bytes(ip: str) -> bytes:
    try:
        return socket.inet_aton(ip)
    except OSError:
        return secrets.token_bytes(4)
