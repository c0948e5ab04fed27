"""Measurements for a history: figures of the broker, of each topic and of each group, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...broker.groups import is_system_group
from ...figures import KEPT
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..health.unread_deletion import UnreadDeletion, UnreadLook
from ..messages.queue_reader import QueueReader
from ..sources import Sources
from .lag import Backlog
from .measures import Measures
from .traffic import BrokerFigures

#: Topics or groups in one list: about a millisecond of work.
STEP = 50
#: Places and times of messages remembered from one `take` to the next.
PASSING_FACTS = 5000


class Measurement(NamedTuple):
    """label: the topic or group that was measured, "" for the broker. value: None if it is not known now."""

    name: str
    label: str
    value: float | None


class Measurements:
    """Any thread, but only one at a time."""

    def __init__(
        self,
        sources: Sources,
        figures: BrokerFigures,
        rebalances: Callable[[], dict[str, int]],
        unread: UnreadDeletion,
        incidents: Callable[[], dict[str, float]],
    ) -> None:
        """rebalances: returns group -> number of notices to rebalance that its members got, as a copy. incidents:
        returns what went wrong since the last call."""
        # Constant after construction.
        self._sampler, self._lag, self._lag_times = sources.sampler, sources.lag, sources.lag_times
        self._measures, self._store = sources.measures, sources.store
        self._figures = figures
        self._rebalances = rebalances
        self._unread = unread
        self._incidents = incidents
        # Owned by the caller of `take`. Separate from the shared one, which lag times would fill with 10 MB.
        self._passing = Measures(PASSING_FACTS)
        self._syncs = (0, 0.0)
        self._rebalanced: dict[str, int] | None = None

    def take(self, seconds: int) -> Iterator[list[Measurement]]:
        """Yield the present figures of the broker, its topics and its groups in short lists; `measurements.py` has the
        names. Rates are of the last `seconds` (at most 590). For one thread, which rests between the lists."""
        progress = self._lag.snapshot()
        lag = retries = 0
        slowest: int | None = None
        rates = self._out_rates(seconds, 1)
        told, before = self._rebalances(), self._rebalanced
        self._rebalanced = told
        names = sorted(name for name in progress.groups() if not is_system_group(name))
        with QueueReader(self._store) as reader:
            unread = self._unread.look(progress, reader, self._passing)
            for first in range(0, len(names), STEP):
                found = []
                for name in names[first : first + STEP]:
                    backlog = progress.backlog(name)
                    lag_ms, _ = self._lag_times.of(name, backlog, reader, None, self._passing)
                    own_letters, own_retries = progress.dead_letters(name), backlog.retries
                    found += [
                        Measurement("group_lag", name, backlog.lag),
                        Measurement("group_lag_ms", name, lag_ms),
                        Measurement("group_out_rate", name, None if rates is None else rates.get(name, 0.0)),
                        Measurement("group_dead_letters", name, own_letters),
                        Measurement("group_retries", name, own_retries),
                        Measurement("group_rebalances", name, _grown(told, before, name)),
                        Measurement("group_deletion_percent", name, _passed(unread, name, backlog)),
                    ]
                    lag += backlog.lag or 0
                    retries += own_retries
                    if lag_ms is not None and (slowest is None or lag_ms > slowest):
                        slowest = lag_ms
                yield found
        # Those of deleted groups as well, which lie there until they are replayed or expire.
        letters = sum(progress.letters_by_group().values())
        yield self._broker(seconds, {"lag": lag, "lag_ms": slowest, "dead_letters": letters, "retries": retries})
        yield from self._topics(seconds)

    def _topics(self, seconds: int) -> Iterator[list[Measurement]]:
        rates = self._out_rates(seconds, 0)
        span = self._sampler.span(seconds)
        by_topic = self._sampler.index.by_topic()
        own = [name for name in by_topic if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        for first in range(0, len(own), STEP):
            found = []
            for name in own[first : first + STEP]:
                came = self._sampler.rate(self._sampler.topics.get(name), span)
                queues = by_topic[name]
                found += [
                    Measurement("topic_in_rate", name, came),
                    Measurement("topic_out_rate", name, None if rates is None else rates.get(name, 0.0)),
                    Measurement("topic_messages", name, sum(queue.max_offset - queue.min_offset for queue in queues)),
                    Measurement("topic_bytes", name, self._measures.known_size(queues)),
                ]
            yield found

    def _out_rates(self, seconds: int, which: int) -> dict[str, float] | None:
        """Return the messages committed a second, by topic (0) or group (1); None before the second sample."""
        sampler = self._sampler
        span = sampler.span(seconds)
        if not span[0]:
            return None
        found: dict[str, float] = {}
        for key, moves in list(sampler.pairs.items()):
            if not moves.resting:
                found[key[which]] = found.get(key[which], 0.0) + (sampler.rate(moves, span) or 0.0)
        return found

    def _broker(self, seconds: int, walked: dict[str, float | None]) -> list[Measurement]:
        reading = self._figures.reading(seconds=seconds)
        found = {**walked, "sync_ms": self._sync_ms(), **self._incidents()}
        return [
            Measurement(name, "", found[name] if name in found else figure.read(reading))
            for name, figure in KEPT.items()
            if figure.of == "broker"
        ]

    def _sync_ms(self) -> float | None:
        """Return the average duration of a sync of the log since the last call; None if there was no sync."""
        count, seconds = self._store.sync_times
        before, self._syncs = self._syncs, (count, seconds)
        syncs = count - before[0]
        return (seconds - before[1]) * 1000 / syncs if syncs else None


def _passed(unread: UnreadLook, group: str, backlog: Backlog) -> float | None:
    """Return the percentage of the time until the group's first unread message is deleted that has passed; 0 if none is
    deleted unread at the present rates, None if the group's lag is not known."""
    if backlog.lag is None:
        return None
    ahead = unread.of(group, backlog) if backlog.lagging else None
    return 0.0 if ahead is None else ahead.passed


def _grown(now: dict[str, int], before: dict[str, int] | None, name: str) -> int | None:
    """Return the growth of a count since the last `take`; None at the first one. A count may have begun anew at 0."""
    if before is None:
        return None
    count, known = now.get(name, 0), before.get(name, 0)
    return count - known if count >= known else count
