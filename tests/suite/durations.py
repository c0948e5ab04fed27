"""A pytest plugin that shows where a run's time goes, and a command that adds up several runs.

`pytest -p tests.suite.durations --durations-file=most.json` prints the 40 slowest tests and fixtures and writes the
figures of every test; `python -m tests.suite.durations most.json clients.json` prints them by directory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

SHOWN = 40

#: The events of Python's audit hooks that start a process (https://docs.python.org/3/library/audit_events.html).
PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})


def pytest_addoption(parser):
    parser.addoption("--durations-file", help="a JSON file for the seconds and processes of every test")


def pytest_configure(config):
    if config.getoption("--durations-file"):
        config.pluginmanager.register(Durations(Path(config.getoption("--durations-file"))), "rocketbox-durations")


class Durations:
    """Measures for each test the seconds, processor seconds (with children that ended) and started processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, dict[str, float]] = {}
        self._fixtures: dict[str, float] = defaultdict(float)
        self._uses: Counter[str] = Counter()
        self._within: list[float] = []  # seconds of the fixtures that the one being set up requests
        self._processes = 0
        self._began = time.perf_counter()
        sys.addaudithook(self._audit)

    def _audit(self, event, args):
        if event in PROCESS_EVENTS:
            self._processes += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        processes, processor, began = self._processes, _processor_seconds(), time.perf_counter()
        yield
        figures = self._tests.setdefault(item.nodeid, {})
        # Tests that share a name, as those of one description do, are added up.
        figures["seconds"] = figures.get("seconds", 0.0) + time.perf_counter() - began
        figures["processor"] = figures.get("processor", 0.0) + _processor_seconds() - processor
        figures["processes"] = figures.get("processes", 0) + self._processes - processes
        figures["runs"] = figures.get("runs", 0) + 1

    def pytest_runtest_logreport(self, report):
        figures = self._tests.setdefault(report.nodeid, {})
        figures[report.when] = figures.get(report.when, 0.0) + report.duration
        if report.failed:
            figures["failed"] = 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        began = time.perf_counter()
        self._within.append(0.0)
        yield
        seconds = time.perf_counter() - began
        own = seconds - self._within.pop()
        if self._within:
            self._within[-1] += seconds
        name = f"{fixturedef.baseid or 'a plugin'}::{fixturedef.argname} ({fixturedef.scope})"
        self._fixtures[name] += own
        self._uses[name] += 1

    def pytest_sessionfinish(self):
        whole = {"seconds": time.perf_counter() - self._began, "tests": self._tests, "fixtures": self._fixtures}
        self._path.write_text(json.dumps(whole, indent=1))

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        terminalreporter.section(f"{SHOWN} slowest tests: seconds in all = set-up + call + teardown, processes")
        for name, one in sorted(self._tests.items(), key=lambda item: -item[1].get("seconds", 0.0))[:SHOWN]:
            parts = " + ".join(f"{one.get(when, 0.0):.1f}" for when in ("setup", "call", "teardown"))
            write(f"{one.get('seconds', 0.0):7.1f} = {parts}, {one.get('processes', 0):.0f}  {name}")
        terminalreporter.section(f"{SHOWN} slowest fixtures: seconds of all set-ups, how many")
        for name, seconds in sorted(self._fixtures.items(), key=lambda item: -item[1])[:SHOWN]:
            write(f"{seconds:7.1f} {self._uses[name]:4d}x  {name}")


def _processor_seconds() -> float:
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def directory_of(nodeid: str) -> str:
    """Return tests/engine/store for tests/engine/store/log/test_roll.py::test_it; tests/*.py for files in tests."""
    parts = nodeid.split("::")[0].split("/")
    return "/".join(parts[:-1][:3]) if len(parts) > 2 else f"{parts[0]}/*.py"


def table(runs: dict[str, dict]) -> list[str]:
    """Return lines with seconds, processor seconds, tests and processes of each lane and directory, and the sums."""
    lines = [f"{'lane':<10}{'directory':<28}{'seconds':>9}{'processor':>10}{'tests':>7}{'processes':>10}"]
    for lane, run in runs.items():
        sums: dict[str, Counter] = defaultdict(Counter)
        for nodeid, one in run["tests"].items():
            for place in (directory_of(nodeid), "all"):
                sums[place].update(
                    seconds=one.get("seconds", 0.0),
                    processor=one.get("processor", 0.0),
                    tests=one.get("runs", 1),
                    processes=one.get("processes", 0),
                )
        for place, row in sorted(sums.items(), key=lambda item: -item[1]["seconds"]):
            lines.append(
                f"{lane:<10}{place:<28}{row['seconds']:9.0f}{row['processor']:10.0f}"
                f"{row['tests']:7.0f}{row['processes']:10.0f}"
            )
        lines.append(f"{lane:<10}{'from start to end':<28}{run['seconds']:9.0f}")
    return lines


def outcomes(runs: dict[str, dict]) -> tuple[int, int]:
    """Return the number of tests that passed or were skipped as intended, and the number that failed."""
    tests = [one for run in runs.values() for one in run["tests"].values()]
    failed = sum("failed" in one for one in tests)
    return int(sum(one.get("runs", 1) for one in tests)) - failed, failed


if __name__ == "__main__":
    print("\n".join(table({Path(path).stem: json.loads(Path(path).read_text()) for path in sys.argv[1:]})))
