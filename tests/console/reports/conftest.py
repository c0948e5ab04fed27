"""A broker with messages, and a runner that makes its reports when a test says so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from appliance.console.reports import acts
from appliance.console.reports.runner import ReportRunner
from tests.console.conftest import pretend_running
from tests.support.engine import RunningEngine


@pytest.fixture
def running(tmp_path, db):
    """An engine of the test's own in the directory that pages know."""
    found = RunningEngine(tmp_path / "data")
    pretend_running(found.engine)
    yield found
    found.stop()


@pytest.fixture
def runner():
    """The thread's work, done by `step()` in the test's."""
    made = ReportRunner()
    acts.use(made)
    yield made
    acts.use(None)


@pytest.fixture
def request_of(people):
    """`request_of("admin")`: what an act is handed."""

    def make(role: str) -> SimpleNamespace:
        return SimpleNamespace(user=people[role], client_address="127.0.0.1", request_id="r1", META={})

    return make
