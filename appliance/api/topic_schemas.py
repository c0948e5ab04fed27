"""Topics, consumer groups and clients, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from .offset_schemas import OffsetResetOut
from .schemas import ChangeOut, In, Out, PageOut, SentenceOut, Text, flattened, not_given

Kind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"]

# --- topics


class TopicRowOut(Out):
    """kind: its message type. category: user, system, retry or dlq. bytes: an estimate when bytes_estimated."""

    name: Text
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
    bytes_why: SentenceOut | None
    oldest_at_ms: int | None
    oldest_why: SentenceOut | None
    consumers: int


class TopicPage(PageOut):
    """total: topics that match."""

    items: list[TopicRowOut]
    total: int


class TopicOut(Out):
    """A topic's configuration. revision: changes with it; also the ETag."""

    name: Text
    kind: str
    read_queues: int
    write_queues: int
    readable: bool
    writable: bool
    inherited: bool
    order: bool
    filter_type: str
    attributes: dict[str, Text]
    revision: str


class TopicIn(In):
    """A new topic."""

    name: str = Field(max_length=1024)
    kind: Kind = "NORMAL"
    read_queues: int = 8
    write_queues: int = 8
    readable: bool = True
    writable: bool = True
    order: bool = False


class TopicPatch(In):
    """Settings left out stay as they are."""

    kind: Kind = Field(default_factory=not_given)
    read_queues: int = Field(default_factory=not_given)
    write_queues: int = Field(default_factory=not_given)
    readable: bool = Field(default_factory=not_given)
    writable: bool = Field(default_factory=not_given)
    order: bool = Field(default_factory=not_given)
    reserve_hours: int = Field(
        default_factory=not_given,
        description="Older messages are not shown; 0: as long as the broker keeps messages.",
    )


class QueueOut(Out):
    """A queue. [min_offset, max_offset) can be read."""

    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int | None
    bytes_estimated: bool
    bytes_why: SentenceOut | None
    oldest_at_ms: int | None
    newest_at_ms: int | None
    time_why: SentenceOut | None
    readable: bool
    writable: bool


class QueueList(Out):
    items: list[QueueOut]


class TopicGroupOut(Out):
    """A group that consumes the topic. subscription: of its clients; null when none is connected."""

    group: Text
    clients: int
    subscription: Text | None
    subscription_type: Text | None
    model: Text | None
    lag: int | None
    lag_why: SentenceOut | None
    lag_ms: int | None
    lag_ms_why: SentenceOut | None
    out_rate: float | None


class TopicGroupList(Out):
    items: list[TopicGroupOut]


class ProducerOut(Out):
    """A sender of some of the most recent messages. client_id: null when that connection is closed."""

    born_host: str
    client_id: Text | None
    language: str | None
    version: str | None
    groups: list[Text]
    messages_seen: int
    last_at_ms: int


class ProducerList(Out):
    """why: what this list is, and is not."""

    items: list[ProducerOut]
    why: SentenceOut


class RouteBrokerOut(Out):
    """A broker of a route; addresses: id ("0" is the master) -> address."""

    name: str
    cluster: str
    addresses: dict[str, str]


class RouteQueuesOut(Out):
    broker: str
    read_queues: int
    write_queues: int
    perm: str


class RouteOut(Out):
    """The route that our name server gives to clients that ask for the topic."""

    topic: Text
    brokers: list[RouteBrokerOut]
    queues: list[RouteQueuesOut]


# --- groups


class GroupRowOut(Out):
    """model: CLUSTERING, BROADCASTING, or null while no client is connected. lag: messages behind in all. retries:
    messages that wait for their next try; retries_ready: of these, those that consumers get at once."""

    name: Text
    model: Text | None
    clients: int
    topics: int
    lag: int | None
    lag_why: SentenceOut | None
    lag_ms: int | None
    lag_ms_why: SentenceOut | None
    out_rate: float | None
    retries: int
    retries_ready: int
    dead_letters: int
    conflict: bool
    system: bool


class GroupPage(PageOut):
    """total: groups that match."""

    items: list[GroupRowOut]
    total: int


class GroupSettingsOut(Out):
    """A group's configuration. retry_max_times: then a message is a dead letter. revision: also the ETag."""

    name: Text
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    consume_timeout_minutes: int
    notify_consumer_ids_changed_enable: bool
    revision: str


