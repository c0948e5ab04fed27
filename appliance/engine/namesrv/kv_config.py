"""Key-values in namespaces, which admin tools keep in the name server; Apache's KVConfigManager and kvConfig.json.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:4;broker-b:4"}}}

One thread writes (`pool-namesrv`), any thread reads: a namespace is replaced whole. The file is saved before readers
see a change and before it is acknowledged; when the save fails, the request fails and nothing has changed (D6).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from ..disk import Disk
from ..errors import CorruptFile, RefusedRequest
from ..json_file import load_json_with_backup, save_json_atomically
from ..protocol.codes import ResponseCode
from .route_data import encode_json, encode_object

logger = logging.getLogger(__name__)

#: The namespace of ordered topics: topic -> its queues by broker, `broker-a:4;broker-b:4`.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

#: Length of all names and values together. Each change writes the whole file, and any client may send one.
MAX_CHARS = 4 * 1024 * 1024


class KVConfigManager:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        # Constant after construction.
        self._path = path
        self._disk = Disk(path.parent.parent)
        # Written by one thread; the inner tables are replaced whole.
        self._table: dict[str, dict[str, str]] = {}
        self._chars = 0

    def load(self) -> None:
        """Read the file, or its backup; without either the table is empty. The directory is made if it is missing.

        Raises CorruptFile when neither file can be read as one, OSError when reading fails.
        """
        self._disk.make_directory(self._path.parent)
        document = load_json_with_backup(self._path, self._disk, "configTable")
        table = {} if document is None else _checked(document, self._path)
        self._chars = sum(_chars(namespace, values) for namespace, values in table.items())
        self._table = table

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def encode_namespace(self, namespace: str) -> bytes | None:
        """Return the namespace's KVTable as JSON; None if nothing was ever put into it."""
        values = self._table.get(namespace)
        return None if values is None else b'{"table":%b}' % encode_json(values)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value and save it. Raises RefusedRequest when the table is full, OSError when saving failed."""
        self._replace(namespace, self._table.get(namespace, {}) | {key: value})
        logger.info("kv config: put namespace=%r key=%r", namespace, key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if there is one, and save. An empty namespace stays, as in Apache's. Raises OSError."""
        values = self._table.get(namespace, {})
        if key in values:
            self._replace(namespace, {k: v for k, v in values.items() if k != key})
            logger.info("kv config: deleted namespace=%r key=%r", namespace, key)

    def _replace(self, namespace: str, values: dict[str, str]) -> None:
        before = self._table.get(namespace)
        chars = self._chars + _chars(namespace, values) - (0 if before is None else _chars(namespace, before))
        if chars > MAX_CHARS and chars > self._chars:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the KV configuration would exceed {MAX_CHARS} characters")
        table = self._table | {namespace: values}
        text = encode_object({name: encode_json(inner) for name, inner in table.items()})
        save_json_atomically(self._path, (b'{"configTable":', text, b"}"), self._disk)
        assert chars >= 0, "every value that was removed had been counted"
        self._table = table
        self._chars = chars


def _chars(namespace: str, values: dict[str, str]) -> int:
    return len(namespace) + sum(len(key) + len(value) for key, value in values.items())


def _checked(document: Any, path: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.convert(document, dict[str, dict[str, dict[str, str]]])["configTable"]
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{path} is not a KV configuration: {error}") from None
