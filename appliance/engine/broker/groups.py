"""SubscriptionGroupManager: the broker's consumer groups, `store/config/subscriptionGroup.json`.

Source: RocketMQ 5.3.3 `SubscriptionGroupManager`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from ..clock import Clock
from ..config import BrokerConfig
from ..config_journal import ConfigJournal
from ..disk import Disk
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import MAX_QUEUE_NUMS, is_legal_derived_topic, is_legal_group, is_word
from .config_table import ConfigTable, without_nulls
from .group_config import SubscriptionGroupConfig, decode_group_config
from .heartbeat_bounds import MOST_EXPRESSION_CHARS

logger = logging.getLogger(__name__)

#: RocketBox's limit. Each group has a retry topic and later a dead letter topic; these stay below the limit of topics.
MOST_GROUPS = 100_000
#: Subscriptions, and steps of a retry policy, that an administrator may give a group.
MOST_SUBSCRIPTIONS, MOST_RETRY_STEPS = 1000, 128
RETRY_POLICIES = ("CUSTOMIZED", "EXPONENTIAL")
#: Prefix of the broker's own groups; they are made even where groups are not created automatically.
SYSTEM_PREFIX = "CID_RMQ_SYS_"
_FROM_THE_START = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


def is_system_group(name: str) -> bool:
    """True if the group is one of the broker's own."""
    return name in _FROM_THE_START or name.startswith(SYSTEM_PREFIX)


class SubscriptionGroupManager(ConfigTable[SubscriptionGroupConfig]):
    """name -> SubscriptionGroupConfig; see ConfigTable for threads and durability."""

    table = "groups"
    field = "subscriptionGroupTable"
    most = MOST_GROUPS

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        journal: ConfigJournal,
        clock: Clock,
        disk: Disk | None = None,
    ) -> None:
        super().__init__(path, journal, clock, disk)
        # Replaced whole by take_options().
        self._config = config
        # group -> topic -> bits, kept as the file has it: nothing here sets or reads it yet.
        self.forbidden: dict[str, Any] = {}
        self.load({name: SubscriptionGroupConfig(group_name=name) for name in _FROM_THE_START})

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config

    def _decode(self, name: str, value: Any) -> SubscriptionGroupConfig:
        return _fitted(decode_group_config(name, without_nulls(value)))

    def _is_legal_name(self, name: str) -> bool:
        return is_legal_group(name)

    def _name_of(self, config: SubscriptionGroupConfig) -> str:
        return config.group_name

    def _other_fields(self) -> dict[str, Any]:
        return {"forbiddenTable": self.forbidden}

    def _take_other_fields(self, document: dict[str, Any]) -> None:
        forbidden = document.get("forbiddenTable")
        if forbidden is not None:
            if not isinstance(forbidden, dict):
                raise ValueError("forbiddenTable is no object")
            self.forbidden = without_nulls(forbidden)

    def may_make(self, name: str) -> bool:
        """True if `find` makes a group of this name if it is not there."""
        return (self._config.auto_create_subscription_group or name.startswith(SYSTEM_PREFIX)) and is_legal_group(name)

    def find(self, name: str, peer: bytes | None = None) -> SubscriptionGroupConfig | None:
        """Return the group, made with the defaults if it is not there and may be made; else None. peer: the client that
        names it.

        On remoting-io. The entry is in the journal, not synced, when this returns. Refuses with 14 if the journal
        cannot take it, with 1 if the peer has had its share of groups made.
        """
        known = self._configs.get(name)
        if known is not None:
            return known
        if not self.may_make(name):
            return None
        with self._lock:
            known = self._configs.get(name)
            if known is not None:
                return known
            config = SubscriptionGroupConfig(group_name=name)
            self._change_locked(name, config, peer=peer)
        logger.info("groups: created %s", name)
        self._announce([config])
        return config

    def update(self, config: SubscriptionGroupConfig) -> int:
        """Create a group or replace its whole configuration; return the ticket for `wait_durable`.

        config.attributes are changes, and none is supported yet; the attributes that the group has stay. The same
        configuration again changes nothing, and returns 0. Refuses with 1 an illegal name, bad numbers, policies,
        subscriptions or attributes, and a change that the journal cannot take.
        """
        if not is_legal_group(config.group_name):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"the group name {config.group_name[:300]!r} is illegal, allowing only ^[%|a-zA-Z0-9_-]+$",
            )
        if not 0 <= config.retry_queue_nums <= MAX_QUEUE_NUMS or config.retry_max_times < -1:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "retryQueueNums or retryMaxTimes is out of range")
        _check_policy(config)
        for key in config.attributes:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"unsupported key: {key.lstrip('+-')}")
        with self._lock:
            known = self._configs.get(config.group_name)
            if known is not None and known.attributes:
                config = msgspec.structs.replace(config, attributes=known.attributes)
            if config == known:
                return 0
            ticket = self._change_locked(config.group_name, config, waits=True)
        logger.info("groups: %s %s", "created" if known is None else "changed", config.group_name)
        self._announce([config])
        return ticket

    def delete(self, name: str) -> int:
        """Delete a group; return the ticket for `wait_durable`, 0 if there was none."""
        with self._lock:
            if name not in self._configs:
                return 0
            ticket = self._change_locked(name, None, waits=True)
        logger.info("groups: deleted %s", name)
        return ticket


def _fitted(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """Return a group of a file or of another broker, its numbers changed to ones that `update` takes."""
    fitted = msgspec.structs.replace(
        config,
        retry_queue_nums=max(0, min(config.retry_queue_nums, MAX_QUEUE_NUMS)),
        retry_max_times=max(-1, config.retry_max_times),
    )
    if fitted != config:
        logger.warning(
            "groups: no group has retryQueueNums=%d retryMaxTimes=%d: %s; taken as %d and %d",
            config.retry_queue_nums,
            config.retry_max_times,
            config.group_name,
            fitted.retry_queue_nums,
            fitted.retry_max_times,
        )
    return fitted


def _check_policy(config: SubscriptionGroupConfig) -> None:
    """Refuse with 1 an impossible retry policy or subscription; Apache keeps both as they come."""
    policy = config.group_retry_policy
    steps = [] if policy.customized_retry_policy is UNSET else policy.customized_retry_policy.next
    if policy.type not in RETRY_POLICIES or (steps is not UNSET and len(steps) > MOST_RETRY_STEPS):
        raise RefusedRequest(
            ResponseCode.SYSTEM_ERROR,
            f"groupRetryPolicy must be {' or '.join(RETRY_POLICIES)}, with at most {MOST_RETRY_STEPS} steps",
        )
    wanted = [] if config.subscription_data_set is UNSET else config.subscription_data_set
    if len(wanted) > MOST_SUBSCRIPTIONS:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"a group may be given {MOST_SUBSCRIPTIONS} subscriptions")
    for data in wanted:
        if data.topic is not UNSET and not is_legal_derived_topic(data.topic):
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the subscribed topic {data.topic[:100]!r} is illegal")
        expression = "" if data.expression is UNSET else data.expression
        kind = "" if data.expression_type is UNSET else data.expression_type
        if len(expression) > MOST_EXPRESSION_CHARS or not expression.isprintable() or not is_word(kind):
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "an expression or its type is illegal")
