"""What the machine gives without a broker, measured in the same run as the brokers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.build import build
from bench.rows import Bench

# (name, connections, requests in flight on each)
LOADS = (("1", 1, 1), ("16", 16, 1), ("64", 64, 1), ("4x64", 4, 64))


def calibrate(bench: Bench, server_cpus: str | None, scratch_root: Path) -> dict[str, dict[str, Any]]:
    """The disk's rate of writes of 1 KiB, with and without a sync each, and a C server's rate at the send loads."""
    program = str(build("calibrate"))
    pin = ["taskset", "-c", server_cpus] if server_cpus is not None else []
    found = {}
    for what in ("sync", "write"):
        found[what] = _run([*pin, program, what, "--dir", str(scratch_root), "--seconds", str(min(bench.seconds, 3))])
    with subprocess.Popen([*pin, program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        for name, connections, inflight in LOADS:
            command = ["taskset", "-c", bench.generator_cpus] if bench.generator_cpus is not None else []
            command += [str(bench.loadgen), "send", "--broker", f"127.0.0.1:{port}", "--connections", str(connections)]
            command += ["--inflight", str(inflight), "--seconds", str(min(bench.seconds, 2)), "--warm-up", "0.3"]
            found[f"serve-{name}"] = _run(command)
        server.stdin.close()  # it ends with its standard input
    return found


def describe_calibration(found: dict[str, dict[str, Any]]) -> str:
    """One sentence for above the table."""
    sync = found["sync"]
    rates = ", ".join(f"{name}: {found[f'serve-{name}']['rate']:,.0f}/s" for name, _, _ in LOADS)
    return (
        f"The rig: pwrite 1 KiB + fdatasync {sync['rate']:,.0f}/s "
        f"(p50 {sync['p50']:.0f} us, p99 {sync['p99']:.0f} us), "
        f"pwrite alone {found['write']['rate']:,.0f}/s; a C server that parses and replies, by connections "
        f"(x in flight): {rates}."
    )


def _run(command: list[str]) -> dict[str, Any]:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
