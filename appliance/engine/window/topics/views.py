"""Views of topics: the list, one topic, its route."""

from __future__ import annotations

from typing import Any

import msgspec

from ...admin_settings import TOPIC_SETTINGS
from ...broker.clients import ClientChannel, ClientManager
from ...broker.offsets import ConsumerOffsetManager
from ...broker.topic_config import TopicConfig
from ...errors import InvalidInput, NotFound, Unavailable
from ...host_port import join_host_port
from ...namesrv.namesrv import NameServer
from ...protocol.codes import release_name
from ...protocol.names import (
    DLQ_PREFIX,
    MESSAGE_TYPE,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    permission_text,
)
from ...store.queues.consume_queue import ConsumeQueue
from .. import snapshots as s
from ..changes import revision_of
from ..clients.views import producer_groups_of
from ..figures.lag import lag_time_ms
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..sentences import say
from ..sources import Sources
from ..tables import SORT_BUDGET_MS, page_of, sorted_by

#: Number of newest messages of a queue, and of queues, from which a topic's producers are found.
PRODUCER_SAMPLE = 16
PRODUCER_QUEUES = 16


CATEGORIES = ("user", "system", "retry", "dlq")


def category_of(name: str, system: bool) -> str:
    """Return "retry", "dlq", "system" or "user"."""
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DLQ_PREFIX):
        return "dlq"
    return "system" if system else "user"


def kind_of(config: TopicConfig) -> str:
    return config.attributes.get(MESSAGE_TYPE, "UNSPECIFIED")


def settings_of(config: TopicConfig) -> s.TopicSettings:
    return s.TopicSettings(
        name=config.topic_name,
        kind=kind_of(config),
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        readable=bool(config.perm & PERM_READ),
        writable=bool(config.perm & PERM_WRITE),
        inherited=bool(config.perm & PERM_INHERIT),
        order=config.order,
        filter_type=config.topic_filter_type,
        attributes=dict(config.attributes),
        revision=revision_of(config),
        values={setting.name: setting.read(config) for setting in TOPIC_SETTINGS},
    )


