"""A member of a set: a machine whose broker's role fail-over decides, with a wall clock of its own.

The parts are those that `Engine` and `Membership` put together, without ports, name server and console.
"""

from __future__ import annotations

import functools
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import appliance.engine.failover.brokers as brokers_module
import appliance.engine.failover.machine as machine_module
import appliance.engine.failover.member_files as files_module
import appliance.engine.failover.service as service_module
from appliance.engine.access.parts import Access
from appliance.engine.broker.broker import Broker
from appliance.engine.broker.open_store import store_settings
from appliance.engine.broker.registration import Network as Addresses
from appliance.engine.broker.role import NO_TIES, Kind, Role, Ties
from appliance.engine.failover.brokers import OwnBrokers
from appliance.engine.failover.decision import Rules, Wish
from appliance.engine.failover.member_files import MemberFiles, Place
from appliance.engine.failover.service import FailoverService
from appliance.engine.failover.settings import MemberSettings
from appliance.engine.failover.truncation import StoreCut
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.replication.shared_secret import Greeting
from appliance.engine.seat import Seat
from appliance.engine.store.dispatch import parse_delay_levels
from appliance.engine.store.paths import StorePaths
from appliance.engine.window.options import Options
from appliance.engine.wire_audit import WireAudit
from tests.world.disk import WorldDisk
from tests.world.machine import ROOT, SECRET, Machine, WorldLoop
from tests.world.schemas import forget_schemas
from tests.world.sets.etcd import Client, Etcd
from tests.world.sets.name_server import PORT as NAMESRV_PORT
from tests.world.threads import Scheduler, WallClock, WorldClock, replaced

if TYPE_CHECKING:
    from tests.world.sets.network import SetNetwork

SET, KEYS = "set-a", "/rocketbox/set-a"
ELECT_AFTER_S, BEAT_S, BEHIND_S = 5.0, 1.0, 5.0
#: Bytes of one log file; a fail-over cuts less.
_MAX_LAG = 1 << 20
NAMESRV = f"127.0.0.1:{NAMESRV_PORT}"


