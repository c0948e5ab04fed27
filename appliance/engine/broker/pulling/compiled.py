"""The parts of the broker that the compiled twin needs to serve pulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...named_tuple import NamedTuple

if TYPE_CHECKING:
    from ...config import BrokerConfig
    from ...errors import RefusedRequest
    from ...remoting.event_loop import EventLoop
    from ...store.log.commit_log import CommitLog
    from ...store.queues.consume_queue import ConsumeQueue
    from ...store.queues.queue_files import QueueFiles
    from ...store.settings import StoreSettings
    from ..clients import ConsumerGroupInfo
    from ..deliveries.recorder import DeliveryRecorder
    from ..group_config import SubscriptionGroupConfig
    from ..offset_resets.pending import Pending
    from ..processors.pull_answers import PullAnswers
    from ..topic_config import TopicConfig
    from .request import PullRequest


class PullParts(NamedTuple):
    """All are used on remoting-io.

    refusal_of: returns the refusal of a held pull that may no longer be served. files, deletions: those of the queues;
    deletions[0] grows when files are deleted or replaced. resets, commit, note: for the consumers' offsets. answers,
    head, buffer: the renderer of results, the answer's header cut at its six numbers, and the memory that records are
    read into. deliveries: notes what was answered. pull: serves what is not answered at once.
    """

    options: BrokerConfig
    loop: EventLoop
    find_group: Callable[[str], SubscriptionGroupConfig | None]
    get_topic: Callable[[str], TopicConfig | None]
    consumer_group: Callable[[str], ConsumerGroupInfo | None]
    refusal_of: Callable[[PullRequest], RefusedRequest | None]
    find_queue: Callable[[str, int], ConsumeQueue | None]
    settings: Callable[[], StoreSettings]
    published: Callable[[], int]
    files: QueueFiles
    deletions: list[int]
    log: CommitLog
    resets: dict[tuple[str, str, int], Pending]
    commit: Callable[[str, str, int, int, bytes], bool]
    note: Callable[[str, ConsumeQueue | None, int], None]
    answers: PullAnswers
    deliveries: DeliveryRecorder
    head: tuple[bytes, ...]
    buffer: memoryview
    new_request: Callable[..., PullRequest]
    pull: Callable[[PullRequest, int], Any]