class TopicViews:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        offsets: ConsumerOffsetManager,
        clients: ClientManager,
    ) -> None:
        # Constant after construction.
        self._topics, self._store, self._lag = sources.topics, sources.store, sources.lag
        self._sampler, self._measures = sources.sampler, sources.measures
        self._offsets = offsets
        self._clients = clients

    # --- the list

    def page(
        self,
        q: str = "",
        kind: str | None = None,
        show: str = "user",
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of TopicRow.

        q: part of the name, upper and lower case alike. kind: only this message.type. show: "user", "system", "retry",
        "dlq" or "all". sort: name, kind, queues, messages, in_rate, out_rate, consumers, bytes, oldest; "-" before it
        for the largest first. page_size: 1 to 500. InvalidInput for anything else.
        """
        if show != "all" and show not in CATEGORIES:
            raise InvalidInput("show", say("one_of", field="show", choices=f"all, {', '.join(CATEGORIES)}"))
        sampler = self._sampler
        needle = q.strip().lower()
        is_system = self._topics.is_system_topic
        configs = []
        for config in self._topics.all():
            name = config.topic_name
            if needle and needle not in name.lower():
                continue
            if kind is not None and kind_of(config) != kind:
                continue
            if show in ("all", category_of(name, is_system(name))):
                configs.append(config)
        queues = sampler.index.by_topic()
        consumers = self._consumers()
        out = sampler.topic_out_rates()
        span = sampler.span()
        measures = self._measures
        with QueueReader(self._store) as reader:
            budget = Budget(SORT_BUDGET_MS)

            def size(config: TopicConfig) -> int | None:
                found = queues.get(config.topic_name, [])
                if budget.spent:
                    return measures.known_size(found)
                return sum(measures.size(reader, queue)[0] for queue in found)

            def oldest(config: TopicConfig) -> int | None:
                found = queues.get(config.topic_name, [])
                if budget.spent:
                    return measures.known_oldest(found)[1]
                return measures.oldest_at_ms(reader, found)

            rows = sorted_by(
                configs,
                sort,
                {
                    "name": lambda c: c.topic_name,
                    "kind": lambda c: (kind_of(c), c.topic_name),
                    "queues": lambda c: (max(c.read_queue_nums, c.write_queue_nums), c.topic_name),
                    "messages": lambda c: (_messages(queues.get(c.topic_name, ())), c.topic_name),
                    "in_rate": lambda c: (sampler.rate(sampler.topics.get(c.topic_name), span) or 0.0, c.topic_name),
                    "out_rate": lambda c: (out.get(c.topic_name, 0.0), c.topic_name),
                    "consumers": lambda c: (len(consumers.get(c.topic_name, ())), c.topic_name),
                    "bytes": size,
                    "oldest": oldest,
                },
            )
            return page_of(rows, page, page_size, lambda c: self._row(c, queues, consumers, out, span, reader))

    def _consumers(self) -> dict[str, set[str]]:
        """Return topic -> groups that have offsets of it or subscribe to it."""
        found: dict[str, set[str]] = {}
        for entry in self._offsets.all():
            found.setdefault(entry.topic, set()).add(entry.group)
        for info in self._clients.consumer_groups():
            for topic in list(info.subscriptions):
                found.setdefault(topic, set()).add(info.group_name)
        return found

    def _row(
        self,
        config: TopicConfig,
        queues: dict[str, list[ConsumeQueue]],
        consumers: dict[str, set[str]],
        out: dict[str, float],
        span: tuple[int, float],
        reader: QueueReader,
    ) -> s.TopicRow:
        name = config.topic_name
        own = queues.get(name, [])
        messages = _messages(own)
        size, exact = 0, True
        for queue in own:
            part, part_exact = self._measures.size(reader, queue)
            size += part
            exact = exact and part_exact
        oldest = self._measures.oldest_at_ms(reader, own)
        rate = self._sampler.rate(self._sampler.topics.get(name), span)
        return s.TopicRow(
            name=name,
            kind=kind_of(config),
            category=category_of(name, self._topics.is_system_topic(name)),
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            perm=permission_text(config.perm),
            messages=messages,
            in_rate=rate,
            out_rate=None if rate is None else out.get(name, 0.0),
            bytes=size,
            bytes_estimated=not exact,
            bytes_why=None,
            oldest_at_ms=oldest,
            oldest_why=None if oldest is not None else say("message_gone" if messages else "no_messages"),
            consumers=len(consumers.get(name, ())),
        )

    # --- one topic

    def settings(self, name: str) -> s.TopicSettings:
        """Return a topic's configuration and its revision. NotFound."""
        return settings_of(self._config(name))

    def _config(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            raise NotFound("topic", name)
        return config

    def detail(self, name: str) -> s.TopicDetail:
        """Return one topic with its queues, consumers, producers and settings. NotFound."""
        config = self._config(name)
        sampler = self._sampler
        queues = sampler.index.by_topic()
        with QueueReader(self._store) as reader:
            row = self._row(config, queues, self._consumers(), sampler.topic_out_rates(), sampler.span(), reader)
            return s.TopicDetail(
                row=row,
                settings=settings_of(config),
                queues=self._queue_rows(config, reader),
                consumers=self._consumer_rows(name, reader),
                producers=self._producers(name, reader),
                producers_why=say("producers_name_no_topic"),
                editable=not self._topics.is_system_topic(name),
            )

    def queue_rows(self, name: str) -> tuple[s.QueueRow, ...]:
        """Return the topic's queues, by id. NotFound."""
        config = self._config(name)
        with QueueReader(self._store) as reader:
            return self._queue_rows(config, reader)

    def _queue_rows(self, config: TopicConfig, reader: QueueReader) -> tuple[s.QueueRow, ...]:
        known = {queue.queue_id: queue for queue in self._sampler.index.of(config.topic_name)}
        count = max(config.read_queue_nums, config.write_queue_nums)
        rows = []
        for queue_id in sorted(known.keys() | set(range(count))):
            queue = known.get(queue_id)
            low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
            size, exact = (0, True) if queue is None else self._measures.size(reader, queue)
            oldest = newest = None
            if queue is not None and low < high:
                oldest = self._measures.stored_at_ms(reader, queue, low)
                newest = self._measures.stored_at_ms(reader, queue, high - 1)
            why = None if oldest is not None and newest is not None else "message_gone" if low < high else "no_messages"
            rows.append(
                s.QueueRow(
                    queue_id=queue_id,
                    min_offset=low,
                    max_offset=high,
                    messages=high - low,
                    bytes=size,
                    bytes_estimated=not exact,
                    bytes_why=None,
                    oldest_at_ms=oldest,
                    newest_at_ms=newest,
                    time_why=None if why is None else say(why),
                    readable=queue_id < config.read_queue_nums and bool(config.perm & PERM_READ),
                    writable=queue_id < config.write_queue_nums and bool(config.perm & PERM_WRITE),
                )
            )
        return tuple(rows)

    def consumer_rows(self, name: str) -> tuple[s.TopicConsumer, ...]:
        """Return the groups that consume the topic, by name. NotFound."""
        self._config(name)
        with QueueReader(self._store) as reader:
            return self._consumer_rows(name, reader)

    def _consumer_rows(self, name: str, reader: QueueReader) -> tuple[s.TopicConsumer, ...]:
        lag = self._lag.snapshot()
        span = self._sampler.span()
        rows = []
        for group in sorted(self._consumers().get(name, ())):
            info = lag.online.get(group)
            wanted = None if info is None else info.subscriptions.get(name)
            backlog = lag.backlog(group, name)
            lag_ms, lag_ms_why = lag_time_ms(backlog, reader, self._measures)
            rows.append(
                s.TopicConsumer(
                    group=group,
                    clients=0 if info is None else len(info.channels),
                    subscription=None if wanted is None else wanted.sub_string,
                    subscription_type=None if wanted is None else wanted.expression_type,
                    model=None if info is None else info.message_model,
                    lag=backlog.lag,
                    lag_why=backlog.why,
                    lag_ms=lag_ms,
                    lag_ms_why=lag_ms_why,
                    out_rate=self._sampler.rate(self._sampler.pairs.get((name, group)), span),
                )
            )
        return tuple(rows)

    def _producers(self, name: str, reader: QueueReader) -> tuple[s.TopicProducer, ...]:
        """Return the senders of the newest messages of each queue, the latest sender first."""
        seen: dict[str, list[int]] = {}
        queues = [queue for queue in self._sampler.index.of(name) if queue.min_offset < queue.max_offset]
        for queue in queues[:PRODUCER_QUEUES]:
            high = queue.max_offset
            for offset in range(max(queue.min_offset, high - PRODUCER_SAMPLE), high):
                record = reader.without_body(queue, offset)
                if record is not None:
                    seen.setdefault(host_text(record.born_host), []).append(record.store_time_ms)
        by_host: dict[str, list[tuple[str, ClientChannel]]] = {}
        for group in producer_groups_of(self._clients):
            for channel in self._clients.producer_channels(group):
                by_host.setdefault(channel.conn.remote_host, []).append((group, channel))
        rows = []
        for host, times in sorted(seen.items(), key=lambda item: -max(item[1])):
            channels = by_host.get(host, [])
            last = channels[0][1] if channels else None
            rows.append(
                s.TopicProducer(
                    born_host=host,
                    client_id=None if last is None else last.client_id,
                    language=None if last is None else last.language,
                    version=None if last is None else release_name(last.version),
                    groups=tuple(group for group, _ in channels),
                    messages_seen=len(times),
                    last_at_ms=max(times),
                )
            )
        return tuple(rows)


def host_text(host: tuple[str, int]) -> str:
    """Return (address, port) as "host:port", as connections are named."""
    return join_host_port(*host)


def _messages(queues: Any) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in queues)


def route_of(namesrv: NameServer | None, topic: str) -> s.Route:
    """Return the answer of this process's name server. Raises Unavailable without one, NotFound if it has no such
    topic."""
    if namesrv is None:
        raise Unavailable(say("no_name_server"))
    body = namesrv.routes.route(topic)
    if body is None:
        raise NotFound("topic", topic)
    answer = msgspec.json.decode(body)
    return s.Route(
        topic,
        tuple(
            s.RouteBroker(data["brokerName"], data["cluster"], {str(i): a for i, a in data["brokerAddrs"].items()})
            for data in answer["brokerDatas"]
        ),
        tuple(
            s.RouteQueues(
                data["brokerName"], data["readQueueNums"], data["writeQueueNums"], permission_text(data["perm"])
            )
            for data in answer["queueDatas"]
        ),
    )
