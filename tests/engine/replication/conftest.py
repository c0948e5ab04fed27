"""Slaves with short pauses."""

from functools import partialmethod

import pytest

from appliance.engine.broker.slave_sync import SLAVES_PACE, SlaveSync
from appliance.engine.replication import follower


@pytest.fixture
def impatient(monkeypatch):
    """Have slaves ask for the tables ten times a second, and reconnect to their master at once."""
    monkeypatch.setattr(
        SlaveSync, "__init__", partialmethod(SlaveSync.__init__, pace=SLAVES_PACE._replace(period_s=0.1))
    )
    monkeypatch.setattr(follower, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(follower, "LAST_RETRY_S", 0.1)
