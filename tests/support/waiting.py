"""Waiting for what another thread or process does: with a deadline, and a message when it passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[], Found],
    what: str,
    seconds: float = 10.0,
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
