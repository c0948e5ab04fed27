"""Run something on the I/O thread, and wait until it has run."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: How often the waiting thread asks whether to give up.
LOOK_S = 0.2


class LoopJob:
    """Something that the I/O thread was handed. Belongs to a thread other than that, which logs what the job raises."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], job: Callable[[], object]) -> None:
        self._done, self._taken = threading.Event(), threading.Lock()

        def run() -> None:
            if self._taken.acquire(blocking=False):
                try:
                    job()
                finally:
                    self._done.set()

        call_soon(run)

    def wait(self, gives_up: Callable[[], bool]) -> bool:
        """Whether it ran. False when `gives_up()` was true before it began; then it never runs."""
        while not self._done.wait(LOOK_S):
            if gives_up() and self._taken.acquire(blocking=False):
                return False
        return True


def run_on_loop(
    call_soon: Callable[[Callable[[], None]], None], job: Callable[[], object], gives_up: Callable[[], bool]
) -> bool:
    """Whether `job` ran. False when `gives_up()` was true before it began; then it never runs.

    From any thread but remoting-io, which logs what the job raises. A job that has begun is waited for.
    """
    return LoopJob(call_soon, job).wait(gives_up)
