"""The broker's tables in a life: topics, groups, offsets on the recording disk; the driver plays their threads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.groups import SubscriptionGroupManager
from appliance.engine.broker.offsets import ConsumerOffsetManager
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.config import BrokerConfig
from appliance.engine.config_journal import ConfigJournal
from appliance.engine.errors import RefusedRequest
from tests.crash.recording_disk import RecordingDisk
from tests.support.clock import FakeClock

CONFIG_DIR = Path("/store/config")
JOURNAL = Path("/rocketbox/config.journal")
GROUP = "CG"

#: (table, name) -> what it is; None where there is none.
Configs = dict[tuple[str, str], object]


class Tables:
    """Opened after the store, as the broker does it. A change is synced when `sync` has returned True."""

    def __init__(self, disk: RecordingDisk) -> None:
        """Raises OSError, StartError."""
        disk.make_directory(CONFIG_DIR)
        self._clock = FakeClock()
        self.journal = ConfigJournal(JOURNAL, disk)
        config = BrokerConfig()
        self.topics = TopicConfigManager(CONFIG_DIR / "topics.json", config, self.journal, self._clock, disk)
        self.groups = SubscriptionGroupManager(
            CONFIG_DIR / "subscriptionGroup.json", config, self.journal, self._clock, disk
        )
        self.offsets = ConsumerOffsetManager(CONFIG_DIR / "consumerOffset.json", 5000, self._clock, disk)

    def sync(self) -> bool:
        """Work as the journal's thread does, with `sync_written` if that fails. True if everything is durable then."""
        self.journal.work()
        if self.journal.failure is not None:
            for save in self.journal.when_broken:
                save()
        return self.journal.durable == self.journal.written

    def make_topic(self, topic: str) -> bool:
        """Make a topic as a send to an unknown topic does. Return True if the topic is new."""
        known = self.topics.get(topic)
        try:
            return self.topics.create_from_default(topic, "TBW102", 4) is not None and known is None
        except RefusedRequest:
            return False

    def set_queues(self, topic: str, count: int) -> bool:
        """Set a topic's queues as an administrator does. Return False if it was refused."""
        try:
            self.topics.update(TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count))
        except RefusedRequest:
            return False
        return True

    def set_retries(self, group: str, retries: int) -> bool:
        try:
            self.groups.update(SubscriptionGroupConfig(group_name=group, retry_max_times=retries))
        except RefusedRequest:
            return False
        return True

    def forget(self, table: str, name: str) -> bool:
        """Delete a topic's or a group's entry; False when it was refused."""
        try:
            (self.topics if table == "topics" else self.groups).delete(name)
        except RefusedRequest:
            return False
        return True

    def value(self, table: str, name: str) -> object:
        """Return the value that `all` has for one name."""
        if table == "offsets":
            found = self.offsets.get(GROUP, name, 0)
            return None if found < 0 else found
        config = (self.topics if table == "topics" else self.groups).get(name)
        return None if config is None else msgspec.to_builtins(config)

    def close(self) -> None:
        """Leave as a killed process does."""
        self.journal._file.close()
