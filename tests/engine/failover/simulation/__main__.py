"""One seed again, with what was decided: python -m tests.engine.failover.simulation SEED [SABOTAGE] [--async]"""

from __future__ import annotations

import sys

from . import world as worlds
from .faults import one_round
from .oracle import Violation

arguments = [argument for argument in sys.argv[1:] if argument != "--async"]
made: list[worlds.World] = []
_init = worlds.World.__init__


def remember(self: worlds.World, *args, **kwargs) -> None:
    made.append(self)
    _init(self, *args, **kwargs)


worlds.World.__init__ = remember  # type: ignore[method-assign]
if len(arguments) > 1:
    worlds.without_checks()
try:
    one_round(int(arguments[0]), arguments[1] if len(arguments) > 1 else "", "--async" not in sys.argv)
    outcome = "all is well"
except Violation as violation:
    outcome = f"VIOLATION at {made[0].now:.3f}: {violation}"
print("\n".join(made[0].happened))
print(outcome)
