"""The live frame: one JSON object a second, the same bytes for every viewer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from .checks import Checks, disk_figures
from .group_views import GroupViews
from .overview import client_counts

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine
    from .sampler import Sampler

#: Frames are made as long as somebody asked for one within this time.
INTEREST_S = 5.0
#: How often what stands is looked at: clients commit their offsets every 5 s, so it hardly moves faster.
STANDING_S = 5.0
BEHIND_SHOWN = 5
_WORST = ("ok", "warning", "failed")


class LiveSource(Protocol):
    """What a frame is made of."""

    def numbers(self) -> tuple[int, dict[str, object]]:
        """(number of the newest sample, what changes every second); a fraction of a millisecond."""

    def standing(self) -> dict[str, object]:
        """What changes when offsets are committed, every few seconds: who is behind, what needs a person."""


class LiveFrames:
    """`refresh` runs on admin-sampler after each sample; `frame` on any thread."""

    def __init__(self, source: LiveSource) -> None:
        # Constant after construction.
        self._source = source
        # Serialises the making of frames.
        self._lock = threading.Lock()
        # Replaced whole.
        self._frame: tuple[int, bytes] = (0, b"")
        self._standing: dict[str, object] = {}
        self._stood_at = -STANDING_S
        self._made_at = 0.0
        self._asked_at = -INTEREST_S

    def frame(self) -> tuple[int, bytes]:
        """(number, JSON); made here when nobody has looked for a while, else by the sampler."""
        now = time.monotonic()
        idle = now - self._asked_at > INTEREST_S
        self._asked_at = now
        if idle or not self._frame[1]:
            with self._lock:
                if not self._frame[1] or now - self._made_at > 1.0:
                    self._make_locked(now)
        return self._frame

    def refresh(self) -> None:
        """A sample was taken: encode it if anyone looks."""
        now = time.monotonic()
        if now - self._asked_at <= INTEREST_S:
            with self._lock:
                self._make_locked(now)

    def _make_locked(self, now: float) -> None:
        if now - self._stood_at >= STANDING_S:
            self._standing = self._source.standing()
            self._stood_at = now
        number, numbers = self._source.numbers()
        number = max(number, self._frame[0])
        self._frame = (number, msgspec.json.encode({"number": number, **numbers, **self._standing}))
        self._made_at = now


class BrokerSource:
    """The figures of a running broker."""

    def __init__(self, engine: Engine, broker: Broker, sampler: Sampler, groups: GroupViews, checks: Checks) -> None:
        self._engine = engine
        self._broker = broker
        self._sampler = sampler
        self._groups = groups
        self._checks = checks

    def numbers(self) -> tuple[int, dict[str, object]]:
        broker, sampler = self._broker, self._sampler
        store = broker.store
        return sampler.count, {
            "at_ms": sampler.sampled_at_ms or None,
            "in_rate": sampler.total_rate("in"),
            "out_rate": sampler.total_rate("out"),
            "in_bytes_rate": sampler.total_rate("in_bytes"),
            "out_bytes_rate": sampler.total_rate("out_bytes"),
            "put_total": store.put_count,
            "delivered_total": broker.pull.answers.message_count,
            "connections": len(self._engine.server.connections),
            "parked_pulls": broker.pull.long_polling.count,
            "log_bytes": store.published - store.log.min_offset,
            "unsynced_bytes": max(0, store.log.written - store.log.durable),
        }

    def standing(self) -> dict[str, object]:
        book = self._groups.book()
        checks = self._checks.all()
        producers, consumers = client_counts(self._broker, book)
        disk = disk_figures(self._engine.config.store_dir)
        return {
            "producer_clients": producers,
            "consumer_clients": consumers,
            "disk_used_percent": disk.used_percent,
            "worst_check": max((check.level for check in checks), key=_WORST.index, default="ok"),
            "behind": [
                {"group": row.group, "lag": row.lag, "lag_ms": row.lag_ms, "clients": row.clients}
                for row in self._groups.behind(BEHIND_SHOWN, book)
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
                for need in self._checks.needs(book, checks)
            ],
        }
