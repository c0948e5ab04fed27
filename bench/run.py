#!/usr/bin/env python3
"""Measures RocketBox beside Apache RocketMQ 4.9.7 and 5.3.3 with one generator, and prints markdown.

    bench/run.py                                     everything: about an hour and a half on two cores
    bench/run.py --rows goals --seconds 4            the rows that have a goal: half an hour
    bench/run.py --rows send-64-async,pull-16        some rows (--list names them)
    bench/run.py --servers rocketbox,pure,rig --seconds 1 --rounds 1 --no-calibration       a quick look

Rounds are interleaved: each server is measured once a round, in turn, while the others are frozen. What was dropped:
a warm-up load per server and row. See bench/README.md for how to read the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import table
from bench.build import build
from bench.calibration import calibrate, describe_calibration
from bench.columns import COLUMNS, TITLES
from bench.others import version, why_absent
from bench.rounds import Starter, note, run_row
from bench.rows import GOALS, OPEN_HALVES, PARKED_POLLS, PENDING_TIMERS, ROWS, Bench, Row, Sample, descriptor_limit
from bench.servers import APACHES, PURE, ROCKETBOX

PINNINGS = ("split", "none", "shared")

# A row of batches writes up to this much for each server before its store is removed.
_WANTED_FREE_BYTES = 40 << 30


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    if options.list:
        print("\n".join(f"{row.key:15} {'; '.join(figure.title for figure in row.figures)}" for row in ROWS))
        return 0
    rows = chosen_rows(options.rows)
    labels = chosen_labels(options.servers)
    reasons = {label: why for label in labels if (why := why_absent(label))}
    for label, why in reasons.items():
        note(f"{TITLES[label]} is left out: {why}")
    absent = list(reasons)
    present = [label for label in labels if label not in absent]
    # The generator and the servers inherit it: 10,000 parked polls need 10,000 descriptors on each side.
    hard = descriptor_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # RocketBox keeps 3,072 of them back for its store.
    if any(row.key == "park" for row in rows) and hard < options.parked_polls + 3200:
        sys.exit(f"the limit of {hard} descriptors is too low for {options.parked_polls} parked polls: raise ulimit -n")
    server_cpus, generator_cpus = pinning(options.pin)
    scratch_root = Path(options.dir or tempfile.gettempdir())
    free = shutil.disk_usage(scratch_root).free
    if free < _WANTED_FREE_BYTES:
        note(f"only {free >> 30} GiB free in {scratch_root}: long rounds may fill it")
    bench = Bench(
        build("loadgen"),
        options.seconds,
        options.warm_up,
        generator_cpus,
        options.parked_polls,
        options.open_halves,
        options.pending_timers,
    )

    began = time.time()
    calibration = None if options.no_calibration else calibrate(bench, server_cpus, scratch_root)
    results: dict[str, dict[str, list[Sample]]] = {}
    starter = Starter(server_cpus, scratch_root)
    try:
        for row in rows:
            note(f"row {row.key}")
            results[row.key] = run_row(row, present, bench, options.rounds, starter)
            if options.json:
                save(Path(options.json), options, calibration, results)
    except KeyboardInterrupt:
        note("interrupted: what was measured so far")
    print(describe(options, began, present))
    if calibration:
        print(describe_calibration(calibration))
    for make_table in (table.figures_table, table.latency_table, table.cpu_table):
        print("\n" + make_table(results, rows, labels, absent))
    ours = [samples.get(label, ()) for samples in results.values() for label in (ROCKETBOX, PURE)]
    failed = sum(sample.errors for samples in ours for sample in samples)
    return 1 if failed else 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="comma list of row names or prefixes, or goals; default all")
    parser.add_argument("--rounds", type=int, help="measured rounds per row (default 3; 5 with sync flush)")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured seconds per round (default 8)")
    parser.add_argument(
        "--warm-up", type=float, default=1.0, help="seconds at the head of each round that do not count"
    )
    parser.add_argument("--servers", "--only", help=f"comma list of apache, {', '.join(COLUMNS)}; default all")
    parser.add_argument(
        "--pin", choices=PINNINGS, default="split",
        help="split: broker on one core, generator on another; none: the scheduler's choice; shared: all on one core",
    )  # fmt: skip
    parser.add_argument("--parked-polls", type=int, default=PARKED_POLLS)
    parser.add_argument("--open-halves", type=int, default=OPEN_HALVES)
    parser.add_argument("--pending-timers", type=int, default=PENDING_TIMERS)
    parser.add_argument("--dir", help="where stores are written (default: the temporary directory)")
    parser.add_argument("--json", metavar="FILE", help="write every sample there")
    parser.add_argument("--no-calibration", action="store_true")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    options = parser.parse_args(arguments)
    if (options.rounds is not None and options.rounds < 1) or options.seconds <= 0:
        parser.error("rounds and seconds must be positive")
    return options


def chosen_rows(text: str | None) -> list[Row]:
    if not text:
        return list(ROWS)
    wanted = [key for name in text.split(",") for key in (GOALS if name == "goals" else (name,))]
    keys = {row.key for row in ROWS}
    chosen = {name: {name} if name in keys else {key for key in keys if key.startswith(name)} for name in wanted}
    unknown = [name for name, found in chosen.items() if not found]
    if unknown:
        sys.exit(f"no such row: {', '.join(unknown)} (--list names them)")
    return [row for row in ROWS if any(row.key in found for found in chosen.values())]


def chosen_labels(text: str | None) -> list[str]:
    if not text:
        return list(COLUMNS)
    wanted = {label for name in text.split(",") for label in (APACHES if name == "apache" else (name,))}
    if not wanted <= set(COLUMNS):
        sys.exit(f"no such server: {', '.join(sorted(wanted - set(COLUMNS)))}")
    return [label for label in COLUMNS if label in wanted]


def pinning(kind: str) -> tuple[str | None, str | None]:
    """taskset lists of (server, generator)."""
    cpus = sorted(os.sched_getaffinity(0))
    if kind == "none" or len(cpus) < 2:
        return None, None
    return str(cpus[0]), str(cpus[1] if kind == "split" else cpus[0])


def describe(options: argparse.Namespace, began: float, labels: Sequence[str]) -> str:
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    how = {
        "split": "Broker (with its name server) on one core, generator on another",
        "none": "Not pinned: broker and generator share all cores",
        "shared": "Broker and generator on the same core",
    }[options.pin]
    versions = "".join(f" {TITLES[label]} {said}." for label in labels if (said := version(label)))
    rounds = f"{options.rounds} rounds" if options.rounds else "3 rounds, of sync flush 5,"
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime(began))}, {os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}, "
        f"CPython {platform.python_version()}. {how}. {rounds} of {options.seconds:g} s, interleaved, "
        f"medians; ± is half the distance of the extremes. Body 1 KiB. Apache with 512 MB of heap per process, warmed "
        f"up until two seconds agree. {describe_memory()}"
        f"{versions}"
    )


def describe_memory(sys_root: Path = Path("/sys")) -> str:
    """Return a sentence on the ways in which this machine loses memory: fresh pages cost a row up to half its rate."""
    reporting = (sys_root / "module/page_reporting/parameters/page_reporting_order").exists()
    kdamonds = [_lines(str(path)) for path in (sys_root / "kernel/mm/damon/admin/kdamonds").glob("*/state")]
    damon = ["on"] in kdamonds or any(
        _lines(str(sys_root / "module" / name / "parameters/enabled")) == ["Y"]
        for name in ("damon_reclaim", "damon_lru_sort")
    )
    huge = "".join(_lines(str(sys_root / "kernel/mm/transparent_hugepage/enabled")))
    chosen = huge.partition("[")[2].partition("]")[0] or "unknown"
    return (
        f"Memory: free page reporting to the host {'possible' if reporting else 'absent'}, "
        f"DAMON reclaim {'on' if damon else 'off'}, transparent huge pages {chosen}."
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def save(
    path: Path, options: argparse.Namespace, calibration: object, results: dict[str, dict[str, list[Sample]]]
) -> None:
    content = {
        "options": vars(options),
        "calibration": calibration,
        "rows": {
            key: {label: [asdict(sample) for sample in samples] for label, samples in by_label.items()}
            for key, by_label in results.items()
        },
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
