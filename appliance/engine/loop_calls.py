"""Run something on the I/O thread and wait until it has run, or in pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

#: How often the waiting thread asks whether to give up.
LOOK_S = 0.2


def run_on_loop(
    call_soon: Callable[[Callable[[], None]], None], job: Callable[[], object], gives_up: Callable[[], bool]
) -> bool:
    """Whether `job` ran. False when `gives_up()` was true before it began; then it never runs.

    From any thread but remoting-io, which logs what the job raises. A job that has begun is waited for.
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
    """As `run_on_loop`, and raises here what the job raises there."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    ran = run_on_loop(call_soon, run, gives_up)
    if failed:
        raise failed.pop()  # taken out: what it came through holds the list
    return ran


def in_steps(
    call_soon: Callable[[Callable[[], None]], object], items: Iterator[T], step: int, act: Callable[[T], object]
) -> None:
    """On the loop: `act` on `step` of the items now, and on as many in each tick from now on, until none is left."""
    some = list(islice(items, step))
    for one in some:
        act(one)
    if some:
        call_soon(partial(in_steps, call_soon, items, step, act))
