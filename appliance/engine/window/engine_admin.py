"""EngineAdmin: frozen snapshots out, named commands in.

Copies a table with one C call, then touches frozen values only. Never locks remoting-io and never asks it to build a
list (D10, D11); what has to be read from the disk is read in the caller's thread. Errors: `errors.AdminError` and
below. What a method returns is in `snapshots.py` and `message_snapshots.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import InvalidInput, Unavailable
from . import message_snapshots as m
from . import snapshots as s
from .bodies import view_body
from .checks import Checks
from .client_views import ClientViews
from .commands import Commands
from .group_views import GroupViews
from .live import BrokerSource, LiveFrames
from .log_ring import LogRing
from .measures import Measures
from .messages import MessageViews
from .metrics import metrics_of
from .movements import SampledMovements
from .options import Options
from .overview import overview_of
from .retention import CLEANABLE, Retention, retention_of
from .sampler import Sampler
from .search import SearchViews
from .sending import TestSender
from .sentences import say
from .system import system_of
from .topic_views import TopicViews, category_of, route_of, settings_of

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine
    from ..wire_act import WireAct

CATEGORIES = ("user", "system", "retry", "dlq")


class _Parts:
    """What needs a running broker; made when the engine has started."""

    def __init__(self, engine: Engine, broker: Broker, options: Options) -> None:
        self.broker = broker
        self.measures = Measures()
        self.sampler = Sampler(broker, self._sampled)
        self.topics = TopicViews(broker, self.sampler, self.measures)
        self.groups = GroupViews(broker, engine.config.broker.broker_name, self.sampler, self.measures)
        self.checks = Checks(engine, broker, self.sampler)
        self.live = LiveFrames(BrokerSource(engine, broker, self.sampler, self.groups, self.checks))
        self.clients = ClientViews(broker)
        self.messages = MessageViews(broker, self.sampler.index)
        self.search = SearchViews(broker, self.messages)
        self.sender = TestSender(engine, broker)
        self.commands = Commands(engine, broker, self.sampler.index, options)

    def _sampled(self) -> None:
        self.live.refresh()


class EngineAdmin:
    """Any thread. Without the broker role most questions raise Unavailable."""

    def __init__(self, engine: Engine) -> None:
        # Constant after construction.
        self._engine = engine
        self._log = LogRing()
        self._options = Options(engine)
        self._started_at = time.monotonic()
        self._started_at_ms: int | None = None
        # Set by start() and stop().
        self._parts: _Parts | None = None

    def load_options(self) -> None:
        """Lay hot options set in an earlier run over the configuration; before the engine builds. StartError."""
        self._options.load()

    def start(self) -> None:
        """Begin to sample; the engine calls it when everything runs."""
        self._started_at = time.monotonic()
        self._started_at_ms = int(time.time() * 1000)
        self._log.install()
        broker = self._engine.broker
        if broker is not None:
            parts = _Parts(self._engine, broker, self._options)
            self._parts = parts
            broker.admin_progress.movements = SampledMovements(parts.sampler)
            broker.admin_broker.change_options = lambda values, by: self._options.change(values, None, False, by)
            parts.sampler.start()

    def stop(self) -> None:
        """End the sampler; the engine calls it before it stops anything."""
        self._log.remove()
        if self._parts is not None:
            self._parts.sampler.stop(2.0)

    def _running(self) -> _Parts:
        parts = self._parts
        if parts is None:
            raise Unavailable(say("no_broker"))
        return parts

    # --- numbers

    def metrics(self) -> dict[str, float]:
        """Plain numbers by name; names are what /metrics shows behind `rocketbox_`. Totals count from the start."""
        return metrics_of(self._engine)

    def overview(self) -> s.Overview:
        """The front page: rates, needs, checks, those furthest behind. For once a page, not once a viewer a second."""
        parts = self._running()
        return overview_of(self._engine, parts.broker, parts.sampler, parts.groups, self._checks(), self._started_at)

    def series(self, name: str, seconds: int = 600, topic: str | None = None, group: str | None = None) -> s.Series:
        """A rate over the last seconds (at most 598), a point a second, for a chart.

        name: of the broker "in", "out" (messages/s), "in_bytes", "out_bytes" (bytes/s); of a topic "in" and "out"; of a
        group "out". NotFound for an unknown topic, InvalidInput for another name.
        """
        sampler = self._running().sampler
        if not 1 <= seconds <= 3600:
            raise InvalidInput("seconds", say("out_of_range", field="seconds", low=1, high=3600))
        if topic is not None:
            came, went = self._running().topics.tracks(topic)
            if name not in ("in", "out"):
                raise InvalidInput("name", say("one_of", field="name", choices="in, out"))
            points = sampler.track_history(came if name == "in" else went, seconds)
        elif group is not None:
            if name != "out":
                raise InvalidInput("name", say("one_of", field="name", choices="out"))
            tracks = [track for (_, own), track in list(sampler.pairs.items()) if own == group]
            points = sampler.track_history(tracks, seconds)
        elif name in ("in", "out", "in_bytes", "out_bytes"):
            points = sampler.history(name, seconds)
        else:
            raise InvalidInput("name", say("one_of", field="name", choices="in, out, in_bytes, out_bytes"))
        unit = "bytes/s" if name.endswith("bytes") else "messages/s"
        return s.Series(name, unit, tuple(at for at, _ in points), tuple(value for _, value in points))

    def live_frame(self) -> tuple[int, bytes]:
        """(number, one JSON object) of the newest sample: the same bytes for every viewer, encoded once a second.

        {"number", "at_ms", "in_rate", "out_rate", "in_bytes_rate", "out_bytes_rate", "put_total", "delivered_total",
        "connections", "producer_clients", "consumer_clients", "parked_pulls", "log_bytes", "unsynced_bytes",
        "disk_used_percent", "worst_check", "behind": [{"group", "lag", "lag_ms", "clients"}],
        "needs": [{"level", "kind", "name", "text", "code", "args"}]}. What is not known is null. Cheap: a stream may
        ask every 250 ms and send when the number has grown. What stands behind "behind" and "needs" is looked at every
        5 s. Only the first frame after a pause is made in the caller's thread (10 ms at 2,000 topics and 500 groups).
        """
        return self._running().live.frame()

    # --- topics

    def topics(
        self,
        q: str = "",
        kind: str | None = None,
        show: str = "user",
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """A page of TopicRow.

        q: part of the name, upper and lower case alike. kind: only this message.type. show: "user", "system", "retry",
        "dlq" or "all". sort: name, kind, queues, messages, in_rate, out_rate, consumers, bytes, oldest; "-" before it
        for the largest first. page_size: 1 to 500. InvalidInput for anything else.
        """
        if show != "all" and show not in CATEGORIES:
            raise InvalidInput("show", say("one_of", field="show", choices=f"all, {', '.join(CATEGORIES)}"))
        categories = frozenset(CATEGORIES if show == "all" else (show,))
        return self._running().topics.page(q, kind, categories, sort, page, page_size)

    def topic(self, name: str) -> s.TopicDetail:
        """One topic with its queues, consumers, producers and settings. NotFound."""
        return self._running().topics.detail(name)

    def topic_settings(self, name: str) -> s.TopicSettings:
        """A topic's configuration and its revision. NotFound."""
        return settings_of(self._running().topics.config(name))

    def topic_queues(self, name: str) -> tuple[s.QueueRow, ...]:
        """Its queues, by id. NotFound."""
        return self._running().topics.queue_rows(name)

    def topic_groups(self, name: str) -> tuple[s.TopicConsumer, ...]:
        """The groups that consume it, by name. NotFound."""
        return self._running().topics.consumer_rows(name)

    def topic_category(self, name: str) -> str:
        """ "user", "system", "retry" or "dlq", by its name; for access by topic."""
        return category_of(name, self._running().broker.topics.is_system_topic(name))

    def route(self, name: str) -> s.Route:
        """What the own name server tells clients of it. NotFound; Unavailable without a name server here."""
        return route_of(self._engine.namesrv, name)

    def create_topic(
        self,
        name: str,
        *,
        kind: str = "NORMAL",
        read_queues: int = 8,
        write_queues: int = 8,
        readable: bool = True,
        writable: bool = True,
        order: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Make a topic; durable and told to the name servers when it returns (`registered`: which of them know it).

        kind: NORMAL, FIFO, DELAY, TRANSACTION or UNSPECIFIED (no message.type). by: who asked, for the log. dry_run:
        the same checks, nothing changes. InvalidInput (field), Conflict when there is one, Unavailable.
        """
        return self._running().commands.create_topic(
            name, kind, read_queues, write_queues, readable, writable, order, dry_run, by
        )

    def edit_topic(
        self,
        name: str,
        *,
        revision: str | None = None,
        kind: str | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        readable: bool | None = None,
        writable: bool | None = None,
        order: bool | None = None,
        reserve_hours: int | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Change what is given, leave the rest. As create_topic; also NotFound, Conflict when `revision` is not the
        present one, Blocked when messages would become unreadable and `force` is not given. 0 queues are legal.

        reserve_hours: messages stored longer ago are not shown any more, though their files stay until all in them has
        expired; 0: as long as the broker keeps them. It is the attribute reserve.time of `TopicSettings.attributes`.
        """
        return self._running().commands.edit_topic(
            name,
            revision,
            kind,
            read_queues,
            write_queues,
            readable,
            writable,
            order,
            force,
            dry_run,
            by,
            reserve_hours=reserve_hours,
        )

    def delete_topic(
        self, name: str, *, revision: str | None = None, force: bool = False, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Delete a topic, its queues and all groups' offsets of it; its records leave the log when they expire.

        Blocked without `force` when a group has unread messages of it or clients of a consuming group are connected.
        NotFound, Conflict (revision), InvalidInput for a topic of the system's.
        """
        return self._running().commands.delete_topic(name, revision, force, dry_run, by)

    # --- groups

    def groups(
        self,
        q: str = "",
        system: bool = False,
        online: bool | None = None,
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """A page of GroupRow.

        system: with the broker's own groups. online: only those with (True) or without (False) connected clients. sort:
        name, lag, lag_time, clients, topics, out_rate, retries, dead_letters; "-" before it for the largest first.
        """
        return self._running().groups.page(q, system, online, sort, page, page_size)

    def group(self, name: str) -> s.GroupDetail:
        """One group: every queue's progress, its clients, subscriptions and their conflicts. NotFound."""
        return self._running().groups.detail(name)

    def create_group(
        self,
        name: str,
        *,
        consume_enable: bool = True,
        consume_broadcast_enable: bool = True,
        consume_message_orderly: bool = False,
        retry_queue_nums: int = 1,
        retry_max_times: int = 16,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Make a consumer group; durable when it returns. InvalidInput, Conflict when there is one."""
        return self._running().commands.create_group(
            name,
            {
                "consume_enable": consume_enable,
                "consume_broadcast_enable": consume_broadcast_enable,
                "consume_message_orderly": consume_message_orderly,
                "retry_queue_nums": retry_queue_nums,
                "retry_max_times": retry_max_times,
            },
            dry_run,
            by,
        )

    def edit_group(
        self,
        name: str,
        *,
        revision: str | None = None,
        consume_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        consume_message_orderly: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Change what is given, leave the rest. NotFound, Conflict (revision), InvalidInput."""
        return self._running().commands.edit_group(
            name,
            revision,
            {
                "consume_enable": consume_enable,
                "consume_broadcast_enable": consume_broadcast_enable,
                "consume_message_orderly": consume_message_orderly,
                "retry_queue_nums": retry_queue_nums,
                "retry_max_times": retry_max_times,
            },
            dry_run,
            by,
        )

    def delete_group(
        self,
        name: str,
        *,
        revision: str | None = None,
        offsets: bool = True,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Delete a group and (offsets=True) its offsets; its retry and dead letter topics stay, `warnings` name them.

        Blocked without `force` when it has unread messages or connected clients. NotFound, Conflict (revision).
        """
        return self._running().commands.delete_group(name, revision, offsets, force, dry_run, by)

    # --- clients

    def clients(
        self,
        q: str = "",
        role: str | None = None,
        group: str | None = None,
        sort: str = "client_id",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """A page of ClientRow, one a connection that sent heartbeats.

        q: part of a client id, address or group. role: "producer" or "consumer". sort: client_id, address, language,
        version, heartbeat.
        """
        if role not in (None, "producer", "consumer"):
            raise InvalidInput("role", say("one_of", field="role", choices="producer, consumer"))
        return self._running().clients.page(q, role, group, sort, page, page_size)

    def client(self, client_id: str) -> tuple[s.ClientRow, ...]:
        """The connections of one client id; a client may have several. Empty when none is connected."""
        return tuple(row for row in self._running().clients.all() if row.client_id == client_id)

    # --- messages

    def messages(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        newest_first: bool = True,
        cursor: str | None = None,
        limit: int = 50,
    ) -> m.MessagePage:
        """A page of a topic's messages stored in [from_ms, to_ms], over a snapshot that new messages do not change.

        The first call fixes the snapshot; `next_cursor` goes on in it and carries the times, queue and direction, so
        only topic and limit go with it. The cursor is no secret and gives no access: it is checked, and good for this
        topic only. limit: 1 to 500. No bodies. NotFound (topic, queue), InvalidInput (cursor, limit, times).
        """
        return self._running().messages.page(topic, queue_id, from_ms, to_ms, newest_first, cursor, limit)

    def search(
        self,
        text: str,
        *,
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
        may_see: Callable[[str], bool] = lambda topic: True,
    ) -> m.SearchPage:
        """Messages by what they are called: one box for `topic/queue/offset`, offset id, unique id, and key.

        A text may be several of these at once; all are tried, keys over all topics or in `topic`. The span of times is
        that of storing and does not bind a message named by its place. Over a snapshot; `next_cursor` goes on with the
        same text, topic and times. A page ends after 250 ms (truncated), so an empty page may have a next one. No
        bodies. may_see(topic): whether the caller may know of a topic's messages. limit: 1 to 500. A blank text finds
        nothing. InvalidInput (limit, times, cursor), NotFound (topic). `hit.row.offset_id` is a ref for `message`.
        """
        return self._running().search.page(text, topic, from_ms, to_ms, cursor, limit, may_see)

    def message(self, ref: str) -> m.MessageDetail:
        """One message: ref is an offset id (32 or 56 hex digits) or `topic/queue/offset`. No body.

        InvalidInput when ref is neither; NotFound when no message is there (any more).
        """
        parts = self._running()
        return parts.messages.detail(ref, parts.groups.book())

    def message_body(self, ref: str, max_bytes: int = 65_536) -> m.BodyView:
        """Its body, decompressed and shown as JSON, text, hex and base64; at most `max_bytes` (1 MiB) of it.

        Needs the grant to read bodies; the caller checks that. Errors as `message`.
        """
        if not 1 <= max_bytes <= 1 << 20:
            raise InvalidInput("max_bytes", say("out_of_range", field="max_bytes", low=1, high=1 << 20))
        record = self._running().messages.record(ref)[0]
        return view_body(record.body, record.sys_flag, max_bytes)

    def message_bytes(self, ref: str) -> bytes:
        """Its body as stored, for a download. Needs the grant to read bodies."""
        return self._running().messages.record(ref)[0].body

    def message_raw(self, ref: str, dump_bytes: int = 4096) -> m.RawRecord:
        """The record as it lies in the log, field by field, and a hex dump. Shows the body: needs the grant, too."""
        return self._running().messages.raw(ref, dump_bytes)

    def send_test_message(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        timeout_s: float = 10.0,
        by: str = "",
    ) -> m.SentMessage:
        """Send one message on the same path as a client's; returns when it was published (durable in sync flush).

        Blocks up to `timeout_s`. queue_id None: the broker picks one. NotFound (topic), InvalidInput, Unavailable when
        the log is read-only, too many are under way, or the time is over (it may have been stored then).
        """
        return self._running().sender.send(
            topic, body, tags, tuple(keys), dict(properties or {}), queue_id, timeout_s, by
        )

    # --- the system

    def system(self) -> s.SystemInfo:
        """Version, addresses, uptime, directories, disk, process. Works without a broker, too."""
        return system_of(self._engine, self._started_at, self._started_at_ms)

    def configuration(self) -> s.Configuration:
        """Every option in force, by section and name; which of them may be changed now."""
        return self._options.listing()

    def change_configuration(
        self, values: Mapping[str, object], *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Change hot options (upstream name -> text or value; None: back to what was configured).

        In force and durable when it returns; kept over restarts in our own directory, above the configuration file.
        All or none. NotFound (option), InvalidInput (field: the option; also when it is not hot), Conflict (revision).
        """
        return self._running().commands.change_configuration(values, revision, dry_run, by)

    def retention(self) -> Retention:
        """What is kept and for how long, and what the cleaner saw and did last."""
        return retention_of(self._running().broker)

    def clean(self, what: str, *, by: str = "") -> tuple[str, ...]:
        """Delete now what may go. by: who asked, for the log.

        what: "log" (expired log files, whatever the hour), "queues" (have every queue follow the log), "topics" (queues
        whose topic has no configuration). Returns the topics whose queues went. The first two go on behind the call.
        InvalidInput for anything else; Unavailable.
        """
        if what not in CLEANABLE:
            raise InvalidInput("what", say("one_of", field="what", choices=", ".join(CLEANABLE)))
        return self._running().commands.clean(what, by)

    def wire_acts(self, series: str, after: int) -> tuple[str, list[WireAct]]:
        """(series, acts behind number `after`) that tools did over the wire, oldest first, at most 200.

        series: what the last answer said, "" at first. Each act once, as long as the caller keeps the last number with
        what it made of the act. Reads a file only when there is something new. Works without a broker, too.
        """
        return self._engine.wire_audit.after(series, after)

    def wire_acts_taken(self, series: str, n: int) -> None:
        """The caller has kept all up to number n: files that hold nothing newer may go."""
        self._engine.wire_audit.taken(series, n)

    def checks(self) -> tuple[s.Check, ...]:
        """Every health check as a sentence with a level."""
        return self._checks().all()

    def _checks(self) -> Checks:
        parts = self._parts
        return Checks(self._engine, self._engine.broker, None) if parts is None else parts.checks

    def log_lines(self, level: str = "DEBUG", q: str = "", after: int = 0, limit: int = 200) -> tuple[s.LogLine, ...]:
        """The newest lines of this process's log that match, oldest first.

        level: this one and worse. q: part of the text or the logger's name. after: only lines with a larger number.
        limit: 1 to 10,000.
        """
        return self._log.lines(level, q, after, limit)
