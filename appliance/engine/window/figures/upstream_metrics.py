"""The figures under the names of Apache's broker (5.x, Prometheus) and of its exporter, for existing dashboards.

Figures that upstream counts by topic and RocketBox for the broker only, bytes above all, lack the label `topic`: a sum
over it is the same. An unknown figure has no sample. Counters do not go back while the process runs; those made of
queue offsets keep their values over restarts.
Source: RocketMQ 5.3.3 BrokerMetricsConstant, DefaultStoreMetricsConstant; rocketmq-exporter 0.0.3 RMQMetricsCollector.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ...broker.clients import ClientManager, ConsumerGroupInfo
from ...broker.groups import is_system_group
from ...protocol.codes import version_name
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..messages.queue_reader import QueueReader
from ..replicas.views import ReplicationView
from ..sources import Sources
from .lag import BROADCASTING, LagSnapshot, lag_time_ms
from .measures import Budget
from .traffic import BrokerFigures

#: Time limit for reading store times in one scrape; a group that is not reached has no sample of its lag time.
READ_BUDGET_MS = 40
#: Topics, and pairs of a group and a topic, at most: a pair has a dozen samples, and a scrape of both together takes
#: some 0.1 s of a processor. Groups with clients come first; pairs beyond this are only counted, and the console's
#: pages show all.
MOST_TOPICS = 2500
MOST_PAIRS = 1000

GAUGE, COUNTER = "gauge", "counter"


class Sample(NamedTuple):
    """labels: name and value, in upstream's order."""

    name: str
    kind: str
    labels: tuple[tuple[str, str], ...]
    value: float


class BrokerNames(NamedTuple):
    """Values of labels that name this broker. address: "host:port"."""

    cluster: str
    broker: str
    address: str
    version: str
    boot: str


