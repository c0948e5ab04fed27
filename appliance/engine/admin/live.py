"""The live frame: one JSON object a second, the same bytes for every viewer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from . import snapshots as s

#: Frames are made as long as somebody asked for one within this time.
INTEREST_S = 5.0
BEHIND_SHOWN = 5
NEEDS_SHOWN = 20
_WORST = ("ok", "warning", "failed")


class LiveFrames:
    """`refresh` runs on admin-sampler after each sample; `frame` on any thread."""

    def __init__(self) -> None:
        # Set before the sampler starts: (number of the newest sample, the overview of now).
        self.source: Callable[[], tuple[int, s.Overview]] | None = None
        # Serialises the making of the first frame only.
        self._lock = threading.Lock()
        # Replaced whole.
        self._frame: tuple[int, bytes] = (0, b"")
        self._made_at = 0.0
        self._asked_at = 0.0

    def frame(self) -> tuple[int, bytes]:
        """(number, JSON); made here when nobody has looked for a while, else by the sampler."""
        now = time.monotonic()
        idle = now - self._asked_at > INTEREST_S
        self._asked_at = now
        if idle or not self._frame[1]:
            with self._lock:
                if not self._frame[1] or now - self._made_at > 1.0:
                    self._make()
        return self._frame

    def refresh(self) -> None:
        """A sample was taken: encode it if anyone looks."""
        if time.monotonic() - self._asked_at <= INTEREST_S:
            self._make()

    def _make(self) -> None:
        assert self.source is not None
        number, overview = self.source()
        number = max(number, self._frame[0])
        self._frame = (number, encode_frame(number, overview))
        self._made_at = time.monotonic()


def encode_frame(number: int, overview: s.Overview) -> bytes:
    """The JSON object `EngineAdmin.live_frame` describes."""
    worst = max((check.level for check in overview.checks), key=_WORST.index, default="ok")
    return msgspec.json.encode(
        {
            "number": number,
            "at_ms": overview.sampled_at_ms,
            "in_rate": overview.in_rate,
            "out_rate": overview.out_rate,
            "in_bytes_rate": overview.in_bytes_rate,
            "out_bytes_rate": overview.out_bytes_rate,
            "put_total": overview.put_total,
            "delivered_total": overview.delivered_total,
            "connections": overview.connections,
            "producer_clients": overview.producer_clients,
            "consumer_clients": overview.consumer_clients,
            "parked_pulls": overview.parked_pulls,
            "log_bytes": overview.log_bytes,
            "unsynced_bytes": overview.unsynced_bytes,
            "disk_used_percent": overview.disk_used_percent,
            "worst_check": worst,
            "behind": [
                {"group": row.group, "lag": row.lag, "lag_ms": row.lag_ms, "clients": row.clients}
                for row in overview.behind[:BEHIND_SHOWN]
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
                for need in overview.needs[:NEEDS_SHOWN]
            ],
        }
    )
