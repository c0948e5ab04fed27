"""Registration at the name servers: REGISTER_BROKER (103) to each of them, again and again.

Each name server has a thread and a connection of its own, so a dead one does not delay the others. It gets the whole
table at the start, each period, after any failure and after it lost the connection (and so forgot this broker); in
between, the topics that changed. In a period without a change a RocketBox name server gets the version of the table
that it has, without the table. The connections stay open: a name server removes a broker whose connection closes. The
name server of this process gets changed topics without the wire, once this broker is registered by its connection.
Follows RocketMQ 5.3.3 BrokerOuterAPI.registerBrokerAll and BrokerController.registerIncrementBrokerData.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from zlib_ng import zlib_ng

from ..clock import Clock
from ..config import BrokerConfig
from ..errors import FrameError, RemotingError
from ..host_port import host_of, split_host_port
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.data_version import KNOWS_TABLES, SAME_TABLE, DataVersion, SameTable
from ..protocol.message_id import encode_host
from ..remoting.client import RemotingClient
from ..service_thread import ServiceThread
from .registration_body import TableText
from .role import NO_TIES, RegisteredAs, Ties
from .topic_config import TopicConfig
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Bounds of registerNameServerPeriod, as upstream.
MIN_PERIOD_S, MAX_PERIOD_S = 10.0, 60.0
CONNECT_TIMEOUT_MS = 2000
#: Delay before a name server is tried again after a failure; doubled each time, from the first up to the second.
FIRST_RETRY_S, LAST_RETRY_S = 0.25, 5.0
#: Time within which a connection that the name server closed is noticed.
WATCH_S = 1.0
#: If a wait took this much longer than it should, the process did not run meanwhile.
STOOD_STILL_S = 1.0
#: Time that a change of topics waits for the name servers that answer at all.
CHANGE_TIMEOUT_S = 3.0
UNREGISTER_TIMEOUT_MS = 1000
#: Registration by the settings alone.
_AS_SET = RegisteredAs()
#: Period in which a new leader registers: the old one may register in between, and name servers of 4.9 keep the last.
HURRY_PERIOD_S = 1.0


#: (request, milliseconds): gives the name server of this process a request as if it came over this broker's connection
#: to it, and returns the answer. Raises RemotingError if none comes in time.
Direct = Callable[[RemotingCommand, int], RemotingCommand]


class Network(NamedTuple):
    """The broker's addresses, and its name servers. address, ha_address: "host:port" as the broker advertises them."""

    address: str
    ha_address: str
    namesrvs: tuple[str, ...]
    #: The socket to which slaves connect; None if the broker serves no slaves.
    ha_socket: socket.socket | None = None
    #: Used instead of the host in `address` where an IP address is needed and that is a name.
    ip: str = ""
    ties: Ties = NO_TIES

    @property
    def host(self) -> str:
        return host_of(self.address)

    @property
    def store_host(self) -> bytes:
        """The broker's address as records hold it."""
        return encode_host(self.ip or self.host, split_host_port(self.address)[1])


class _Told(NamedTuple):
    """The whole table that a RocketBox name server got last. state: `TableText.state`."""

    state: tuple[DataVersion, int]
    table: SameTable


class _Refused(Exception):
    """The name server answered with another code than 0."""


