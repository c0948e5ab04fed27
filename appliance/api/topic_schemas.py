"""Topics, consumer groups and clients, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

import base64
from typing import Literal

from pydantic import Field

from ..engine.window.groups.diagnosis_snapshots import Evidence, Look
from ..engine.window.snapshots import (
    Change,
    ClientRow,
    GroupClient,
    GroupRow,
    QueueNow,
    QueueProgress,
    QueueRow,
    TopicConsumer,
    TopicProducer,
    TopicRow,
)
from .message_schemas import Base64BodyIn, TextBodyIn
from .offset_schemas import OffsetResetOut
from .schemas import In, OfTuple, Out, PageOut, SentenceOut, Text, not_given
from .times import Moment

Kind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"]

# --- topics


class TopicPage(PageOut):
    """total: topics that match."""

    items: list[TopicRow]
    total: int


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


class QueueList(Out):
    items: list[QueueRow]


class TopicGroupList(Out):
    items: list[TopicConsumer]


class ProducerList(Out):
    """why: what this list is, and is not."""

    items: list[TopicProducer]
    why: SentenceOut


# --- groups


class GroupPage(PageOut):
    """total: groups that match."""

    items: list[GroupRow]
    total: int


class GroupClientList(Out):
    items: list[GroupClient]


class ProgressList(Out):
    items: list[QueueProgress]


class QueueNowPage(PageOut):
    items: list[QueueNow]
    total: int


class PlaceOut(OfTuple):
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
    evidence: list[Evidence]
    queues: list[PlaceOut]
    clients: list[Text]
    message: HeldUpByOut | None


class DiagnosisOut(Out):
    """Faults of a group, as far as the broker's own records show them, the worst first, and all checks."""

    group: Text
    at_ms: int
    findings: list[FindingOut]
    looked: list[Look]


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
    settings: Change | None
    offsets: OffsetResetOut | None


class GroupIn(In):
    """A new consumer group."""

    name: str = Field(max_length=1024)
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16


class PurgeIn(In):
    """The messages of a topic to purge. before_ms: those stored before that time; null: all so far."""

    before_ms: Moment | None = None


class SchemaIn(In):
    """The schema of a topic's bodies. kind avro: `schema` is its JSON. kind protobuf: a FileDescriptorSet, as
    `protoc --include_imports --descriptor_set_out` writes it, and `message` the full name of a message in it. kind
    registry: neither; each body names its Avro schema by id, in the registry of the option schemaRegistry."""

    kind: Literal["avro", "protobuf", "registry"]
    schema_: TextBodyIn | Base64BodyIn | None = Field(None, alias="schema")
    message: str = Field("", max_length=1000)

    def schema_bytes(self) -> bytes:
        if self.schema_ is None:
            return b""
        data = self.schema_.data
        return base64.b64decode(data) if self.schema_.encoding == "base64" else data.encode()


class SchemaText(Out):
    encoding: Literal["text", "base64"]
    data: Text


class SchemaOut(Out):
    """The schema of a topic's bodies. name: full name of its record or message. size_bytes: of the schema."""

    topic: Text
    kind: str
    name: Text
    size_bytes: int
    set_at_ms: int
    by: Text
    schema_: SchemaText = Field(alias="schema")


class CleanUpIn(In):
    """The kind of things to clean up."""

    kind: Literal["groups", "topics", "offsets"]
    idle_hours: int = Field(
        24, description="Not heard of for so long; the broker has heard of nothing before its start."
    )
    q: str = Field("", max_length=255, description="Part of the name.")


class GroupPatch(In):
    """Settings left out stay as they are."""

    consume_enable: bool = Field(default_factory=not_given)
    consume_broadcast_enable: bool = Field(default_factory=not_given)
    consume_message_orderly: bool = Field(default_factory=not_given)
    retry_queue_nums: int = Field(default_factory=not_given)
    retry_max_times: int = Field(default_factory=not_given)


# --- clients


class ClientConnections(Out):
    """The connections of one client id: a program may have several."""

    items: list[ClientRow]


class ClientPage(PageOut):
    items: list[ClientRow]
    total: int
