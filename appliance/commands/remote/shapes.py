"""Request bodies that are not just a list of fields."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...engine.errors import StartError

Arguments = dict[str, str]
Fields = dict[str, Any]

#: Options of the shapes, beside those of the table.
OPTIONS = {
    "message": ("--text", "--file"),
    "waiting": ("--unique-id",),
    "half": ("--unique-id",),
    "option": (),
    "definitions": (),
    "lines": ("--file",),
    "json": ("--file",),
    "schema": ("--file",),
    "secret": ("--secret-file",),
}


def message(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Make the body of a message: text, or any bytes of a file or of standard input."""
    if "--text" in given:
        return {"body": {"encoding": "text", "data": given["--text"]}, **fields}
    data = _bytes_given(given)
    return {"body": {"encoding": "base64", "data": base64.b64encode(data).decode()}, **fields}


def lines(arguments: Arguments, fields: Fields, given: dict[str, str]) -> bytes:
    """Return NDJSON as it is."""
    return _bytes_given(given)


def json_given(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Read a JSON object from a file or standard input: it has secrets, and all users of a machine see arguments."""
    try:
        found = json.loads(_bytes_given(given))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StartError(f"{given.get('--file', 'Standard input')} is no JSON object.")
    return found


def schema(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Make the body with a schema: the bytes of a file or of standard input; of a registry's none."""
    if fields.get("kind") == "registry":
        return fields
    data = base64.b64encode(_bytes_given(given)).decode()
    return {"schema": {"encoding": "base64", "data": data}, **fields}


def secret(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Add the secret in a file of one line, or on standard input; none for one that is made."""
    if "--secret-file" not in given:
        return fields
    text = definitions({"file": given["--secret-file"]}, {}, {})["text"]
    return {**fields, "secret": text.removesuffix("\n").removesuffix("\r")}


def _bytes_given(given: dict[str, str]) -> bytes:
    try:
        return Path(given["--file"]).read_bytes() if "--file" in given else sys.stdin.buffer.read()
    except OSError as error:
        source = given.get("--file", "Standard input")
        raise StartError(f"{source} cannot be read: {error.strerror or error}.") from None


def waiting(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Parse one place, LEVEL/OFFSET; level 0 for messages with a delivery time instead of a level."""
    level, slash, offset = arguments["place"].partition("/")
    if not (slash and level.isascii() and level.isdigit() and offset.isascii() and offset.isdigit()):
        raise StartError(f"{arguments['place']} is no place: give LEVEL/OFFSET, as `delayed list` shows them.")
    return {**fields, "places": [{"level": int(level), "queue_offset": int(offset), **_unique_id(given)}]}


def half(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Parse one open transaction, the offset of its half message."""
    offset = arguments["half_offset"]
    if not (offset.isascii() and offset.isdigit()):
        raise StartError(f"{offset} is no offset: give the half_offset that `transaction list` shows.")
    return {**fields, "places": [{"half_offset": int(offset), **_unique_id(given)}]}


def option(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Parse an option's new value: true, false and numbers become such JSON values, anything else a text."""
    text = arguments.get("value")
    if text is None:
        return {arguments["name"]: None}
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return {arguments["name"]: value if isinstance(value, bool | int) else text}


def definitions(arguments: Arguments, fields: Fields, given: dict[str, str]) -> Fields:
    """Read the text of a file, or of standard input."""
    name = arguments["file"]
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return {"text": data.decode()}
    except OSError as error:
        raise StartError(f"{name} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise StartError(f"{name} is no UTF-8 text.") from None


def _unique_id(given: dict[str, str]) -> Fields:
    return {"unique_id": given["--unique-id"]} if "--unique-id" in given else {}


SHAPES: dict[str, Callable[[Arguments, Fields, dict[str, str]], Fields | bytes]] = {
    "message": message, "waiting": waiting, "half": half, "option": option, "definitions": definitions,
    "lines": lines, "json": json_given, "schema": schema, "secret": secret,
}  # fmt: skip
