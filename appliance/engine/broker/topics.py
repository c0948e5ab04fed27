"""TopicConfigManager: the broker's topics, `store/config/topics.json`.

A topic is made in one of four ways: the broker has it from the start; an administrator makes it; a producer sends
to it and a template topic allows it (autoCreateTopicEnable); a consumer group needs its retry topic.
Source: RocketMQ 5.3.3 `TopicConfigManager`. Differs: autoCreateTopicEnable=false stops the third way whatever template
the producer names, and then there is no TBW102 in the table even if the file still holds it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..clock import Clock
from ..config import BrokerConfig
from ..config_journal import ConfigJournal
from ..disk import Disk
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import (
    HALF_TOPIC,
    MAX_QUEUE_NUMS,
    OP_HALF_TOPIC,
    PERM_ALL,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    is_legal_group,
    topic_name_error,
)
from ..shares import Rates
from .config_table import ConfigTable, without_nulls
from .topic_attributes import AttributeChange, alter_attributes
from .topic_config import (
    RESERVE_TIME,
    TopicConfig,
    decode_topic_config,
    new_topic,
    reserve_hours_of,
)

logger = logging.getLogger(__name__)

_READ_WRITE = PERM_READ | PERM_WRITE
SYSTEM_PREFIX = "rmq_sys_"
#: Names upstream reserves whether or not there is such a topic here.
_RESERVED = frozenset(
    (
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    )
)
#: The bits of `topicSysFlag`. Source: `TopicSysFlag`.
_SYS_FLAGS = 3
#: RocketBox's limit: as many as its name server takes of one broker. Apache's stops at 70,000, where 16 MiB are full.
MOST_TOPICS = 250_000
_REVIVE_QUEUES = 8  # reviveQueueNum
_DELAY_LEVELS = 18
#: Shortest time between two changes of a retry topic's order flag by heartbeats, in seconds; and number of changes of
#: all retry topics at once, after which one a second is made. Members that subscribe in different ways would change the
#: flag with each heartbeat. A change is a journal entry and a registration, and every client's next heartbeat is read
#: again.
ORDER_FLAG_S, ORDER_FLAGS_AT_ONCE = 600, 100


class TopicConfigManager(ConfigTable[TopicConfig]):
    """name -> TopicConfig; see ConfigTable for threads and durability."""

    table = "topics"
    field = "topicConfigTable"
    most = MOST_TOPICS

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
        # Guarded by _lock: topics whose deletion is under way; they cannot be made again before it is done.
        self._closing: set[str] = set()
        # Guarded by _lock: changes of retry topics' order flags, of each and of all.
        self._flags_of_each = Rates(clock, ORDER_FLAG_S, 1)
        self._flags_of_all = Rates(clock, ORDER_FLAGS_AT_ONCE, 1)
        topics = _topics_from_the_start(config)
        self.system_topics = _RESERVED | topics.keys()
        self.load(topics)
        if not config.auto_create_topic_enable and self._configs.pop(TEMPLATE_TOPIC, None) is not None:
            self._dirty = True

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config

    def _decode(self, name: str, value: Any) -> TopicConfig:
        return _fitted(decode_topic_config(name, without_nulls(value)))

    def _is_legal_name(self, name: str) -> bool:
        # Apache's own topics may hold a plus (pop retry topics) and be longer than those that clients may send to.
        return is_legal_group(name.replace("+", "-"))

    def _name_of(self, config: TopicConfig) -> str:
        return config.topic_name

    def is_system_topic(self, name: str) -> bool:
        """True if administrators must not change the topic."""
        return name in self.system_topics or name.startswith(SYSTEM_PREFIX)

    def is_order_topic(self, name: str) -> bool:
        config = self._configs.get(name)
        return config is not None and config.order

    def reserve_hours(self) -> dict[str, int]:
        """Return topic -> hours of its attribute reserve.time, for topics that have one other than -1."""
        return {
            topic: hours
            for topic, config in list(self._configs.items())
            if RESERVE_TIME in config.attributes and (hours := reserve_hours_of(config)) is not None
        }

    # --- creation without an administrator, on remoting-io

    def may_make(self, topic: str, default_topic: str) -> bool:
        """True if `create_from_default` makes this topic if it is not there."""
        template = self._configs.get(default_topic)
        return (
            self._config.auto_create_topic_enable
            and template is not None
            and bool(template.perm & PERM_INHERIT)
            and topic_name_error(topic) is None
        )

    def create_from_default(
        self, topic: str, default_topic: str, queue_nums: int, topic_sys_flag: int = 0, peer: bytes | None = None
    ) -> TopicConfig | None:
        """Return the topic, made after the template `default_topic` if it is not there; None if it may not be made.

        queue_nums: the number that the producer asks for; the template's is the limit. peer: the producer's address.
        The entry is in the journal, not synced, when this returns. Refuses with 14 if the journal cannot take it, with
        1 if the peer has had its share made.
        """
        known = self._configs.get(topic)
        if known is not None:
            return known
        if not self._config.auto_create_topic_enable or topic_name_error(topic) is not None:
            return None
        with self._lock:
            known = self._configs.get(topic)
            template = self._configs.get(default_topic)
            if known is not None or template is None or not template.perm & PERM_INHERIT or topic in self._closing:
                return known
            # A topic without queues would take no message: one is the least.
            count = max(1, min(queue_nums, template.write_queue_nums))
            config = new_topic(topic, count, template.perm & ~PERM_INHERIT, topic_sys_flag=topic_sys_flag)
            config = msgspec.structs.replace(config, topic_filter_type=template.topic_filter_type)
            self._change_locked(topic, config, peer=peer)
        logger.info("topics: created after %s: %s", default_topic, config)
        self._announce([config])
        return config

    def create_retry_topic(
        self, topic: str, queue_nums: int, perm: int, order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """Return the retry or dead letter topic of a group, made if it is not there; None if its name is illegal, or
        its deletion is under way.

        An existing topic takes the order flag over, but not more often than ORDER_FLAG_S says. Durability and refusal
        as in `create_from_default`.
        """
        known = self._configs.get(topic)
        if known is not None and known.order == order:
            return known
        if topic_name_error(topic) is not None:
            return known
        with self._lock:
            known = self._configs.get(topic)
            if topic in self._closing:
                return None
            if known is None:
                config = new_topic(topic, max(1, queue_nums), perm, order, topic_sys_flag)
            elif not self._may_flag(topic):
                return known
            else:
                config = msgspec.structs.replace(known, order=order)
            self._change_locked(topic, config)
        logger.info("topics: %s %s", "created" if known is None else "changed", config)
        self._announce([config])
        return config

    def _may_flag(self, topic: str) -> bool:
        """Count a change of a retry topic's order flag; False if it would be one too many."""
        each = topic.encode()
        if self._flags_of_each.used(each) or self._flags_of_all.used(b"") >= ORDER_FLAGS_AT_ONCE:
            return False
        self._flags_of_each.wait_s(each, ORDER_FLAG_S)
        self._flags_of_all.wait_s(b"", 1)
        return True

    # --- by an administrator, in the pool "admin"

    def add_template(self) -> int:
        """Make the topic after which producers' topics are made by default (TBW102); return as `update` does."""
        return self.update(_template(self._config))

    def update(self, config: TopicConfig, attributes: Iterable[AttributeChange] = ()) -> int:
        """Create a topic or replace its whole configuration; return the ticket for `wait_durable`.

        attributes: changes to the topic's attributes; those not named stay, and `config.attributes` are ignored. The
        same configuration again changes nothing, not even the version, and returns 0. Refuses with 1 bad attributes and
        a change that the journal cannot take, with 29 bad numbers and unsupported values. The name was checked before.
        """
        if not (0 <= config.read_queue_nums <= MAX_QUEUE_NUMS and 0 <= config.write_queue_nums <= MAX_QUEUE_NUMS):
            raise RefusedRequest(
                ResponseCode.INVALID_PARAMETER, f"a topic may have between 0 and {MAX_QUEUE_NUMS} queues"
            )
        if not 0 <= config.perm <= PERM_ALL:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, f"{config.perm} is not a permission")
        if not 0 <= config.topic_sys_flag <= _SYS_FLAGS:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, f"{config.topic_sys_flag} is not a topicSysFlag")
        with self._lock:
            known = self._configs.get(config.topic_name)
            altered = alter_attributes(None if known is None else known.attributes, attributes)
            config = msgspec.structs.replace(config, attributes=altered)
            if config == known:
                return 0
            ticket = self._change_locked(config.topic_name, config, waits=True)
        self._announce([config])  # name servers get it while the caller waits for the disk
        logger.info("topics: %s %s", "created" if known is None else "changed", config)
        return ticket

    def take_orders(self, orders: Iterable[str]) -> None:
        """Mark topics as ordered that the name servers' order configuration names. On a registration thread.

        Topics that it does not name stay as they are, as in 5.x (`updateOrderTopicConfig`): an administrator may have
        set the flag.
        """
        changed = []
        with self._lock:
            for topic in orders:
                known = self._configs.get(topic)
                if known is not None and not known.order:
                    config = msgspec.structs.replace(known, order=True)
                    try:
                        self._change_locked(topic, config)
                    except RefusedRequest as error:
                        logger.error("topics: the order flag of %s is not set: %s", topic, error.remark)
                        break
                    changed.append(config)
        if changed:
            logger.info("topics: ordered, as the name servers say: %s", [config.topic_name for config in changed])
            self._announce(changed)

    @contextmanager
    def keeping_unknown(self, topic: str) -> Iterator[bool]:
        """Keep a topic that is not there from being made while the block removes its remains. Gives False if it is
        there."""
        with self._lock:
            unknown = topic not in self._configs
            if unknown:
                self._closing.add(topic)
        try:
            yield unknown
        finally:
            if unknown:
                with self._lock:
                    self._closing.discard(topic)

    @contextmanager
    def deleting(self, topic: str) -> Iterator[int]:
        """Remove a topic's entry, and keep it from being made again while the block removes the rest of it.

        Gives the ticket for `wait_durable`, 0 if there was no such topic. Without this a producer could make it again
        in between, and its first messages would be deleted with the old ones.
        """
        with self._lock:
            ticket = self._change_locked(topic, None, waits=True) if topic in self._configs else 0
            self._closing.add(topic)
        try:
            yield ticket
        finally:
            with self._lock:
                self._closing.discard(topic)
        logger.info("topics: deleted %s", topic)

    def delete(self, topic: str) -> int:
        """Remove a topic's entry; return the ticket for `wait_durable`, 0 if there was none."""
        with self.deleting(topic) as ticket:
            return ticket


