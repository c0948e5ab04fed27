"""Refused sends, forced deletions and starts of the broker, as the history counts them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from appliance.engine.broker.role import Kind, Role
from appliance.engine.window.figures.incidents import Incidents

NAMES = ("refused_sends", "forced_deletions", "starts", "role_changes")


def incidents(running):
    found = {one.name: one.value for some in running.window.measurements.take(30) for one in some}
    return tuple(found[name] for name in NAMES)


def test_they_count_from_the_start_of_the_broker_and_then_from_the_last_look(running):
    store = running.engine.broker.store
    store.log.not_taken += 3
    assert incidents(running) == (3, 0, 1, 0), "the first look"
    assert incidents(running) == (0, 0, 0, 0)
    store.log.not_taken += 2
    store.cleaner.status = store.cleaner.status._replace(log_files_forced=4)
    assert incidents(running) == (2, 4, 0, 0)
    store.log.not_taken -= 1  # messages that were thought lost came
    assert incidents(running) == (0, 0, 0, 0)


def store(refused=0, forced=0):
    status = SimpleNamespace(log_files_forced=forced)
    return SimpleNamespace(failed_puts=refused, cleaner=SimpleNamespace(status=status))


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([(Kind.FENCED, 0), (Kind.FOLLOWER, 3)], 0),
        ([(Kind.LEADER, 3), (Kind.FENCED, 0), (Kind.FOLLOWER, 4)], 1),
        ([(Kind.FOLLOWER, 3), (Kind.LEADER, 4), (Kind.FENCED, 0), (Kind.LEADER, 5)], 2),
        ([(Kind.FOLLOWER, 3), (Kind.FENCED, 0), (Kind.FOLLOWER, 4)], 0),
    ],
)
def test_a_role_that_changes_and_what_the_broker_before_it_had_counted(roles, expected):
    """A start leads to a role and changes none; nor does another leader that the follower follows."""
    found = Incidents()
    for kind, epoch in roles:
        found.broker_there(store(refused=5, forced=1), Role(kind, 0, epoch))
        found.broker_gone()
    count = len(roles)
    expected_now = {"refused_sends": 5 * count, "forced_deletions": count, "role_changes": expected, "starts": 1}
    assert found.take() == expected_now
    found.broker_there(store(refused=2), Role(*roles[-1][:1], 0, roles[-1][1]))
    assert found.take() == {"refused_sends": 2, "forced_deletions": 0, "role_changes": 0, "starts": 0}
