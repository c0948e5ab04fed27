"""Slaves whose pauses are short."""

from functools import partialmethod

import pytest

from appliance.engine.broker.slave_sync import SlaveSync
from appliance.engine.replication import follower


@pytest.fixture
def impatient(monkeypatch):
    """A slave that asks for the tables ten times a second, and goes to its master again at once."""
    monkeypatch.setattr(SlaveSync, "__init__", partialmethod(SlaveSync.__init__, period_s=0.1))
    monkeypatch.setattr(follower, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(follower, "LAST_RETRY_S", 0.1)