def _fitted(config: TopicConfig) -> TopicConfig:
    """Return a topic of a file or of another broker, its numbers changed to ones that `update` takes. Apache takes any
    number, and each of a topic's queues is looked at now and then."""
    fitted = msgspec.structs.replace(
        config,
        read_queue_nums=max(0, min(config.read_queue_nums, MAX_QUEUE_NUMS)),
        write_queue_nums=max(0, min(config.write_queue_nums, MAX_QUEUE_NUMS)),
        perm=config.perm & PERM_ALL,
        topic_sys_flag=config.topic_sys_flag & _SYS_FLAGS,
    )
    if fitted != config:
        logger.warning("topics: no topic has such numbers: %s; taken as %s", config, fitted)
    return fitted


def _template(config: BrokerConfig) -> TopicConfig:
    return new_topic(TEMPLATE_TOPIC, config.default_topic_queue_nums, _READ_WRITE | PERM_INHERIT)


def _topics_from_the_start(config: BrokerConfig) -> dict[str, TopicConfig]:
    """Return every broker's topics. Source: `TopicConfigManager.init` of 5.3.3."""
    cluster, broker = config.cluster_name, config.broker_name
    topics = [
        new_topic("SELF_TEST_TOPIC", 1, _READ_WRITE),
        new_topic("BenchmarkTest", 1024, _READ_WRITE),
        new_topic(cluster, 16, PERM_INHERIT | (_READ_WRITE if config.cluster_topic_enable else 0)),
        new_topic(broker, 1, PERM_INHERIT | (_READ_WRITE if config.broker_topic_enable else 0)),
        new_topic("OFFSET_MOVED_EVENT", 1, _READ_WRITE),
        new_topic(SCHEDULE_TOPIC, _DELAY_LEVELS, _READ_WRITE),
        new_topic(f"{cluster}_REPLY_TOPIC", 1, _READ_WRITE),
        new_topic(f"rmq_sys_REVIVE_LOG_{cluster}", _REVIVE_QUEUES, _READ_WRITE),
        new_topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
        new_topic(HALF_TOPIC, 1, _READ_WRITE),
        new_topic(OP_HALF_TOPIC, 1, _READ_WRITE),
        new_topic(TIMER_TOPIC, 1, _READ_WRITE),
    ]
    if config.auto_create_topic_enable:
        topics.append(_template(config))
    if config.trace_topic_enable:
        topics.append(new_topic(config.msg_trace_topic_name, 1, _READ_WRITE))
    # A cluster or a broker may have a dot in its name, a topic may not.
    return {topic.topic_name: topic for topic in topics if topic_name_error(topic.topic_name) is None}
