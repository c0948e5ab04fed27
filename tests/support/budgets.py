"""However slow the machine is, an answer of the window whose time is bounded ends where its test says, and is new."""

from __future__ import annotations

import pytest

from appliance.engine.broker.registration import Registration
from appliance.engine.window.figures.measures import Budget

#: ms. A shorter budget is a test's own, which wants to see its end.
SHORT_MS = 20.0
LONG_MS = 60_000.0


def give_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Budget.__init__

    def begin_long(budget: Budget, milliseconds: float) -> None:
        begin(budget, LONG_MS if milliseconds >= SHORT_MS else milliseconds)

    monkeypatch.setattr(Budget, "__init__", begin_long)
    monkeypatch.setattr(Registration.register_topics, "__defaults__", (LONG_MS / 1000,))
    for name in (
        "window.messages.search.STEP_OVER_S",
        "window.messages.copies.BUDGET_S",
        "window.messages.views.RESOLVE_S",
        "window.health.overview.LONG_S",
        "window.groups.diagnosis.DELIVERIES_S",
        "store.index.index_query.FIND_S",
        # The key index is behind the log for a moment.
        "window.messages.search.CATCH_UP_S",
        "window.messages.copies.CATCH_UP_S",
        "window.messages.views.CATCH_UP_S",
        "window.waiting.views.CATCH_UP_S",
        "window.transactions.views.CATCH_UP_S",
        "broker.transactions.resume.CATCH_UP_S",
    ):
        monkeypatch.setattr(f"appliance.engine.{name}", LONG_MS / 1000)
