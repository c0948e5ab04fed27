"""Has the window measure queues before somebody looks at the lists."""

from __future__ import annotations

import logging

from .. import runtime
from ..engine.errors import Unavailable
from ..engine.service_thread import ServiceThread

logger = logging.getLogger(__name__)

#: Sends and the first pages come first.
BEGIN_S = 3.0
#: Between steps, of which one takes a few milliseconds; and between looks for new queues.
REST_S, IDLE_S = 0.02, 1.0


class LookAhead(ServiceThread):
    """The thread `look-ahead` of the console."""

    def __init__(self) -> None:
        super().__init__("look-ahead")

    def run(self) -> None:
        self.wait(BEGIN_S)
        while not self.stopped:
            try:
                more = runtime.window().look_ahead()
            except (Unavailable, runtime.EngineNotRunning, OSError):  # it starts or stops, or runs without a broker
                more = False
            except Exception:
                logger.exception("console: queues are not measured ahead")
                return
            self.wait(REST_S if more else IDLE_S)