class SubscriptionOut(Out):
    topic: Text
    expression: Text
    kind: Text


class GroupClientOut(Out):
    """A connected client. subscriptions: from its last heartbeat that named them; null when none did."""

    client_id: Text
    address: str
    language: str
    version: str
    heartbeat_at_ms: int
    subscriptions: list[SubscriptionOut] | None


class SubscriptionVersionOut(Out):
    """One of several subscriptions among the clients of a group; expression null: not subscribed at all."""

    expression: Text | None
    kind: Text | None
    clients: list[GroupClientOut]


class ConflictOut(Out):
    """A topic that clients of one group subscribe to differently."""

    topic: Text
    versions: list[SubscriptionVersionOut]


class GroupOut(GroupRowOut):
    """A group. settings: null when it was never configured and only has offsets or clients."""

    settings: GroupSettingsOut | None
    consume_type: Text | None
    consume_from: Text | None
    subscriptions: list[SubscriptionOut]
    conflicts: list[ConflictOut]

    @model_validator(mode="before")
    @classmethod
    def _of_detail(cls, detail: Any) -> Any:
        return flattened(detail, cls, GroupRowOut)


class GroupClientList(Out):
    items: list[GroupClientOut]


class ProgressOut(Out):
    """A queue as the group sees it. committed: null when it has committed none. held_by: the client that holds it
    locked for consumption in order."""

    topic: Text
    queue_id: int
    committed: int | None
    min_offset: int
    max_offset: int
    lag: int | None
    lag_why: SentenceOut | None
    lag_ms: int | None
    lag_ms_why: SentenceOut | None
    held_by: Text | None


class ProgressList(Out):
    items: list[ProgressOut]


class QueueNowOut(ProgressOut):
    """The same with who has it: pulled_by is the client whose pull waits there (waits), else the one that was given
    messages last, at pulled_at_ms. in_flight: given out and not committed. idle_ms: for how long the offset has not
    gone on. next_offset: of the first message that is not consumed."""

    pulled_by: Text | None
    pulled_at_ms: int | None
    waits: bool
    in_flight: int | None
    idle_ms: int | None
    next_offset: int | None


class QueueNowPage(PageOut):
    items: list[QueueNowOut]
    total: int


class PaceOut(Out):
    """Speed of a group. in_rate, out_rate: messages that came and that it committed, a second, over the last minute.
    trend: caught_up, keeps_up (only messages that came just now wait), catches_up (in catches_up_ms, at these rates),
    never (at these rates) or unknown (why). lags: messages behind at times_at_ms, over ten minutes, oldest first."""

    in_rate: float | None
    out_rate: float | None
    trend: Literal["caught_up", "keeps_up", "catches_up", "never", "unknown"]
    catches_up_ms: int | None
    why: SentenceOut | None
    times_at_ms: list[int]
    lags: list[float | None]


class EvidenceOut(Out):
    """One figure that a finding rests on."""

    name: str
    value: float
    unit: str


class PlaceOut(Out):
    topic: Text
    queue_id: int


class SkipOut(Out):
    """The body of a reset of the group's offsets that goes on behind the message; asked twice it skips no second
    one."""

    topics: list[Text]
    queues: list[int]
    to: Literal["skip"]
    offset: int


class HeldUpByOut(Out):
    """The message that holds up a queue. offset_id: by which it is looked at (/messages/{ref}). delivered: answers to
    the group's pulls that carried it; delivered_whole: none of them is missing. last_client, last_at_ms: of the last
    one. held_by: who holds the queue's lock, where it is consumed in order. skip: how it is left out."""

    topic: Text
    queue_id: int
    offset: int
    offset_id: str
    unique_id: Text | None
    keys: list[Text]
    stored_at_ms: int
    delivered: int
    delivered_whole: bool
    last_client: Text | None
    last_at_ms: int | None
    held_by: Text | None
    skip: SkipOut


