"""How much a run of the reports disturbs producers: send latency of a steady load while none goes on, while one by
plain Python does, and while one by Spark does, in turns.

    .venv/bin/python -m bench.reports --rounds 3 --fill 60
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.build import build
from tests.support.report_box import Box

QUEUES, CONNECTIONS = 8, 16
KINDS = ("none", "python", "spark")


class Load:
    """The generator at a fixed rate, until its time is over; `result()` waits for that."""

    def __init__(self, box: Box, rate: int, seconds: float) -> None:
        command = [
            str(build("loadgen")), "paced", "--broker", box.server.broker, "--topic", "Load", "--queues", str(QUEUES),
            "--connections", str(CONNECTIONS), "--rate", str(rate), "--body", "1024", "--warm-up", "1",
            "--seconds", str(seconds),
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, float]:
        found = json.loads(self._process.communicate()[0])
        return {**{name: found["latency_us"][name] for name in ("p50", "p99", "max")}, "rate": found["rate"]}


def measure(box: Box, kind: str, rate: int, seconds: float) -> tuple[dict[str, float], str]:
    """(what the generator found, how the run went). The load ends with the run, or before it."""
    if kind == "none":
        return Load(box, rate, seconds).result(), ""
    box.settings(engine=kind, driver_mib=1024, memory_mib=3072)
    run = box.start_run()
    box.session(run)
    found = Load(box, rate, seconds).result()
    still = box.run(run)["state"]
    ended = box.ended(run)
    steps = ", ".join(f"{one['step']} {one['ms'] / 1000:.1f} s" for one in ended["steps"])
    return found, f"{ended['state']} {ended['error']} {ended['rows']} rows, {steps}; when the load ended: {still}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.reports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=20_000, help="sends a second (default 20,000)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each load (default 12)")
    parser.add_argument("--fill", type=float, default=30.0, help="seconds of load before the first round (default 30)")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the store is written")
    options = parser.parse_args(argv)
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kinds.split(",")}
    with tempfile.TemporaryDirectory(dir=options.dir, ignore_cleanup_errors=True) as directory:
        box = Box(Path(directory), "--flush", "async", log_file_mib=256)
        try:
            box.ask("POST", "/topics", {"name": "Load", "read_queues": QUEUES, "write_queues": QUEUES})
            time.sleep(1)
            Load(box, options.rate, options.fill).result()
            for number in range(options.rounds):
                for kind in found:
                    sent, text = measure(box, kind, options.rate, options.seconds)
                    found[kind].append(sent)
                    print(f"round {number} {kind}: {sent} {text}", flush=True)
        finally:
            box.server.kill()
    for kind, rows in found.items():
        for name in ("p50", "p99"):
            values = [row[name] for row in rows]
            shown = " ".join(f"{value:.0f}" for value in values)
            print(f"{kind} {name}: {shown} us, median {median(values):.0f}")


if __name__ == "__main__":
    main()
