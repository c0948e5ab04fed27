"""The live frame: one JSON object a second, the same bytes for every viewer.

{"number", "at_ms", "uptime_ms", "in_rate", "out_rate", "in_bytes_rate", "out_bytes_rate", "put_total",
"delivered_total", "connections", "producer_clients", "consumer_clients", "parked_pulls", "log_bytes",
"unsynced_bytes", "worst_check", "behind": [{"group", "lag", "partial", "lag_ms", "clients"}],
"needs": [{"level", "kind", "name", "text", "code", "args"}]}. partial: queues without an offset are not counted.
The clients, "worst_check", "behind" and "needs" are refreshed every 5 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from ..health.overview import Standing
from .traffic import BrokerFigures

#: Frames are made while the last call of `frame` is not older than this.
INTEREST_S = 5.0
#: Interval at which the slow values are refreshed: clients commit their offsets every 5 s, so they hardly move faster.
STANDING_S = 5.0
BEHIND_SHOWN = 8
#: Needs in a frame at most; a page fetches the whole list when these change.
NEEDS_TOLD = 30
_WORST = ("ok", "warning", "failed")


class LiveSource(Protocol):
    """The source of a frame's values."""

    def numbers(self) -> tuple[int, dict[str, object]]:
        """Return (number of the newest sample, values that change every second); takes a fraction of a millisecond."""

    def standing(self) -> dict[str, object]:
        """Return the slow values, which change with commits every few seconds: groups that are behind, needs."""


class LiveFrames:
    """`refresh` runs on admin-sampler after each sample; `frame` on any thread."""

    def __init__(self, source: LiveSource, before: int = 0) -> None:
        """before: number of frames from earlier sources; the numbering continues after them."""
        # Constant after construction.
        self._source = source
        self._before = before
        # Serialises the making of frames.
        self._lock = threading.Lock()
        # Replaced whole.
        self._frame: tuple[int, bytes] = (0, b"")
        self._standing: dict[str, object] = {}
        self._stood_at = -STANDING_S
        self._made_at = 0.0
        self._asked_at = -INTEREST_S

    @property
    def number(self) -> int:
        """Number of the newest frame; 0 before the first."""
        return self._frame[0]

    def frame(self) -> tuple[int, bytes]:
        """Return (number, JSON object) of the newest sample: the same bytes for every viewer, encoded once a second.

        `live.py` describes the object; an unknown value is null. Cheap: a stream may call this every 250 ms and send
        when the number has grown. Only the first frame after a pause is made in the caller's thread (10 ms at 2,000
        topics).
        """
        now = time.monotonic()
        idle = now - self._asked_at > INTEREST_S
        self._asked_at = now
        if idle or not self._frame[1]:
            with self._lock:
                if not self._frame[1] or now - self._made_at > 1.0:
                    self._make_locked(now)
        return self._frame

    def refresh(self) -> None:
        """Encode the sample that was just taken, if frames are in use."""
        now = time.monotonic()
        if now - self._asked_at <= INTEREST_S:
            with self._lock:
                self._make_locked(now)

    def _make_locked(self, now: float) -> None:
        if now - self._stood_at >= STANDING_S:
            self._standing = self._source.standing()
            self._stood_at = now
        number, numbers = self._source.numbers()
        number = max(self._before + number, self._frame[0])
        self._frame = (number, msgspec.json.encode({"number": number, **numbers, **self._standing}))
        self._made_at = now


class BrokerSource:
    """The figures of a running broker."""

    def __init__(self, traffic: BrokerFigures, standing: Standing, uptime_ms: Callable[[], int]) -> None:
        # Constant after construction.
        self._traffic = traffic
        self._standing = standing
        self._uptime_ms = uptime_ms

    def numbers(self) -> tuple[int, dict[str, object]]:
        number, sampled_at_ms = self._traffic.sample
        return number, {"at_ms": sampled_at_ms, "uptime_ms": self._uptime_ms(), **self._traffic.now()}

    def standing(self) -> dict[str, object]:
        found = self._standing.look(BEHIND_SHOWN)
        return {
            "producer_clients": found.producer_clients,
            "consumer_clients": found.consumer_clients,
            "worst_check": max((check.level for check in found.checks), key=_WORST.index, default="ok"),
            "behind": [
                {
                    "group": row.group,
                    "lag": row.lag,
                    "partial": row.lag is not None and row.lag_why is not None,
                    "lag_ms": row.lag_ms,
                    "clients": row.clients,
                }
                for row in found.behind
            ],
            "needs": [
                {
                    "level": need.level,
                    "kind": need.kind,
                    "name": need.name,
                    "text": str(need.sentence),
                    "code": need.sentence.code,
                    "args": need.sentence.args,
                }
                for need in found.needs[:NEEDS_TOLD]
            ],
        }
