#!/usr/bin/env python3
"""Measures what heavy work beside the broker does to sends, and prints markdown.

    bench/neighbours.py                                five rounds of 8 s for each, some ten minutes on two cores
    bench/neighbours.py --only nothing,spark           some of: nothing, python, spark, export, filter, backup
    bench/neighbours.py --rounds 1 --seconds 2 --gib 0.25      a quick look

20,000 sends a second of 1 KiB go to one broker with a console, in interleaved rounds: beside nothing, beside a run of
the reports by plain Python and by Spark, an export of a topic, one whose filter reads every body and finds nothing,
and a backup. Each is started anew for its round, and ended after it. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import filled_log
from bench.browser import Browser, BrowserError
from bench.console import PASSWORD, Load, wait_until_settled
from bench.console_pages import make_users
from bench.rounds import note
from bench.servers import ROCKETBOX, ConsoleServer, cpu_seconds

USER = "anna"
GOAL = 1.5
#: Beside more foreign work than this share of one processor a sample says little; it is dropped, and taken again.
MOST_FOREIGN = 0.15


class Sample(NamedTuple):
    """latency_ms: by quantile. broker, neighbour, foreign: processors used by the broker, by the work beside it, and by
    everything that is no part of the bench."""

    latency_ms: dict[str, float]
    broker: float
    neighbour: float
    foreign: float


class Console:
    """The API, as the person who is signed in."""

    def __init__(self, server: ConsoleServer) -> None:
        self.server = server
        self._browser = Browser(server.http)
        self._browser.sign_in(USER, PASSWORD)

    def ask(self, method: str, path: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """Raises BrowserError for any answer but a good one."""
        status, body = self._browser.ask_api(method, f"/api/v1{path}", values)
        if status not in (200, 201, 202):
            raise BrowserError(f"{method} {path} was answered with {status}: {body[:300]!r}")
        return json.loads(body) if body else {}

    def close(self) -> None:
        self._browser.close()


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(NEIGHBOURS):
        sys.exit(f"no such neighbour: {', '.join(sorted(unknown))}")
    with filled_server(options) as server:
        console = Console(server)
        samples: dict[str, list[Sample]] = {name: [] for name in chosen}
        with Load(options, server, min(3, options.seconds)) as warm:
            warm.result()
        for number in range(options.rounds):
            for name in chosen:
                sample = measured(options, server, console, name)
                samples[name].append(sample)
                note(f"round {number + 1}, {name}: {_said(sample)}")
        console.close()
    print(table(options, samples))
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default=",".join(NEIGHBOURS), help="comma list; nothing is what others are compared with"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one sample (default 8)")
    parser.add_argument("--rate", type=int, default=20_000, help="sends a second (default 20,000)")
    parser.add_argument("--gib", type=float, default=4.0, help="log that is there to be read (default 4)")
    parser.add_argument("--tries", type=int, default=3, help="for a sample beside foreign work (default 3)")
    parser.add_argument("--flush", choices=("async", "sync"), default="async")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where stores are written")
    return parser.parse_args(arguments)


@contextmanager
def filled_server(options: argparse.Namespace) -> Iterator[ConsoleServer]:
    """A broker and its console with a log of messages of 1 KiB; stopped and removed afterwards."""
    server = ConsoleServer(ROCKETBOX, options.flush, None, options.dir)
    filled_log.START_MS = _noon_of_yesterday()  # within the retention, on one day
    try:
        begun = time.monotonic()
        count = filled_log.write_store(server.data_dir / "store", int(options.gib * (1 << 30)), 1024)
        note(f"{count:,} messages in {time.monotonic() - begun:.0f} s")
        make_users(server.data_dir, (USER,), PASSWORD)
        server.ready_s = 600.0  # it looks at every record of a log that another program wrote
        server.start()
        server.wait_for_page()
        for topic in ("Load", filled_log.TOPICS[0]):
            server.create_topic(topic, 8)
        wait_until_settled(server)
        yield server
    finally:
        server.stop()


def _noon_of_yesterday() -> int:
    return (int(time.time()) // 86_400 * 86_400 - 43_200) * 1000


# ---------------------------------------------------------------- one sample


def measured(options: argparse.Namespace, server: ConsoleServer, console: Console, name: str) -> Sample:
    """Beside as little foreign work as there is in some tries."""
    found: list[Sample] = []
    while len(found) < options.tries:
        found.append(_once(options, server, console, name))
        if found[-1].foreign <= MOST_FOREIGN:
            break
        note(f"beside foreign work, {name}: {_said(found[-1])}")
    return min(found, key=lambda sample: sample.foreign)


def _once(options: argparse.Namespace, server: ConsoleServer, console: Console, name: str) -> Sample:
    os.sync()  # what the one before wrote is not this one's burden
    with NEIGHBOURS[name](console), Load(options, server, options.seconds) as load:
        broker = server.pids[:2]
        # Processes come and go, and what one of them used is lost with it: seen often, little is.
        begin, used = time.monotonic(), Used(broker)
        while load.running:
            time.sleep(0.1)
            used.look(server.pids)
        took = time.monotonic() - begin
        result = load.result()
        parts = used.parts(result["generator_cpu_s"])
    if result["errors"]:
        raise BrowserError(f"the generator counted errors: {result['first_error']}")
    latency = {quantile: value / 1000 for quantile, value in result["latency_us"].items()}
    return Sample(latency, *(seconds / took for seconds in parts))


class Used:
    """Processor time of the broker, of what it started, and of the machine, since this was made."""

    def __init__(self, broker: Sequence[int]) -> None:
        self._broker = tuple(broker)
        self._begin = cpu_seconds(self._broker), _machine_seconds(), cpu_seconds((os.getpid(),))
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def look(self, pids: Sequence[int]) -> None:
        for pid in set(pids) - set(self._broker):
            seconds = cpu_seconds((pid,))
            self._first.setdefault(pid, seconds)
            self._last[pid] = max(seconds, self._last.get(pid, 0.0))

    def parts(self, generator: float) -> tuple[float, float, float]:
        """Return processor seconds of (the broker, its neighbour, everything that is no part of the bench)."""
        broker, machine, own = self._begin
        used = cpu_seconds(self._broker) - broker
        neighbour = sum(last - self._first[pid] for pid, last in self._last.items())
        own = cpu_seconds((os.getpid(),)) - own
        return used, neighbour, max(0.0, _machine_seconds() - machine - used - neighbour - own - generator)


def _machine_seconds() -> float:
    """Return the processor time that this machine has used since its start."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


