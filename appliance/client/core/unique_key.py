"""Unique keys of messages: `message_id`, made by the producer, the same in each copy. PURE but for the zone.

A key's last 6 bytes are milliseconds since the month began, 4, and a counter, 2; those before are the client's: see
`engine/protocol/message_id.py`. A clock that is set back shows the same milliseconds again, and so does each month. So
the time of keys never goes back within a month, and with another month the salt in them is another one.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import twin
from ..wire import UniqueKeys, key_prefix


class Months:
    """The months in which a client makes keys, one after the other."""

    def __init__(self, address: bytes, pid: int, salt: int) -> None:
        """address: 4 bytes. salt: 32 random bits, which distinguish this client from others of the process."""
        self._address, self._pid, self._salt = address, pid, salt

    def next(self, now_ms: int) -> tuple[int, int, str]:
        """Return begin and end of the month of a time, in ms, and the first digits of the keys that are made in it from
        now on, 20."""
        prefix = key_prefix(self._address, self._pid, self._salt)
        self._salt += 1
        return *month_of(now_ms), prefix


class KeyMaker:
    """Makes keys, each only once."""

    def __init__(self, months: Months) -> None:
        self._months = months
        self._begin_ms = self._end_ms = 0
        #: Of this month.
        self._keys = UniqueKeys("", 0)

    def next(self, now_ms: int) -> str:
        if not self._begin_ms <= now_ms < self._end_ms:
            self._begin_ms, self._end_ms, prefix = self._months.next(now_ms)
            self._keys = UniqueKeys(prefix, self._begin_ms)
        return self._keys.next(now_ms)


def month_of(now_ms: int) -> tuple[int, int]:
    """Return begin and end of the local month, in ms."""
    begin = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    year, month = divmod(begin.year * 12 + begin.month, 12)
    end = begin.replace(year=year, month=month + 1)
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)


PureKeyMaker = KeyMaker

if not TYPE_CHECKING and twin.compiled is not None:
    KeyMaker: Any = twin.compiled.KeyMaker
