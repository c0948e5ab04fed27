"""`rocketbox serve` for bench/upkeep.py: with the index, retention and checksums, or without; and a look at the index.

    python -m bench.upkeep_server bare|whole SAMPLES serve ...

SAMPLES: a file that gets, at the end, lines of "seconds published indexed" every 20 ms: positions in the log.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from appliance import runtime
from appliance.engine.store.index.index_service import IndexService
from appliance.engine.store.log.block_checksums import BlockChecksumService
from appliance.engine.store.retention.clean_service import CleanService
from appliance.main import main

LOOK_S = 0.02


def leave_out() -> None:
    """The services' threads end at once, and nobody tells them of a tick."""
    for service in (BlockChecksumService, CleanService, IndexService):
        service.run = lambda self: None  # type: ignore[method-assign]
    IndexService.published = lambda self: None  # type: ignore[method-assign]


class Watch:
    """Reads two numbers every LOOK_S."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, int, int]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(LOOK_S):
            try:
                broker = runtime.running().engine.broker
            except runtime.EngineNotRunning:
                continue
            if broker is not None:
                store = broker.store
                self.lines.append((time.monotonic(), store.published, store.index.position))

    def stop(self) -> list[tuple[float, int, int]]:
        self._end.set()
        self._thread.join()
        return self.lines


if __name__ == "__main__":
    kind, samples, *arguments = sys.argv[1:]
    if kind == "bare":
        leave_out()
    watch = Watch()
    status = main(arguments)
    Path(samples).write_text("".join(f"{at:.3f} {published} {indexed}\n" for at, published, indexed in watch.stop()))
    sys.exit(status)
