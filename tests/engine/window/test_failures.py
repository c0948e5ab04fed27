"""A failure of a thread behind the broker reaches the page of checks."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.engine.service_thread import ServiceThread
from tests.support.engine import RunningEngine

#: Thread -> why its failure needs no check.
SILENT = {"checksum-blocks": "it is in the log and tried again; messages are served and kept as before"}


def services(*owners: Any) -> dict[str, ServiceThread]:
    """Return the threads that keep a failure among the attributes of these parts, by name."""
    found = [one for owner in owners for one in vars(owner).values() if isinstance(one, ServiceThread)]
    return {one.name: one for one in found if "failure" in vars(one) or hasattr(vars(one).get("status"), "failure")}


def failing_checks(running: RunningEngine) -> set[str]:
    return {check.name for check in running.window.checks() if check.level == "failed"}


def test_a_failure_of_every_thread_is_a_check_that_fails(
    running: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = running.engine.broker
    assert broker is not None
    silent, known = (
        set(),
        services(broker, broker.store, broker.topics, broker.groups, broker.offsets, broker.tables.filters),
    )
    for name, service in known.items():
        before = failing_checks(running)
        with monkeypatch.context() as patch:
            if "failure" in vars(service):
                patch.setattr(service, "failure", "the disk is gone")
            else:
                patch.setattr(service, "status", vars(service)["status"]._replace(failure="the disk is gone"))
            if failing_checks(running) == before:
                silent.add(name)
    assert len(known) > 3
    assert silent == set(SILENT)
