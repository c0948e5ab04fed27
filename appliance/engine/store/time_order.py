"""Physical offset from which on store times do not go back along the log.

    0 .............................. | begin ............ the log's end
      times may go back: Apache's      each record's store time is that of the one before it, or later
      broker takes the wall clock

This broker's own store times never go back (`Appender.next_store_ms`). Those copied from a leader, or written by Apache
before RocketBox used the store, may. So each record that is copied or recovered is compared with the one before it, and
`begin` is the last that was found to be older. Only from there on may readers of the files skip parts of the log by
time.

Kept in `DATA/rocketbox/time-order`: one line with a CRC (`crc_lines.py`), `{"begin": physical}`. If it is missing or
damaged, nothing is known of the log written before.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ..crc_lines import line_of, only_text
from ..disk import Disk

logger = logging.getLogger(__name__)

NAME = "time-order"
_MOST_BYTES = 4096


def read_begin(path: Path, disk: Disk) -> int | None:
    """Return the physical offset in the file; None without a valid file. Raises OSError."""
    data = disk.read_if_any(path, _MOST_BYTES)
    if data is None:
        return None
    try:
        found = json.loads(only_text(data))["begin"]
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("time order: %s is damaged: %s", path, error)
        return None
    return found if type(found) is int and found >= 0 else None


class TimeOrder:
    """Written by remoting-io once the store is open; any thread may read `begin`."""

    def __init__(self, path: Path, disk: Disk) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        #: Physical offset of a record, or of the next one; only grows while the store is open.
        self.begin = 0

    def load(self, log_begin: int, log_end: int, recovered_from: int | None) -> None:
        """Set `begin` for a log that was just recovered. Raises OSError.

        recovered_from: physical offset from which recovery saw times ascend to the log's end; None if all records that
        it read continue what was known before.
        """
        noted = read_begin(self._path, self._disk)
        found = recovered_from
        if found is None:
            found = log_end if noted is None and log_end > log_begin else noted or 0
        self.begin = min(found, log_end)
        if self.begin != noted:
            self._save()

    def goes_back(self, physical: int) -> None:
        """Note that the record there is older than the one before it; called before it is written."""
        self.begin = physical
        self._save()

    def _save(self) -> None:
        try:
            self._disk.replace(self._path, line_of(b'{"begin":%d}' % self.begin))
        except OSError as error:
            logger.error("time order: %s cannot be written: %s", self._path, error)