class NameServerLink(ServiceThread):
    """The thread `registration-<address>`. Owns: the connection to one name server. Woken by: changes, its clock."""

    def __init__(
        self,
        address: str,
        header: dict[str, str],
        table: TableText,
        options: Callable[[], BrokerConfig],
        on_answer: Callable[[RemotingCommand], None],
        clock: Clock,
        registered_as: RegisteredAs = _AS_SET,
    ) -> None:
        """options: as they are now."""
        super().__init__(f"registration-{address}")
        # Constant after construction.
        self.address = address
        self._table = table
        period_s = options().register_name_server_period_ms / 1000
        self._period_s = min(MAX_PERIOD_S, max(MIN_PERIOD_S, period_s))
        self._options = options
        self._on_answer = on_answer
        self._clock = clock
        self._says_good_bye = registered_as.says_good_bye
        broker = options()
        # Name servers that require a certificate, this process's own among them, get the broker's.
        pair = (broker.tls_cert_file, broker.tls_key_file)
        tls = broker.tls_mode == "enforcing"
        self._connection = partial(RemotingClient, address, CONNECT_TIMEOUT_MS, clock, tls, pair=pair)
        # Replaced by this thread.
        self._client = self._connection()
        #: Set before start() for the name server of this process.
        self.direct: Direct | None = None
        # Only grows.
        self._hurried_to = clock.monotonic() + registered_as.hurry_s
        # Owned by this thread.
        self._due_at = 0.0
        self._retry_s = FIRST_RETRY_S
        self._seen: DataVersion | None = None
        # None: the next period sends the whole table.
        self._told: _Told | None = None
        # Guarded by _state.
        self._state = threading.Condition()
        self._asked = 1  # requests to register, the first at the start
        self._done = 0  # how many of them an attempt has covered
        self._whole = True
        self._pending: dict[str, TopicConfig] = {}
        self._header = header
        self._readdressed = False
        self.registered = False

    # --- any thread

    def hurry(self, seconds: float) -> None:
        """Register at once, and for `seconds` each HURRY_PERIOD_S: another broker may have registered by this name."""
        self._hurried_to = max(self._hurried_to, self._clock.monotonic() + seconds)
        self.ask(None)

    def ask(self, changed: Iterable[TopicConfig] | None) -> int:
        """Have topics registered, or the whole table (None); return a ticket for `settled`. Never blocks."""
        with self._state:
            self._asked += 1
            if changed is None:
                self._whole = True
            else:
                for config in changed:
                    self._pending[config.topic_name] = config
            ticket = self._asked
        self.wakeup()
        return ticket

    def readdress(self, address: str) -> None:
        """Register the broker at another "host:port" from now on, in place of the one before. Never blocks."""
        with self._state:
            self._header = self._header | {"brokerAddr": address}
            self._readdressed = True
        self.ask(None)

    def settled(self, ticket: int, deadline: float) -> bool:
        """Wait until an attempt has covered the ticket, at most to `deadline` (monotonic). True if it succeeded."""
        with self._state:
            while self._done < ticket:
                if not self._state.wait(deadline - self._clock.monotonic()) and deadline <= self._clock.monotonic():
                    return False
            return self.registered

    @property
    def last_ticket(self) -> int:
        return self._asked

    def abort(self) -> None:
        """End a call that waits for its answer."""
        self._client.close()

    # --- this thread

    def run(self) -> None:
        while not self.stopped:
            try:
                succeeded = self._attempt()
            except Exception:
                logger.exception("registration: attempt failed namesrv=%s", self.address)
                succeeded = self.registered = False
            if succeeded:
                self._retry_s = FIRST_RETRY_S
                self._rest(min(WATCH_S, max(0.0, self._due_at - self._clock.monotonic())))
            else:
                self._rest(self._retry_s)
                self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
        self._unregister()
        self._client.close()

    def _rest(self, seconds: float) -> None:
        """Wait. If the process of a leader stood still meanwhile, it may have lost the lead: it gets time to notice
        that before it registers again."""
        began = self._clock.monotonic()
        self.wait(seconds)
        if not self._says_good_bye and self._clock.monotonic() - began > seconds + STOOD_STILL_S:
            self.wait(WATCH_S)

    def _attempt(self) -> bool:
        """Register what is asked for or due; False if that failed."""
        with self._state:
            ticket = self._asked
            changed, self._pending = self._pending, {}
            whole, self._whole = self._whole, False
            was_registered = self.registered
        whole = whole or not was_registered or not self._client.is_connected()
        due = self._clock.monotonic() >= self._due_at
        failure = ""
        try:
            if whole or (due and (changed or not self._register_same())):
                self._register_whole()
            elif changed:
                self._register_changed(changed)
        except (RemotingError, FrameError, _Refused) as error:
            failure = str(error)
        if failure and was_registered:
            logger.warning("registration: lost namesrv=%s: %s", self.address, failure)
        elif failure:
            logger.debug("registration: failed namesrv=%s: %s", self.address, failure)
        elif not was_registered:
            logger.info("registration: registered namesrv=%s", self.address)
        with self._state:
            self.registered = not failure
            assert self._done <= ticket <= self._asked, "an attempt covers what was asked for before it began"
            self._done = ticket
            self._state.notify_all()
        return not failure

    def _register_whole(self) -> None:
        self._told = None
        state = self._table.state()
        with self._state:
            readdressed, self._readdressed = self._readdressed, False
        former = self._client
        if readdressed:
            # Name servers forget an address with its connection. A 104 makes those of 4.9 forget the new one.
            self._client = self._connection()
        try:
            for version, body in self._table.whole():
                answer = self._register(version, body)
        finally:
            if readdressed:  # after it: so clients find the broker all the time
                former.close()
        if KNOWS_TABLES in answer.ext_fields:
            self._told = _Told(state, SameTable(version, len(body)))
        self._told_it()

    def _register_same(self) -> bool:
        """Register without the table, if the name server has it and nothing has changed. True if it was accepted.

        The request has no body. If a name server of Apache's has replaced a RocketBox one, it takes this for an empty
        table without a version, and then takes the whole one, which comes next, as a newer one.
        """
        told, self._told = self._told, None
        if told is None or told.state != self._table.state():
            return False
        try:
            answer = self._register(told.table.version, b"", same=told.table)
        except _Refused:
            return False
        if KNOWS_TABLES not in answer.ext_fields:
            return False
        self._told = told
        self._told_it()
        return True

    def _told_it(self) -> None:
        now = self._clock.monotonic()
        self._due_at = now + (HURRY_PERIOD_S if now < self._hurried_to else self._period_s)

    def _register_changed(self, changed: dict[str, TopicConfig]) -> None:
        try:
            version, body = self._table.increment(changed.values(), self._seen)
            self._register(version, body, self.direct)
        except _Refused:
            # It has forgotten this broker: an increment must not be the first registration.
            self._register_whole()

    def _register(
        self, version: DataVersion, body: bytes, direct: Direct | None = None, same: SameTable | None = None
    ) -> RemotingCommand:
        header = self._header | {"bodyCrc32": str(zlib_ng.crc32(body) & 0x7FFFFFFF)}
        if same is not None:
            header[SAME_TABLE] = same.encode()
        request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=header, body=body)
        answer = (direct or self._client.invoke_sync)(request, self._options().register_broker_timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise _Refused(f"code {answer.code}: {answer.remark}")
        self._seen = version
        self._on_answer(answer)
        return answer

    def _unregister(self) -> None:
        """Unregister, if this broker is registered by a connection that stands."""
        if not self._says_good_bye or not (self.registered and self._client.is_connected()):
            return
        names = ("brokerName", "brokerAddr", "clusterName", "brokerId")
        fields = {name: self._header[name] for name in names}
        try:
            self._client.invoke_sync(
                RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=fields), UNREGISTER_TIMEOUT_MS
            )
            logger.info("registration: unregistered namesrv=%s", self.address)
        except RemotingError as error:
            logger.warning("registration: could not unregister namesrv=%s: %s", self.address, error)


