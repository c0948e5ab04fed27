"""One pull as a value, from its header through hold, wake and the disk to its answer, and who gives that answer.

What finds messages knows no frames. It hands the outcome, a GetResult with its code or a refusal, to the `reply_to` of
the request, which renders it in the protocol that asked (decision D19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...filter.message_filter import MessageFilter
from ...store.queues.consume_queue import ConsumeQueue
from ...store.results import GetResult

if TYPE_CHECKING:
    from ...errors import RefusedRequest
    from ...remoting.connection import Connection
    from ..group_config import SubscriptionGroupConfig
    from ..topic_config import TopicConfig


class ReplyTo(Protocol):
    """Renders what a pull came to. One for each protocol; on remoting-io."""

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        """Answer with what was found, if anything. `result.runs` are places in the log, still to be read."""

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        """Answer that it cannot be served, or not now."""


class PullRequest(msgspec.Struct, eq=False, gc=False):
    """One pull. Owned by remoting-io; the pool only reads what it asks for.

    opaque: how `reply_to` tells its answer from others on the connection. group, topic: as they were when it was
    admitted. offset: nothing below it is wanted.

    Ten thousand of them may be held at once, so nothing here is a text of its own, a header or a dictionary, and a
    Struct is made faster than a class with slots. The garbage collector passes them by: who links two of them, or has
    one wait at its connection, unlinks them again.
    """

    reply_to: ReplyTo
    conn: Connection
    opaque: int
    group: SubscriptionGroupConfig
    topic: TopicConfig
    queue_id: int
    offset: int
    max_count: int
    wanted: MessageFilter
    # Long polling's own: where it is held, the end of its time (0 when it is not held), and its neighbours in the
    # list of its connection.
    queue: ConsumeQueue | None = None
    bucket: int = 0
    previous: PullRequest | None = None
    following: PullRequest | None = None
    # What the compiled twin knows of such pulls.
    plan: Any = None

    def __repr__(self) -> str:
        return f"<PullRequest {self.group.group_name} {self.topic.topic_name}-{self.queue_id} from {self.offset}>"
