"""The receiver of the outcome of one pull of a user with quotas: counts what was found. Owned by remoting-io."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .request import Allowance, PullRequest, ReplyTo

if TYPE_CHECKING:
    from ...errors import RefusedRequest
    from ...store.results import GetResult


class Metered:
    """Renders by another receiver. until: monotonic end of the time for which the pull may be held. is_admitted: the
    allowance has counted the pull."""

    __slots__ = ("_reply_to", "allowance", "is_admitted", "until")

    def __init__(self, reply_to: ReplyTo, allowance: Allowance) -> None:
        self._reply_to = reply_to
        self.allowance = allowance
        self.until = 0.0
        self.is_admitted = False

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        if result.runs:
            self.allowance.took(result.size)
        self._reply_to.found(request, code, result)

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        self._reply_to.refused(request, refusal)
