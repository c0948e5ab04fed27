"""The name server of a set's world: the real one on a machine of its own, which keeps nothing when it dies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from appliance.engine.namesrv.namesrv import NameServer
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.server import RemotingServer
from tests.world.machine import Machine, WorldLoop
from tests.world.threads import WorldClock

if TYPE_CHECKING:
    from tests.world.sets.network import SetNetwork
    from tests.world.threads import Scheduler

NAME, PORT = "ns", 9876
ROUTE = 105


class Route(NamedTuple):
    """A topic's route, for a client. brokers: id -> "host:port". queues: that it may read."""

    brokers: dict[int, str]
    queues: int


class NameServerMachine(Machine):
    def __init__(self, scheduler: Scheduler, network: SetNetwork) -> None:
        self.name = NAME
        super().__init__(scheduler, {}, {}, network, PORT)

    @property
    def log_failed(self) -> bool:
        return False

    def _start(self) -> None:
        self.lives += 1
        clock = WorldClock(self.scheduler)
        self.loop = WorldLoop(clock)
        self.server = RemotingServer(self.loop)
        self.server.keep_descriptors(4096)
        self.pools = {}
        self.dispatcher = Dispatcher(self.pools, (), clock)
        served = NameServer(self.config, self.loop, self.server, clock)
        served.register(self.dispatcher)
        self.loop.at_tick_end(self.server.flush_dirty)
        self.loop.start()
        for pool in self.pools.values():
            pool.start()
        served.start()


def route_in(answer: RemotingCommand | None) -> Route | None:
    """The route in an answer; None if it names none."""
    if answer is None or answer.code != 0:
        return None
    found = json.loads(answer.body)
    brokers = {int(number): address for one in found["brokerDatas"] for number, address in one["brokerAddrs"].items()}
    return Route(brokers, sum(one["readQueueNums"] for one in found["queueDatas"]))