class Member(Machine):
    """roles: by time, what it was."""

    network: SetNetwork

    def __init__(
        self,
        scheduler: Scheduler,
        number: int,
        store: dict[str, Any],
        network: SetNetwork,
        etcd: Etcd,
        min_in_sync: int,
        bootstrap: bool,
        wall_ms: int,
        synchronous: bool,
        users: bool,
    ) -> None:
        """users: members share a secret, and users of the wire. Clients here do not sign: access
        control reports, and refuses nothing."""
        self.name = f"m{number}"
        self.wall = WallClock(scheduler, wall_ms)
        self._etcd, self._min_in_sync, self._bootstrap = etcd, min_in_sync, bootstrap
        self._number = number
        self._synchronous = synchronous
        #: Machines that had its name before.
        self._before = 0
        #: Counts how often the machine lost its power.
        self._boots = 0
        self._listens = False
        self.service: FailoverService | None = None
        self._users = users
        super().__init__(
            scheduler, {"access_control": "report"} if users else {}, store, network, 10_911 + 10_000 * number
        )

    @property
    def listens(self) -> bool:
        return self._listens and not self.disk.dead

    @property
    def broker(self) -> Broker:
        return self.seat.broker  # type: ignore[return-value]

    @broker.setter
    def broker(self, broker: Broker) -> None:
        raise AssertionError("the seat has it")

    @property
    def dispatcher(self) -> Dispatcher:
        return self.seat.ports[0]

    @dispatcher.setter
    def dispatcher(self, dispatcher: Dispatcher) -> None:
        raise AssertionError("the seat has it")

    @property
    def role(self) -> str:
        """Its role in its own view; "" while it does not run."""
        return self.brokers.role if self.running and not self.disk.dead and self.service is not None else ""

    @property
    def serves(self) -> bool:
        return self.role == "leader" and self.seat.broker is not None

    def kill(self, mode: str, chance: random.Random) -> None:
        if mode != "all":
            self._boots += 1
        else:
            self.network.hang_up_all(self)
        super().kill(mode, chance)

    def be_new(self) -> None:
        """Another machine takes its place, with an empty disk."""
        self._before += 1
        self.disk.close_all()
        self.disk = WorldDisk(lambda: self.scheduler.wall_ms, self._pause)
        self.disk.make_directory(ROOT)

    def _end(self) -> None:
        self._listens, self.service = False, None
        super()._end()

    def _start(self) -> None:
        self.lives += 1
        disk, config = self.disk, self.config
        paths = StorePaths(ROOT / "store", ROOT / "rocketbox")
        disk.make_directory(paths.root)
        disk.make_directory(paths.own)
        clock = WorldClock(self.scheduler)
        self.loop = loop = WorldLoop(clock)
        self.server = server = RemotingServer(loop)
        server.keep_descriptors(4096)
        options = Options(config)
        options.load()
        files = MemberFiles(
            paths, disk, SET, Place(self.name, str(ROOT), self._number + 10 * self._before, f"boot {self._boots}")
        )
        levels = parse_delay_levels(config.store.message_delay_level)
        cut = StoreCut(paths, disk, store_settings(config.broker, config.store, levels, 64), files, clock.wall_ms)
        cut.finish()
        self.pools: dict[str, Any] = {}
        ha_socket: Any = self.network.listen(self.ha_address)
        self._listens = True
        ties = NO_TIES
        if self._users:
            audit = WireAudit(paths.own, clock, disk)
            self.access = access = Access(config, "127.0.0.1", clock, loop, server, audit, SECRET)
            access.change_at(lambda: self.seat.broker)
            ties = Ties(functools.partial(Greeting, SECRET), access.new_copies)
        addresses = Addresses(self.address, self.ha_address, (NAMESRV,), ha_socket, ties=ties)
        self.seat = Seat(
            options,
            loop,
            server,
            self.pools,
            addresses,
            lambda acts: self._new_dispatcher(clock),
            lambda broker: forget_schemas(broker, self.pools, config),
        )
        self.seat.fill(Role(Kind.FENCED, files.slot, why="it is not known yet who leads"))
        self.log_at_start = self.broker.store.log.written
        loop.at_tick_end(server.flush_dirty)
        loop.start()
        for pool in self.pools.values():
            pool.start()
        self.broker.start()
        settings = MemberSettings(
            SET, self._synchronous, ELECT_AFTER_S, BEAT_S, BEHIND_S, self._min_in_sync, _MAX_LAG, 5.0,
            (), 0.0, self._bootstrap,
        )  # fmt: skip
        self.brokers = brokers = OwnBrokers(self.seat, ha_socket, files, cut, settings, lambda: config)
        self.service = service = FailoverService(
            lambda: Client(self._etcd, self.network, self), KEYS, files, brokers, _rules(settings, files.uuid),
            self.address, self.ha_address, "world", clock,
        )  # fmt: skip
        brokers.on_higher_epoch = service.met_epoch
        brokers.release_until = lambda: service.release_until
        service.start()

    def _new_dispatcher(self, clock: WorldClock) -> Dispatcher:
        dispatcher = Dispatcher(self.pools, (), clock)
        if self.access is not None and self.access.members is not None:
            self.access.members.register(dispatcher)
        return dispatcher

    def stop(self) -> bool:
        """Stop it as SIGTERM does: it gives its office up first. False if the disk killed it on its way."""

        def stop() -> None:
            service, loop = self.service, self.loop
            if service is not None:
                service.ask(Wish("resign"), 3.0)
                service.stop(2.0)
                self.brokers.stop()
            broker = self.seat.broker
            if broker is not None:
                broker.unregister(1.0)
            loop.call_soon(lambda: (self.server.stop_accepting(), self.server.pause_reading(True)))
            if broker is not None:
                broker.answer_everything(3.0)
            loop.call_soon(self.server.close_all)
            for pool in self.pools.values():
                pool.stop(1.0)
            assert loop.stop(2.0), "the loop does not end"
            if broker is not None:
                broker.stop()

        self._do(stop, "stop")
        self._receive()
        clean = not self.disk.dead
        self._end()
        return clean


def _rules(settings: MemberSettings, own: str) -> Rules:
    return Rules(
        set=settings.set,
        uuid=own,
        synchronous=settings.synchronous,
        elect_after=settings.elect_after_s,
        beat_interval=settings.beat_s,
        slave_silence=settings.behind_s,
        min_in_sync=settings.min_in_sync,
        max_lag=settings.max_lag_bytes,
        bootstrap=settings.bootstrap,
        relay=settings.relay_s,
    )


def seams(scheduler: Scheduler) -> list[tuple[object, str, object]]:
    """Return what stands in for parts of fail-over."""

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=scheduler.chance.getrandbits(128), version=4)

    uuids = SimpleNamespace(uuid4=uuid4, UUID=uuid.UUID)
    return [
        (service_module, "uuids", uuids),
        (files_module, "uuids", uuids),
        (brokers_module, "gc", SimpleNamespace(collect=lambda: 0)),
        (machine_module, "_POLL_S", 0.5),
    ]


@contextmanager
def simulated_membership(scheduler: Scheduler) -> Iterator[None]:
    """Uuids come from the seed, garbage is not collected, and members look half as often for changes without a call."""
    with replaced(seams(scheduler)):
        yield