def _said(sample: Sample) -> str:
    latency = ", ".join(f"{name} {sample.latency_ms[name]:.3f} ms" for name in ("p50", "p99", "p99.9"))
    return (
        f"{latency}; processors: broker {sample.broker:.2f}, beside it {sample.neighbour:.2f}, "
        f"foreign {sample.foreign:.2f}"
    )


# ---------------------------------------------------------------- neighbours


@contextmanager
def nothing(console: Console) -> Iterator[None]:
    yield


@contextmanager
def reports(console: Console, engine: str) -> Iterator[None]:
    """A run of the day of the filled log; it counts by the time the first message is sent."""
    console.ask("PATCH", "/reports/settings", {"engine": engine})
    run = console.ask("POST", "/reports/runs", {"day": "yesterday"})["id"]
    _until(lambda: _counts(console.ask("GET", f"/reports/runs/{run}")), "the run counts")
    try:
        yield
        found = console.ask("GET", f"/reports/runs/{run}")
        if found["state"] != "running":
            note(f"the run was {found['state']} before the sample was over: take more --gib")
    finally:
        console.ask("POST", f"/reports/runs/{run}/cancel")
        _until(lambda: console.ask("GET", f"/reports/runs/{run}")["state"] not in ("waiting", "running"), "it ends")


def _counts(run: dict[str, Any]) -> bool:
    if run["state"] not in ("waiting", "running"):
        raise BrowserError(f"the run is {run['state']}: {run.get('error')}")
    return (run.get("progress") or {}).get("step") == "counting"


@contextmanager
def job(console: Console, path: str, values: dict[str, Any] | None) -> Iterator[None]:
    started = console.ask("POST", path, values)["id"]
    _until(lambda: console.ask("GET", f"/jobs/{started}")["state"] == "running", "the job runs")
    try:
        yield
        state = console.ask("GET", f"/jobs/{started}")["state"]
        if state != "running":
            note(f"the job was {state} before the sample was over: take more --gib")
    finally:
        if console.ask("GET", f"/jobs/{started}")["state"] == "running":
            console.ask("POST", f"/jobs/{started}/cancel")
        _until(lambda: console.ask("GET", f"/jobs/{started}")["state"] not in ("queued", "running"), "it ends")


def _until(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BrowserError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.1)


EXPORT = {"filter": "body contains 'nowhere-to-be-found'", "bodies": True}

NEIGHBOURS: dict[str, Callable[[Console], Any]] = {
    "nothing": nothing,
    "python": lambda console: reports(console, "python"),
    "spark": lambda console: reports(console, "spark"),
    "export": lambda console: job(console, f"/topics/{filled_log.TOPICS[0]}/exports", {"bodies": True}),
    "filter": lambda console: job(console, f"/topics/{filled_log.TOPICS[0]}/exports", EXPORT),
    "backup": lambda console: job(console, "/system/backups", None),
}


# ---------------------------------------------------------------- the table


def table(options: argparse.Namespace, samples: dict[str, list[Sample]]) -> str:
    """Medians; ratios to nothing in the same rounds."""
    lines = [
        f"{time.strftime('%Y-%m-%d')}; medians of {options.rounds} interleaved rounds of {options.seconds:g} s, "
        f"{options.rate:,} sends/s of 1 KiB, {options.flush} flush, ms.",
        "",
        f"| beside | p50 | p99 | p99.9 | p99: ratio (goal ≤ {GOAL}) | processors: broker | beside it | foreign |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    alone = samples.get("nothing", [])
    for name, found in samples.items():
        p50, p99, p999 = (median(one.latency_ms[key] for one in found) for key in ("p50", "p99", "p99.9"))
        pairs = zip(found, alone, strict=False)
        ratios = [one.latency_ms["p99"] / other.latency_ms["p99"] for one, other in pairs]
        ratio = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"
        used = (median(part) for part in zip(*(one[1:] for one in found), strict=True))
        shown = " | ".join(f"{value:.2f}" for value in used)
        lines.append(f"| {name} | {p50:.3f} | {p99:.2f} | {p999:.2f} | {ratio} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
