"""`rocketbox serve` that kills itself with SIGKILL while offsets are moved; stands before the command as a prefix of
`support.server.Server`.

KILL_AT: "half-written" (the act, in its journal), "written" (not synced), "synced" (not done), "done" (not answered).
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from appliance.engine.broker.offset_resets import journal as journals
from appliance.engine.broker.offset_resets.service import OffsetResets
from appliance.engine.disk import Disk

KILL_AT = os.environ["KILL_AT"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingDisk(Disk):
    """The journal's disk until the act is written."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if b'"reset"' not in bytes(data):
            return super().pwrite(fd, data, position)
        if KILL_AT == "half-written":
            super().pwrite(fd, data[: len(data) // 2], position)
            die()
        done = super().pwrite(fd, data, position)
        if KILL_AT == "written":
            die()
        return done


class DyingJournal(journals.ResetJournal):
    def __init__(self, path: Path, clock: Any, disk: Disk) -> None:
        super().__init__(path, clock, DyingDisk(path.parent))

    def append(self, record: Any) -> None:
        super().append(record)
        if KILL_AT == "synced":
            die()


class DyingResets(OffsetResets):
    def _do(self, record: Any) -> None:
        super()._do(record)
        if KILL_AT == "done":
            die()


if __name__ == "__main__":
    from appliance.engine.broker import broker
    from appliance.engine.broker.offset_resets import service

    service.ResetJournal = DyingJournal  # type: ignore[misc]
    broker.OffsetResets = DyingResets  # type: ignore[misc]
    from appliance.main import main

    sys.exit(main(sys.argv[sys.argv.index("serve") :]))
