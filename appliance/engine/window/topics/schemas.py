"""The schemas of topics, by which the bodies of their messages are shown: kept, given and removed.

They are kept in `rocketbox/schemas.json`, which the first question loads; a slave or a follower takes its master's file
(`broker/schema_copies.py`). No client sees them, and no message is checked by them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ...broker.schema_copies import FILE
from ...broker.topics import TopicConfigManager
from ...clock import SYSTEM
from ...config import BrokerConfig
from ...errors import CorruptFile, InvalidInput, NotFound, Unavailable
from ...json_file import load_json_with_backup, save_json_atomically
from ...store.message_store import MessageStore
from .. import snapshots as s
from ..admin_pool import AdminPool
from ..changes import preview
from ..refusals import require_one_of
from ..sentences import say

if TYPE_CHECKING:
    from ...bodies.schemas import BodyReader
    from .registry import Registry

logger = logging.getLogger(__name__)

#: The kind of a topic whose bodies name their schemas by id.
REGISTRY = "registry"
#: Bounds of the file, which is written as a whole at each change: topics, and bytes of all schemas.
MOST_TOPICS, MOST_BYTES = 2000, 16 << 20
#: Schemas that stay read in memory.
_MOST_READ = 16
_LONGEST_MESSAGE = 1000


class _Kept(msgspec.Struct, frozen=True):
    """A schema in the file. data: base64. at: end of the log when it was set, and behind the last deletion of a topic
    of this name; 0 from older versions."""

    kind: str
    data: str
    message: str
    name: str
    set_at_ms: int
    by: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The schema of a topic. kind: "avro", "protobuf" or "registry". name: full name of the record or message, or the
    registry's address. size_bytes: of data. data: as it was given: Avro's JSON, or Protobuf's .proto file or
    FileDescriptorSet. message: as it was given."""

    topic: str
    kind: str
    name: str
    size_bytes: int
    set_at_ms: int
    by: str
    data: bytes
    message: str

    @property
    def is_text(self) -> bool:
        from ...bodies.proto_text import is_text

        return self.kind == "avro" or (self.kind == "protobuf" and is_text(self.data))


