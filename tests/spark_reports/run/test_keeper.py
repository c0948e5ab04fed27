"""The keeper of a run, with workers that misbehave in every known way: real processes, which are really killed."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_reports.run import keeper, log_size, processes
from spark_reports.run import plan as files
from spark_reports.run.plan import MARK, Outcome, Plan
from tests.support.server import ROOT
from tests.support.waiting import wait_for

RUN = "20260101-000000-0000abcd"

#: A worker that has a child of its own, which leaves its process group and ignores what it can: as Spark's daemon does.
WITH_CHILD = """
import os, signal, subprocess, sys, time
from spark_reports.run.processes import end_with_parent
end_with_parent(signal.SIGKILL, os.getppid())
child = subprocess.Popen([sys.executable, "-c", '''
import os, signal, time
os.setpgid(0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
open("child-is-there", "w").close()
time.sleep(600)
'''])
open("file-of-spark", "w").write("x" * 1000)
while not os.path.exists("child-is-there"):
    time.sleep(0.01)
open(os.path.join(os.environ["DIRECTORY"], "begun"), "w").write(str(child.pid))
"""
SLEEPS = WITH_CHILD + "time.sleep(600)"


class Kept:
    """A keeper in a process of its own, and the worker that a test gives it."""

    def __init__(
        self, directory: Path, worker: str, *, parent: int | None = None, first: str = "", **plan: object
    ) -> None:
        self.directory = directory
        directory.mkdir()
        self.scratch = directory.parent / f"scratch-{RUN}"
        values = {"engine": "python", "master": "local[1]", "driver_mib": 512, "facts_dir": "", "timeout_s": 60}
        files.write(directory / files.PLAN, Plan(RUN, scratch_dir=str(self.scratch), **(values | plan)))
        code = (
            f"import sys; from pathlib import Path; from spark_reports.run.keeper import main; {first}\n"
            f"main(Path({str(directory)!r}), {parent or os.getpid()}, [sys.executable, '-c', {worker!r}])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), MARK: RUN, "DIRECTORY": str(directory)},
        )  # fmt: skip

    def begun(self) -> int:
        """Wait until the worker has its child; return the child's pid."""
        place = self.directory / "begun"
        return int(wait_for(lambda: place.exists() and place.read_text(), "the worker begins"))

    def outcome(self, seconds: float = 120) -> Outcome:
        self.process.wait(seconds)
        found = files.read(self.directory / files.OUTCOME, Outcome)
        assert found is not None
        return found

    def left(self) -> list[processes.Member]:
        return processes.members_of(self.process.pid)

    def close(self) -> None:
        for one in self.left():
            processes.kill(one)
        self.process.wait(60)


