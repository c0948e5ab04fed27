"""Waiting for what another thread or process does: with a deadline, and a message when it passes.

A deadline says that something hangs, never that it is slow: it costs nothing where the test passes, and a machine with
other work takes many times as long as one without.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[], Found],
    what: str,
    seconds: float = 60.0,
    *,
    every: float = 0.01,
    not_yet: tuple[type[Exception], ...] = (),
) -> Found:
    """The first true answer of `condition`; AssertionError with `what` when there is none in time.

    every: seconds between two looks. not_yet: what `condition` may raise as long as it does not hold.
    """
    deadline = time.monotonic() + seconds
    while True:
        failed = None
        try:
            found = condition()
            if found:
                return found
        except not_yet as error:
            failed = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {seconds:g} s: {what}") from failed
        time.sleep(every)


async def wait_in_loop(condition: Callable[[], Found], what: str, seconds: float = 60.0) -> Found:
    """Do the same as `wait_for` while other tasks of the event loop go on."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {seconds:g} s: {what}")
        await asyncio.sleep(0.01)
    return found


def ends(act: Callable[[], Found], what: str, seconds: float = 60.0) -> Found:
    """Return or raise what `act` does, in a thread of its own. AssertionError with `what` when it does not end.

    For calls that must not wait for something the test holds back: that is held until the test goes on.
    """
    done: Future[Found] = Future()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([done], seconds).done:
        raise AssertionError(f"it went on for {seconds:g} s: {what}")
    return done.result()
