"""What needs a person now, the worst first."""

from __future__ import annotations

import time

from ..broker.groups import is_system_group
from ..broker.sampler import Sampler
from ..protocol.names import DLQ_PREFIX
from . import snapshots as s
from .client_views import conflicts_of, members_of
from .lag import LagSnapshot
from .sentences import say
from .stuck_transactions import StuckTransactions

#: A group that is behind and whose offsets have not moved for so long is called stuck.
STUCK_MINUTES = 5
#: Lines of what needs a person; beyond them only how many.
NEEDS_SHOWN = 20
#: Checks of which a warning is worth a person's look, too. What the console warns of at start-up (flush mode, loopback)
#: is no need of the moment.
_WARNINGS = ("disk", "flow", "findings")
_LEVELS = {"act": 0, "stuck": 1, "watch": 2}


class Needs:
    """Any thread."""

    def __init__(self, sampler: Sampler, transactions: StuckTransactions) -> None:
        # Constant after construction.
        self._sampler = sampler
        self._transactions = transactions

    def of(self, progress: LagSnapshot, checks: tuple[s.Check, ...]) -> tuple[s.Need, ...]:
        """What the checks and the groups' progress show."""
        found: list[s.Need] = [
            s.Need("act" if check.level == "failed" else "watch", "system", check.name, check.sentence)
            for check in checks
            if check.level == "failed" or (check.level == "warning" and check.name in _WARNINGS)
        ]
        found += self._transactions.needs()
        for topic, queues in progress.queues.items():
            if topic.startswith(DLQ_PREFIX):
                count = sum(queue.max_offset - queue.min_offset for queue in queues)
                if count:
                    group = topic[len(DLQ_PREFIX) :]
                    found.append(s.Need("act", "group", group, say("dead_letters", count=count, group=group)))
        now = time.monotonic()
        moves: dict[str, float] = {}
        for (_, group), moved in list(self._sampler.pairs.items()):
            moves[group] = max(moves.get(group, 0.0), moved.moved_at)
        for group in progress.entries.keys() | progress.online.keys():
            if is_system_group(group):
                continue
            info = progress.online.get(group)
            if info is not None and len(info.channels) > 1 and conflicts_of(members_of(info)):
                found.append(s.Need("act", "group", group, say("subscriptions_differ", group=group)))
            backlog = progress.backlog(group)
            if not backlog.lag:
                continue
            if info is None:
                found.append(s.Need("watch", "group", group, say("nobody_consumes", group=group, lag=backlog.lag)))
                continue
            idle_minutes = int((now - max(moves.get(group, 0.0), self._sampler.started_at)) // 60)
            if idle_minutes >= STUCK_MINUTES:
                text = say("stuck", group=group, lag=backlog.lag, minutes=idle_minutes)
                found.append(s.Need("stuck", "group", group, text))
        found.sort(key=lambda need: (_LEVELS[need.level], need.kind != "system", need.name))
        if len(found) > NEEDS_SHOWN:
            more = len(found) - NEEDS_SHOWN + 1
            found[NEEDS_SHOWN - 1 :] = [s.Need("watch", "groups", "", say("more_needs", count=more))]
        return tuple(found)
