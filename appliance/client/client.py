"""`Client`: the connection to one cluster. It makes producers, consumers and readers, and closes them."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .acts import Acts, finish
from .allocation import Allocation, average, in_namespace
from .credentials import Credentials
from .discovery import Discovery
from .errors import InvalidOption
from .hooks import Hook, check_hooks
from .message import CloseReport
from .options import Compression, ProducerOptions
from .session import Names, NameServers, Opening, Session, ThreadSession
from .shells.shell import Security, TlsSettings
from .wire import RemotingCommand, is_legal_group, parse_host_port

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from .admin import Admin
    from .core.group import Begin
    from .core.transactions import Decision
    from .message import ReceivedMessage, TopicStats
    from .producer import Producer, ProducerActs
    from .pull_consumer import PullActs, PullConsumer
    from .push_consumer import PushActs, PushConsumer
    from .reader import Reader, ReaderActs
    from .tls import Tls
    from .trace import Tracer
    from .transactional import TransactionalActs, TransactionalProducer

ProducerT = TypeVar("ProducerT", bound="ProducerActs")
TransactionalT = TypeVar("TransactionalT", bound="TransactionalActs")
PullT = TypeVar("PullT", bound="PullActs")
PushT = TypeVar("PushT", bound="PushActs")
ReaderT = TypeVar("ReaderT", bound="ReaderActs")

_ENVIRONMENT = "NAMESRV_ADDR"
#: Time for closing a client, and at Ctrl-C and the end of the process, if it was not closed before.
CLOSE_S = 30.0
EXIT_S = 5.0


class ClientActs(Generic[ProducerT, TransactionalT, PullT, PushT, ReaderT]):
    """A client but for its end: what it makes."""

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        discovery_url: str | None = None,
        credentials: Credentials | None = None,
        tls: bool | Tls | ssl.SSLContext = False,
        namespace: str = "",
        timeout: float = 3.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        verify: bool = False,
        client_ip: str | None = None,
        instance_name: str | None = None,
    ) -> None:
        if not timeout > 0:
            raise InvalidOption(f"timeout is seconds, more than 0, not {timeout!r}.")
        if nameservers is not None and discovery_url is not None:
            raise InvalidOption("Say where name servers are by nameservers or by discovery_url, not by both.")
        given = nameservers or ""
        if nameservers is None and discovery_url is None:
            given = os.environ.get(_ENVIRONMENT, "")
        fetch = None if discovery_url is None else Discovery(discovery_url).fetch
        security = Security(_signer(credentials), _tls_settings(tls))
        if namespace and (not is_legal_group(namespace) or "%" in namespace):
            raise InvalidOption(f"A namespace has letters, digits and the signs | - _, not {namespace[:300]!r}.")
        begun = partial(_has_begun, self)
        servers, names = NameServers(_addresses(given), fetch), Names(client_ip, instance_name, namespace)
        # Constant after construction, but in a fork.
        self._opening = Opening(servers, timeout, names, begun, security, check_hooks(hooks))
        self._trace, self._verifies = trace, verify
        self._tracer: Tracer | None = None
        self._session = self._new_session(self._opening)
        # Guarded by the session's lock.
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, PullT] = {}
        self._push_consumers: dict[str, PushT] = {}
        self._is_closing = False
        self._report: CloseReport | None = None
        _clients.add(self)

    def _new_session(self, opening: Opening) -> Session:
        if self._trace is not False:
            from .trace import Tracer

            self._tracer = Tracer(self._trace)
            opening = opening._replace(hooks=(*opening.hooks, self._tracer))
        session = self._make_session(opening)
        session.core.directory.verifies = self._verifies
        if self._tracer is not None:
            self._tracer.bind(session)
        return session

    # --- what threads and asyncio differ in

    def _make_session(self, opening: Opening) -> Session:
        raise NotImplementedError

    def _make_producer(self, group: str, options: ProducerOptions) -> ProducerT:
        raise NotImplementedError

    def _make_transactional(self, group: str, check: Callable[[ReceivedMessage], object]) -> TransactionalT:
        raise NotImplementedError

    def _make_pull(self, group: str, **options: Any) -> PullT:
        raise NotImplementedError

    def _make_push(self, group: str, **options: Any) -> PushT:
        raise NotImplementedError

    def _make_reader(self) -> ReaderT:
        raise NotImplementedError

    def _is_left_open(self) -> None:
        """Do what can be done at the end of the process for one that was not closed."""
        raise NotImplementedError

    def _has_forked(self) -> None:
        """Begin anew if possible, in the child of a fork, before anything else there: it imports nothing and takes no
        lock, which a thread of the parent's may have."""

    @property
    def client_id(self) -> str:
        """Id by which brokers identify this client, and which consoles show."""
        return self._session.client_id

    def stats(self) -> list[TopicStats]:
        """Return how many messages producers sent, and push consumers handled, by topic and group; names as at
        brokers."""
        self._session.check_process()
        with self._session.lock:
            parts = [*self._producers.values(), *self._push_consumers.values()]
        return [row for part in parts for row in part.stats()]

    # --- what it makes

    def producer(
        self,
        group: str = "PYTHON_PRODUCER",
        *,
        retries: int = 2,
        max_in_flight: int = 10_000,
        max_in_flight_bytes: int = 64 << 20,
        linger: float = 0.0,
        compress: Compression | None = "zlib",
        compress_over: int = 4096,
        avoid_slow_brokers: bool = True,
        accept_unconfirmed: bool = False,
    ) -> ProducerT:
        """Return the producer of a group; a second call returns the same one, with the options of the first.

        retries: attempts after the first. max_in_flight, max_in_flight_bytes: unconfirmed messages and their bodies;
        more wait. linger: seconds that a message without delay or queue may wait for others of its topic, to be sent
        with them as a batch, as soon as 32 KiB are there. compress: how bodies of compress_over bytes or more are
        compressed, if that makes them smaller: "zlib", which all clients read; "lz4" or "zstd" (packages lz4 and
        zstandard), which Java's read from 5.0 on; None: not at all. avoid_slow_brokers: False has brokers that were
        slow or failed take their turn as others. accept_unconfirmed: True has "stored, but not on disk" and "not at a
        slave" be results with `unconfirmed`, not errors. Raises InvalidOption.
        """
        self._session.check_usable()
        group = self._session.named(group)
        _check_group(group)
        with self._session.lock:
            found = self._producers.get(group)
            if found is None:
                options = ProducerOptions(
                    retries=retries,
                    max_in_flight=max_in_flight,
                    max_in_flight_bytes=max_in_flight_bytes,
                    linger=linger,
                    compress=compress,
                    compress_over=compress_over,
                    avoid_slow_brokers=avoid_slow_brokers,
                    accept_unconfirmed=accept_unconfirmed,
                )
                found = self._producers[group] = self._make_producer(group, options)
            return found

    def _transactional(self, group: str, check: Callable[[ReceivedMessage], object]) -> TransactionalT:
        from .transactional import TransactionalActs

        self._session.check_usable()
        group = self._session.named(group)
        _check_group(group)
        with self._session.lock:
            found = self._producers.get(group)
            if found is None:
                found = self._producers[group] = self._make_transactional(group, check)
        if not isinstance(found, TransactionalActs):
            raise InvalidOption(
                f"This client has a producer of group {group} already, without a check: make the transactional one "
                "first; producer() returns it, too."
            )
        return found  # type: ignore[return-value]

    def pull_consumer(
        self,
        group: str,
        *,
        auto_commit: float | None = 5.0,
        start: Begin = "last",
        cache_messages: int = 1000,
        allocation: Allocation = average,
    ) -> PullT:
        """Make a member of a consumer group, from which messages are taken by iteration or `poll`.

        auto_commit: seconds between commits of messages that the user is done with; None: only `commit` commits. start:
        where a queue begins for which the group has no offset yet: "last" - with messages sent from now on, "first", or
        a time. cache_messages: number of messages fetched ahead, for each queue. allocation: how the group's members
        share queues, the same rule in all of them: see `allocation`.
        """
        self._session.check_usable()
        group = self._session.named(group)
        _check_group(group)
        with self._session.lock:
            self._check_new(group)
            consumer = self._consumers[group] = self._make_pull(
                group,
                auto_commit=auto_commit,
                start=start,
                cache=cache_messages,
                allocation=in_namespace(allocation, self._session.namespace),
            )
            return consumer

    def push_consumer(
        self,
        group: str,
        *,
        ordered: bool = False,
        broadcast: bool = False,
        start: Begin = "last",
        workers: int = 20,
        batch: int = 1,
        max_attempts: int | None = None,
        handler_timeout: float = 900.0,
        cache_messages: int = 1000,
        cache_bytes: int = 100 << 20,
        allocation: Allocation = average,
    ) -> PushT:
        """Make a member of a consumer group whose messages are handed to functions, in threads.

        ordered: messages of one queue one after the other, each again until it is done. broadcast: every client gets
        all messages, and keeps its offsets in a file in the home directory; a failed message does not come again,
        unless ordered. start: as of `pull_consumer`. workers: most threads. batch: with more than 1, handlers get lists
        of up to so many messages. max_attempts: deliveries until a message becomes a dead letter; None: 17, and no end
        if ordered. handler_timeout: seconds until a message comes again though its handler has not ended.
        cache_messages: number of messages fetched ahead, for each queue; cache_bytes: their bodies, of all queues.
        allocation: as of `pull_consumer`.
        """
        self._session.check_usable()
        group = self._session.named(group)
        _check_group(group)
        with self._session.lock:
            self._check_new(group)
            consumer = self._push_consumers[group] = self._make_push(
                group,
                ordered=ordered,
                broadcast=broadcast,
                start=start,
                workers=workers,
                batch=batch,
                max_attempts=max_attempts,
                handler_timeout=handler_timeout,
                cache=cache_messages,
                cache_bytes=cache_bytes,
                allocation=in_namespace(allocation, self._session.namespace),
            )
            return consumer

    def _check_new(self, group: str) -> None:
        for known in (self._consumers.get(group), self._push_consumers.get(group)):
            if known is not None and not known.has_left:
                raise InvalidOption(
                    f"This client has a consumer of group {group} already; a second member needs a Client of its own."
                )

    def reader(self) -> ReaderT:
        """Return a reader of queues at places of your choice: no group, no commits."""
        self._session.check_usable()
        return self._make_reader()

    # --- the end

    def _closing(self, timeout: float) -> Acts[CloseReport]:
        session = self._session
        if session.is_parents:
            _open_clients.discard(self)
            return CloseReport()
        with session.lock:
            first, self._is_closing = not self._is_closing, True
            handling = list(self._push_consumers.values())
        if not first:
            return self._report or CloseReport()
        _open_clients.discard(self)
        deadline = session.clock.monotonic() + timeout
        for one in handling:
            yield from one.draining(deadline)  # handlers may send to the end
        with session.lock:
            session.is_closed = True
            producers = list(self._producers.values())
            consumers = list(self._consumers.values())
            handling = list(self._push_consumers.values())
        for producer in producers:
            yield from producer.retiring(deadline)
        if self._tracer is not None and session.shell.is_running:
            yield self._tracer.draining(max(0.0, deadline - session.clock.monotonic()))
        uncommitted = 0
        for consumer in consumers:
            uncommitted += yield from consumer.leaving(deadline)
        left = []
        for one in handling:
            left.append((yield from one.leaving(deadline)))
        uncommitted += sum(one.uncommitted for one in left)
        if session.shell.is_running:
            for producer in producers:
                yield session.wait_until(session.core.leave(producer.group), deadline)
        unconfirmed = sum(producer.in_flight for producer in producers)
        ended = yield session.shell.close(max(1.0, deadline - session.clock.monotonic()))
        running = [name for one in left for name in one.still_running] + ([] if ended else ["rocketbox-client"])
        for producer in producers:
            running += yield from producer.stopping(deadline)
        report = CloseReport(unconfirmed, uncommitted, tuple(running))
        if report != CloseReport():
            session.note(f"client {self.client_id} was closed with work undone: {report}")
        session.notes.flush()
        self._report = report
        return report