@pytest.fixture
def kept(tmp_path):
    made: list[Kept] = []

    def make(worker: str, name: str = "run", **options: object) -> Kept:
        made.append(Kept(tmp_path / name, worker, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def is_clean(run: Kept) -> bool:
    """Wait until nothing is left of the run: a killed process exists until the kernel has freed its memory."""
    return wait_for(lambda: not run.left() and not run.scratch.exists(), "nothing is left of the run")


def test_a_worker_that_says_how_it_went(kept):
    run = kept(
        "import os; from pathlib import Path; from spark_reports.run import plan\n"
        "plan.write(Path(os.environ['DIRECTORY']) / plan.OUTCOME, plan.Outcome(True, rows=7))"
    )
    found = run.outcome()
    assert (found.ok, found.rows, found.error) == (True, 7, "")
    assert is_clean(run)


def test_it_takes_little(kept):
    run = kept(
        "import os, subprocess\n"
        "out = [os.nice(0), open('/proc/self/oom_score_adj').read().strip(), os.environ.get('TMPDIR')]\n"
        "out.append(subprocess.run(['ionice', '-p', str(os.getpid())], capture_output=True).stdout)\n"
        "import ctypes, platform, struct; from spark_reports.run import processes\n"
        "number = ctypes.c_long(processes._SCHED_SETATTR[platform.machine()] + 1)\n"  # sched_getattr(2)
        "found = ctypes.create_string_buffer(48)\n"
        "assert ctypes.CDLL(None).syscall(number, 0, found, 48, 0) == 0\n"
        "out.append(struct.unpack('=IIQiIQQQ', found.raw))\n"
        "open(os.path.join(os.environ['DIRECTORY'], 'said'), 'w').write(repr(out))"
    )
    run.outcome()
    nice, adjusted, temporary, idle, attributes = eval((run.directory / "said").read_text())
    assert (nice, adjusted, idle) == (19, "1000", b"idle\n")
    assert (attributes[1], attributes[3]) == (0, 19)
    if tuple(map(int, platform.release().split(".")[:2])) >= (6, 12):
        assert attributes[5] == 100_000, "what waits for it waits for a short time"
    assert Path(temporary).is_relative_to(run.scratch)


def test_its_session_yields_while_the_broker_is_busy(kept):
    """This process takes the broker's place."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group processes by session")
    run = kept(
        "import os, time; from pathlib import Path; place = Path(os.environ['DIRECTORY'], 'seen')\n"
        "while True: place.write_text(Path('/proc/self/autogroup').read_text().split()[-1]); time.sleep(0.02)"
    )
    seen = run.directory / "seen"

    def is_seen(niceness: str, work: int) -> bool:
        sum(range(work))
        return seen.exists() and seen.read_text() == niceness

    wait_for(lambda: is_seen("19", 1_000_000), "it yields", every=0.001)
    wait_for(lambda: is_seen("0", 0), "it goes on", every=0.3)


def test_a_broker_is_busy_by_its_share_of_a_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_AUTOGROUP", tmp_path / "autogroup")
    at, used = [100.0], [5.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: at[0])
    monkeypatch.setattr(processes, "cpu_seconds", lambda pid: used[0])
    yielding, said = processes.Yielding(4711), []
    for seconds, cpu in ((1.0, 0.05), (1.0, 0.11), (1.0, 0.5), (0.2, 0.01), (0.2, 0.03)):
        at[0], used[0] = at[0] + seconds, used[0] + cpu
        yielding.look()
        said.append((tmp_path / "autogroup").read_text() if (tmp_path / "autogroup").exists() else "")
    assert said == ["", "19", "19", "0", "19"]
    (tmp_path / "autogroup").unlink()
    processes.Yielding(None).look()
    assert (tmp_path / "autogroup").read_text() == "19", "a broker that is not known may be busy"


def test_memory_of_all_processes_together_is_bounded(kept):
    run = kept(
        "import subprocess, sys, time\n"
        "hold = 'x = bytearray(80 << 20); import time; time.sleep(600)'\n"
        "some = [subprocess.Popen([sys.executable, '-c', hold]) for _ in range(2)]; time.sleep(600)",
        memory_mib=130,
    )
    found = run.outcome()
    assert found.why == "memory"
    assert "more than the 130 MiB" in found.error
    assert found.peak_mib > 130
    assert is_clean(run)


def test_two_runs_write_the_facts_one_after_the_other(kept, tmp_path):
    facts = str(tmp_path / "facts")
    run = kept(SLEEPS, facts_dir=facts)
    run.begun()
    other = kept("open('/dev/null')", "other", facts_dir=facts)
    found = other.outcome()
    assert (found.ok, found.why) == (False, "busy")
    again = subprocess.run(
        [sys.executable, "-m", "spark_reports.run", str(run.directory)], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (2, f"another process makes the reports of {run.directory}\n")
    assert run.process.poll() is None
    assert (run.scratch / "file-of-spark").exists()
    assert not (run.directory / files.OUTCOME).exists()
    run.process.send_signal(signal.SIGTERM)
    assert run.outcome().cancelled
    assert kept("open('/dev/null')", "third", facts_dir=facts).outcome().why == "crashed", "it was not kept out"


def test_time_is_bounded(kept):
    run = kept(SLEEPS, timeout_s=2)
    assert run.outcome().error == "The run was not done after 1 minutes, and was ended."
    assert is_clean(run)


def test_its_log_is_bounded(kept):
    run = kept(
        "import sys, time\n"
        "for n in range(200_000): print(n, 'x' * 100, file=sys.stderr)\n"
        "sys.stderr.flush(); time.sleep(4); print('the end', file=sys.stderr)",
        first="import os; log = os.open(os.environ['DIRECTORY'] + '/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND);"
        "os.dup2(log, 1); os.dup2(log, 2)",
    )
    run.outcome()
    text = (run.directory / files.LOG).read_text()
    assert len(text) <= log_size.MOST + 100  # including the text after the last cut, and the last line
    first, *_, last = (line for line in text.splitlines() if "x" not in line)
    assert first.endswith("bytes before this were left out]")
    assert "199999 xxx" in text
    assert "the end" in text
    assert last


def test_cancelled(kept):
    run = kept(SLEEPS)
    run.begun()
    run.process.send_signal(signal.SIGTERM)
    found = run.outcome()
    assert (found.cancelled, found.why, found.ok) == (True, "cancelled", False)
    assert is_clean(run)


def test_a_worker_that_is_killed_leaves_nothing(kept):
    run = kept(WITH_CHILD + "os.kill(os.getpid(), signal.SIGKILL)")
    found = run.outcome()
    assert "SIGKILL" in found.error
    assert is_clean(run)


def test_a_worker_that_says_nothing_has_failed(kept):
    run = kept("pass")
    found = run.outcome()
    assert (found.ok, found.why) == (False, "crashed")


def test_the_run_ends_before_the_disk_is_full(kept):
    run = kept(SLEEPS, first="import spark_reports.run.keeper as k; k.LEAST_FREE_MIB = 1 << 40")
    found = run.outcome()
    assert found.why == "disk_low"
    assert "MiB were free on the disk of" in found.error
    assert is_clean(run)


def test_when_the_keeper_is_killed_its_worker_goes_and_the_sweep_takes_the_rest(kept, tmp_path):
    run = kept(SLEEPS)
    child = run.begun()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        run.process.kill()
        run.process.wait()
        wait_for(lambda: {one.pid for one in run.left()} == {child}, "the worker ends with its keeper")
        assert run.scratch.exists()
        assert keeper.sweep(run.directory, RUN) == 1
        assert is_clean(run)
        assert stranger.poll() is None
        assert keeper.sweep(run.directory, RUN) == 0
    finally:
        stranger.kill()
        stranger.wait()


def test_a_sweep_ends_nobody_who_was_given_the_number_since(kept, tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        directory = tmp_path / "old"
        directory.mkdir()
        for started in (0, processes.look_at(stranger.pid).started):
            (directory / files.PROCESS).write_text(f"{stranger.pid} {started}\n")
            assert keeper.sweep(directory, RUN) == 0
        (directory / files.PROCESS).write_text("no numbers")
        assert keeper.sweep(directory, RUN) == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_when_the_broker_dies_all_of_it_ends(tmp_path):
    """A process stands in for the broker. When it is killed, keeper, worker and the worker's child end, too."""
    broker = (
        "import os, sys, time; sys.path[:0] = [sys.argv[1]]\n"
        "from pathlib import Path; from tests.spark_reports.run.test_keeper import Kept, SLEEPS\n"
        "run = Kept(Path(sys.argv[2]), SLEEPS); print(run.process.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", broker, str(ROOT), str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    session = int(parent.stdout.readline())
    wait_for((tmp_path / "run" / "begun").exists, "the worker begins")
    assert len(processes.members_of(session)) == 3
    parent.kill()
    parent.wait()
    wait_for(lambda: not processes.members_of(session), "all of it ends")
    wait_for(lambda: not (tmp_path / f"scratch-{RUN}").exists(), "its files go")
    found = wait_for(lambda: files.read(tmp_path / "run" / files.OUTCOME, Outcome), "it says why")
    assert found.why == "broker_ended"
    parent.stdout.close()


def test_a_keeper_whose_parent_has_gone_begins_nothing(kept):
    run = kept("open('/dev/null')", parent=1)
    assert run.process.wait(120) != 0
    assert not (run.directory / files.OUTCOME).exists()
