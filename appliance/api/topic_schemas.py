"""Topics, consumer groups and clients, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from django.utils.translation import override
from ninja import Query
from pydantic import Field, computed_field, create_model

from ..console.pages.words import ADVICE
from ..engine.admin_settings import GROUP_SETTINGS, NEW_TOPIC_SETTINGS, TOPIC_SETTINGS, Setting
from ..engine.window.groups.diagnosis_snapshots import Evidence, HeldUpBy, Look
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
from .schemas import Asked, In, OfTuple, Out, PageOut, SentenceOut, Text, not_given
from .times import Moment

Kind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"]

# --- topics


class TopicFilter(Asked):
    """Selects topics."""

    q: Text = Query("", max_length=255, description="Part of the name.")
    kind: Kind | None = Query(None, description="Only this kind.")
    system: bool = Query(False, description="Include system, retry and dead letter topics.")
    category: Literal["user", "system", "retry", "dlq"] | None = Query(None, description="Only this category.")


class TopicPage(PageOut):
    """total: topics that match."""

    items: list[TopicRow]
    total: int


def _of_settings(settings: Iterable[Setting], *, new: bool) -> Callable[[type[In]], type[In]]:
    """Add a field for each setting. new: it begins with its default, else it may be left out."""

    def field(one: Setting) -> Any:
        begins: Any = {"default": one.default} if new else {"default_factory": not_given}
        kind: Any = Literal[one.choices] if one.choices else type(one.default)
        return kind, Field(description=one.says or None, **begins)

    def add(body: type[In]) -> type[In]:
        fields = {one.name: field(one) for one in settings}
        return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **fields)

    return add


@_of_settings(NEW_TOPIC_SETTINGS, new=True)
class TopicIn(In):
    """A new topic."""

    name: str = Field(max_length=1024)


@_of_settings(TOPIC_SETTINGS, new=False)
class TopicPatch(In):
    """Settings left out stay as they are."""


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


class FindingOut(Out):
    """Something that is wrong. level: act (messages are not consumed) or watch. queues, clients: 100 at most of those
    it is about; the evidence counts all. message: what holds up a queue that stands. advice: what to do."""

    kind: str
    level: Literal["act", "watch"]
    sentence: SentenceOut
    evidence: list[Evidence]
    queues: list[PlaceOut]
    clients: list[Text]
    message: HeldUpBy | None

    @computed_field
    def advice(self) -> str:
        with override("en"):
            return str(ADVICE.get(self.kind, ""))


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


@_of_settings(GROUP_SETTINGS, new=True)
class GroupIn(In):
    """A new consumer group."""

    name: str = Field(max_length=1024)


class PurgeIn(In):
    """The messages of a topic to purge. before_ms: those stored before that time; null: all so far."""

    before_ms: Moment | None = None


class SchemaIn(In):
    """The schema of a topic's bodies. kind avro: `schema` is its JSON. kind protobuf: the text of a .proto file, or a
    FileDescriptorSet as `protoc --include_imports --descriptor_set_out` writes it, and `message` the full name of a
    message in it. kind registry: neither; each body names its schema, in Avro or Protobuf, by an id in the registry of
    the option schemaRegistry."""

    kind: Literal["avro", "protobuf", "registry"]
    schema_: TextBodyIn | Base64BodyIn | None = Field(None, alias="schema")
    message: str = Field("", max_length=1000)

    def schema_bytes(self) -> bytes:
        return b"" if self.schema_ is None else self.schema_.content()


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


@_of_settings(GROUP_SETTINGS, new=False)
class GroupPatch(In):
    """Settings left out stay as they are."""


# --- clients


class ClientConnections(Out):
    """The connections of one client id: a program may have several."""

    items: list[ClientRow]


class ClientPage(PageOut):
    items: list[ClientRow]
    total: int
