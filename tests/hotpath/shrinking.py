"""Shrinks an input that fails, as long as it still fails, and shows it."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.twins import Setting, Step, outcome


def differ(steps: list[Step], setting: Setting) -> list[str]:
    """Return the differences between the twins on an input, in words; empty if there are none."""
    return outcome(steps, setting, False).differences(outcome(steps, setting, True))


def shrunk(steps: list[Step], fails: Callable[[list[Step]], object]) -> list[Step]:
    """Return as few steps as can be found that still fail, and as few frames in each read."""
    for parts in (_without_steps, _without_frames):
        steps = parts(steps, fails)
    return steps


def _without_steps(steps: list[Step], fails: Callable[[list[Step]], object]) -> list[Step]:
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def _without_frames(steps: list[Step], fails: Callable[[list[Step]], object]) -> list[Step]:
    for at, (name, *arguments) in enumerate(steps):
        if name not in ("read", "write"):
            continue
        number, data = arguments
        pieces = frames_of(data)
        index = 0
        while index < len(pieces) and len(pieces) > 1:
            fewer = [*steps[:at], (name, number, b"".join(pieces[:index] + pieces[index + 1 :])), *steps[at + 1 :]]
            if fails(fewer):
                steps = fewer
                del pieces[index]
            else:
                index += 1
    return steps


def frames_of(data: bytes) -> list[bytes]:
    """Return the whole frames, and any bytes left behind them as one more."""
    found = []
    while len(data) >= 4:
        end = 4 + int.from_bytes(data[:4], "big")
        if not 4 < end <= len(data):
            break
        found.append(data[:end])
        data = data[end:]
    return [*found, data] if data else found


def shown(steps: list[Step], setting: Setting) -> str:
    """Return the input as Python text, so that a reader of the failure can run it again."""
    return "\n".join([repr(setting), *[repr(step) for step in steps]])
