"""`script/mutants`: plants each fault into a copy of the checkout, runs the tests that ought to find it, and says which
faults survive.

A copy has the checkout's files, its compiled part among them, and is used by one thread. Whatever the tests of a copy
leave, files and processes, lies in its directory or carries that in its environment, and goes with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
#: What no test of the engine needs.
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".venv.lock", "__pycache__", ".*_cache", "build", "dist")
HOTPATH = "appliance/engine/hotpath"
#: Tests that are still not through then hang, by default.
LIMIT_S = 120.0
#: For tests that were stopped to take down what they set up.
END_S = 15.0

FOUND, HANGS, SURVIVES, BROKEN = "found", "hangs", "SURVIVES", "BROKEN"


class Verdict(NamedTuple):
    """how: FOUND, HANGS (found, too), SURVIVES or BROKEN: the row says nothing. by: which test, or why."""

    fault: Fault
    how: str
    by: str
    seconds: float


class Copy:
    """A copy of the checkout. Belongs to one thread."""

    def __init__(self, directory: Path, limit_s: float) -> None:
        self.root = directory / "checkout"
        self._temporary = directory / "tmp"
        self._cache = directory / "cache"
        self._limit_s = limit_s
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT, symlinks=True)
        command = [sys.executable, "-m", "tests.mutants.warm"]
        pipe = subprocess.PIPE
        self._warm = subprocess.Popen(
            command, cwd=self.root, env=self._environment(), start_new_session=True, stdin=pipe, stdout=pipe
        )
        self._heard = b""

    def judge(self, fault: Fault) -> Verdict:
        begun = time.monotonic()
        try:
            with self._planted(fault):
                how, by = self._tested(fault)
        except (ValueError, subprocess.CalledProcessError) as error:
            how, by = BROKEN, str(error)
        return Verdict(fault, how, by, time.monotonic() - begun)

    def pass_as_they_are(self, tests: Sequence[str], pure: bool) -> str:
        """Which of these tests fails without any fault; "" when none does."""
        code, output = self._run_tests(tests, pure)
        if code == 0:
            return ""
        return ", ".join(self._failed()) or f"no test was run: {output.strip()[-300:]}"

    @contextlib.contextmanager
    def _planted(self, fault: Fault) -> Iterator[None]:
        path = self.root / fault.file
        text, times = path.read_text(), path.stat()
        built = self._built() if path.suffix == ".pxi" else {}
        try:
            path.write_text(planted(fault, text))
            # Another time than the file has without the fault, or what was compiled from that would count.
            os.utime(path, (times.st_atime, times.st_mtime + 2))
            if path.suffix == ".pxi":
                self._build()
            yield
        finally:
            path.write_text(text)
            os.utime(path, (times.st_atime, times.st_mtime))
            for built_path, content in built.items():
                built_path.unlink(missing_ok=True)
                built_path.write_bytes(content)

    def _built(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted((self.root / HOTPATH).glob("_compiled.*.so"))}

    def _build(self) -> None:
        """The compiled part; not optimised, which takes a third of the time."""
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        more = {"ROCKETBOX_COMPILED": "required", "CFLAGS": "-O0"}
        built = subprocess.run(
            command, cwd=self.root, env=self._environment() | more, capture_output=True, text=True, timeout=600
        )
        if built.returncode:
            raise ValueError(f"the compiled part cannot be built with it: {built.stderr[-300:]}")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
        temporary = str(self._temporary)
        return kept | {"PYTHONPATH": str(self.root), "TMPDIR": temporary, "PYTEST_DEBUG_TEMPROOT": temporary}

    def _tested(self, fault: Fault) -> tuple[str, str]:
        code, output = self._run_tests(fault.tests, fault.pure)
        if code is None:
            return HANGS, f"not through after {self._limit_s:.0f} s"
        if code == 0:
            return SURVIVES, " ".join(fault.tests)
        if code < 0:
            return FOUND, f"Python ended with signal {-code}"
        failed = self._failed()
        # What cannot even be collected says nothing of what tests find.
        if code == 1 and failed and "::" in failed[0]:
            return FOUND, failed[0]
        return BROKEN, f"no test was run: {output.strip()[-300:]}"

    def _run_tests(self, tests: Sequence[str], pure: bool) -> tuple[int | None, str]:
        """(how pytest ended, None when it did not; what it wrote)."""
        for directory in (self._temporary, self._cache):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        output = self._cache / "output"
        # The tools are imported by then, and pytest would say of each that it is.
        quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
        arguments = ["-x", "-q", *quiet, "-o", f"cache_dir={self._cache}", *tests]
        variables = {"ROCKETBOX_PURE": "1"} if pure else {}
        assert self._warm.stdin is not None
        asked = {"arguments": arguments, "variables": variables, "output": str(output)}
        self._warm.stdin.write(json.dumps(asked).encode() + b"\n")
        self._warm.stdin.flush()
        process = self._answer(self._limit_s)
        code = self._answer(self._limit_s)
        ended = False
        if code is None and process is not None:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGINT)
            ended = self._answer(END_S) is not None
        end_processes(self._temporary, but=self._warm.pid)
        if code is None and not ended:
            self._answer(END_S)
        return code, output.read_text(errors="replace") if output.exists() else ""

    def _answer(self, seconds: float) -> int | None:
        """The next number that the warm process says; None when it does not come in time. Raises ValueError when that
        process has ended."""
        assert self._warm.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._heard:
            if not select.select([self._warm.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = os.read(self._warm.stdout.fileno(), 4096)
            if not data:
                raise ValueError("the process that runs tests has ended")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return int(line)

    def close(self) -> None:
        end_processes(self._temporary)
        self._warm.communicate()

    def _failed(self) -> list[str]:
        try:
            return list(json.loads((self._cache / "v/cache/lastfailed").read_text()))
        except OSError:
            return []


def end_processes(directory: Path, but: int = 0) -> None:
    """End what has its temporary files in this directory: tests, and what they started and left. but: a process that
    stays."""
    mark = f"\0TMPDIR={directory}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != but and mark in b"\0" + (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def planted(fault: Fault, text: str) -> str:
    """The file's text with the fault in it. Raises ValueError unless what it replaces is there once."""
    count = text.count(fault.before)
    if count != 1:
        raise ValueError(f"{fault.file} holds {fault.before!r} {count} times, not once")
    return text.replace(fault.before, fault.after)


