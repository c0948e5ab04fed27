"""Builds the parts in order, starts them, and stops them in reverse order. Only this file has all of them.

Start: descriptor limit, listening sockets (a taken port fails before anything is touched), name server, broker with its
store, the I/O thread, pools, registration. Stop: unregister, stop reading, answer parked and pending requests, close
connections, end the threads, persist, close the store.
"""

from __future__ import annotations

import functools
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .clock import Clock
from .config import EngineConfig, parse_networks
from .disk import disk_usage
from .errors import StartError, Unavailable
from .host_port import EVERYWHERE, join_host_port, local_host, resolved, split_host_port
from .loop_calls import run_on_loop
from .own_files import tighten_at_start
from .remoting.dispatcher import Dispatcher, Gate, WorkerPool
from .remoting.event_loop import EventLoop
from .remoting.server import RemotingServer, listen, raise_descriptor_limit
from .replication.roles import NO_GUARD, Guard, takes_slaves
from .window.options import Options
from .wire_audit import NAMESRV_STEM, STEM, WireAudit
from .wire_gate import Act, WireGate

if TYPE_CHECKING:
    from .access.parts import Access
    from .broker.broker import Broker
    from .broker.role import Role
    from .failover.membership import Membership
    from .namesrv.namesrv import NameServer
    from .remoting.proxy_door import ProxyDoor
    from .replication.shared_secret import Greeting
    from .seat import Seat
    from .tls.between_brokers import BetweenBrokers
    from .tls.certificate import Certificate
    from .tls.door import Door
    from .window.process.system import Addresses
    from .window.window import Window

logger = logging.getLogger(__name__)

#: Free space that the store's file system must have at a start, beyond the size of a commit log file.
MIN_FREE_BYTES = 64 * 1024 * 1024
#: VIP = broker port - 2; the port behind the broker's is kept for replication.
VIP_DISTANCE = 2
UNREGISTER_S = 1.5
ANSWER_S = 3.0
LOOP_STOP_S = 2.0
DRAIN_S = 1.0
LOOP_CALL_S = 5.0
#: Part that `Broker.failures` names -> the check of /readyz that shows it, if that has another name.
_READY = {
    "topics": "configuration",
    "groups": "configuration",
    "timed": "timers",
    "rolled": "timers",
    "delayed": "delays",
}
_PORT_TRIES = 200
_PICKED_PORTS = range(26_000, 32_000)


