"""haOnPromote: a program that is started when this member leads, for example to take over an address.

It gets the epoch in ROCKETBOX_EPOCH, no shell and no input, and its output is discarded; it is ended when it takes too
long. Sends do not wait for it: clients that use the address that it moves come after it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading

logger = logging.getLogger(__name__)

MOST_S = 30.0
END_S = 1.0


class PromotionProgram:
    """Runs in the thread `on-promote`, which ends with it."""

    def __init__(self, words: tuple[str, ...]) -> None:
        """words: the program and its arguments; () for none."""
        # Constant after construction.
        self._words = words
        self._lock = threading.Lock()
        # Guarded by _lock. _wanted: the epoch that it runs for, 0 for none.
        self._wanted = 0
        self._running: subprocess.Popen[bytes] | None = None
        #: Outcome of the last run, for people; "" before the first.
        self.outcome = ""

    def start(self, epoch: int) -> None:
        """Run the program for this epoch; an earlier run is ended. Returns at once."""
        if not self._words:
            return
        self.stop()
        with self._lock:
            self._wanted = epoch
        threading.Thread(target=self._run, args=(epoch,), name="on-promote", daemon=True).start()

    def stop(self) -> None:
        """End a program that still runs, since this member no longer leads."""
        with self._lock:
            process, self._running, self._wanted = self._running, None, 0
        if process is not None:
            process.terminate()

    def _run(self, epoch: int) -> None:
        try:
            with self._lock:
                if self._wanted != epoch:
                    return
                process = self._running = subprocess.Popen(
                    self._words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | {"ROCKETBOX_EPOCH": str(epoch)},
                    start_new_session=True,
                )
        except OSError as error:
            self._say(f"cannot be started: {self._words[0]}: {error.strerror or error}", well=False)
            return
        late = ""
        try:
            process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            late = f", since it took longer than {MOST_S:g} s"
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with self._lock:
            if self._running is process:
                self._running = None
        self._say(f"ended with {process.returncode}{late}", process.returncode == 0)

    def _say(self, outcome: str, well: bool) -> None:
        self.outcome = outcome
        logger.log(logging.INFO if well else logging.ERROR, "failover: haOnPromote %s", outcome)