class UpstreamMetrics:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        names: Callable[[], BrokerNames],
        clients: ClientManager,
        runtime_info: Callable[[], Mapping[str, str]],
        figures: BrokerFigures,
        permission: Callable[[], int],
        replication: ReplicationView,
    ) -> None:
        """names, runtime_info (the answer to request 28), permission (of the broker): called at each scrape."""
        # Constant after construction.
        self._store, self._topics, self._sampler = sources.store, sources.topics, sources.sampler
        self._lag, self._lag_times = sources.lag, sources.lag_times
        self._measures, self._pulled = sources.measures, sources.pulled
        self._names = names
        self._clients = clients
        self._runtime_info = runtime_info
        self._figures = figures
        self._permission = permission
        self._replication = replication

    def samples(self) -> Iterator[Sample]:
        names = self._names()
        progress = self._lag.snapshot()
        info = self._runtime_info()
        yield from self._broker(names, info)
        yield from self._connections(names, progress)
        yield from self._of_topics(names, progress)
        yield from self._of_groups(names, progress)
        yield from _runtime(names, info)

    # --- the broker

    def _broker(self, names: BrokerNames, info: Mapping[str, str]) -> Iterator[Sample]:
        base = _node(names)

        def own(name: str, value: float, **labels: str) -> Sample:
            kind = COUNTER if name.endswith("_total") else GAUGE
            return Sample(f"rocketmq_{name}", kind, (*base, *labels.items()), value)

        for processor, key in (
            ("send", "sendThreadPoolQueueSize"),
            ("pull", "pullThreadPoolQueueSize"),
            ("query_message", "queryThreadPoolQueueSize"),
        ):
            yield own("processor_watermark", _number(info[key]) or 0, processor=processor)
        yield own("broker_permission", self._permission())
        disk = {"storage_type": "local", "storage_medium": "disk"}
        for name, value in self._figures.upstream():
            yield own(name, value, **(disk if name.startswith("storage_") else {}))
        oldest = self._store.earliest_time_ms()
        if oldest >= 0:
            yield own("storage_message_reserve_time", max(0, int(time.time() * 1000) - oldest), **disk)
        exporter = (("cluster", names.cluster), ("brokerIP", names.address), ("broker", names.broker))
        for name, which in (("broker_tps", "in"), ("broker_qps", "out")):
            rate = self._sampler.total_rate(which)
            if rate is not None:
                yield Sample(f"rocketmq_{name}", GAUGE, exporter, rate)
        lag = self._replication.lag_bytes()
        if lag is not None:
            yield Sample("rocketmq_broker_commitlog_diff", GAUGE, exporter, lag)
        slaves = self._replication.snapshot().slaves
        for slave in slaves:
            if slave.behind_bytes is not None:
                yield Sample("rocketbox_slave_lag_bytes", GAUGE, (("slave", slave.address),), slave.behind_bytes)
        for slave in slaves:
            if slave.behind_ms is not None:
                yield Sample("rocketbox_slave_lag_seconds", GAUGE, (("slave", slave.address),), slave.behind_ms / 1000)

    def _connections(self, names: BrokerNames, progress: LagSnapshot) -> Iterator[Sample]:
        base = _node(names)
        producers: Counter[tuple[str, str]] = Counter()
        for group in self._clients.producer_groups():
            channels = self._clients.producer_channels(group)
            producers.update((one.language.lower(), version_name(one.version).lower()) for one in channels)
            labels = (("cluster", names.cluster), ("broker", names.broker), ("group", group))
            yield Sample("rocketmq_producer_count", GAUGE, labels, len(channels))
        for (language, version), count in producers.items():
            of_kind = (("language", language), ("version", version), ("protocol_type", "remoting"))
            yield Sample("rocketmq_producer_connections", GAUGE, (*base, *of_kind), count)
        for group, info in progress.online.items():
            channels = list(info.channels.values())
            modes: Counter[tuple[str, str]] = Counter(
                (one.language.lower(), version_name(one.version).lower()) for one in channels
            )
            mode = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
            for (language, version), count in modes.items():
                own = (
                    ("consumer_group", group),
                    ("language", language),
                    ("version", version),
                    ("consume_mode", mode.get(info.consume_type, info.consume_type.lower())),
                    ("protocol_type", "remoting"),
                    ("is_system", _flag(is_system_group(group))),
                )  # fmt: skip
                yield Sample("rocketmq_consumer_connections", GAUGE, (*base, *own), count)
            for one in channels:
                where = (("caddr", one.conn.remote_host), ("localaddr", one.client_id), ("group", group))
                yield Sample("rocketmq_group_count", GAUGE, where, 1)

    # --- topics

    def _of_topics(self, names: BrokerNames, progress: LagSnapshot) -> Iterator[Sample]:
        base = _node(names)
        span = self._sampler.span()
        exporter = (("cluster", names.cluster), ("broker", names.broker))
        for number, (topic, queues) in enumerate(progress.queues.items()):
            if number >= MOST_TOPICS:
                return
            stored = sum(queue.max_offset for queue in queues)
            labels = (*exporter, ("topic", topic))
            if topic.startswith(DLQ_PREFIX):
                group = topic[len(DLQ_PREFIX) :]
                yield Sample("rocketmq_topic_dlq_offset", GAUGE, (*exporter, ("group", group)), stored)
                whose = (("consumer_group", group), ("is_system", _flag(is_system_group(group))))
                yield Sample("rocketmq_send_to_dlq_messages_total", COUNTER, (*base, *whose), stored)
                continue
            if topic.startswith(RETRY_PREFIX):
                yield Sample("rocketmq_topic_retry_offset", GAUGE, labels, stored)
                continue
            config = self._topics.get(topic)
            kind = "normal" if config is None else config.attributes.get("message.type", "normal").lower()
            system = _flag(self._topics.is_system_topic(topic))
            own = (("topic", topic), ("message_type", kind), ("is_system", system))
            yield Sample("rocketmq_messages_in_total", COUNTER, (*base, *own), stored)
            yield Sample("rocketmq_producer_offset", GAUGE, labels, stored)
            rate = self._sampler.rate(self._sampler.topics.get(topic), span)
            if rate is not None:
                yield Sample("rocketmq_producer_tps", GAUGE, labels, rate)

    # --- groups

    def _of_groups(self, names: BrokerNames, progress: LagSnapshot) -> Iterator[Sample]:
        base = _node(names)
        budget = Budget(READ_BUDGET_MS)
        span = self._sampler.span()
        pairs = 0
        with QueueReader(self._store) as reader:
            for group in [*progress.online, *(progress.entries.keys() - progress.online.keys())]:
                info = progress.online.get(group)
                system = is_system_group(group)
                topics = progress.topics_of(group)
                for topic in topics:
                    pairs += 1
                    if pairs > MOST_PAIRS:
                        continue
                    backlog = progress.backlog(group, topic)
                    age: int | None = None
                    if backlog.lag is not None and len(topics) == 1:
                        age, _ = self._lag_times.of(group, progress.backlog(group), reader, budget)
                    elif backlog.lag is not None and not (backlog.lagging and budget.spent):
                        age, _ = lag_time_ms(backlog, reader, self._measures)
                    labels = (
                        *base, ("topic", topic), ("consumer_group", group), ("is_retry", "false"),
                        ("is_system", _flag(system)),
                    )  # fmt: skip
                    pair = _Pair(group, topic, info, backlog.lag, age)
                    yield from self._lag_of(names, labels, progress, pair, span)
                if pairs > MOST_PAIRS:
                    continue
                retries, letters = progress.retries(group), progress.dead_letters(group)
                for name, prefix, value in (
                    ("rocketmq_group_retrydiff", RETRY_PREFIX, retries),
                    ("rocketmq_group_dlqdiff", DLQ_PREFIX, letters),
                ):
                    if prefix + group in progress.queues:
                        yield Sample(name, GAUGE, _diff(group, prefix + group, info), value)

        yield Sample("rocketbox_metrics_pairs_left_out", GAUGE, (), max(0, pairs - MOST_PAIRS))

    def _lag_of(
        self,
        names: BrokerNames,
        labels: tuple[tuple[str, str], ...],
        progress: LagSnapshot,
        pair: _Pair,
        span: tuple[int, float],
    ) -> Iterator[Sample]:
        group, topic, info, lag, age = pair
        sampler = self._sampler
        moves = sampler.pairs.get((topic, group))
        exporter = (("cluster", names.cluster), ("broker", names.broker), ("topic", topic), ("group", group))
        if moves is not None:
            yield Sample("rocketmq_messages_out_total", COUNTER, labels, moves.total)
        rate = sampler.rate(moves, span)
        if rate is not None:
            yield Sample("rocketmq_consumer_tps", GAUGE, exporter, rate)
            yield Sample("rocketmq_group_consume_tps", GAUGE, exporter, rate)
        if lag is None:
            return
        offsets = progress.committed(group, topic)
        flight = 0
        for queue in progress.readable(topic):
            offset = offsets.get(queue.queue_id)
            if offset is not None:
                pulled = min(self._pulled.get(group, queue), queue.max_offset)
                flight += max(0, pulled - max(offset, queue.min_offset))
        yield Sample("rocketmq_consumer_lag_messages", GAUGE, labels, lag)
        yield Sample("rocketmq_consumer_inflight_messages", GAUGE, labels, flight)
        yield Sample("rocketmq_consumer_ready_messages", GAUGE, labels, max(0, lag - flight))
        stored = sum(queue.max_offset for queue in progress.readable(topic))
        yield Sample("rocketmq_consumer_offset", GAUGE, exporter, stored)
        yield Sample("rocketmq_group_consume_total_offset", GAUGE, exporter, sum(offsets.values()))
        yield Sample("rocketmq_group_diff", GAUGE, _diff(group, topic, info), lag)
        yield Sample("rocketmq_message_accumulation", GAUGE, exporter, lag)
        if age is not None:
            yield Sample("rocketmq_consumer_lag_latency", GAUGE, labels, age)
            yield Sample("rocketmq_group_get_latency_by_storetime", GAUGE, exporter, age)


