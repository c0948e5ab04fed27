"""`python -m tests.suite [nightly]`: all tests of a commit, or of a night, in three lanes; script/test calls it.

A test that failed fails the run. Afterwards the failed ones run again, alone, as a diagnosis: "fails beside others"
is a race or a wait that is too short, and as red as any other. Only programs of other people may die on a starved
machine: foreign.txt names such tests, with evidence and date, and the run names every line it needed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from tests.suite import durations, parts
from tests.suite.parts import ROOT, Part

#: More than there are processors, since tests spend half of the time waiting.
LANES = 3
FOREIGN = Path(__file__).with_name("foreign.txt")
KEPT = ROOT / ".pytest_cache" / "suite"
#: More failures than this are not caused by tests running beside them, and are not run again.
MOST_AGAIN = 12
_MOST_FOREIGN = 10
#: Lines of a failure beside others at the end of a run, and characters of each.
_MOST_WHY, _WIDEST = 12, 300
#: After this many seconds in one test the stacks of all threads are printed; it goes on.
STACKS_AFTER_S = 600
#: Longest time of a part by day and by night, and of what it still does when it is stopped.
MOST_S, MOST_OF_A_NIGHT_S = 40 * 60.0, 4 * 3600.0
MOST_LAST_S = 300.0


class Run:
    """One run of all parts: each lane takes the longest part that is left, and starts pytest for it."""

    def __init__(self, nightly: bool, compiled: bool) -> None:
        self._nightly = nightly
        self._waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
        self.parts = parts.parts_of(nightly, compiled)
        for part in self.parts:
            self._waiting.put(part)
        self._printing = threading.Lock()
        self._processes: set[subprocess.Popen] = set()
        self.status: dict[str, int] = {}
        self._began = time.monotonic()

    def go(self) -> None:
        lanes = [threading.Thread(target=self._lane, name=f"lane-{number}", daemon=True) for number in range(LANES)]
        for lane in lanes:
            lane.start()
        try:
            for lane in lanes:
                lane.join()
        finally:
            for process in list(self._processes):
                process.terminate()

    def _lane(self) -> None:
        while True:
            try:
                part = self._waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            self._say(f"{part.name}: begins at {self._minutes()}")
            log = KEPT / f"{part.name}.log"
            with log.open("wb") as output:
                self.status[part.name] = self._pytest(part, output, *self._kept(part.name))
            took = time.monotonic() - began
            with self._printing:
                print(f"\n===== {part.name}: {took:.0f} s, until {self._minutes()} =====", flush=True)
                sys.stdout.buffer.write(log.read_bytes())
                sys.stdout.flush()

    def _pytest(self, part: Part, output, *more: str) -> int:
        command = [sys.executable, "-m", "pytest", *part.arguments, *more]
        command += ["-o", f"faulthandler_timeout={STACKS_AFTER_S}"]
        if not self._nightly:
            command += ["-m", "not nightly"]
        if part.name != "api":  # the others do without this plugin, which takes longer to import than all the rest
            command += ["-p", "no:schemathesis"]
        environment = {**os.environ, **part.environment}
        if self._nightly:
            environment["NIGHTLY"] = "1"
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        self._processes.add(process)
        try:
            return process.wait(MOST_OF_A_NIGHT_S if self._nightly else MOST_S)
        except subprocess.TimeoutExpired:  # nobody watches: the other parts go on, and this one is named
            process.send_signal(signal.SIGINT)  # pytest still says how far it came
            try:
                process.wait(MOST_LAST_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return process.wait() or 1
        finally:
            self._processes.discard(process)

    def _kept(self, name: str) -> list[str]:
        return [
            "-o", f"cache_dir={KEPT / name}", "-p", "tests.suite.durations",
            f"--durations-file={KEPT / name}.json", f"--junitxml={KEPT / name}.xml",
        ]  # fmt: skip

    def failed(self) -> dict[str, list[str]]:
        """Return part -> names of its failed tests; "(the part itself)" if pytest ended in another way."""
        found = {}
        for part in self.parts:
            status = self.status.get(part.name)
            if status == 0:
                continue
            names = []
            last = KEPT / part.name / "v" / "cache" / "lastfailed"
            if status == 1 and last.exists():
                names = sorted(json.loads(last.read_text()))
            found[part.name] = names or [f"(the part itself: pytest ended with {status})"]
        return found

    def said(self, part: str, name: str) -> str:
        """Return what pytest printed of a test that failed, as its JUnit file has it."""
        before, bracket, values = name.partition("[")
        file, *classes, function = before.split("::")
        of = ".".join([file.removesuffix(".py").replace("/", "."), *classes])
        found = []
        for case in ElementTree.parse(KEPT / f"{part}.xml").iter("testcase"):
            if (case.get("classname"), case.get("name")) == (of, function + bracket + values):
                found += [*case.itertext()]
        return "".join(found)

    def alone(self, part: Part, name: str) -> bool:
        """True when the test passes once nothing runs beside it."""
        again = Part(part.name, (name,), 0.0, part.environment)
        log = KEPT / "alone.log"
        with log.open("wb") as output:
            passes = self._pytest(again, output, "-p", "no:cacheprovider") == 0
        if not passes:
            sys.stdout.buffer.write(log.read_bytes())
            sys.stdout.flush()
        return passes

    def _minutes(self) -> str:
        return f"{(time.monotonic() - self._began) / 60:.1f} min"

    def _say(self, text: str) -> None:
        with self._printing:
            print(text, flush=True)


def excuse(foreign: dict[str, str], name: str, said: Callable[[], str]) -> str | None:
    """Return the line that excuses a test, None if there is none. A line that names a file excuses those of its tests
    whose output contains the second cell."""
    line = foreign.get(name)
    if line is None:
        line = foreign.get(name.partition("::")[0])
        if line is not None and line.split("|")[1].strip() not in said():
            return None
    return line


def why(said: str) -> list[str]:
    """Return the lines of a failure that pytest marks: the first errors, and the statement before."""
    return [f"    {line[:_WIDEST]}" for line in said.splitlines() if line.startswith(("E  ", ">  "))][:_MOST_WHY]


def read_foreign(text: str) -> dict[str, str]:
    """Return test or file -> its whole line, of foreign.txt: `name | what died, and the evidence | date`."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) > _MOST_FOREIGN:
        raise ValueError(f"foreign.txt has {len(lines)} lines, and {_MOST_FOREIGN} are allowed")
    found = {}
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 3 or not all(cells):
            raise ValueError(f"foreign.txt: not `name | evidence | date`: {line}")
        found[cells[0]] = line
    return found


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["nightly"]):
        print("usage: python -m tests.suite [nightly]", file=sys.stderr)
        return 2
    nightly = arguments == ["nightly"]
    foreign = read_foreign(FOREIGN.read_text())
    from appliance.engine.hotpath import COMPILED

    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob("*.*"):
        old.unlink()
    run = Run(nightly, COMPILED)
    run.go()

    found = run.failed()
    red, excused = [], []
    by_name = {part.name: part for part in run.parts}
    again = sum(map(len, found.values())) <= MOST_AGAIN
    for part_name, names in found.items():
        for name in names:
            if name.startswith("(") or not again:
                red.append(f"{part_name}: {name}")
            elif not run.alone(by_name[part_name], name):
                red.append(f"{part_name}: fails alone, too: {name}")
            elif line := excuse(foreign, name, partial(run.said, part_name, name)):
                excused.append(line)
            else:
                red.append("\n".join([f"{part_name}: fails beside others: {name}", *why(run.said(part_name, name))]))
    files = {part.name: KEPT / f"{part.name}.json" for part in run.parts}
    runs = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    print("\n".join(["", *durations.table(runs)]))
    print("\nPrograms of others that may die on a starved machine (tests/suite/foreign.txt):")
    print("\n".join(f"  {line}{'  <- used' if line in excused else ''}" for line in foreign.values()) or "  none")
    print(f"\nall of it: {run._minutes()}")
    if red:
        print("\nRED:\n" + "\n".join(f"  {line}" for line in red))
    elif nightly or parts.packaging_digest() != parts.recorded_digest():
        parts.record_packaging()
    passed, failed = durations.outcomes(runs)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
