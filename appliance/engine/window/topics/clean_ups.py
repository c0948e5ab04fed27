"""Clean-up of unused groups, topics and offsets, which never expire: shown first, then deleted by
`broker/clean_up.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from ...broker.clean_up import CleanUpService, Lost
from ...errors import Conflict, Unavailable
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from .. import snapshots as s
from ..admin_pool import AdminPool
from ..figures.measures import Budget
from ..refusals import require_one_of, require_within
from ..sentences import say
from ..transactions.views import TransactionViews
from ..transactions.views import Wanted as WantedHalves
from ..waiting.views import WaitingViews

KINDS = ("groups", "topics", "offsets")
#: One year.
MOST_HOURS = 8760
#: Rows that are shown; further ones are only counted.
SHOWN = 500
#: Time limit for finding the topics for which messages wait.
BUDGET_MS = 2000.0
_MOST_HALVES = 10_000


class CleanUps:
    """Any thread but the pool's; waits in the caller's."""

    def __init__(
        self,
        service: CleanUpService,
        waiting: WaitingViews,
        transactions: TransactionViews,
        pool: AdminPool,
        forget_routes: Callable[[Sequence[str]], None],
    ) -> None:
        """forget_routes: as in `TopicCommands`."""
        # Constant after construction.
        self._service = service
        self._waiting = waiting
        self._transactions = transactions
        self._pool = pool
        self._forget_routes = forget_routes

    def clean(
        self,
        kind: str,
        *,
        idle_hours: int = 24,
        q: str = "",
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> s.CleanUp:
        """Delete unused groups, topics or offsets, as `broker/clean_up.py` defines them; durable when it returns.

        kind: "groups" with their empty retry and dead letter topics, "topics", or "offsets" of topics and groups that
        are gone. idle_hours: hours without a sign of use; the count begins at the broker's start at the earliest.
        q: part of the name. InvalidInput, Conflict (revision: something else would be deleted than was shown),
        Unavailable if too many messages wait to find the topics that they are for.
        """
        require_one_of("kind", kind, KINDS)
        require_within("idle_hours", idle_hours, 0, MOST_HOURS)
        idle_s = idle_hours * 3600.0
        since = self._service.now()
        found = self._found(kind, idle_s, q.strip().lower())
        seen = _revision_of(found)
        if revision is not None and revision != seen:
            raise Conflict(say("changed_since"))
        if dry_run or not found:
            return _answer(kind, found, len(found), seen, not dry_run)
        remove: Any = getattr(self._service, f"remove_{kind}")
        done = self._pool.run(lambda: remove(found, idle_s, by or "console", since))
        if kind == "groups":
            self._forget_routes([prefix + name for name in done for prefix in (RETRY_PREFIX, DLQ_PREFIX)])
        elif kind == "topics":
            self._forget_routes(done)
        return _answer(kind, done, len(found), None, True)

    def _found(self, kind: str, idle_s: float, needle: str) -> list[Any]:
        if kind == "offsets":
            lost = self._service.lost_offsets(idle_s)
            return [one for one in lost if needle in one.group.lower() or needle in one.topic.lower()]
        find = self._service.unused_groups if kind == "groups" else self._service.unused_topics
        return [name for name in find(idle_s, self._awaited()) if needle in name.lower()]

    def _awaited(self) -> set[str]:
        """Return the topics for which messages wait: for a time, at a delay level, or for their producer's decision.

        Raises Unavailable if there are too many to find all their topics.
        """
        topics = self._waiting.awaited_topics(Budget(BUDGET_MS))
        halves, more = self._transactions.find_open(WantedHalves(), _MOST_HALVES)
        if topics is None or more:
            raise Unavailable(say("clean_up_unknown"))
        return topics | {half.target.topic for half in halves}


def _answer(kind: str, names: Sequence[Any], found: int, revision: str | None, applied: bool) -> s.CleanUp:
    return s.CleanUp(
        applied=applied,
        kind=kind,
        items=tuple(_item(kind, one) for one in names[:SHOWN]),
        count=len(names),
        left=found - len(names),
        revision=revision,
    )


def _item(kind: str, one: Any) -> s.CleanedUp:
    if isinstance(one, Lost):
        return s.CleanedUp(group=one.group, topic=one.topic)
    return s.CleanedUp(group=one, topic=None) if kind == "groups" else s.CleanedUp(group=None, topic=one)


def _revision_of(names: Sequence[Any]) -> str:
    """Return a short text that differs for each list of things to delete."""
    return hashlib.sha256(repr(names).encode(errors="replace")).hexdigest()[:16]
