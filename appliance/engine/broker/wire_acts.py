"""Forms of the broker's administrative requests in the audit log: the names in each, and their present state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..protocol.codes import RequestCode
from ..protocol.command import RemotingCommand
from ..protocol.names import permission_text
from ..wire_gate import MAX_NAMES, Act, Names, State, option_names
from .group_config import SubscriptionGroupConfig
from .groups import SubscriptionGroupManager
from .heartbeat import MAX_POOL_BODY_BYTES, decode_body
from .offsets import ConsumerOffsetManager
from .processors.admin_groups import GroupList
from .processors.admin_topics import TopicList
from .topic_config import TopicConfig
from .topics import TopicConfigManager


def _field(*names: str) -> Callable[[RemotingCommand], Names]:
    """Return a function that returns the texts of these header fields, as far as they are there."""
    return lambda request: tuple(request.ext_fields[name] for name in names if request.ext_fields.get(name))


def _topics_listed(request: RemotingCommand) -> Names:
    listed = decode_body(request.body, TopicList, MAX_POOL_BODY_BYTES).topic_config_list
    return tuple(config.topic_name for config in listed)


def _group_described(request: RemotingCommand) -> Names:
    return (decode_body(request.body, SubscriptionGroupConfig).group_name,)


def _groups_listed(request: RemotingCommand) -> Names:
    listed = decode_body(request.body, GroupList, MAX_POOL_BODY_BYTES).group_config_list
    return tuple(config.group_name for config in listed)


def broker_acts(
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    properties: Callable[[], Mapping[str, str]],
) -> dict[int, Act]:
    """Return request code -> its Act. properties: returns the options in force, as text."""

    def topic_state(names: Names) -> State:
        return _one_or_more(names, topics.get, _topic_fields)

    def group_state(names: Names) -> State:
        return _one_or_more(names, groups.get, _group_fields)

    def options_now(names: Names) -> State:
        current = properties()
        return {name: current[name] for name in names if name in current}

    def offsets_now(names: Names) -> State:
        """Return a group's offsets in one topic only: a group may have any number of topics. names: group, topic."""
        if len(names) != 2:
            return {}
        group, topic = names
        config = topics.get(topic)
        count = 0 if config is None else min(config.read_queue_nums, MAX_NAMES)
        found = ((queue_id, offsets.get(group, topic, queue_id)) for queue_id in range(count))
        return {f"queue {queue_id}": offset for queue_id, offset in found if offset >= 0}

    code = RequestCode
    return {
        code.UPDATE_AND_CREATE_TOPIC: Act("topic.set", _field("topic"), topic_state),
        code.UPDATE_AND_CREATE_TOPIC_LIST: Act("topic.set", _topics_listed, topic_state),
        code.DELETE_TOPIC_IN_BROKER: Act("topic.delete", _field("topic"), topic_state),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Act("group.set", _group_described, group_state),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Act("group.set", _groups_listed, group_state),
        code.DELETE_SUBSCRIPTIONGROUP: Act(
            "group.delete", _field("groupName"), group_state, told=("cleanOffset", "removeOffset")
        ),
        code.UPDATE_BROKER_CONFIG: Act("config.change", option_names, options_now),
        code.INVOKE_BROKER_TO_RESET_OFFSET: Act(
            "offset.reset", _field("group", "topic"), offsets_now, told=("timestamp", "queueId", "offset")
        ),
        code.CLONE_GROUP_OFFSET: Act(
            "offset.clone", _field("destGroup", "topic"), offsets_now, told=("srcGroup", "offline")
        ),
        code.CLEAN_EXPIRED_CONSUMEQUEUE: Act("system.clean", lambda request: ("queues",)),
        code.CLEAN_UNUSED_TOPIC: Act("system.clean", lambda request: ("topics",)),
        code.DELETE_EXPIRED_COMMITLOG: Act("system.clean", lambda request: ("log",)),
        code.CONSUME_MESSAGE_DIRECTLY: Act(
            "message.consume", _field("consumerGroup", "clientId"), told=("msgId", "topic")
        ),
        code.RESUME_CHECK_HALF_MESSAGE: Act("transaction.resume", _field("msgId")),
    }


def _one_or_more(names: Names, get: Callable[[str], Any], fields: Callable[[Any], State]) -> State:
    """Return the fields of the one thing that is named; of several, name -> fields."""
    known = {name: config for name in names[:MAX_NAMES] if (config := get(name)) is not None}
    if len(names) == 1:
        return fields(known[names[0]]) if known else {}
    return {name: fields(config) for name, config in known.items()}


def _topic_fields(config: TopicConfig) -> State:
    return {
        "read_queues": config.read_queue_nums,
        "write_queues": config.write_queue_nums,
        "permission": permission_text(config.perm),
        "order": config.order,
        "filter": config.topic_filter_type,
        "system_flag": config.topic_sys_flag,
        **config.attributes,
    }


def _group_fields(config: SubscriptionGroupConfig) -> State:
    fields: State = msgspec.to_builtins(config)
    fields.pop("groupName", None)
    return fields
