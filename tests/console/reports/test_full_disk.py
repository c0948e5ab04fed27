"""Runs on a small disk that is really full: told in one sentence, and when there is room again the next one works."""

from __future__ import annotations

import os
import signal
import time

import pytest

from spark_reports.run import plan as files
from tests.support.report_box import Box, worker_of
from tests.support.small_disk import NoSmallDisk, SmallDisk
from tests.support.waiting import wait_for

SIZE_MIB = 500


@pytest.fixture
def disk(tmp_path):
    try:
        with SmallDisk(tmp_path / "small" / "data", SIZE_MIB) as made:
            yield made
    except NoSmallDisk as error:
        pytest.skip(str(error))


def fill(disk: SmallDisk, leave_mib: int) -> None:
    with open(disk.inside / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, disk.free_bytes - (leave_mib << 20))


def test_a_disk_that_is_full_before_and_one_that_becomes_full(disk, tmp_path):
    box = Box(tmp_path / "small", prefix=disk.prefix)
    box.reports = disk.inside / "rocketbox" / "reports"
    try:
        box.put(20)
        box.settings(engine="python")
        fill(disk, 150)
        found = box.ended(box.start_run())
        assert found["state"] == "failed"
        assert found["error"].startswith("The run was not begun: it needs 256 MiB of free disk in "), found["error"]

        (disk.inside / "filler").unlink()
        run = wait_held_up(box)
        fill(disk, 40)
        found = box.ended(run)
        assert found["state"] == "failed"
        assert "MiB were free on the disk of" in found["error"], found["error"]
        assert not any((box.reports / "scratch").iterdir())

        (disk.inside / "filler").unlink()
        found = box.ended(box.start_run())
        assert (found["state"], found["error"], found["rows"]) == ("done", "", 20)
    finally:
        box.server.kill()


def wait_held_up(box: Box, tries: int = 20) -> str:
    """A run whose worker is held up before it was done; it may be faster than this."""
    for _ in range(tries):
        run = box.start_run()
        keeper = box.session(run)
        place = box.reports / "runs" / run / files.OUTCOME
        while not place.exists():
            worker = worker_of(keeper)
            if worker is not None:
                try:
                    os.kill(worker, signal.SIGSTOP)
                except ProcessLookupError:
                    continue
                if not place.exists():
                    return run
                os.kill(worker, signal.SIGCONT)
            time.sleep(0.001)
        wait_for(lambda run=run: box.run(run)["state"] != "running", "it ends")
    raise AssertionError("no run could be held up")
