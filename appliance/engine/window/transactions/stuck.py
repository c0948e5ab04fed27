"""Finds open transactions that do not end: no producer is connected, or the producers do not decide when checked."""

from __future__ import annotations

from collections.abc import Callable

from ...broker.transactions.check import CheckSettings
from ...broker.transactions.half import HALF_QUEUE
from ...broker.transactions.open_halves import MOST_CHECKS, OpenHalves
from ...clock import Clock
from ...protocol.names import HALF_TOPIC
from ...store.message_store import MessageStore
from ..health import limits
from ..health.finding import Finding
from ..messages.queue_reader import QueueReader
from ..sentences import say

#: Time for which a result is reused.
_LOOK_S = 5.0
_GROUPS = 10


class StuckTransactions:
    """Any thread. Cheap: a result is reused for some seconds, and a group's oldest half message is read once."""

    def __init__(
        self, store: MessageStore, halves: OpenHalves, settings: Callable[[], CheckSettings], clock: Clock
    ) -> None:
        # Constant after construction.
        self._store = store
        self._halves = halves
        self._settings = settings
        self._clock = clock
        # Replaced whole.
        self._known: tuple[float, tuple[Finding, ...]] | None = None
        self._stored: dict[int, int] = {}

    def findings(self) -> tuple[Finding, ...]:
        known, now = self._known, self._clock.monotonic()
        if known is None or now - known[0] >= _LOOK_S:
            known = self._known = now, tuple(self._look())
        return known[1]

    def _look(self) -> list[Finding]:
        if not self._halves.count:
            return []
        found = []
        parked = sorted(self._halves.parked_groups(), key=lambda one: -one[1])[:_GROUPS]
        stored: dict[int, int] = {}
        now_ms = self._clock.wall_ms()
        for group, _ in parked:
            count, first = self._halves.open_parked(group)
            stored_ms = None if first is None else self._stored_ms(first)
            if first is None or stored_ms is None:
                continue
            stored[first] = stored_ms
            minutes = (now_ms - stored_ms) // 60_000
            if minutes >= limits.WITHOUT_PRODUCER_MINUTES:
                text = say("transactions_without_producer", group=group, count=count, minutes=minutes)
                found.append(Finding(text, level="stuck", kind="transactions", name=group))
        self._stored = stored
        checks = max(1, int(min(self._settings().most, MOST_CHECKS) * limits.UNDECIDED_SHARE))
        undecided = sum(_asked_often(states, checks) for _, states in self._halves.pages())
        if undecided:
            text = say("transactions_undecided", checks=checks, count=undecided)
            found.append(Finding(text, level="watch", kind="transactions"))
        return found

    def _stored_ms(self, offset: int) -> int | None:
        known = self._stored.get(offset)
        if known is not None:
            return known
        queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        if queue is None:
            return None
        with QueueReader(self._store, 1) as reader:
            return reader.stored_at_ms(queue, offset)


def _asked_often(states: bytes, checks: int) -> int:
    """Count the transactions of a page with at least `checks` checks. A byte is 1 + the number of checks."""
    return len(states.translate(None, bytes(range(checks + 1))))
