"""The members of a set, as the old engine put them together."""

from __future__ import annotations

from typing import Any

import appliance.engine.failover.brokers as brokers_module
from appliance.engine.broker.broker import Network, own_store_settings
from appliance.engine.broker.role import Kind, Role
from appliance.engine.failover.decision import Rules
from appliance.engine.failover.member_files import MemberFiles, Place
from appliance.engine.failover.service import FailoverService
from appliance.engine.failover.set_state import decode_state
from appliance.engine.failover.truncation import StoreCut
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.seat import Seat
from appliance.engine.store.dispatch import parse_delay_levels
from appliance.engine.store.paths import StorePaths
from appliance.engine.window.options import Options
from tests.world.machine import ROOT, WorldLoop
from tests.world.sets import administrators
from tests.world.sets import member as member_module
from tests.world.sets import world as world_module
from tests.world.sets.etcd import Client, Etcd
from tests.world.sets.member import BEAT_S, BEHIND_S, ELECT_AFTER_S, KEYS, NAMESRV, SET, Member
from tests.world.sets.world import SetWorld
from tests.world.threads import WorldClock

_MAX_LAG = 1 << 20
#: The answer to a pull of a queue that its topic does not have.
_NO_SUCH_QUEUE = 29


def translate() -> None:
    todays_seams = member_module.seams
    member_module.seams = lambda scheduler: [one for one in todays_seams(scheduler) if hasattr(one[0], one[1])]
    todays_init = Member.__init__

    def init(member: Member, *args: Any) -> None:
        *others, _ = args
        todays_init(member, *others, False)  # without users

    Member.__init__ = init  # type: ignore[method-assign]
    Member._start = _start  # type: ignore[method-assign]
    world_module.NO_SUCH_QUEUE = _NO_SUCH_QUEUE
    _judge_by_the_state_before()
    administrators.compare_schemas = lambda world, leader: None  # there are none


def _judge_by_the_state_before() -> None:
    """The state that a winner writes names nobody else in sync: who was is in the one before."""
    write, judge = Etcd.write, SetWorld._judge_election
    before: dict[Etcd, tuple[bytes, int]] = {}

    def noting(etcd: Etcd, key: str, value: bytes) -> int:
        last = etcd.keys.get(key)
        revision = write(etcd, key, value)
        if key == f"{KEYS}/state" and last is not None and decode_state(last[0]).epoch < decode_state(value).epoch:
            before[etcd] = last
        return revision

    def judging(world: SetWorld, leader: Member) -> None:
        keys = world.etcd.keys
        if world.etcd in before:
            world.etcd.keys = keys | {f"{KEYS}/state": before[world.etcd]}
        try:
            judge(world, leader)
        finally:
            world.etcd.keys = keys

    Etcd.write = noting  # type: ignore[method-assign]
    SetWorld._judge_election = judging  # type: ignore[method-assign]


def _start(member: Member) -> None:
    """`Member._start`, without users."""
    member.lives += 1
    disk, config = member.disk, member.config
    paths = StorePaths(ROOT / "store", ROOT / "rocketbox")
    disk.make_directory(paths.root)
    disk.make_directory(paths.own)
    clock = WorldClock(member.scheduler)
    member.loop = loop = WorldLoop(clock)
    member.server = server = RemotingServer(loop)
    server.keep_descriptors(4096)
    options = Options(config)
    options.load()
    here = Place(member.name, str(ROOT), member._number + 10 * member._before, f"boot {member._boots}")
    files = MemberFiles(paths, disk, SET, here)
    levels = parse_delay_levels(config.store.message_delay_level)
    cut = StoreCut(paths, disk, own_store_settings(config.broker, config.store, levels, 64), files, clock.wall_ms)
    cut.finish()
    member.pools = {}
    ha_socket: Any = member.network.listen(member.ha_address)
    member._listens = True
    addresses = Network(member.address, member.ha_address, (NAMESRV,), ha_socket)
    member.seat = Seat(
        options, loop, server, member.pools, addresses, clock, lambda acts: Dispatcher(member.pools, (), clock),
        lambda broker: None,
    )  # fmt: skip
    member.seat.fill(Role(Kind.FENCED, files.slot, why="it is not known yet who leads"))
    member.log_at_start = member.broker.store.log.written
    loop.at_tick_end(server.flush_dirty)
    loop.start()
    for pool in member.pools.values():
        pool.start()
    member.broker.start()
    settings = brokers_module.BrokersSettings(SET, member._synchronous, 5.0, member._min_in_sync)
    member.brokers = brokers = brokers_module.OwnBrokers(
        member.seat, loop, server, ha_socket, files, cut, settings, lambda: config, clock
    )
    rules = Rules(
        SET, files.uuid, member._synchronous, ELECT_AFTER_S, BEAT_S, BEHIND_S, _MAX_LAG, member._bootstrap, relay=0.0
    )
    member.service = service = FailoverService(
        lambda: Client(member._etcd, member.network, member), KEYS, files, brokers, rules, member.address,
        member.ha_address, "world", clock,
    )  # fmt: skip
    brokers.on_higher_epoch = service.met_epoch
    brokers.release_until = lambda: service.release_until
    service.start()