class FindingOut(Out):
    """Something that is wrong. level: act (messages are not consumed) or watch. queues, clients: 100 at most of those
    it is about; the evidence counts all. message: what holds up a queue that stands."""

    kind: str
    level: Literal["act", "watch"]
    sentence: SentenceOut
    evidence: list[EvidenceOut]
    queues: list[PlaceOut]
    clients: list[Text]
    message: HeldUpByOut | None

    @field_validator("queues", mode="before")
    @classmethod
    def _of_pairs(cls, value: Any) -> Any:
        return [{"topic": topic, "queue_id": queue_id} for topic, queue_id in value]


class LookOut(Out):
    """One thing that was looked at. state: found, clear, or unknown (why)."""

    kind: str
    state: Literal["found", "clear", "unknown"]
    why: SentenceOut | None


class DiagnosisOut(Out):
    """Faults of a group, as far as the broker's own records show them, the worst first, and all checks."""

    group: Text
    at_ms: int
    findings: list[FindingOut]
    looked: list[LookOut]


class CloneIn(In):
    """The group that takes over, and the parts that it takes. If it does not exist, it is created with the settings."""

    target: str = Field(max_length=1024)
    offsets: bool = True
    settings: bool = False
    topic: str | None = Field(None, max_length=1024)


class ClonedOut(Out):
    """created: the group was made. settings, offsets: what was done, or with dry_run would be; null when not asked
    for."""

    created: bool
    settings: ChangeOut | None
    offsets: OffsetResetOut | None


class GroupIn(In):
    """A new consumer group."""

    name: str = Field(max_length=1024)
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16


class CleanUpIn(In):
    """The kind of things to clean up."""

    kind: Literal["groups", "topics", "offsets"]
    idle_hours: int = Field(
        24, description="Not heard of for so long; the broker has heard of nothing before its start."
    )
    q: str = Field("", max_length=255, description="Part of the name.")


class CleanedUpOut(Out):
    """A group, a topic, or a group's offsets of a topic."""

    group: Text | None
    topic: Text | None


class CleanUpOut(Out):
    """Unused things: found (applied false) or deleted. items: the first 500 of `count`. left: found and not deleted by
    this act. revision: of a dry run."""

    applied: bool
    kind: str
    items: list[CleanedUpOut]
    count: int
    left: int
    revision: str | None


class GroupPatch(In):
    """Settings left out stay as they are."""

    consume_enable: bool = Field(default_factory=not_given)
    consume_broadcast_enable: bool = Field(default_factory=not_given)
    consume_message_orderly: bool = Field(default_factory=not_given)
    retry_queue_nums: int = Field(default_factory=not_given)
    retry_max_times: int = Field(default_factory=not_given)


# --- clients


class ClientOut(Out):
    """A connection that has sent heartbeats, and the groups it names. connected_ms: for how long."""

    client_id: Text
    address: str
    language: str
    version: str
    producer_groups: list[Text]
    consumer_groups: list[Text]
    heartbeat_at_ms: int
    parked_pulls: int
    connected_ms: int


class ClientConnections(Out):
    """The connections of one client id: a program may have several."""

    items: list[ClientOut]


class MemberQueueOut(Out):
    """A queue that the client says it has. committed: what it will commit next. cached: messages that it holds."""

    topic: Text
    broker: Text
    queue_id: int
    committed: int | None
    cached: int | None
    cached_mib: int | None
    first_cached: int | None
    last_cached: int | None
    locked: bool | None
    dropped: bool | None
    last_lock_at_ms: int | None
    last_pull_at_ms: int | None
    last_consume_at_ms: int | None


class MemberRatesOut(Out):
    """The client's figures for a topic, over its last minute; failed: over its last hour."""

    topic: Text
    pull_ms: float | None
    pull_rate: float | None
    consume_ms: float | None
    consumed_rate: float | None
    failed_rate: float | None
    failed: int | None


class RunningInfoOut(Out):
    """A consumer's own account of itself, just asked for. properties: its settings, in its own words. stack: its
    threads, if they were asked for and it can say. left_out: parts of its answer that are not shown."""

    group: Text
    client_id: Text
    address: str
    language: str
    version: str
    took_ms: float
    started_at_ms: int | None
    properties: dict[Text, Text]
    subscriptions: list[SubscriptionOut]
    queues: list[MemberQueueOut]
    rates: list[MemberRatesOut]
    stack: Text | None
    left_out: int


class ClientPage(PageOut):
    items: list[ClientOut]
    total: int
