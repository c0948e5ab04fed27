"""Stacks of this process's threads and tasks, as text in the form of Java's stacks (307 with jstackEnable)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

#: Most threads, and most tasks; most frames of each, and most characters in all.
_MOST, _MOST_FRAMES, _MOST_TEXT = 200, 60, 256 * 1024


def of_threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = list(sys._current_frames().items())[:_MOST]
    return "".join(
        _one(names.get(number, "?"), f"TID: {number} STATE: RUNNABLE", traceback.walk_stack(frame))
        for number, frame in found
    )[:_MOST_TEXT]


def of_thread(number: int) -> str:
    """Return what one thread does, "" if it has ended."""
    frame = sys._current_frames().get(number)
    return "" if frame is None else "".join(traceback.format_stack(frame, _MOST_FRAMES))[:_MOST_TEXT]


def of_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return the same of an event loop's tasks; called in the loop."""
    import asyncio

    found = list(asyncio.all_tasks(loop))[:_MOST]
    return "".join(
        _one(task.get_name(), "TASK", ((frame, frame.f_lineno) for frame in task.get_stack(limit=_MOST_FRAMES)))
        for task in found
    )[:_MOST_TEXT]


def _one(name: str, what: str, frames: Iterable[tuple[FrameType, int]]) -> str:
    lines = [f"{name:<40}{what}\n"]
    for frame, line in list(frames)[:_MOST_FRAMES]:
        code = frame.f_code
        lines.append(f"{name:<40}{code.co_qualname}({code.co_filename}:{line})\n")
    return "".join(lines) + "\n"