class _Pair(NamedTuple):
    """A group and a topic that it reads. info: None if it is offline. lag: in messages; age_ms: of the oldest of them;
    None if unknown."""

    group: str
    topic: str
    info: ConsumerGroupInfo | None
    lag: int | None
    age_ms: int | None


def _node(names: BrokerNames) -> tuple[tuple[str, str], ...]:
    return (("cluster", names.cluster), ("node_type", "broker"), ("node_id", names.broker))


def _diff(group: str, topic: str, info: ConsumerGroupInfo | None) -> tuple[tuple[str, str], ...]:
    online = 0 if info is None else len(info.channels)
    model = "1" if info is not None and info.message_model == BROADCASTING else "0"
    return (("group", group), ("topic", topic), ("countOfOnlineConsumers", str(online)), ("msgModel", model))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _number(text: str) -> float | None:
    """Return the first number of a figure of request 28; None if it does not begin with one."""
    words = text.split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


#: Exporter's name behind rocketmq_brokeruntime_ -> (name in the answer to request 28, which number of its value).
_RUNTIME = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", 0),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", 0),
    "msg_gettotal_yesterdaymorning": ("msgGetTotalYesterdayMorning", 0),
    "msg_puttotal_yesterdaymorning": ("msgPutTotalYesterdayMorning", 0),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", 0),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", 0),
    "dispatch_behind_bytes": ("dispatchBehindBytes", 0),
    "put_message_size_total": ("putMessageSizeTotal", 0),
    "put_message_average_size": ("putMessageAverageSize", 0),
    "query_threadpool_queue_capacity": ("queryThreadPoolQueueCapacity", 0),
    "earliest_message_timestamp": ("earliestMessageTimeStamp", 0),
    "send_threadpool_queue_size": ("sendThreadPoolQueueSize", 0),
    "putmessage_times_total": ("putMessageTimesTotal", 0),
    "commitlog_disk_ratio": ("commitLogDiskRatio", 0),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", 0),
    "pull_threadpoolqueue_capacity": ("pullThreadPoolQueueCapacity", 0),
    "pull_threadpoolqueue_size": ("pullThreadPoolQueueSize", 0),
    "query_threadpoolqueue_size": ("queryThreadPoolQueueSize", 0),
    "pull_threadpoolqueue_headwait_timemills": ("pullThreadPoolQueueHeadWaitTimeMills", 0),
    "query_threadpoolqueue_headwait_timemills": ("queryThreadPoolQueueHeadWaitTimeMills", 0),
    "send_threadpoolqueue_headwait_timemills": ("sendThreadPoolQueueHeadWaitTimeMills", 0),
    "commitlog_maxoffset": ("commitLogMaxOffset", 0),
    "commitlog_minoffset": ("commitLogMinOffset", 0),
    **{
        f"{name}_tps{seconds}": (key, place)
        for name, key in (
            ("put", "putTps"),
            ("getfound", "getFoundTps"),
            ("getmiss", "getMissTps"),
            ("gettotal", "getTotalTps"),
            ("gettransfered", "getTransferedTps"),
        )
        for place, seconds in enumerate((10, 60, 600))
    },
}


def _runtime(names: BrokerNames, info: Mapping[str, str]) -> Iterator[Sample]:
    labels = (
        ("cluster", names.cluster),
        ("brokerIP", names.address),
        ("brokerHost", names.address),
        ("des", names.version),
        ("boottime", names.boot),
        ("broker_version", names.version),
    )
    for name, (key, place) in _RUNTIME.items():
        values = info[key].split()
        yield Sample(f"rocketmq_brokeruntime_{name}", GAUGE, labels, float(values[place]))
