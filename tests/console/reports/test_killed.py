"""Runs of a real server by Spark, killed in every part: a sentence each time, nothing left, and the next run works."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spark_reports.run.processes import is_marked, members_of
from tests.support.directories import shared_directory
from tests.support.report_box import SECRET, Box
from tests.support.spark import quick
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def box(request):
    place = shared_directory(request, "killed")
    made = Box(place, more=quick(place))
    made.put(20)
    made.settings(engine="spark", driver_mib=768)
    yield made
    made.server.kill()


@pytest.mark.nightly
def test_java_alone(box):
    run = box.start_run()
    java = box.java(run)
    environment = Path(f"/proc/{java}/environ").read_bytes()
    assert SECRET.encode() not in environment
    assert b"t0ps3cret" not in environment, "the broker's environment is its own"
    assert is_marked(java, run)
    os.kill(java, signal.SIGKILL)
    found = box.ended(run)
    assert found["state"] == "failed"
    assert found["error"].startswith("Spark's process ended before it was done"), found
    assert box.is_clean(run)


def test_the_whole_broker(box):
    run = box.start_run()
    box.java(run)
    session = box.session(run)
    assert len(members_of(session)) >= 3
    os.kill(box.server.pid, signal.SIGKILL)
    box.server.kill()
    wait_for(lambda: not members_of(session), "keeper, worker, Java and Python's workers end")
    box.server.start()
    found = wait_for(lambda: (one := box.run(run))["state"] == "interrupted" and one, "it is told")
    assert found["error"] == "RocketBox ended while the run went on."
    assert box.is_clean(run)


@pytest.mark.nightly
def test_stopped_with_the_broker(box):
    run = box.start_run()
    box.java(run)
    session = box.session(run)
    box.server.stop()
    wait_for(lambda: not members_of(session), "all of it ends")
    box.server.start()
    found = wait_for(lambda: (one := box.run(run))["state"] == "interrupted" and one, "it is told")
    assert "RocketBox" in found["error"]


@pytest.mark.nightly
def test_cancelled(box):
    run = box.start_run()
    box.java(run)
    box.ask("POST", f"/reports/runs/{run}/cancel")
    found = box.ended(run)
    assert found["state"] == "cancelled"
    assert box.is_clean(run)


@pytest.mark.nightly
def test_too_much_memory(box):
    box.settings(engine="spark", driver_mib=512, memory_mib=768)
    try:
        found = box.ended(run := box.start_run())
        print(found["error"])
    finally:
        box.settings(engine="spark", driver_mib=768, memory_mib=2048)
    if found["state"] == "failed":
        assert found["error"].startswith("The run took ")
    assert box.is_clean(run)


def test_then_the_next_run_works(box):
    found = box.ended(run := box.start_run())
    assert (found["state"], found["error"], found["rows"]) == ("done", "", 20)
    day = found["day"]
    assert box.ask("GET", f"/reports/days/{day}/digest")["report"] == "digest"
    assert box.is_clean(run)
    left = [path for path in Path("/tmp").glob("hsperfdata_*/*") if is_marked(int(path.name), run)]
    assert not left
