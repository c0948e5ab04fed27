"""A topic's attributes: their names, the values of each, and the changes that requests 17 and 18 make to them.

Texts and order of checks: RocketMQ 5.3.3 `TopicAttributes`, `AttributeParser`, `AttributeUtil`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import RefusedRequest
from ..named_tuple import NamedTuple
from ..protocol.codes import ResponseCode
from ..protocol.names import MESSAGE_TYPE, RESERVE_TIME
from .topic_config import BATCH_QUEUES, QUEUE_TYPE

MESSAGE_TYPES = ("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")
_I64_MAX = (1 << 63) - 1


class Attribute(NamedTuple):
    """The values of an attribute. choices: one of these; without them a number from -1 to the largest long.

    changeable: True if an existing topic may change it. unsupported: value -> its name in the refusal, for values that
    mean files which this broker does not write.
    """

    choices: tuple[str, ...] = ()
    changeable: bool = True
    unsupported: Mapping[str, str] = {}


ATTRIBUTES: dict[str, Attribute] = {
    QUEUE_TYPE: Attribute((BATCH_QUEUES, "SimpleCQ"), False, {BATCH_QUEUES: "queue type"}),
    "cleanup.policy": Attribute(("DELETE", "COMPACTION"), False, {"COMPACTION": "cleanup policy"}),
    MESSAGE_TYPE: Attribute(MESSAGE_TYPES),
    RESERVE_TIME: Attribute(),
}


class AttributeChange(NamedTuple):
    """One attribute set (sign "+") or removed ("-"); any other sign, or none, is refused when it is applied."""

    sign: str
    key: str
    value: str = ""

    @classmethod
    def from_wire(cls, signed_key: str, value: str) -> AttributeChange:
        """Return the change that requests write as `+key` or `-key`."""
        return cls(signed_key[:1], signed_key[1:], value)


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[AttributeChange, ...]:
    """Return the changes that turn `before` into `after`."""
    put = [AttributeChange("+", key, value) for key, value in after.items() if before.get(key) != value]
    return (*put, *(AttributeChange("-", key) for key in before if key not in after))


def parse_attributes(text: str) -> tuple[AttributeChange, ...]:
    """Return the changes in `+key=value,-key` of request 17. Refuses with 1 a text that is not of that form."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals and "+" not in key:
            raise _refuse(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise _refuse(f"delete attribute format is wrong: {key}")
        if key in found:
            raise _refuse(f"key duplication: {key}")
        found[key] = value
    return tuple(AttributeChange.from_wire(key, value) for key, value in found.items())


def alter_attributes(current: Mapping[str, str] | None, changes: Iterable[AttributeChange]) -> dict[str, str]:
    """Return the attributes after `changes`. current: None for a new topic.

    Refuses with 1 and 5.3.3's words; with 29 the two values that mean files which this broker does not write.
    """
    attributes = dict(current or {})
    seen: set[str] = set()
    for sign, key, value in changes:
        if not key or "+" in key or "-" in key:
            raise _refuse("kv string format wrong.")
        if key in seen:
            raise _refuse(f"key duplication found. key: {key}")
        seen.add(key)
        if current is None and sign != "+":
            raise _refuse(f"only add attribute is supported while creating topic. key: {key}")
        if sign not in ("+", "-"):
            raise _refuse(f"wrong format key: {key}")
        if sign == "-" and key not in attributes:
            raise _refuse(f"attempt to delete a nonexistent key: {key}")
        _check_attribute(key, None if sign == "-" else value, current is None)
        if sign == "-":
            del attributes[key]
        else:
            attributes[key] = value
    return attributes


def _check_attribute(key: str, value: str | None, is_new: bool) -> None:
    """Refuse a bad change of one attribute. value: None if the key is deleted."""
    attribute = ATTRIBUTES.get(key)
    if attribute is None:
        raise _refuse(f"unsupported key: {key}")
    if not attribute.changeable and not is_new:
        raise _refuse(f"attempt to update an unchangeable attribute. key: {key}")
    if value is None:
        return
    if not attribute.choices:
        _check_range(value, -1, _I64_MAX)
    elif value not in attribute.choices:
        raise _refuse(f"value is not in set: [{', '.join(attribute.choices)}]")
    if value in attribute.unsupported:
        raise RefusedRequest(
            ResponseCode.INVALID_PARAMETER, f"{value} {attribute.unsupported[value]} is not supported."
        )


def _check_range(value: str, low: int, high: int) -> None:
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise _refuse(f'For input string: "{value[:64]}"')
    if not low <= int(value) <= high:
        raise _refuse(f"value is not in range({low}, {high})")


def _refuse(remark: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, remark)
