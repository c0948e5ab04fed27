"""Counts of what happened lately, for answers to consoles. PURE."""

from __future__ import annotations

from collections import deque

_MINUTE_S, _HOUR_S = 60.0, 3600.0


class Window:
    """Counts and sums of the last minutes. Times are monotonic seconds."""

    __slots__ = ("_buckets", "_span_s", "_step_s")

    def __init__(self, step_s: float, span_s: float) -> None:
        """step_s: precision. span_s: how long something is remembered."""
        self._step_s = step_s
        self._span_s = span_s
        #: [step, count, total], the newest last.
        self._buckets: deque[list[float]] = deque()

    def add(self, now: float, count: float, total: float = 0.0) -> None:
        buckets, step = self._buckets, now // self._step_s
        if not buckets or buckets[-1][0] != step:
            buckets.append([step, 0.0, 0.0])
            while (step - buckets[0][0]) * self._step_s > self._span_s:
                buckets.popleft()
        buckets[-1][1] += count
        buckets[-1][2] += total

    def since(self, begin: float) -> tuple[float, float]:
        """Return (count, total) from a time on."""
        first = begin // self._step_s
        found = [bucket for bucket in self._buckets if bucket[0] > first]
        return sum(bucket[1] for bucket in found), sum(bucket[2] for bucket in found)


class Rates:
    """Rates of a member of a group in one topic: Java's ConsumeStatus."""

    __slots__ = ("_done", "_failed", "_handled", "_pulled", "_pulls", "consumed", "failed")

    def __init__(self) -> None:
        self._pulled = Window(10.0, _MINUTE_S)
        self._pulls = Window(10.0, _MINUTE_S)
        self._done = Window(10.0, _MINUTE_S)
        self._failed = Window(60.0, _HOUR_S)
        #: Calls of handlers, with their milliseconds.
        self._handled = Window(60.0, _HOUR_S)
        #: Messages since the beginning.
        self.consumed = 0
        self.failed = 0

    def add_pull(self, now: float, messages: int, seconds: float) -> None:
        self._pulled.add(now, messages)
        self._pulls.add(now, 1, seconds * 1000)

    def add_call(self, now: float, done: int, failed: int, seconds: float) -> None:
        """Count one call of a handler."""
        self.consumed += done
        self.failed += failed
        if done:
            self._done.add(now, done)
        if failed:
            self._failed.add(now, failed)
        self._handled.add(now, 1, seconds * 1000)

    def status(self, now: float) -> dict[str, float]:
        """Return the figures of the last minute by Java's names, its times in ms; consumeRT of the last hour if there
        was no call in the last minute, consumeFailedMsgs of the last hour."""
        minute, hour = now - _MINUTE_S, now - _HOUR_S
        handled = self._handled.since(minute)
        if not handled[0]:
            handled = self._handled.since(hour)
        return {
            "consumeFailedMsgs": int(self._failed.since(hour)[0]),
            "consumeFailedTPS": self._failed.since(minute)[0] / _MINUTE_S,
            "consumeOKTPS": self._done.since(minute)[0] / _MINUTE_S,
            "consumeRT": _mean(handled),
            "pullRT": _mean(self._pulls.since(minute)),
            "pullTPS": self._pulled.since(minute)[0] / _MINUTE_S,
        }


def _mean(found: tuple[float, float]) -> float:
    count, total = found
    return total / count if count else 0.0
