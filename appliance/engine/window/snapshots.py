"""The window's results: frozen values, made for one request and never changed.

Names of times end in `_at_ms` (wall clock, milliseconds since the epoch) or `_ms` (a span). Rates are per second. An
unknown value is None, and the field behind it that ends in `_why` has the reason; 0 always means zero.

The API answers with these values as they are; the docstrings of those are its descriptions. What only the engine's
reader needs to know stands in a comment.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Literal

from ..lazy_dataclass import dataclass
from .sentences import Sentence

#: Metadata of a field for the console alone: pydantic, which writes the API's answers, leaves it out.
HIDDEN = {"exclude": True}


def fields_of(row: Any) -> dict[str, Any]:
    """Return the fields of a row, for the value that has them all and more."""
    return {one.name: getattr(row, one.name) for one in fields(row)}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a table. total: rows that match the filter. page: 1-based, never beyond `pages`; pages: 1 or more."""

    rows: tuple[object, ...]
    total: int
    page: int
    pages: int
    page_size: int


@dataclass(frozen=True, slots=True)
class ByTopic:
    # topic: that the messages were first sent to or consumed from; None, or "" for a retry, if it is not known.
    topic: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Check:
    """level: ok, warning (degraded, or worth a look) or failed (someone must act)."""

    name: str
    level: str
    sentence: Sentence


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs attention. level: act, stuck or watch. kind, name: what it is about."""

    # level: "act" before "stuck" before "watch". kind: "group", "topic", "dead_letters" of a group, "transactions" of a
    # producer group, "system", or "groups" for several. name: "" for several.
    level: str
    kind: str
    name: str
    sentence: Sentence


@dataclass(frozen=True, slots=True)
class Series:
    """Values at equal steps, oldest first, for a chart. times_at_ms[i] belongs to values[i]; None: not sampled."""

    name: str
    unit: str
    times_at_ms: tuple[int, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GroupLag:
    # lag: number of messages. lag_ms: age of the oldest message that the group has not consumed.
    group: str
    lag: int | None
    lag_why: Sentence | None
    lag_ms: int | None
    lag_ms_why: Sentence | None
    clients: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The broker now: messages and bytes a second over the last 10 s, totals since the start, what needs attention."""

    # *_rate: None until two samples were taken. put_total, delivered_total: messages stored, and messages sent in
    # answers to pulls. log_bytes: of the message log's kept range. oldest_at_ms: store time of the oldest message kept.
    # behind: the worst first. disk_full_at_ms: when the disk is so full that messages are deleted before their time, or
    # sends refused, at the rate of the last 10 min.
    broker_name: str
    broker_address: str | None
    namesrv_address: str | None
    uptime_ms: int
    sampled_at_ms: int | None
    in_rate: float | None
    out_rate: float | None
    in_bytes_rate: float | None
    out_bytes_rate: float | None
    put_total: int
    delivered_total: int
    connections: int
    producer_clients: int
    consumer_clients: int
    topics: int
    groups: int
    parked_pulls: int
    log_bytes: int
    oldest_at_ms: int | None
    oldest_why: Sentence | None
    unsynced_bytes: int
    disk_used_percent: float | None
    disk_free_bytes: int | None
    disk_full_at_ms: int | None
    disk_full_why: Sentence | None
    behind: tuple[GroupLag, ...]
    needs: tuple[Need, ...]
    checks: tuple[Check, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """kind: its message type. category: user, system, retry or dlq. bytes: an estimate when bytes_estimated."""

    # kind: its message.type attribute, "UNSPECIFIED" without one. messages: those that can be read now. in_rate,
    # out_rate: messages a second over the last 10 s; out: offsets that groups committed, which clients do every 5 s.
    # bytes: estimated from samples of its records' sizes. consumers: groups that subscribe to it or have offsets of it.
    name: str
    kind: str
    category: str
    read_queues: int
    write_queues: int
    perm: str
    messages: int
    in_rate: float | None
    out_rate: float | None
    bytes: int | None
    bytes_estimated: bool
    bytes_why: Sentence | None
    oldest_at_ms: int | None
    oldest_why: Sentence | None
    consumers: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue. [min_offset, max_offset) can be read."""

    # readable, writable: by the topic's settings now.
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int | None
    bytes_estimated: bool
    bytes_why: Sentence | None
    oldest_at_ms: int | None
    newest_at_ms: int | None
    time_why: Sentence | None
    readable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class TopicConsumer:
    """A group that consumes the topic. subscription: of its clients; None when none is connected."""

    group: str
    clients: int
    subscription: str | None
    subscription_type: str | None
    model: str | None
    lag: int | None
    lag_why: Sentence | None
    lag_ms: int | None
    lag_ms_why: Sentence | None
    out_rate: float | None


@dataclass(frozen=True, slots=True)
class TopicProducer:
    """A sender of some of the most recent messages. client_id: None when that connection is closed."""

    born_host: str
    client_id: str | None
    language: str | None
    version: str | None
    groups: tuple[str, ...]
    messages_seen: int
    last_at_ms: int


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's configuration. revision: changes with it; also the ETag."""

    # attributes: as stored, message.type among them. values: every setting that `create_topic` and `edit_topic` take,
    # by its name (`engine/admin_settings.py`).
    name: str
    kind: str
    read_queues: int
    write_queues: int
    readable: bool
    writable: bool
    inherited: bool
    order: bool
    filter_type: str
    attributes: dict[str, str]
    revision: str
    values: dict[str, bool | int | str] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """One topic. producers: `producers_why` explains how they were found."""

    row: TopicRow
    settings: TopicSettings
    queues: tuple[QueueRow, ...]
    consumers: tuple[TopicConsumer, ...]
    producers: tuple[TopicProducer, ...]
    producers_why: Sentence
    editable: bool


@dataclass(frozen=True, slots=True)
class RouteBroker:
    """A broker of a route; addresses: id ("0" is the master) -> address."""

    name: str
    cluster: str
    addresses: dict[str, str]


@dataclass(frozen=True, slots=True)
class RouteQueues:
    broker: str
    read_queues: int
    write_queues: int
    perm: str


@dataclass(frozen=True, slots=True)
class Route:
    """The route that our name server gives to clients that ask for the topic."""

    topic: str
    brokers: tuple[RouteBroker, ...]
    queues: tuple[RouteQueues, ...]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """model: CLUSTERING, BROADCASTING, or None while no client is connected. lag: messages behind in all. retries:
    messages that wait for their next try; retries_ready: of these, those that consumers get at once."""

    # lag: over all queues where that is known. lag_ms: age of the oldest message not consumed. out_rate: offsets
    # committed a second, over 10 s. dead_letters: messages in its dead letter topic. retries_ready: those in its retry
    # topic; lag and retries_ready together are what mqadmin calls Diff Total. system: a group that each broker has.
    # movable: its offsets may be moved; False for the groups with which the broker itself consumes.
    name: str
    model: str | None
    clients: int
    topics: int
    lag: int | None
    lag_why: Sentence | None
    lag_ms: int | None
    lag_ms_why: Sentence | None
    out_rate: float | None
    retries: int
    retries_ready: int
    dead_letters: int
    conflict: bool
    system: bool
    movable: bool = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A queue as the group sees it. committed: None when it has committed none. held_by: the client that holds it
    locked for consumption in order."""

    topic: str
    queue_id: int
    committed: int | None
    min_offset: int
    max_offset: int
    lag: int | None
    lag_why: Sentence | None
    lag_ms: int | None
    lag_ms_why: Sentence | None
    held_by: str | None


@dataclass(frozen=True, slots=True)
class QueueNow(QueueProgress):
    """The same with who has it: pulled_by is the client whose pull waits there (waits), else the one that was given
    messages last, at pulled_at_ms. in_flight: given out and not committed. idle_ms: for how long the offset has not
    gone on. next_offset: of the first message that is not consumed."""

    # pulled_by: None if no client pulled since the start. idle_ms: None if the offset was not seen to move since the
    # start.
    pulled_by: str | None
    pulled_at_ms: int | None
    waits: bool
    in_flight: int | None
    idle_ms: int | None
    next_offset: int | None


Trend = Literal["caught_up", "keeps_up", "catches_up", "never", "stands", "unknown"]


@dataclass(frozen=True, slots=True)
class GroupPace:
    """Speed of a group. in_rate, out_rate: messages that came and that it committed, a second, over the last minute.
    trend: caught_up, keeps_up (only messages that came just now wait), catches_up (in catches_up_ms) or never, at these
    rates or, if the group is late by five minutes, at those of the last five; stands (some queues have stood still for
    two minutes, so the group does not catch up before they move); or unknown (why). standing: number of those queues.
    moving, catches_up_ms: the same of the other queues, None if no message waits there. lags: messages behind at
    times_at_ms, over ten minutes, oldest first."""

    in_rate: float | None
    out_rate: float | None
    trend: Trend
    catches_up_ms: int | None
    why: Sentence | None
    times_at_ms: tuple[int, ...]
    lags: tuple[float | None, ...]
    standing: int = 0
    moving: Trend | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupClient:
    """A connected client. subscriptions: from its last heartbeat that named them; None when none did."""

    client_id: str
    address: str
    language: str
    version: str
    heartbeat_at_ms: int
    subscriptions: tuple[Subscription, ...] | None


@dataclass(frozen=True, slots=True)
class SubscriptionVersion:
    """One of several subscriptions among the clients of a group; expression None: not subscribed at all."""

    expression: str | None
    kind: str | None
    clients: tuple[GroupClient, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionConflict:
    """A topic that clients of one group subscribe to differently."""

    topic: str
    versions: tuple[SubscriptionVersion, ...]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's configuration. retry_max_times: then a message is a dead letter. revision: also the ETag."""

    # values: as in TopicSettings.
    name: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    consume_timeout_minutes: int
    notify_consumer_ids_changed_enable: bool
    revision: str
    values: dict[str, bool | int | str] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class GroupDetail(GroupRow):
    """A group. settings: None when it was never configured and only has offsets or clients."""

    # queues: every queue of every topic it subscribes to or has offsets of, its retry topic included.
    settings: GroupSettings | None
    consume_type: str | None
    consume_from: str | None
    subscriptions: tuple[Subscription, ...]
    conflicts: tuple[SubscriptionConflict, ...]
    members: tuple[GroupClient, ...] = field(metadata=HIDDEN)
    queues: tuple[QueueProgress, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A connection that has sent heartbeats, and the groups it names. connected_ms: for how long."""

    # producer_groups, consumer_groups: the groups that its heartbeats name. parked_pulls: its pulls that wait for
    # messages.
    client_id: str
    address: str
    language: str
    version: str
    producer_groups: tuple[str, ...]
    consumer_groups: tuple[str, ...]
    heartbeat_at_ms: int
    parked_pulls: int
    connected_ms: int


@dataclass(frozen=True, slots=True)
class Difference:
    # None: the field is not there.
    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """A group, a topic, or a group's offsets of a topic."""

    group: str | None
    topic: str | None


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Unused things: found (applied False) or deleted. items: the first 500 of `count`. left: found and not deleted by
    this act. revision: of a dry run."""

    # kind: "groups", "topics" or "offsets". left: they were used meanwhile, or there were too many.
    applied: bool
    kind: str
    items: tuple[CleanedUp, ...]
    count: int
    left: int
    revision: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change, previewed (applied False) or made. blockers: why it is refused without `force`. registered: which name
    servers know of it."""

    # revision: of the preview, or after the change.
    applied: bool
    name: str
    differences: tuple[Difference, ...]
    warnings: tuple[Sentence, ...]
    blockers: tuple[Sentence, ...]
    revision: str | None
    registered: dict[str, bool]
