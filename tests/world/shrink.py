"""Makes the script of a failure short, and tells it so that a person can read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.world.world import Done, Failure, Result, play

#: Scripts that are tried.
TRIES = 300


def shrink(
    seed: int,
    script: list[dict[str, Any]],
    failure: Failure,
    play: Callable[[int, list[dict[str, Any]]], Result] = play,
    tries: int = TRIES,
) -> tuple[list[dict[str, Any]], Failure]:
    """A short script that breaks the same rule, and its failure. Leaves out pieces, long ones first, as long as that
    helps."""
    piece = max(1, len(script) // 2)
    while tries > 0:
        at, shorter = 0, False
        while at < len(script) and tries > 0:
            candidate = script[:at] + script[at + piece :]
            tries -= 1
            found = play(seed, candidate).failure
            if found is not None and found.rule == failure.rule:
                failure = found
                script = [done.act for done in found.done]  # what comes behind the failure goes, too
                shorter = True
            else:
                at += piece
        if piece == 1 and not shorter:
            break
        piece = max(1, piece // 2)
    return script, failure


def told(done: Done) -> str:
    """One line for an act: its number, what it is, and what came of it."""
    said = " ".join(f"{name}={value!r}" for name, value in done.act.items() if name not in ("n", "act"))
    return f"{done.act['n']:5d}  {done.act['act']} {said}" + (f"  -> {done.outcome}" if done.outcome else "")
