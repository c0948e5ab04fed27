"""Fields that a newer version has of users, entries and quotas, and this one does not know. PURE.

They are kept as the text of a JSON object in the field `unknown` of their struct, and are written where they were: into
the journal, and to other brokers. Nothing heeds them, so a broker that does not know a limit does not keep it.

`inner`, everywhere: name of a field that holds a struct, or several -> its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from ..fastjson import MAX_DEPTH

FIELD = "unknown"

Struct = TypeVar("Struct", bound=msgspec.Struct)
Inner = Mapping[str, type[msgspec.Struct]]


def read(text: bytes, kind: type[Struct], inner: Inner) -> Struct:
    """Return a struct of JSON. Raises ValueError for what is wrong otherwise, or nested too deeply."""
    try:
        try:
            found = msgspec.json.decode(text, type=kind)
            if not any(_held(found, inner)):  # else it has a field of this name itself
                return found
        except msgspec.ValidationError:
            pass
        return msgspec.convert(_set_aside(msgspec.json.decode(text), kind, inner), kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def text_of(value: msgspec.Struct, inner: Inner) -> bytes:
    """Return JSON of a struct that was read."""
    if not any(_held(value, inner)):
        return msgspec.json.encode(value)
    return msgspec.json.encode(_put_back(msgspec.to_builtins(value), inner))


def names_of(value: msgspec.Struct, inner: Inner) -> set[str]:
    """Return the names of unknown fields in a struct."""
    return {name for text in _held(value, inner) for name in msgspec.json.decode(text)}


def _held(value: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _held(one, inner)
    elif isinstance(value, msgspec.Struct):
        if text := getattr(value, FIELD, ""):
            yield text
        for name in inner:
            yield from _held(getattr(value, name, ()), inner)


def _set_aside(value: Any, kind: type[msgspec.Struct], inner: Inner) -> Any:
    if isinstance(value, list):
        return [_set_aside(one, kind, inner) for one in value]
    if not isinstance(value, dict):
        return value
    names = kind.__struct_encode_fields__
    known = {name: one for name, one in value.items() if name in names and name != FIELD}
    rest = {name: one for name, one in value.items() if name not in known}
    for name in inner.keys() & known.keys():
        known[name] = _set_aside(known[name], inner[name], inner)
    if rest and FIELD in names:
        _check_depth(rest, MAX_DEPTH)
        known[FIELD] = msgspec.json.encode(rest, order="sorted").decode()
    return known


def _check_depth(value: Any, left: int) -> None:
    """Raise ValueError for what could be read here, but not from a deeper stack, as at the next start."""
    if isinstance(value, dict | list):
        if left == 0:
            raise ValueError("it is nested too deeply")
        for one in value.values() if isinstance(value, dict) else value:
            _check_depth(one, left - 1)


def _put_back(value: Any, inner: Inner) -> Any:
    if isinstance(value, tuple | list):
        return [_put_back(one, inner) for one in value]
    rest = msgspec.json.decode(value.pop(FIELD, "{}"))
    for name in inner.keys() & value.keys():
        value[name] = _put_back(value[name], inner)
    return value | rest
