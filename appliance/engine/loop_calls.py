"""Runs a job on the I/O thread and waits for it, or runs it there in pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

#: Interval at which the waiting thread calls `gives_up`.
LOOK_S = 0.2


def run_on_loop(
    call_soon: Callable[[Callable[[], None]], None], job: Callable[[], object], gives_up: Callable[[], bool]
) -> bool:
    """Run `job` on the loop; True if it ran. False if `gives_up()` was true before it began; then it never runs.

    From any thread but remoting-io, which logs an exception of the job. Waits for a job that has begun.
    """
    done, taken = threading.Event(), threading.Lock()

    def run() -> None:
        if taken.acquire(blocking=False):
            try:
                job()
            finally:
                done.set()

    call_soon(run)
    while not done.wait(LOOK_S):
        if gives_up() and taken.acquire(blocking=False):
            return False
    return True


def raise_from_loop(
    call_soon: Callable[[Callable[[], None]], None], job: Callable[[], object], gives_up: Callable[[], bool]
) -> bool:
    """As `run_on_loop`, but raise the job's exception here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    ran = run_on_loop(call_soon, run, gives_up)
    if failed:
        raise failed.pop()  # taken out of the list, which the traceback's frame holds
    return ran


def in_steps(
    call_soon: Callable[[Callable[[], None]], object], items: Iterator[T], step: int, act: Callable[[T], object]
) -> None:
    """On the loop: call `act` for `step` of the items now, and for as many in each later tick until none is left."""
    some = list(islice(items, step))
    for one in some:
        act(one)
    if some:
        call_soon(partial(in_steps, call_soon, items, step, act))
