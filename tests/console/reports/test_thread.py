"""The thread of the reports, which loads their code when they are wanted."""

from __future__ import annotations

import pytest

from appliance.console.models import Setting
from appliance.console.reports import acts, thread
from appliance.console.reports.runner import ReportRunner
from appliance.console.reports.thread import BEGIN_S, LOOK_S, ReportThread


@pytest.fixture
def threads(monkeypatch):
    """Returns a thread that is not started, and the calls of its runner: the test's own thread calls `run`."""
    made, ran = ReportThread(), []
    monkeypatch.setattr(ReportRunner, "run", lambda self: ran.append(self))
    thread.use(made)
    yield made, ran
    thread.use(None)


def test_a_schedule_that_is_switched_on_begins_at_the_next_look(running, threads):
    made, ran = threads
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            Setting.objects.create(key="reports", value={"on": True})
        return False

    made.wait = wait
    made.run()
    assert waits == [BEGIN_S, LOOK_S, LOOK_S]
    assert ran == [made.runner()]


def test_a_run_that_is_started_begins_at_once(running, threads, request_of):
    made, ran = threads
    acts.start(request_of("admin"))
    assert made.wait(0), "it sleeps until its next look"
    made.wakeup()  # the wait above has used that up
    made.run()
    assert ran == [made.runner()]
    made.request_stop()
    assert made.runner().stopped


def test_a_run_of_an_earlier_process_is_looked_after(running, threads, request_of):
    acts.start(request_of("admin"))
    later, ran = ReportThread(begin_s=0.0), threads[1]
    later.run()
    assert ran == [later.runner()] != [threads[0].runner()]


def test_a_stop_is_not_lost_while_the_runner_is_being_made(running, threads):
    made, ran = threads
    made.request_stop()
    made.run()
    assert not ran
    assert made.runner().stopped
