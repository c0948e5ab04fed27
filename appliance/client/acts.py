"""Acts: the steps of a call of the user's, written once for threads and for asyncio.

    def _flushing(self, timeout) -> Acts[int]:
        yield self._room.wait_for(self._is_empty, timeout)
        return self._in_flight

An act yields what it gets from the parts that wait. With threads that is the result, since they have waited; with
asyncio it is an awaitable of the result. Either way the act gets the result back, or the error is raised in it. Nothing
is held by `with` over a yield.

`core/` has procedures for what client and brokers say to each other; acts are around them, in the caller's thread or
task, where functions of the user may be called.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")
Acts: TypeAlias = Generator[Any, Any, Result]


def finish(acts: Acts[Result]) -> Result:
    """Do acts whose parts have waited."""
    result = None
    while True:
        try:
            result = acts.send(result)
        except StopIteration as end:
            return end.value


async def finish_awaiting(acts: Acts[Result]) -> Result:
    """Do acts whose parts are awaited. A cancellation is raised in them."""
    result = None
    error: BaseException | None = None
    while True:
        try:
            given = acts.send(result) if error is None else acts.throw(error)
        except StopIteration as end:
            return end.value
        result = error = None
        try:
            result = await given if isawaitable(given) else given
        except BaseException as raised:
            error = raised


def is_async(function: Callable[..., Any]) -> bool:
    """True if calling it only makes a coroutine."""
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)