class Registration:
    """The registration of this broker at all its name servers."""

    def __init__(
        self,
        broker: BrokerConfig,
        network: Network,
        topics: TopicConfigManager,
        on_orders: Callable[[dict[str, str]], None] | None = None,
        clock: Clock | None = None,
        registered_as: RegisteredAs = _AS_SET,
    ) -> None:
        """on_orders: called with a name server's order configuration (topic -> `broker-a:4;broker-b:4`) at each of its
        answers; on a registration thread.

        Changes of `topics` are registered from now on.
        """
        # Replaced whole by take_options().
        self._config = broker
        #: The broker's own, "host:port".
        self.address = network.address
        header = {
            "brokerId": str(broker.broker_id if registered_as.broker_id is None else registered_as.broker_id),
            "clusterName": broker.cluster_name,
            "brokerAddr": network.address,
            "enableActingMaster": "false",
            "haServerAddr": network.ha_address,
            "compressed": "false",
            "brokerName": broker.broker_name,
        }
        table = TableText(topics, lambda: self._config.broker_permission, registered_as.epoch)
        # Constant after construction.
        self._clock = clock = clock or Clock()
        self._links = {
            namesrv: NameServerLink(
                namesrv, header, table, lambda: self._config, self._take_answer, clock, registered_as
            )
            for namesrv in dict.fromkeys(network.namesrvs)
        }
        self._on_orders = on_orders
        #: (address, HA address) of the master, from the last answer that contained it; for a slave.
        self.master: tuple[str, str] | None = None
        topics.on_change.append(self.topics_changed)

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config

    def tell_directly(self, namesrv: str, direct: Direct) -> None:
        """Register changed topics at that name server by a call. Before `start`."""
        if namesrv in self._links:
            self._links[namesrv].direct = direct

    def readdress(self, address: str) -> None:
        """Have name servers tell another "host:port" of this broker from now on. Any thread, never blocks."""
        self.address = address
        for link in self._links.values():
            link.readdress(address)

    def start(self) -> None:
        """Start registering; returns at once."""
        for link in self._links.values():
            link.start()

    def wait_registered(self, namesrv: str, seconds: float) -> bool:
        """Wait until that name server has taken a registration; False if it has not within `seconds`."""
        link = self._links.get(namesrv)
        if link is None:
            return False
        deadline = self._clock.monotonic() + seconds
        while not link.settled(link.last_ticket, deadline):
            left = deadline - self._clock.monotonic()
            if left <= 0 or not link.alive:
                return False
            time.sleep(min(left, 0.01))  # it failed: the link tries again by itself
        return True

    def topics_changed(self, changed: Iterable[TopicConfig]) -> None:
        """Have changed topics registered soon. Any thread, never blocks."""
        changed = list(changed)
        for link in self._links.values():
            link.ask(changed)

    def register_topics(self, changed: Iterable[TopicConfig], seconds: float = CHANGE_TIMEOUT_S) -> dict[str, bool]:
        """Wait until the name servers that answer at all have these changes; return name server -> True if it has them.

        The changes are on their way since `topics` announced them; this only waits. A name server that failed the last
        time is not waited for. Not on the I/O thread.
        """
        deadline = self._clock.monotonic() + seconds
        waiting = [(link, link.last_ticket) for link in self._links.values() if link.registered]
        known = dict.fromkeys(self._links, False)
        for link, ticket in waiting:
            known[link.address] = link.settled(ticket, deadline)
        return known

    def register_all(self) -> None:
        """Have the whole table registered soon. Any thread, never blocks."""
        for link in self._links.values():
            link.ask(None)

    def hurry(self, seconds: float) -> None:
        """Register at once, and again for a while: another broker may have registered by this name. Any thread, never
        blocks."""
        for link in self._links.values():
            link.hurry(seconds)

    def unregister(self, seconds: float) -> None:
        """Stop registering, and unregister at every name server; returns within `seconds`, more or less."""
        deadline = self._clock.monotonic() + seconds
        for link in self._links.values():
            link.request_stop()
        for link in self._links.values():
            if not link.stop(max(0.05, deadline - self._clock.monotonic())):
                link.abort()

    def stop(self) -> None:
        """End the threads, if `unregister` has not."""
        self.unregister(1.0)

    @property
    def status(self) -> dict[str, bool]:
        """Name server -> True if the last attempt to register there succeeded."""
        return {address: link.registered for address, link in self._links.items()}

    def _take_answer(self, answer: RemotingCommand) -> None:
        """Take the master and the order configuration from a name server's answer. On a registration thread."""
        fields = answer.ext_fields
        if fields.get("masterAddr"):
            self.master = fields["masterAddr"], fields.get("haServerAddr", "")
        if not answer.body or self._on_orders is None:
            return
        try:
            orders: dict[str, str] = msgspec.json.decode(answer.body, type=_KVTable).table
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("registration: the order configuration does not parse: %s", error)
            return
        self._on_orders(orders)


class _KVTable(msgspec.Struct):
    table: dict[str, Any]
