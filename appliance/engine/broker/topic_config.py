"""TopicConfig: what a broker knows of a topic, and the language in which its attributes are changed.

Field names, defaults and texts: RocketMQ 5.3.3 `TopicConfig`, `TopicAttributes`, `AttributeParser`, `AttributeUtil`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import PERM_READ, PERM_WRITE, permission_text

#: Java's int and long, as far as JSON gives them.
I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

#: Attribute: hours that a topic's messages are shown, -1 as long as the broker keeps them. Unit: 5.x's tiered storage.
RESERVE_TIME = "reserve.time"
QUEUE_TYPE = "queue.type"
BATCH_QUEUES = "BatchCQ"
MESSAGE_TYPES = ("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")
_I64_MAX = (1 << 63) - 1


class TopicConfig(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One topic. perm: bits 4 read, 2 write, 1 inherit. topic_sys_flag: 1 unit, 2 unit subscription.

    The fields stand in the order in which Java writes them.
    """

    attributes: dict[str, str] = {}
    order: bool = False
    perm: I32 = PERM_READ | PERM_WRITE
    read_queue_nums: I32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 16

    def __str__(self) -> str:
        """Java's toString, which error remarks hold."""
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def reserve_hours_of(config: TopicConfig) -> int | None:
    """The hours of its attribute reserve.time; None without one, for -1, and for what is no number (another's file)."""
    text = config.attributes.get(RESERVE_TIME, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def refuse_batch_queues(config: TopicConfig) -> None:
    """Refuses with 29 a topic that Apache 5.x made with queue.type=BatchCQ: its queues lie in files of another kind."""
    if config.attributes and config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        raise RefusedRequest(
            ResponseCode.INVALID_PARAMETER,
            f"topic[{config.topic_name}] has batch queues of Apache RocketMQ 5.x (queue.type=BatchCQ), "
            "which this broker does not serve",
        )


def new_topic(name: str, queue_nums: int, perm: int, order: bool = False, topic_sys_flag: int = 0) -> TopicConfig:
    """A topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=perm,
        order=order,
        topic_sys_flag=topic_sys_flag,
    )


# --- attributes


def _refuse(remark: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, remark)


def parse_attributes(text: str) -> dict[str, str]:
    """`+key=value,-key` of request 17 as {"+key": "value", "-key": ""}; refuses with 1 what is not of that form."""
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
    return found


def alter_attributes(current: dict[str, str] | None, changes: dict[str, str]) -> dict[str, str]:
    """The attributes after `changes` (as `parse_attributes` gives them); current: None for a new topic.

    Refuses with 1 and 5.3.3's words; with 29 the two values that mean files this broker does not write.
    """
    attributes = dict(current or {})
    seen: set[str] = set()
    for signed_key, value in changes.items():
        sign, key = signed_key[:1], signed_key[1:]
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
    """value: None when the key is deleted."""
    if key not in ("queue.type", "cleanup.policy", "message.type", RESERVE_TIME):
        raise _refuse(f"unsupported key: {key}")
    if key in ("queue.type", "cleanup.policy") and not is_new:
        raise _refuse(f"attempt to update an unchangeable attribute. key: {key}")
    if value is None:
        return
    if key == "queue.type":
        _check_choice(value, ("BatchCQ", "SimpleCQ"))
        if value == "BatchCQ":
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "BatchCQ queue type is not supported.")
    elif key == "cleanup.policy":
        _check_choice(value, ("DELETE", "COMPACTION"))
        if value == "COMPACTION":
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "COMPACTION cleanup policy is not supported.")
    elif key == "message.type":
        _check_choice(value, MESSAGE_TYPES)
    else:
        _check_range(value, -1, _I64_MAX)


def _check_choice(value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise _refuse(f"value is not in set: [{', '.join(choices)}]")


def _check_range(value: str, low: int, high: int) -> None:
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise _refuse(f'For input string: "{value[:64]}"')
    if not low <= int(value) <= high:
        raise _refuse(f"value is not in range({low}, {high})")


def decode_topic_config(name: str, value: Any) -> TopicConfig:
    """From JSON without nulls; the name given wins. Raises msgspec.ValidationError."""
    config = msgspec.convert(value, TopicConfig, strict=False)
    return config if config.topic_name == name else msgspec.structs.replace(config, topic_name=name)
