"""TopicConfig: the configuration of a topic. Field names and defaults: RocketMQ 5.3.3 `TopicConfig`.

Its settings for administrators are declared in `engine/admin_settings.py`, its attributes in `topic_attributes.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import PERM_READ, PERM_WRITE, RESERVE_TIME, permission_text

#: Java's int and long, as far as JSON gives them.
I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

#: An attribute that this broker reads.
QUEUE_TYPE = "queue.type"
BATCH_QUEUES = "BatchCQ"


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
        """Return Java's toString, which error remarks contain."""
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def reserve_hours_of(config: TopicConfig) -> int | None:
    """Return the hours of its attribute reserve.time; None without one, and for a value that is no positive number: -1,
    or a text in the file of another broker."""
    text = config.attributes.get(RESERVE_TIME, "")
    return int(text) if len(text) < 20 and text.isascii() and text.isdigit() and int(text) > 0 else None


def refuse_batch_queues(config: TopicConfig) -> None:
    """Refuse with 29 a topic that Apache 5.x made with queue.type=BatchCQ: its queues lie in files of another kind."""
    if config.attributes and config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        raise RefusedRequest(
            ResponseCode.INVALID_PARAMETER,
            f"topic[{config.topic_name}] has batch queues of Apache RocketMQ 5.x (queue.type=BatchCQ), "
            "which this broker does not serve",
        )


def new_topic(name: str, queue_nums: int, perm: int, order: bool = False, topic_sys_flag: int = 0) -> TopicConfig:
    """Return a topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=perm,
        order=order,
        topic_sys_flag=topic_sys_flag,
    )


def decode_topic_config(name: str, value: Any) -> TopicConfig:
    """Return the configuration in a JSON value without nulls; the name given wins. Raises msgspec.ValidationError."""
    config = msgspec.convert(value, TopicConfig, strict=False)
    return config if config.topic_name == name else msgspec.structs.replace(config, topic_name=name)
