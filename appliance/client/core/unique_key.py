"""Unique keys of messages: `message_id`, made by the producer, the same in each copy. PURE but for the zone."""

from __future__ import annotations

from datetime import datetime

from ..wire import UniqueKeys


class KeyMaker:
    """Makes keys of this process. A key contains milliseconds since the month began, so a new month is noticed here."""

    def __init__(self, address: bytes, pid: int, salt: int) -> None:
        """address: 4 bytes. salt: 32 random bits, which distinguish this client from others of the process."""
        self._of = (address, pid, salt)
        self._until_ms = 0
        self._keys = UniqueKeys(*self._of, 0)

    def next(self, now_ms: int) -> str:
        if now_ms >= self._until_ms:
            begin, self._until_ms = month_of(now_ms)
            self._keys = UniqueKeys(*self._of, begin)
        return self._keys.next(now_ms)


def month_of(now_ms: int) -> tuple[int, int]:
    """Return begin and end of the local month, in ms."""
    begin = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    year, month = divmod(begin.year * 12 + begin.month, 12)
    end = begin.replace(year=year, month=month + 1)
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)