class Client(ClientActs["Producer", "TransactionalProducer", "PullConsumer", "PushConsumer", "Reader"]):
    """A connection to a cluster: Java's client instance. Nothing happens before something is sent or consumed.

        with Client("127.0.0.1:9876") as client:
            client.producer().send("orders", "paid")

    nameservers: "host:port", several with ";" between them or as a list; without it the environment variable
    NAMESRV_ADDR. discovery_url: of a web page whose first line is such a list; it is read again every 2 minutes, and
    when none of them answers. credentials: a user whose secret signs every request; without them
    `Credentials.from_environment()`. tls: True, `Tls(...)` or an `ssl.SSLContext`: all connections are encrypted, and
    servers' certificates checked. namespace: put before the names of topics and groups. timeout: seconds for a send
    with all its attempts, and for each other request. hooks: called around sends and handlers. trace: True to have each
    of them told to RocketMQ's topic of traces, or the name of another topic. verify: received bodies are checked
    against the CRC that their broker stored; what does not match is pulled again. client_ip, instance_name: parts of
    the client id, which brokers show.

    Threads may share it. In a fork of the process it begins anew when it is used there, with a client id of its own:
    its producers send, and it makes further consumers; those that the parent made stay the parent's, and so do
    producers of transactions and sends in flight. Raises InvalidOption.
    """

    _session: ThreadSession

    def _make_session(self, opening: Opening) -> ThreadSession:
        return ThreadSession(opening)

    def _has_forked(self) -> None:
        parents = self._session
        if parents.is_closed or self._is_closing:
            return
        _open_clients.discard(self)
        parents.shell.abandon()
        opening, names = self._opening, self._opening.names
        if names.instance_name is not None:
            names = names._replace(instance_name=f"{names.instance_name}-{os.getpid()}")
            opening = opening._replace(names=names)
        session = self._new_session(opening)
        assert isinstance(session, ThreadSession), "it makes such ones"
        self._session = session
        self._consumers, self._push_consumers = {}, {}
        producers, self._producers = self._producers, {}
        for group, producer in producers.items():
            if producer.survives_forks:
                producer.begin_anew(self._session)
                self._producers[group] = producer

    def _make_producer(self, group: str, options: ProducerOptions) -> Producer:
        from .producer import Producer

        return Producer(self._session, group, options)

    def _make_transactional(self, group: str, check: Callable[[ReceivedMessage], object]) -> TransactionalProducer:
        from .transactional import TransactionalProducer

        return TransactionalProducer(self._session, group, check)

    def _make_pull(self, group: str, **options: Any) -> PullConsumer:
        from .pull_consumer import PullConsumer

        return PullConsumer(self._session, group, **options)

    def _make_push(self, group: str, **options: Any) -> PushConsumer:
        from .push_consumer import PushConsumer

        return PushConsumer(self._session, group, **options)

    def _make_reader(self) -> Reader:
        from .reader import Reader

        return Reader(self._session)

    def admin(self) -> Admin:
        """Return an administrator of topics and groups."""
        from .admin import Admin

        self._session.check_usable()
        return Admin(self._session)

    def transactional_producer(
        self, group: str, *, check: Callable[[ReceivedMessage], Decision]
    ) -> TransactionalProducer:
        """Return the group's producer of transactions; a second call returns the same one, with the first `check`.

        check: called when a broker checks how a transaction ended, with the message; in a thread of the producer's, one
        message after the other. What it raises is logged, and the broker checks again. Raises InvalidOption if the
        group has a producer without a check.
        """
        return self._transactional(group, check)

    def close(self, timeout: float = CLOSE_S) -> CloseReport:
        """Wait for running handlers, take no new work, wait for sends in flight, commit what consumers are done with,
        unregister, disconnect.

        Returns a report of the work that was not done within `timeout` seconds. A second call returns the same report,
        and does not wait for the first: while that goes on, the report is empty.
        """
        return finish(self._closing(timeout))

    def _is_left_open(self) -> None:
        self.close(EXIT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for consumer in list(self._consumers.values()):
                consumer.done_with_current()
        # Whoever presses Ctrl-C waits no longer than one who forgot to close.
        self.close(EXIT_S if kind is not None and issubclass(kind, KeyboardInterrupt) else CLOSE_S)


#: Clients that have begun and are not closed. It keeps them and their producers alive without other references.
_open_clients: set[ClientActs[Any, Any, Any, Any, Any]] = set()


def open_clients() -> list[ClientActs[Any, Any, Any, Any, Any]]:
    """Return the clients that have begun and are not closed."""
    return list(_open_clients)


#: All clients.
_clients: weakref.WeakSet[ClientActs[Any, Any, Any, Any, Any]] = weakref.WeakSet()


def _have_forked() -> None:
    for client in list(_clients):
        client._has_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_have_forked)


