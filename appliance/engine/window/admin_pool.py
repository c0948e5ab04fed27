"""Runs the window's commands on the thread of the pool "admin", in turn with the commands of tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from ..errors import InvalidInput, RefusedRequest, Unavailable
from ..remoting.dispatcher import WorkerPool
from .sentences import say

POOL = "admin"
#: Time for the journal's sync and the name servers' answers, and for the jobs ahead of this one in the pool.
LIMIT_S = 15.0

T = TypeVar("T")


class AdminPool:
    """Any thread but the pool's own; waits in the caller's."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def run(self, job: Callable[[], T]) -> T:
        """Run `job` on the pool's thread and return its result. A RefusedRequest that it raises becomes InvalidInput.

        Raises Unavailable if the job is not done within LIMIT_S; it may still run after that.
        """
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        if not self._pool.alive or not self._pool.submit(work):
            raise Unavailable(say("too_busy"))
        if threading.current_thread().name == self._pool.name:
            raise AssertionError("a command waits for the thread it is on")
        try:
            return future.result(LIMIT_S)
        except RefusedRequest as refusal:
            raise InvalidInput("", refusal.remark, refusal.code) from None
        except FutureTimeout:
            raise Unavailable(say("not_done_in_time", seconds=round(LIMIT_S))) from None
        finally:
            future = Future()  # breaks a reference cycle: future, exception, traceback, this frame
