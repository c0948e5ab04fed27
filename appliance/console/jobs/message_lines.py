"""A message as a line of NDJSON, for exports and imports. docs/messages.md describes it."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from django.utils.translation import gettext_noop

from .job import Told


class BadLine(Exception):
    """A line that does not hold a message. told: the reason."""

    def __init__(self, template: str, **args: Any) -> None:
        super().__init__(template % args if args else template)
        self.told = Told(template, args)


def line_of(copy: Any) -> dict[str, Any]:
    """Return a whole message (`MessageCopy`) as the values of a line."""
    row = copy.row
    return summary_of(row) | {
        "flag": copy.flag,
        "sys_flag": copy.sys_flag,
        "properties": copy.properties,
        "compression": copy.compression,
        "body": body_of(copy.body),
    }


def summary_of(row: Any) -> dict[str, Any]:
    """Return the values of a line without body and properties, from a `MessageRow`."""
    return {
        "topic": row.topic,
        "queue_id": row.queue_id,
        "queue_offset": row.queue_offset,
        "offset_id": row.offset_id,
        "unique_id": row.unique_id,
        "stored_at_ms": row.stored_at_ms,
        "born_at_ms": row.born_at_ms,
        "born_host": row.born_host,
        "reconsume_times": row.reconsume_times,
        "tags": row.tags,
        "keys": row.keys,
    }


def body_of(body: bytes) -> dict[str, str]:
    """Return a body in a form that fits into JSON: as text if it is UTF-8, else as base64."""
    try:
        return {"encoding": "text", "data": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": base64.b64encode(body).decode()}


def item_of(line: bytes) -> dict[str, Any]:
    """Parse a line into an item for `import_messages`. Raises BadLine."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(gettext_noop("This is not JSON: %(why)s."), why=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise BadLine(gettext_noop("A line holds one JSON object, a message."))
    if found.get("compression") is not None:
        raise BadLine(gettext_noop("The body is still compressed; it could not be read when it was exported."))
    properties = found.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise BadLine(gettext_noop("“properties” must be an object whose values are texts."))
    tags = found.get("tags") or properties.get("TAGS") or ""
    keys = found.get("keys")
    if keys is None:
        keys = properties.get("KEYS", "").split()
    if not isinstance(tags, str) or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BadLine(gettext_noop("“tags” must be a text and “keys” a list of texts."))
    queue_id, flag = found.get("queue_id"), found.get("flag", 0)
    if queue_id is not None and (type(queue_id) is not int or not 0 <= queue_id < 1 << 31):
        raise BadLine(gettext_noop("“queue_id” must be a number of a queue."))
    if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
        raise BadLine(gettext_noop("“flag” must be a number of 32 bits."))
    return {
        "body": _bytes_of(found.get("body")), "tags": tags, "keys": keys, "properties": properties,
        "queue_id": queue_id, "flag": flag,
    }  # fmt: skip


def _bytes_of(body: object) -> bytes:
    if isinstance(body, dict) and isinstance(body.get("data"), str):
        if body.get("encoding") == "text":
            return str(body["data"]).encode()
        if body.get("encoding") == "base64":
            try:
                return base64.b64decode(body["data"], validate=True)
            except (binascii.Error, ValueError):
                raise BadLine(gettext_noop("The body is not base64.")) from None
    raise BadLine(gettext_noop("“body” must be an object with “encoding”, text or base64, and “data”."))
