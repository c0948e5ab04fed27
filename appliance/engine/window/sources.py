"""The parts of a running broker that most subjects of the window read."""

from __future__ import annotations

from ..broker.groups import SubscriptionGroupManager
from ..broker.pull_offsets import PullOffsets
from ..broker.sampler import Sampler
from ..broker.topics import TopicConfigManager
from ..named_tuple import NamedTuple
from ..store.message_store import MessageStore
from .figures.lag import ConsumerLag
from .figures.lag_times import LagTimes
from .figures.measures import Measures


class Sources(NamedTuple):
    """Tables, and the figures of how far groups have consumed. One broker's; constant."""

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    pulled: PullOffsets
    sampler: Sampler
    lag: ConsumerLag
    lag_times: LagTimes
    measures: Measures
