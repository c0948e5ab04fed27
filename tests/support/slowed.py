"""Threads that are late: `pytest -p tests.support.slowed` finds tests, and parts, that take another thread's work for
granted.

Each service thread begins late, or goes on late behind its waits, as on a busy machine; which do is drawn by the seed
in SLOWED (printed), a thread at a time. Nothing but the moments changes: what fails here would fail beside others.
"""

from __future__ import annotations

import os
import random
import time

from appliance.engine.service_thread import ServiceThread

SEED = int(os.environ.get("SLOWED") or random.randrange(10_000))
_drawn = random.Random(SEED)
#: Seconds behind a wait, and how often of a hundred waits: most threads are as quick as ever.
_PACES = ((0.0, 0), (0.0, 0), (0.02, 100), (0.3, 30), (0.6, 10))
_start, _wait = ServiceThread.start, ServiceThread.wait


def pytest_report_header() -> str:
    return f"slowed: SLOWED={SEED}"


def _started(self: ServiceThread) -> None:
    late = self._late = _drawn.choice(_PACES)  # type: ignore[attr-defined]
    run = self.run
    if late[1] and _drawn.random() < 0.5:

        def begin_late() -> None:
            time.sleep(late[0])
            run()

        self.run = begin_late  # type: ignore[method-assign]
    _start(self)


def _waited(self: ServiceThread, timeout: float | None) -> bool:
    woken = _wait(self, timeout)
    seconds, share = getattr(self, "_late", _PACES[0])
    if share and not self.stopped and random.randrange(100) < share:
        time.sleep(seconds)
    return woken


ServiceThread.start = _started  # type: ignore[method-assign]
ServiceThread.wait = _waited  # type: ignore[method-assign]