#: Process of multiprocessing whose end closes the clients.
_closed_in = 0


def _has_begun(client: ClientActs[Any, Any, Any, Any, Any]) -> None:
    global _closed_in
    _open_clients.add(client)
    if "multiprocessing.util" in sys.modules and _closed_in != os.getpid():
        from multiprocessing import parent_process, util

        if parent_process() is not None:  # its processes end without what `atexit` has
            util.Finalize(None, _close_all, exitpriority=0)
            _closed_in = os.getpid()


@atexit.register
def _close_all() -> None:
    for client in open_clients():
        warnings.warn(
            f"client {client.client_id} was not closed: use `with Client(...)`, or call close()", ResourceWarning, 1
        )
        client._is_left_open()


def _signer(credentials: object) -> Callable[[RemotingCommand], dict[str, str]] | None:
    if credentials is not None and not isinstance(credentials, Credentials):
        kind = type(credentials).__name__
        del credentials  # may be a pair with the secret, which a traceback would show
        raise InvalidOption(f"credentials are Credentials(user, secret), not {kind}.")
    credentials = credentials or Credentials.from_environment()
    return None if credentials is None else credentials.signer.sign


def _tls_settings(given: bool | Tls | ssl.SSLContext) -> TlsSettings | None:
    if given is False:
        return None
    from .tls import Tls

    if given is True:
        given = Tls()
    elif not isinstance(given, Tls):
        import ssl

        if not isinstance(given, ssl.SSLContext):
            raise InvalidOption(f"tls is True, Tls(...) or an ssl.SSLContext, not {given!r}.")
        given = Tls(context=given)
    return TlsSettings(given.make_context(), given.server_name)


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
