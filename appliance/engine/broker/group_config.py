"""SubscriptionGroupConfig: the configuration of a consumer group.

Field names and defaults: RocketMQ 5.3.3 `SubscriptionGroupConfig`, `GroupRetryPolicy`, `SimpleSubscriptionData`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from .topic_config import I32, I64


class CustomizedRetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """next: delay of the first, second ... retry in ms."""

    next: list[I64] | UnsetType = UNSET


class ExponentialRetryPolicy(msgspec.Struct, frozen=True, gc=False):
    """initial and max in ms."""

    initial: I64 = 5000
    max: I64 = 7_200_000
    multiplier: I64 = 2


class GroupRetryPolicy(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """type: CUSTOMIZED or EXPONENTIAL."""

    customized_retry_policy: CustomizedRetryPolicy | UnsetType = UNSET
    exponential_retry_policy: ExponentialRetryPolicy | UnsetType = UNSET
    type: str = "CUSTOMIZED"


class SimpleSubscriptionData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A subscription that an administrator gave the group."""

    expression: str | UnsetType = UNSET
    expression_type: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    version: I64 = 0


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One group. retry_queue_nums: queues of its retry topic. retry_max_times: retries before it is a dead letter.

    The fields stand in the order in which Java writes them.
    """

    attributes: dict[str, str] = {}
    broker_id: I64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: I32 = 15
    group_name: str = ""
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    group_sys_flag: I32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: I32 = 16
    retry_queue_nums: I32 = 1
    subscription_data_set: list[SimpleSubscriptionData] | UnsetType = UNSET
    which_broker_when_consume_slowly: I64 = 1


def decode_group_config(name: str, value: Any) -> SubscriptionGroupConfig:
    """Return the configuration in a JSON value without nulls; `name`, if given, wins. Raises
    msgspec.ValidationError."""
    config = msgspec.convert(value, SubscriptionGroupConfig, strict=False)
    return config if config.group_name == name or not name else msgspec.structs.replace(config, group_name=name)