class Engine:
    """The broker and the name server of this process."""

    def __init__(
        self,
        config: EngineConfig,
        gates: tuple[Gate, ...] = (),
        clock: Clock | None = None,
        role: Role | None = None,
    ) -> None:
        """gates: used on every port behind the one for administration, which records what they refuse. role: the
        broker's first role, for a member of a set with fail-over."""
        self.options = Options(config)
        self.broker_address: str | None = None
        self.namesrv_address: str | None = None
        self._clock = clock or Clock()
        self.loop = EventLoop(self._clock)
        self.server = RemotingServer(self.loop)
        self._seat: Seat | None = None
        self.namesrv: NameServer | None = None
        self._pools: dict[str, WorkerPool] = {}
        stem = STEM if "broker" in config.roles else NAMESRV_STEM
        self.wire_audit = WireAudit(config.data_dir / "rocketbox", self._clock, stem=stem)
        self._gates = gates
        #: Makes the proof that this broker has the secret of the brokers of its name; None without one.
        self._new_greeting: Callable[[], Greeting] | None = None
        self._guard = NO_GUARD
        #: With access control.
        self._access: Access | None = None
        #: With TLS.
        self._door: Door | None = None
        #: With balancers that send PROXY headers.
        self._proxy_door: ProxyDoor | None = None
        self._role = role
        self._membership: Membership | None = None
        #: The socket of the HA port of a member, in any role.
        self.ha_socket: socket.socket | None = None
        #: The address for slaves, as registered with the name servers.
        self.ha_address: str | None = None
        #: Gives up leadership, as the first step of a stop; set by the membership of a set.
        self.resign: Callable[[], None] | None = None
        # Guarded by _making_window.
        self._making_window = threading.Lock()
        self._window: Window | None = None
        #: Monotonic time at which everything ran; None before.
        self._started_at: float | None = None
        #: True while the broker is being replaced by one of another role.
        self._broker_gone = False

    @property
    def window(self) -> Window:
        """The window of console, API and metrics onto this process. Any thread; it is made on first use, since a broker
        alone needs none of its modules."""
        with self._making_window:
            if self._window is None:
                self._window = self._make_window()
            return self._window

    def _make_window(self) -> Window:
        from .window.window import Window

        window = Window(self.options, self.loop, self.server, self.wire_audit, self.addresses, lambda: self.health())
        if self._membership is not None and self.broker_address is not None and self.ha_address is not None:
            from .window.replicas.member import OwnReplicaSet

            window.take_set(OwnReplicaSet(self._membership, self.options, self.broker_address, self.ha_address))
        if self._door is not None:
            window.watch_certificate("certificate", self._door.certificate)
        if self._access is not None:
            from .access.parts import default_quotas
            from .window.access.users import WireUsers

            access = self._access
            window.take_users(
                WireUsers(
                    access.book,
                    lambda: self.config.broker.access_control,
                    access.gate.refusals,
                    access.brake,
                    lambda: default_quotas(self.config),
                    access.gate.own_check,
                    access.gate.claims,
                    access.last,
                    access.gate.in_clear.names,
                    serves_tls=self._door is not None,
                )
            )
        if self._started_at is not None:
            self._open_window(window)
        return window

    def _open_window(self, window: Window) -> None:
        assert self._started_at is not None
        window.start(None if self._broker_gone else self.broker, self.namesrv, self._pools, self._started_at)
        if self._broker_gone:
            window.broker_gone()

    def _close_window(self) -> None:
        with self._making_window:
            self._broker_gone = True
            if self._window is not None:
                self._window.broker_gone()

    def _broker_there(self, broker: Broker) -> None:
        with self._making_window:
            self._broker_gone = False
            if self._window is not None:
                self._window.broker_there(broker, self.namesrv, self._pools)
        access = self._access
        if access is not None and broker.role.appends:
            # Not on this thread, which renews the leadership meanwhile.
            self._pools["admin"].submit(lambda: access.make_first(self.config))

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the ports; None without TLS."""
        return None if self._door is None else self._door.certificate

    @property
    def broker(self) -> Broker | None:
        """The broker that serves now; None without the role, and while it is being replaced."""
        return None if self._seat is None else self._seat.broker

    @property
    def seat(self) -> Seat:
        """The seat, in which a broker is replaced by one of another role. Only with the broker role."""
        assert self._seat is not None
        return self._seat

    @property
    def config(self) -> EngineConfig:
        """The configuration in force; a change of options replaces the object."""
        return self.options.config

    def addresses(self) -> Addresses:
        """Return the addresses that are advertised to clients."""
        from .window.process.system import Addresses

        return Addresses(self.broker_address, self.namesrv_address)

    def readdress(self, address: str, seconds: float) -> bool:
        """Have clients told another "host:port" of the broker, which leads to the port where it listens; records and
        message ids keep the one of the start. True once this process's name server tells it, False if that takes more
        than `seconds`."""
        assert self.broker is not None, "a broker runs in this process"
        self.broker_address = address
        registration = self.broker.registration
        registration.readdress(address)
        return self.namesrv is None or registration.wait_registered(self._own_namesrv(), seconds)

    # --- start

    def start(self) -> None:
        """Return when every chosen role accepts connections and this process's name server routes the broker.

        Raises StartError with one sentence; everything opened so far is closed again.
        """
        sockets: list[socket.socket] = []
        try:
            self.server.keep_descriptors(raise_descriptor_limit())
            self.options.load()
            self._build(sockets)
            self._open_wire_audit()
        except BaseException:
            for sock in sockets:
                sock.close()
            if self.broker is not None:
                self.broker.store.let_go()
            if self._access is not None:
                self._access.close()
            raise
        self.loop.at_tick_end(self.server.flush_dirty)
        self.wire_audit.start()
        self.loop.start()
        if self._door is not None:
            self._door.start()
        if self._guard.tls is not None:
            self._guard.tls.start()
        for pool in self._pools.values():
            pool.start()
        if self.namesrv is not None:
            self.namesrv.start()
        if self.broker is not None:
            self.broker.start()
            registration = self.broker.registration
            own = self._own_namesrv() if self.namesrv_address is not None else ""
            if self.broker.role.is_told and own in registration.status and not registration.wait_registered(own, 5.0):
                logger.warning("engine: the own name server did not take the registration yet")
        with self._making_window:
            self._started_at = self._clock.monotonic()
            if self._window is not None:
                self._open_window(self._window)
        if self._membership is not None:
            self._begin_membership(self._membership)
        logger.info("engine: running broker=%s namesrv=%s", self.broker_address, self.namesrv_address)

    def _begin_membership(self, membership: Membership) -> None:
        assert self.ha_socket is not None
        assert self.broker_address is not None
        assert self.ha_address is not None
        membership.begin(self.seat, self.ha_socket, self.broker_address, self.ha_address)

    def _build(self, sockets: list[socket.socket]) -> None:
        config = self.config
        if config.broker.tls_mode != "disabled":
            from .tls.door import Door

            self._door = Door(config.broker, self.server, self._clock)
            self.server.door = self._door.take
        if config.broker.proxy_protocol_from:
            from .remoting.proxy_door import ProxyDoor

            networks = parse_networks(config.broker.proxy_protocol_from)
            self._proxy_door = ProxyDoor(networks, self.server, self.server.door)
            own = resolved(local_host(config.bind))
            registers = "broker" in config.roles and "namesrv" in config.roles and not config.broker.namesrv_addrs
            if registers and any(self._proxy_door.is_named(address) for address in own):
                raise StartError(
                    f"proxyProtocolFrom names {own[0]}, from where this broker registers at its own name server, "
                    "without a header: give a balancer on this machine another source address, as 127.0.0.2."
                )
            self.server.door = self._proxy_door.take
        advertised = config.advertise or _advertised(config.bind)
        secret = None
        if config.store.ha_secret_file and "broker" in config.roles:
            from .replication.shared_secret import Greeting, read_secret

            secret = read_secret(config.store.ha_secret_file)
            self._new_greeting = functools.partial(Greeting, secret)
        self._guard = Guard(secret or b"", self._tls_between_brokers())
        if config.broker.access_control != "off":
            from .access.parts import Access

            self._access = Access(config, advertised, self._clock, self.loop, self.server, self.wire_audit, secret)
            self.options.on_change(self._access.take_options)
            self.options.refusal_of = self._access.refusal_of
            if "broker" in config.roles:
                self._access.change_at(lambda: self.broker)
        namesrv_socket = None
        if "namesrv" in config.roles:
            namesrv_socket = listen(config.bind, config.namesrv_port)
            sockets.append(namesrv_socket)
            self.namesrv_address = join_host_port(advertised, namesrv_socket.getsockname()[1])
        if "broker" in config.roles:
            main, vip = self._listen_broker(sockets)
            port = main.getsockname()[1]
            self.broker_address = join_host_port(advertised, config.advertise_port or port)
            self._check_disk()
            tighten_at_start(config.data_dir / "rocketbox")
            if config.store.ha_store:
                self._join_set()
            ha_port, ha_socket = self._listen_for_slaves(port, sockets)
            ha_address = join_host_port(config.broker.ha_advertise or advertised, ha_port)
            self._build_broker(main, vip, ha_address, ha_socket, _address_of(advertised, config.bind))
        else:
            tighten_at_start(config.data_dir / "rocketbox")
        if namesrv_socket is not None:
            from .namesrv.namesrv import NameServer

            self.namesrv = NameServer(config, self.loop, self.server, self._clock)
            dispatcher = self._dispatcher(self.namesrv.wire_acts())
            self.namesrv.register(dispatcher)
            self.server.listen(namesrv_socket, dispatcher)
            if self.broker is not None:
                self._tell_directly(self.broker)

    def _tls_between_brokers(self) -> BetweenBrokers | None:
        """Return TLS for slaves, or to the broker that is followed; None if there is none of either, or no TLS."""
        store = self.config.store
        follows = self._role is not None or bool(store.ha_store) or store.broker_role == "SLAVE"
        if self._door is None or "broker" not in self.config.roles or not (follows or takes_slaves(store)):
            return None
        from .tls.between_brokers import BetweenBrokers

        return BetweenBrokers(self.config.broker, self._door.certificate, self._clock)

    def _join_set(self) -> None:
        """Make this broker a member of a set: it starts fenced, and takes a role once the engine runs."""
        from .failover.membership import Membership

        self._membership = Membership(self.options, self._clock)
        self._role = self._membership.first_role
        self.resign = self._membership.resign

    def _broker_made(self, broker: Broker) -> None:
        broker.topic_service.forget_more = lambda topic: self._forget_schema(broker, topic)
        if self._access is not None:
            broker.transactions.check.may_be_asked = self._access.gate.may_send
        self._tell_directly(broker)

    def _forget_schema(self, broker: Broker, topic: str) -> None:
        """Remove the schema of a topic that is being deleted while this process has no window yet, which does so
        itself. Raises OSError."""
        from .broker.schema_copies import FILE

        if broker.store.disk.exists(broker.store.paths.own / FILE):
            try:
                self.window.schemas.forget(topic)
            except Unavailable as error:
                raise OSError(f"its schema is still there: {error}") from None

    def _tell_directly(self, broker: Broker) -> None:
        if self.namesrv is not None:
            broker.registration.tell_directly(self._own_namesrv(), self.namesrv.register_again)

    def _open_wire_audit(self) -> None:
        try:
            self.wire_audit.open()
        except OSError as error:
            raise StartError(f"The log of administrative requests cannot be kept: {error}.") from None

    def _listen_for_slaves(self, port: int, sockets: list[socket.socket]) -> tuple[int, socket.socket | None]:
        """Return the port for slaves, and its socket if this broker accepts slaves."""
        ha_port = self.config.store.ha_listen_port or port + 1
        if self._role is None and not takes_slaves(self.config.store):
            return ha_port, None
        sock = listen(self.config.bind, ha_port)
        sockets.append(sock)
        return ha_port, sock

    def _build_broker(
        self, main: socket.socket, vip: socket.socket, ha_address: str, ha_socket: socket.socket | None, ip: str
    ) -> None:
        from .broker.registration import Network
        from .broker.role import Ties
        from .seat import Seat

        assert self.broker_address is not None
        namesrv_addrs = self.config.broker.namesrv_addrs
        if self.namesrv_address is not None and not namesrv_addrs:
            namesrv_addrs = (self._own_namesrv(),)
        ties = Ties(self._new_greeting, None if self._access is None else self._access.new_copies, self._guard)
        network = Network(self.broker_address, ha_address, namesrv_addrs, ha_socket, ip, ties)
        self.ha_address, self.ha_socket = ha_address, ha_socket
        self._seat = Seat(
            self.options,
            self.loop,
            self.server,
            self._pools,
            network,
            self._dispatcher,
            self._broker_made,
        )
        dispatcher, vip_dispatcher = self._seat.fill(self._role)
        self._seat.on_gone, self._seat.on_there = self._close_window, self._broker_there
        self.server.listen(main, dispatcher)
        self.server.listen(vip, vip_dispatcher)

    def _dispatcher(self, acts: Mapping[int, Act]) -> Dispatcher:
        access = self._access
        if access is None:
            return Dispatcher(self._pools, (self._wire_gate(acts), *self._gates), self._clock)
        gates: tuple[Gate, ...] = (
            self._wire_gate({**acts, **access.processor.acts()}),
            access.gate,
            *self._gates,
        )
        dispatcher = access.new_dispatcher(self._pools, gates)
        access.processor.register(dispatcher)
        if access.members is not None:
            access.members.register(dispatcher)
        return dispatcher

    def _wire_gate(self, acts: Mapping[int, Act]) -> WireGate:
        return WireGate(self.config.wire_admin, self.wire_audit, self._clock, acts)

    def _own_namesrv(self) -> str:
        """Return the address at which this process reaches its own name server: the advertised one if namesrvAddr names
        it, else the bind address."""
        assert self.namesrv_address is not None
        if self.namesrv_address in self.config.broker.namesrv_addrs:
            return self.namesrv_address
        return join_host_port(local_host(self.config.bind), split_host_port(self.namesrv_address)[1])

    def _listen_broker(self, sockets: list[socket.socket]) -> tuple[socket.socket, socket.socket]:
        """Return the main and the VIP socket. For port 0, find three free neighbouring ports."""
        bind, port = self.config.bind, self.config.broker_port
        if port:
            main = listen(bind, port)
            sockets.append(main)
            vip = listen(bind, port - VIP_DISTANCE)
            sockets.append(vip)
            return main, vip
        # Below the kernel's range of outgoing ports, in which a neighbouring port is often in use.
        for port in random.sample(_PICKED_PORTS, _PORT_TRIES):
            try:
                main = listen(bind, port)
            except StartError:
                continue
            try:
                vip = listen(bind, port - VIP_DISTANCE)
                try:
                    listen(bind, port + 1).close()
                except StartError:
                    vip.close()
                    raise
            except StartError:
                main.close()
                continue
            sockets += [main, vip]
            return main, vip
        raise StartError("No three neighbouring free ports were found for the broker.")

    def _check_disk(self) -> None:
        """Raise StartError if the first commit log file would not fit on the disk.

        A store that has one starts however full the disk is: it serves its messages, and deletes expired ones.
        """
        log_dir = self.config.store_dir / "commitlog"
        if log_dir.is_dir() and any(log_dir.iterdir()):
            return
        path = self.config.store_dir
        while not path.exists():
            path = path.parent
        free = disk_usage(path).free_bytes
        needed = MIN_FREE_BYTES + self.config.store.mapped_file_size_commit_log
        if free < needed:
            raise StartError(
                f"Too little disk space in {path}: {free >> 20} MiB are free, {needed >> 20} MiB are needed "
                "(mappedFileSizeCommitLog may be set smaller)."
            )

    # --- stop

    def stop(self) -> None:
        """Stop within 10 s: no acknowledged message is lost, and parked pulls are answered first."""
        if self.resign is not None:
            self.resign()  # so that another member can lead at once
        broker = self.broker
        with self._making_window:
            if self._window is not None:
                self._window.stop()
        if broker is not None:
            broker.unregister(UNREGISTER_S)
        if self.loop.alive:
            self._on_loop(self._stop_reading)
            if broker is not None:
                broker.answer_everything(ANSWER_S)
            self._on_loop(self.server.close_all)
            self._drain(DRAIN_S)
            self._on_loop(self.server.drop_all)
        if self._door is not None:
            self._door.stop(1.0)
        for pool in self._pools.values():
            pool.stop(1.0)
        ended = self.loop.stop(LOOP_STOP_S)
        if self.namesrv is not None:
            self.namesrv.stop()
        if broker is not None and ended:
            broker.stop()
        if self._guard.tls is not None:
            self._guard.tls.stop()
        if self.ha_socket is not None:
            self.ha_socket.close()
        self.wire_audit.stop()
        if self._access is not None:
            self._access.close()
        if not ended:
            # It may wake up and append at any moment; another writer beside it would damage the store.
            logger.error("engine: the I/O thread does not end; the next start recovers the store as after a crash")
            return
        self.loop.close()
        logger.info("engine: stopped")

    def _stop_reading(self) -> None:
        self.server.stop_accepting()
        if self._door is not None:
            self._door.turn_away()
        if self._proxy_door is not None:
            self._proxy_door.turn_away()
        self.server.pause_reading(True)

    def _drain(self, seconds: float) -> None:
        """Give slow readers a moment to take their last answers."""
        end = self._clock.monotonic() + seconds
        while self.server.connections and self._clock.monotonic() < end:
            time.sleep(0.01)

    def _on_loop(self, function: Callable[[], object]) -> None:
        end = self._clock.monotonic() + LOOP_CALL_S
        run_on_loop(self.loop.call_soon, function, lambda: self._clock.monotonic() >= end)

    def health(self) -> dict[str, dict[str, object]]:
        """Return check -> {"ok", "detail"}; details are for the operator only."""
        found: dict[str, dict[str, object]] = {
            "io": {"ok": self.loop.alive, "detail": "running" if self.loop.alive else "the I/O thread has ended"}
        }
        if self.broker is not None:
            for part, failure in self.broker.failures().items():
                name = _READY.get(part, part)
                if name not in found or (failure is not None and found[name]["ok"]):
                    found[name] = {"ok": failure is None, "detail": failure or "well"}
        elif self._seat is not None:
            found["broker"] = {"ok": False, "detail": self._seat.why_empty}
        return found


def _address_of(advertised: str, bind: str) -> str:
    """Return the address for records and message ids, which have no room for a name: the one that the advertised name
    resolves to, else this machine's."""
    found = resolved(advertised)
    if found:
        return found[0]
    own = resolved(_advertised(bind)) or ("127.0.0.1",)
    logger.warning("engine: %s has no address on this machine; message ids hold %s", advertised, own[0])
    return own[0]


def _advertised(bind: str) -> str:
    """Return the address to advertise: `bind`, or the address of the default route if that means all addresses."""
    if bind not in EVERYWHERE:
        return bind
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # Connecting a datagram socket sends nothing; it only asks the routing table.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()
