"""Builds the parts of the window that need a running broker. Nothing else in the window is handed the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..broker.broker import Broker
from ..broker.sampler import Sampler
from ..namesrv.namesrv import NameServer
from ..remoting.dispatcher import WorkerPool
from ..remoting.server import RemotingServer
from .admin_pool import POOL, AdminPool
from .broker_checks import BrokerChecks, Table
from .charts import Charts
from .checks import Checks
from .client_views import ClientViews
from .disk_room import DiskRoom
from .figures import TrafficFigures, broker_metrics
from .group_commands import GroupCommands
from .group_views import GroupViews
from .lag import ConsumerLag
from .live import BrokerSource, LiveFrames
from .look_ahead import LookAhead
from .measures import Measures
from .messages import MessageViews
from .needs import Needs
from .options import OptionCommands, Options
from .overview import OverviewView, Standing
from .retention import RetentionPart
from .search import SearchViews
from .sending import TestSender
from .system import SystemView
from .system_snapshots import SystemInfo
from .topic_commands import TopicCommands
from .topic_views import TopicViews


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """What EngineAdmin asks, part by part. No part is handed this."""

    sampler: Sampler
    charts: Charts
    live: LiveFrames
    overview: OverviewView
    lag: ConsumerLag
    look_ahead: LookAhead
    topics: TopicViews
    topic_commands: TopicCommands
    groups: GroupViews
    group_commands: GroupCommands
    clients: ClientViews
    messages: MessageViews
    search: SearchViews
    sender: TestSender
    options: OptionCommands
    retention: RetentionPart
    metrics: Callable[[], dict[str, float]]
    system: Callable[[], SystemInfo]


def build(
    broker: Broker,
    namesrv: NameServer | None,
    pools: Mapping[str, WorkerPool],
    server: RemotingServer,
    options: Options,
    system: SystemView,
    process_checks: Checks,
) -> tuple[BrokerParts, Checks]:
    """The parts, and the checks that include the broker's."""
    store, topics, groups = broker.store, broker.topics, broker.groups
    pool = AdminPool(pools[POOL])
    sampler = broker.sampler
    measures = Measures()
    lag = ConsumerLag(topics, broker.clients, broker.offsets, sampler.index)
    group_views = GroupViews(groups, store, broker.locks, system.broker_name, lag, sampler, measures)
    clients = ClientViews(broker.clients)
    messages = MessageViews(topics, store, sampler.index)
    tables: dict[str, Table] = {"topics": topics, "groups": groups, "offsets": broker.offsets}
    checks = process_checks.including(BrokerChecks(store, tables, broker.queues_failure, broker.registration, options))
    disk = DiskRoom(options, sampler)
    traffic = TrafficFigures(store, broker.pull, server, sampler)
    standing = Standing(lag, group_views, clients, checks, Needs(sampler))
    live = LiveFrames(BrokerSource(traffic, standing, disk))
    sampler.after_sample.append(live.refresh)
    parts = BrokerParts(
        sampler=sampler,
        charts=Charts(sampler, topics),
        live=live,
        overview=OverviewView(traffic, standing, disk, system, store, topics, groups),
        lag=lag,
        look_ahead=LookAhead(sampler.index, store, measures),
        topics=TopicViews(topics, broker.offsets, broker.clients, store, lag, sampler, measures),
        topic_commands=TopicCommands(
            topics, broker.topic_service, pool, sampler.index, lag, _forget_route(namesrv, pools)
        ),
        groups=group_views,
        group_commands=GroupCommands(groups, topics, broker.group_service, pool, lag),
        clients=clients,
        messages=messages,
        search=SearchViews(topics, store, messages),
        sender=TestSender(topics, broker.own_appends, lambda: broker.send_properties.added, store.store_host, options),
        options=OptionCommands(options, topics, pool),
        retention=RetentionPart(store, topics, options, broker.cleaning, pool),
        metrics=lambda: broker_metrics(store, topics, groups, broker.pull),
        system=lambda: system.snapshot(store, broker.registration),
    )
    return parts, checks


def _forget_route(namesrv: NameServer | None, pools: Mapping[str, WorkerPool]) -> Callable[[str], None]:
    """Has the own name server forget a topic, as a tool would ask it to (216)."""
    if namesrv is None:
        return lambda topic: None
    routes, pool = namesrv.routes, pools["namesrv"]

    def forget(topic: str) -> None:
        pool.submit(lambda: routes.delete_topic(topic, None))

    return forget
