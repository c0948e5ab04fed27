"""The broker's tables: topics, groups, offsets and filters, with the journal behind topics and groups."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..config import BrokerConfig, EngineConfig
from ..config_journal import ConfigJournal
from ..errors import StartError
from ..store.message_store import MessageStore
from .filters.consumer_filters import FILE_NAME as FILTERS_FILE
from .filters.consumer_filters import ConsumerFilters
from .groups import SubscriptionGroupManager
from .offsets import ConsumerOffsetManager
from .topics import TopicConfigManager


class Tables:
    """Each table has a lock, a file below the store's `config/`, and a thread that saves it."""

    def __init__(self, store: MessageStore, options: Callable[[], EngineConfig], follows: bool, clock: Clock) -> None:
        """Load the tables of an open store. follows: as `ConsumerOffsetManager.cuts`. Raises StartError; nothing stays
        open then."""
        broker, directory, disk = options().broker, store.paths.config, store.disk
        path = store.paths.own / "config.journal"
        try:
            self.journal = ConfigJournal(path, disk, clock)
        except OSError as error:
            raise StartError(f"{path} cannot be opened: {error.strerror}.") from None
        # A message in a topic that was made for it is acknowledged only when the topic's entry is durable, too.
        store.sync_first(self.journal.sync_written, lambda: self.journal.owes_a_sync)
        try:
            self.topics = TopicConfigManager(directory / "topics.json", broker, self.journal, clock, disk)
            self.groups = SubscriptionGroupManager(
                directory / "subscriptionGroup.json", broker, self.journal, clock, disk
            )
            self.offsets = ConsumerOffsetManager(
                directory / "consumerOffset.json",
                lambda: options().broker.flush_consumer_offset_interval_ms,
                clock,
                disk,
            )
            self.filters = ConsumerFilters(directory / FILTERS_FILE, broker, clock, disk)
        except BaseException:
            self.journal.stop()
            raise
        self.offsets.end_of, self.offsets.cuts = store.end_of, follows

    def take_options(self, broker: BrokerConfig) -> None:
        self.topics.take_options(broker)
        self.groups.take_options(broker)
        self.filters.take_options(broker)

    def start(self) -> None:
        self.journal.start()
        self.offsets.start()
        self.topics.start()
        self.groups.start()
        self.filters.start()

    def stop(self) -> None:
        """Save all that is not saved yet. The store still runs."""
        self.offsets.stop()
        self.topics.stop()
        self.groups.stop()
        self.filters.stop()
        self.journal.stop()

    def let_go(self) -> None:
        """Close the journal as it is, and save nothing. For a broker that was never started."""
        self.journal.stop()
