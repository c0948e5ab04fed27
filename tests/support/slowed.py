"""Late threads: `SLOWED=any script/test tests/engine/broker` finds tests, and parts, that take work of another thread
for granted.

Some service threads begin late, or go on late behind their waits, as on a busy machine. The number in SLOWED, or one
that is drawn and printed, decides which. Only the moments change: a test that fails here fails beside others, too.
"""

from __future__ import annotations

import os
import random
import time

from appliance.engine.service_thread import ServiceThread

_GIVEN = os.environ.get("SLOWED", "")
SEED = int(_GIVEN) if _GIVEN.isdigit() else random.randrange(10_000)
_drawn = random.Random(SEED)
#: Seconds behind a wait, and how often of a hundred waits: most threads are as quick as ever.
_PACES = ((0.0, 0), (0.0, 0), (0.02, 100), (0.3, 30), (0.6, 10))
_start, _wait = ServiceThread.start, ServiceThread.wait


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