def chosen(words: Sequence[str]) -> list[Fault]:
    """Faults of these parts; of a word that is no part, those with it in their names. Raises ValueError for words that
    choose none."""
    parts = {fault.part for fault in FAULTS}
    for word in words:
        if word not in parts and not any(word in fault.name for fault in FAULTS):
            raise ValueError(f"no part and no name of a fault has {word!r}")

    def is_meant(fault: Fault) -> bool:
        return not words or any(word == fault.part if word in parts else word in fault.name for word in words)

    # Those for which the compiled part is built come last: a copy is at work on others meanwhile.
    return sorted(filter(is_meant, FAULTS), key=lambda fault: fault.file.endswith(".pxi"))


def judge_all(faults: Sequence[Fault], directory: Path, jobs: int, limit_s: float) -> list[Verdict]:
    """Judge each fault, and say so; then look whether what found faults passes without them."""
    waiting, verdicts = list(faults), list[Verdict]()
    lock, interrupted = threading.Lock(), list[bool]()
    copies = [Copy(directory / str(number), limit_s) for number in range(min(jobs, len(faults)))]

    def work(copy: Copy) -> None:
        while True:
            with lock:
                if interrupted or not waiting:
                    return
                fault = waiting.pop(0)
            verdict = copy.judge(fault)
            with lock:
                if interrupted:
                    return
                verdicts.append(verdict)
                print(f"{verdict.how:9} {verdict.seconds:5.1f} s  {fault.part}: {fault.name}", flush=True)
                print(f"{'':20}{verdict.by}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        interrupted.append(True)
        end_processes(directory)
        for thread in threads:
            thread.join(END_S)
        raise
    try:
        return without_false_finds(verdicts, copies[0])
    finally:
        for copy in copies:
            copy.close()


def without_false_finds(verdicts: list[Verdict], copy: Copy) -> list[Verdict]:
    """Tests that fail without any fault have found none."""
    for pure in (False, True):
        tests = sorted({one.by for one in verdicts if one.how == FOUND and "::" in one.by and one.fault.pure == pure})
        fails = copy.pass_as_they_are(tests, pure) if tests else ""
        if fails:
            verdicts = [one._replace(how=BROKEN) if one.by in fails else one for one in verdicts]
            print(f"{BROKEN}: fails without any fault: {fails}", flush=True)
    return verdicts


def told(verdicts: Sequence[Verdict]) -> str:
    """The table, and who is left."""
    lines = [f"\n{'part':14} {'faults':>6} {'found':>6} {'hang':>5} {'seconds':>8}"]
    parts = list(dict.fromkeys(fault.part for fault in FAULTS))
    for part in [*parts, "all"]:
        of_part = [one for one in verdicts if part in (one.fault.part, "all")]
        if of_part:
            hows = [one.how for one in of_part]
            seconds = sum(one.seconds for one in of_part)
            lines.append(f"{part:14} {len(hows):6} {hows.count(FOUND):6} {hows.count(HANGS):5} {seconds:8.1f}")
    lines += [f"{one.how}: {one.fault.part}: {one.fault.name} ({one.by})" for one in verdicts if is_left(one)]
    return "\n".join(lines)


def is_left(verdict: Verdict) -> bool:
    return verdict.how in (SURVIVES, BROKEN)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="script/mutants", description="Plants faults, and says which no test finds.")
    parser.add_argument("words", nargs="*", metavar="NAME-or-PART", help="which faults; all without any")
    parser.add_argument("--list", action="store_true", help="say which faults there are, and plant none")
    parser.add_argument("--jobs", type=int, default=1, help="copies that work at a time; tests start servers")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which a fault's tests hang")
    options = parser.parse_args(arguments)
    try:
        faults = chosen(options.words)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        for fault in faults:
            print(f"{fault.part}: {fault.name}\n    {fault.file}  {' '.join(fault.tests)}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="rocketbox-mutants-", ignore_cleanup_errors=True) as name:
        try:
            verdicts = judge_all(faults, Path(name), max(1, options.jobs), options.limit)
        except KeyboardInterrupt:
            return 130
    print(told(verdicts))
    return 1 if any(map(is_left, verdicts)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
