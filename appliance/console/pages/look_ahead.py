"""Makes the window measure queues before a page with a list of them is opened."""

from __future__ import annotations

import logging

from ... import runtime
from ...engine.errors import Unavailable
from ...engine.service_thread import ServiceThread

logger = logging.getLogger(__name__)

#: Seconds after the start until the first step: the first sends and pages should not wait for it.
BEGIN_S = 3.0
#: Seconds between two steps, each of which takes a few milliseconds, and between two looks for new queues.
REST_S, IDLE_S = 0.02, 1.0


class LookAhead(ServiceThread):
    """The thread `look-ahead` of the console."""

    def __init__(self) -> None:
        super().__init__("look-ahead")

    def run(self) -> None:
        self.wait(BEGIN_S)
        while not self.stopped:
            try:
                more = runtime.window().look_ahead.step()
            except (Unavailable, runtime.EngineNotRunning, OSError):  # it starts or stops, or runs without a broker
                more = False
            except Exception:
                logger.exception("console: queues are not measured ahead")
                return
            self.wait(REST_S if more else IDLE_S)
