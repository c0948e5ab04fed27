"""One pull as a value, from its header through hold, wake and the disk to its answer; and the receiver of its outcome.

The code that finds messages does not depend on frames. It hands the outcome, a GetResult with its code or a refusal, to
the `reply_to` of the request, which renders it in the protocol of the request (decision D19).
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
    """Renders the outcome of a pull. One for each protocol; on remoting-io."""

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        """Answer with what was found, if anything. `result.runs` are places in the log, still to be read."""

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        """Answer that it cannot be served, or not now."""


class PullRequest(msgspec.Struct, eq=False, gc=False):
    """One pull. Owned by remoting-io; the pool only reads the fields of the request.

    opaque: identifies its answer among others on the connection. group, topic: as they were at admission. offset:
    nothing below it is wanted.

    Ten thousand of them may be held at once, so none of them has a text, a header or a dictionary to itself, and a
    Struct is made faster than a class with slots. The garbage collector ignores them: code that links two of them, or
    has one wait at its connection, must unlink them again.
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
    # For long polling: where it is held, the end of its time (0 when it is not held), and its neighbours in the list of
    # its connection.
    queue: ConsumeQueue | None = None
    bucket: int = 0
    previous: PullRequest | None = None
    following: PullRequest | None = None
    # The compiled twin's data for pulls like this one.
    plan: Any = None

    def __repr__(self) -> str:
        return f"<PullRequest {self.group.group_name} {self.topic.topic_name}-{self.queue_id} from {self.offset}>"
