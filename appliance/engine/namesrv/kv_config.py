"""Namespaced key-values that admin tools keep in the name server; upstream's KVConfigManager and kvConfig.json.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:4;broker-b:4"}}}

Written by one thread (`pool-namesrv`), read by any: a namespace is replaced whole. The file is saved before a change is
seen or acknowledged, so a failed save is the error of the one who asked and changes nothing (D6).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from ..errors import CorruptFile, RefusedRequest
from ..json_file import OWN_FILE_CALLS, load_json_with_backup, save_json_atomically
from ..own_files import DIRECTORY_MODE
from ..protocol.codes import ResponseCode
from .route_data import encode_json, encode_object

logger = logging.getLogger(__name__)

#: Orders of topics, `broker-a:4;broker-b:4` by topic.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

#: Names and values together. Each change writes the whole file, and anybody may send one.
MAX_CHARS = 4 * 1024 * 1024


class KVConfigManager:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        # Constant after construction.
        self._path = path
        # Written by one thread; the inner tables are replaced whole.
        self._table: dict[str, dict[str, str]] = {}
        self._chars = 0

    def load(self) -> None:
        """Read the file, or its backup; without either the table is empty, and its directory is made.

        Raises CorruptFile when neither is right, OSError.
        """
        _make_directory(self._path.parent)
        document = load_json_with_backup(self._path)
        table = {} if document is None else _checked(document, self._path)
        self._chars = sum(_chars(namespace, values) for namespace, values in table.items())
        self._table = table

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def encode_namespace(self, namespace: str) -> bytes | None:
        """KVTable as JSON; None when nobody ever put anything into the namespace."""
        values = self._table.get(namespace)
        return None if values is None else b'{"table":%b}' % encode_json(values)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value and save. Raises RefusedRequest when the table is full, OSError when the save failed."""
        self._replace(namespace, self._table.get(namespace, {}) | {key: value})
        logger.info("kv config: put namespace=%r key=%r", namespace, key)

    def delete(self, namespace: str, key: str) -> None:
        """Drop one value, if it is there, and save; an empty namespace stays, as upstream. Raises OSError."""
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
        save_json_atomically(self._path, (b'{"configTable":', text, b"}"), OWN_FILE_CALLS)
        self._table = table
        self._chars = chars


def _make_directory(path: Path, ours: int = 2) -> None:
    """Make a directory and what is missing above it, so that none of it is lost with the power.

    ours: so many of its last names are for us alone, as `rocketbox/namesrv`.
    """
    if not path.is_dir():
        _make_directory(path.parent, ours - 1)
        path.mkdir(DIRECTORY_MODE if ours > 0 else 0o777, exist_ok=True)
        OWN_FILE_CALLS.sync_directory(path.parent)


def _chars(namespace: str, values: dict[str, str]) -> int:
    return len(namespace) + sum(len(key) + len(value) for key, value in values.items())


def _checked(document: Any, path: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.convert(document, dict[str, dict[str, dict[str, str]]]).get("configTable", {})
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{path} is not a KV configuration: {error}") from None
