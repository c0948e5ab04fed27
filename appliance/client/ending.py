"""Signals that end what a program waits in."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Longest time for which a signal may be overlooked.
_LOOK_S = 1.0

Entry = TypeVar("Entry")


def entry_of(ended: queue.SimpleQueue[Entry]) -> Entry:
    """Wait for an entry of `ended`, in pieces: a signal that comes just before a wait is handled when the wait ends."""
    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=_LOOK_S)


@contextlib.contextmanager
def ended_by(ended: queue.SimpleQueue[Any], signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Within the block, put an entry to `ended` at the first of the signals; a second one does what it did before the
    block. Signals are only for the main thread: in others this does nothing."""
    before: dict[signal.Signals, Any] = {}

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        before.clear()

    def end(_number: int, _frame: FrameType | None) -> None:
        put_back()
        ended.put(None)

    try:
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                before[number] = signal.signal(number, end)
        yield
    finally:
        put_back()
