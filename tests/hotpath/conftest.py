"""Lets one turn of a connection take all of its input, however slow the machine is: twins are compared tick by tick."""

import pytest

from appliance.engine.remoting import connection


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TURN_S", 3600.0)
    monkeypatch.setattr(connection, "LONG_TICK_S", 7200.0)
