"""Refused sends, forced deletions and starts of the broker, as the history counts them."""

from __future__ import annotations

NAMES = ("refused_sends", "forced_deletions", "starts")


def incidents(running):
    found = {one.name: one.value for some in running.window.measurements.take(30) for one in some}
    return tuple(found[name] for name in NAMES)


def test_they_count_from_the_start_of_the_broker_and_then_from_the_last_look(running):
    store = running.engine.broker.store
    store.log.not_taken += 3
    assert incidents(running) == (3, 0, 1), "the first look"
    assert incidents(running) == (0, 0, 0)
    store.log.not_taken += 2
    store.cleaner.status = store.cleaner.status._replace(log_files_forced=4)
    assert incidents(running) == (2, 4, 0)
    store.log.not_taken -= 1  # messages that were thought lost came
    assert incidents(running) == (0, 0, 0)
