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


class Allowance(Protocol):
    """A user's quota of pulls, and the place at which those over it are held. On remoting-io."""

    def admits_pull(self) -> bool:
        """Count a pull; False if it has to wait."""

    def may_read(self) -> bool:
        """True if records may be sent to this user now."""

    def took(self, size: int) -> None:
        """Count bytes of records that were sent."""

    def over(self, pulls: HeldPulls | None) -> None:
        """Note that a pull is over the quota. pulls: it is held there, at this place; None: it was answered."""


class HeldPulls(Protocol):
    """Held pulls of a broker, for those who let them go. On remoting-io."""

    def first_held(self, place: Allowance) -> PullRequest | None:
        """Return the pull that has been held there for longest."""

    def is_admitted(self, request: PullRequest) -> bool:
        """True if it was counted by its allowance."""

    def let_go(self, request: PullRequest) -> None:
        """Serve a held pull that its allowance has counted."""


class ReplyTo(Protocol):
    """Renders the outcome of a pull. One for each protocol, but for users with quotas; on remoting-io."""

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
    # For long polling: where it is held, at its queue or over a quota, the end of its time (0 when it is not held), and
    # its neighbours in the list of its connection.
    queue: ConsumeQueue | Allowance | None = None
    bucket: int = 0
    previous: PullRequest | None = None
    following: PullRequest | None = None
    # The compiled twin's data for pulls like this one.
    plan: Any = None

    def __repr__(self) -> str:
        return f"<PullRequest {self.group.group_name} {self.topic.topic_name}-{self.queue_id} from {self.offset}>"


class Metered:
    """The receiver of the outcome of one pull of a user with quotas: counts what was found. On remoting-io.

    since, until: monotonic time of the pull, and end of the time for which it may be held. is_admitted: the allowance
    has counted it. parks: it may still be held at its queue, where it has not been yet.
    """

    __slots__ = ("_reply_to", "allowance", "is_admitted", "parks", "since", "until")

    def __init__(self, reply_to: ReplyTo, allowance: Allowance) -> None:
        self._reply_to = reply_to
        self.allowance = allowance
        self.since = self.until = 0.0
        self.is_admitted = False
        self.parks = True

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        if result.runs:
            self.allowance.took(result.size)
        self._reply_to.found(request, code, result)

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        self._reply_to.refused(request, refusal)
