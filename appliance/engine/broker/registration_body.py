"""The body of REGISTER_BROKER (103), by which a broker registers at a name server, as 5.3.3 writes it, uncompressed.

A table of tens of thousands of topics is written topic by topic, and kept until it changes: to register an unchanged
table again is one join (D10).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import msgspec

from ..protocol.data_version import DataVersion
from ..protocol.names import PERM_READ, PERM_WRITE
from .topic_config import TopicConfig
from .topics import TopicConfigManager

_READ_WRITE = PERM_READ | PERM_WRITE

#: Apache refuses frames over 16 MiB, which some 70,000 topics reach.
MAX_TABLE_BYTES = 8 * 1024 * 1024

_encode = msgspec.json.encode


def encode_topic(config: TopicConfig, broker_permission: int) -> bytes:
    """Return `"name":{TopicConfig}`. A broker without R or W takes that permission from all its topics."""
    if broker_permission & _READ_WRITE != _READ_WRITE:
        config = msgspec.structs.replace(config, perm=config.perm & broker_permission)
    return b"%b:%b" % (_encode(config.topic_name), _encode(config))


def encode_body(version: DataVersion, topics: bytes) -> bytes:
    """Return a RegisterBrokerBody. topics: entries of `encode_topic`, joined by commas. There are no static topics."""
    return (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%b,"mappingDataVersion":'
        b'{"counter":0,"stateVersion":0,"timestamp":%d},"topicConfigTable":{%b},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    ) % (version.encode(), version.timestamp, topics)


class TableText:
    """The text of the whole table, made anew at the first request after a change."""

    def __init__(self, topics: TopicConfigManager, broker_permission: Callable[[], int], epoch: int = 0) -> None:
        """broker_permission: returns the option in force; a change of it gives the topics a new version. epoch: state
        version to be sent; 0: the table's own."""
        # Constant after construction.
        self._topics = topics
        self._permission = broker_permission
        self._epoch = epoch
        # Guarded by _lock, which is held while the text is made: whoever waits needs the same text.
        self._lock = threading.Lock()
        self._made_for: tuple[DataVersion, int] | None = None
        self._parts: list[bytes] = []

    def state(self) -> tuple[DataVersion, int]:
        """Return a value that differs after each change. If it is read before `whole`, the text is not older."""
        return self._version(), self._topics.generation

    def whole(self) -> list[tuple[DataVersion, bytes]]:
        """Return (version, body) of all topics; several if one would not fit a frame, the last with the true version.

        A name server never drops topics that a body leaves out, but it ignores changes that come with a version it has:
        so each part has its own. The version is read before the table, so the table has at least the changes of that
        version; later ones are sent again with their own version.
        """
        with self._lock:
            key = self.state()
            version = key[0]
            if key != self._made_for:
                self._parts = self._make_parts()
                self._made_for = key
            versions = [version.plus_ms(ms) for ms in reversed(range(len(self._parts)))]
            return [(own, encode_body(own, part)) for own, part in zip(versions, self._parts, strict=True)]

    def _version(self) -> DataVersion:
        version = self._topics.data_version
        return version._replace(state_version=self._epoch) if self._epoch else version

    def _make_parts(self) -> list[bytes]:
        parts: list[bytes] = []
        entries: list[bytes] = []
        size = 0
        for config in self._topics.all():
            entry = encode_topic(config, self._permission())
            if size + len(entry) > MAX_TABLE_BYTES:
                parts.append(b",".join(entries))
                entries, size = [], 0
            entries.append(entry)
            size += len(entry) + 1
        return [*parts, b",".join(entries)]

    def increment(self, changed: Iterable[TopicConfig], seen: DataVersion | None) -> tuple[DataVersion, bytes]:
        """Return (version, body) of a few topics as they are now, also with changes whose own announcement comes later.

        seen: the version that this name server got last. Two changes have the same version if the second was made
        before the first was sent, and then the name server would ignore the second. So that gets a higher version,
        which the next whole table corrects.
        """
        with self._lock:
            if self._made_for is not None and self._made_for[1] != self._topics.generation:
                self._made_for, self._parts = None, []  # that text is stale
        version = self._version()
        if version == seen:
            version = version.plus_ms(1)
        # Looked up after the version was read, so that the text has at least the changes of that version.
        now = [config for old in changed if (config := self._topics.get(old.topic_name)) is not None]
        return version, encode_body(version, b",".join([encode_topic(c, self._permission()) for c in now]))
