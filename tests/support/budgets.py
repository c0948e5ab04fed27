"""However slow the machine is, an answer of the window whose time is bounded ends where its test says, and is new."""

from __future__ import annotations

import pytest

from appliance.engine.window.figures.measures import Budget

#: ms. A shorter budget is a test's own, which wants to see its end.
SHORT_MS = 20.0
LONG_MS = 60_000.0


def give_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Budget.__init__

    def begin_long(budget: Budget, milliseconds: float) -> None:
        begin(budget, LONG_MS if milliseconds >= SHORT_MS else milliseconds)

    monkeypatch.setattr(Budget, "__init__", begin_long)
    for name in (
        "messages.search.STEP_OVER_S",
        "messages.copies.BUDGET_S",
        "messages.views.RESOLVE_S",
        "health.overview.LONG_S",
    ):
        monkeypatch.setattr(f"appliance.engine.window.{name}", LONG_MS / 1000)