class TopicSchemas:
    """Any thread."""

    def __init__(
        self, topics: TopicConfigManager, store: MessageStore, pool: AdminPool, config: BrokerConfig, follows: bool
    ) -> None:
        """config: has the address of the schema registry. follows: the file is a copy of a master's, which another
        thread may replace."""
        # Constant after construction.
        self._topics = topics
        self._log = store.log
        self._deleted = store.files.deleted_topics
        self._disk = store.disk
        self._path = store.paths.own / FILE
        self._pool = pool
        self._config = config
        self._follows = follows
        self._lock = threading.Lock()
        # Guarded by _lock. None before the first question. A change replaces the table.
        self._kept: dict[str, _Kept] | None = None
        self._loaded_from: object = None
        self._read: dict[str, tuple[_Kept, BodyReader | None]] = {}
        self._registry: Registry | None = None

    def find(self, topic: str) -> TopicSchema | None:
        """Return a topic's schema, None if it has none. Unavailable if the file cannot be read."""
        kept = self._of(topic)
        if kept is None:
            return None
        try:
            data = base64.b64decode(kept.data)
        except binascii.Error as error:
            raise Unavailable(say("schemas_unreadable", reason=f"{topic}: {error}")) from None
        return TopicSchema(topic, kept.kind, kept.name, len(data), kept.set_at_ms, kept.by, data, kept.message)

    def get(self, topic: str) -> TopicSchema:
        """Return a topic's schema. NotFound without one, or without the topic; Unavailable."""
        self._check_topic(topic)
        found = self.find(topic)
        if found is None:
            raise NotFound("schema", topic)
        return found

    def described(self, topic: str) -> dict[str, Any]:
        """Return a topic's schema for the API, a descriptor set as base64. As `get`."""
        found = self.get(topic)
        is_text = found.is_text
        data = found.data.decode("utf-8", "replace") if is_text else base64.b64encode(found.data).decode()
        return {
            "topic": topic, "kind": found.kind, "name": found.name, "size_bytes": found.size_bytes,
            "set_at_ms": found.set_at_ms, "by": found.by,
            "schema": {"encoding": "text" if is_text else "base64", "data": data},
        }  # fmt: skip

    def reader(self, topic: str) -> BodyReader | None:
        """Return what decodes the bodies of a topic; None without a schema, or if that cannot be read. Raises
        nothing: a body is shown without it, too."""
        try:
            kept = self._of(topic)
        except Unavailable:
            return None
        if kept is None:
            return None
        with self._lock:
            read = self._read.get(topic)
        if read is not None and read[0] is kept:
            return read[1]
        if kept.kind == REGISTRY:
            return self._of_registry()
        from ...bodies.schemas import BodySchema  # most servers have no schema
        from ...bodies.work import BadSchema

        schema: BodyReader | None = None
        try:
            schema = BodySchema(kept.kind, base64.b64decode(kept.data), kept.message)
        except (BadSchema, binascii.Error) as error:
            logger.warning("schemas: cannot be read topic=%s reason=%s", topic, error)
        with self._lock:
            while len(self._read) >= _MOST_READ:
                del self._read[next(iter(self._read))]
            self._read[topic] = kept, schema
        return schema

    def _of_registry(self) -> Registry | None:
        if not self._config.schema_registry:
            return None
        from .registry import Registry

        with self._lock:
            if self._registry is None:
                self._registry = Registry(self._config.schema_registry, self._config.schema_registry_secret_file)
            return self._registry

    def put(
        self, topic: str, *, kind: str, data: bytes, message: str = "", dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Give a topic a schema, in place of the one it has; durable when it returns.

        kind: "avro" (data: the schema in JSON) or "protobuf" (data: the text of a .proto file, or a FileDescriptorSet
        with all imports; message: the full name of a message in it), or "registry": each body names its schema by an
        id. by: the user.
        InvalidInput (kind, schema, message), NotFound, Unavailable.
        """
        self._check_topic(topic)
        name = self.name_of(kind, data, message)
        text = base64.b64encode(data).decode()
        # A slave hears of deletions before it has the log as far as there, and no message may have come since one.
        below = self._deleted.below(topic)
        at = max(self._log.written, below + 1 if below else 0)
        kept = _Kept(kind, text, message, name, SYSTEM.wall_ms(), by[:200], at)
        change = preview(topic, _fields(self._of(topic)), _fields(kept))
        if dry_run:
            return change
        self._pool.run(lambda: self._save(topic, kept))
        logger.info("admin: schema set topic=%s kind=%s name=%s by=%s", topic, kind, name, by)
        return replace(change, applied=True)

    def name_of(self, kind: str, data: bytes, message: str) -> str:
        """Return the name of a schema that `put` takes. InvalidInput (kind, schema, message)."""
        from ...bodies.schemas import KINDS, BodySchema
        from ...bodies.work import BadSchema

        require_one_of("kind", kind, (*KINDS, REGISTRY))
        if kind == REGISTRY:
            if not self._config.schema_registry:
                raise InvalidInput("kind", say("no_schema_registry"))
            if data or message:
                raise InvalidInput("schema", say("bad_schema", reason="the registry has the schemas"))
        if len(message) > _LONGEST_MESSAGE:
            raise InvalidInput("message", say("bad_schema", reason="the message's name is too long"))
        try:
            return self._config.schema_registry if kind == REGISTRY else BodySchema(kind, data, message).name
        except BadSchema as error:
            raise InvalidInput("schema", say("bad_schema", reason=str(error))) from None

    def remove(self, topic: str, *, dry_run: bool = False, by: str = "") -> s.Change:
        """Remove a topic's schema. NotFound, Unavailable."""
        self._check_topic(topic)
        kept = self._of(topic)
        if kept is None:
            raise NotFound("schema", topic)
        change = preview(topic, _fields(kept), {})
        if dry_run:
            return change
        self._pool.run(lambda: self._save(topic, None))
        logger.info("admin: schema removed topic=%s by=%s", topic, by)
        return replace(change, applied=True)

    def forget(self, topic: str) -> None:
        """Remove the schema of a topic that is being deleted: a new one of its name has none. Raises OSError."""
        try:
            known = topic in self._table()
        except Unavailable as error:
            logger.warning("schemas: not removed topic=%s reason=%s", topic, error)
            return
        if known:
            with self._lock:
                self._write({name: one for name, one in self._loaded().items() if name != topic})

    def _check_topic(self, topic: str) -> None:
        if self._topics.get(topic) is None:
            raise NotFound("topic", topic)

    # --- the file

    def _of(self, topic: str) -> _Kept | None:
        """Return the schema of a topic, None for one that was set for a deleted topic of its name: a follower hears of
        a deletion without this class."""
        kept = self._table().get(topic)
        if kept is None or self._topics.get(topic) is None:
            return None
        return None if kept.at and kept.at <= self._deleted.below(topic) else kept

    def _table(self) -> dict[str, _Kept]:
        with self._lock:
            return self._loaded()

    def _loaded(self) -> dict[str, _Kept]:
        file = self._present_file() if self._follows else None
        if self._kept is None or file != self._loaded_from:
            try:
                document = load_json_with_backup(self._path, self._disk, "schemas")
                self._kept = msgspec.convert({} if document is None else document["schemas"], dict[str, _Kept])
                self._loaded_from = file
            except (CorruptFile, OSError, msgspec.ValidationError) as error:
                why = str(error) if str(self._path) in str(error) else f"{self._path}: {error}"
                raise Unavailable(say("schemas_unreadable", reason=why)) from None
        return self._kept

    def _present_file(self) -> object:
        try:
            stat = os.stat(self._path)
        except OSError:
            return None
        # A later file may have the number of an earlier one.
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _save(self, topic: str, kept: _Kept | None) -> None:
        with self._lock:
            table = {name: one for name, one in self._loaded().items() if name != topic}
            if kept is not None:
                self._check_topic(topic)
                table[topic] = kept
                if len(table) > MOST_TOPICS or sum(len(one.data) for one in table.values()) > MOST_BYTES:
                    raise InvalidInput("schema", say("schemas_full", topics=MOST_TOPICS, size=MOST_BYTES))
            try:
                self._write(table)
            except OSError as error:
                raise Unavailable(say("schemas_unsaved", reason=error.strerror or str(error))) from None

    def _write(self, table: dict[str, _Kept]) -> None:
        save_json_atomically(self._path, msgspec.json.encode({"schemas": table}), self._disk)
        self._kept = table
        self._read = {topic: read for topic, read in self._read.items() if table.get(topic) is read[0]}


def _fields(kept: _Kept | None) -> dict[str, str]:
    """Return what a preview and the audit log have of a schema."""
    if kept is None:
        return {}
    digest = hashlib.sha256(kept.data.encode()).hexdigest()[:16]
    return {"kind": kept.kind, "name": kept.name, "digest": digest}
