"""What is measured: each row is a load, the figures it yields and the goal they have.

A row runs on a `Server` with the tools of a `Bench` (generator, durations, pinning) and returns a `Sample`. Every
server gets the same arguments, bodies and headers; only the port differs.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.servers import Server, cpu_seconds, resident_bytes

BODY_BYTES = 1024
# Queues of a topic that is sent to, as Apache creates it by default.
SEND_QUEUES = 8
# 16 queues of 8,000 messages of 1 KiB: 160 MB, well inside the page cache, well outside the CPU's.
PULL_QUEUES, PULL_MESSAGES = 16, 128_000
PARKED_POLLS = 10_000

_topic_numbers = itertools.count(1)


class LoadError(RuntimeError):
    """The load generator could not run at all."""


@dataclass(frozen=True)
class Figure:
    """One line of the table. `scale` turns a sample's value into `unit`; `goal` is a ratio to the better Apache."""

    key: str
    title: str
    unit: str
    lower_is_better: bool = False
    goal: str = ""


@dataclass
class Sample:
    """One measurement: values by figure key, quantiles of latency in microseconds, errors, all the generator said."""

    values: dict[str, float]
    errors: int = 0
    latency_us: dict[str, float] | None = None
    cores: float | None = None
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """What a row may use."""

    loadgen: Path
    seconds: float
    warm_up: float
    generator_cpus: str | None
    parked_polls: int = PARKED_POLLS

    def load(self, server: Server, mode: str, **options: Any) -> dict[str, Any]:
        """Run the generator against a server; the JSON it printed, with `cores`: CPUs the server used meanwhile."""
        begin, cpu_before = time.monotonic(), cpu_seconds(server.pids)
        done = subprocess.run(
            self.command(server, mode, **options), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if not done.stdout.startswith("{"):
            raise LoadError(f"loadgen {mode} on {server.label}: {done.stderr.strip() or done.returncode}")
        result = json.loads(done.stdout)
        result["cores"] = (cpu_seconds(server.pids) - cpu_before) / (time.monotonic() - begin)
        return result

    def command(self, server: Server, mode: str, **options: Any) -> list[str]:
        """The generator's command line; option names with "_" for "-", True for a bare flag."""
        command = ["taskset", "-c", self.generator_cpus] if self.generator_cpus is not None else []
        command += [str(self.loadgen), mode, "--broker", server.broker]
        given = {"body": BODY_BYTES, "seconds": self.seconds, "warm_up": self.warm_up, **options}
        for name, value in given.items():
            command.append(f"--{name.replace('_', '-')}")
            if value is not True:
                command.append(str(value))
        return command


@dataclass(frozen=True)
class Row:
    """A measurement. `fresh`: start anew for each sample; else `warm` runs once, then `measure` per round."""

    key: str
    flush: str
    figures: tuple[Figure, ...]
    measure: Callable[[Bench, Server], Sample]
    warm: Callable[[Bench, Server], None] = lambda bench, server: None
    fresh: bool = False
    starts_itself: bool = False  # `measure` starts the server


def fresh_topic(server: Server, queues: int) -> str:
    """A topic nobody has written to."""
    topic = f"Bench{next(_topic_numbers)}"
    server.create_topic(topic, queues)
    return topic


# ---------------------------------------------------------------- sends


def _warm_sends(bench: Bench, server: Server) -> None:
    """What a JVM needs to compile its send path; the same for all."""
    topic = fresh_topic(server, SEND_QUEUES)
    bench.load(server, "send", topic=topic, queues=SEND_QUEUES, connections=64, seconds=max(bench.seconds, 3))


def _send_row(key: str, title: str, flush: str, goal: str, mode: str = "send", **options: Any) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        topic = fresh_topic(server, SEND_QUEUES)
        # Batches fill the disk ten times as fast as single sends.
        seconds = min(bench.seconds, 3) if mode == "batch" else bench.seconds
        result = bench.load(server, mode, topic=topic, queues=SEND_QUEUES, seconds=seconds, **options)
        return Sample({key: result["rate"]}, result["errors"], result["latency_us"], result["cores"], result)

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server)
        if mode == "batch":
            measure(bench, server)

    return Row(key, flush, (Figure(key, title, "msg/s", goal=goal),), measure, warm)


# ---------------------------------------------------------------- pulls


_FILLED = "BenchFilled"


def _pull_row(key: str, title: str, connections: int, goal: str) -> Row:
    def pull(bench: Bench, server: Server, **options: Any) -> dict[str, Any]:
        return bench.load(
            server,
            "pull",
            topic=_FILLED,
            group="BenchPullGroup",
            queues=PULL_QUEUES,
            connections=connections,
            **options,
        )

    def warm(bench: Bench, server: Server) -> None:
        server.create_topic(_FILLED, PULL_QUEUES)
        # Gently: a cold JVM refuses what waits 200 ms in its queue. A refused batch only leaves the queues shorter.
        filled = bench.load(server, "batch", topic=_FILLED, queues=PULL_QUEUES, messages=PULL_MESSAGES)
        if filled["all_messages"] < PULL_MESSAGES * 0.9:
            raise LoadError(f"{server.label} could not be filled: {filled['first_error']}")
        checked = pull(bench, server, seconds=max(bench.seconds, 3), verify=True)
        if checked["errors"]:
            raise LoadError(f"{server.label} returned other messages than were sent: {checked['first_error']}")

    def measure(bench: Bench, server: Server) -> Sample:
        result = pull(bench, server)
        return Sample({key: result["rate"]}, result["errors"], result["latency_us"], result["cores"], result)

    return Row(key, "async", (Figure(key, title, "msg/s", goal=goal),), measure, warm)


# ---------------------------------------------------------------- long polls


def _latency_row(key: str, title: str, flush: str, goal: str) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        topic = fresh_topic(server, 1)
        result = bench.load(server, "latency", topic=topic, queues=1, group=f"Group{topic}", heartbeat=True, rate=400)
        return Sample(
            {key: result["latency_us"]["p50"] / 1000}, result["errors"], result["latency_us"], result["cores"], result
        )

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server)
        measure(bench, server)

    figure = Figure(key, title, "ms", lower_is_better=True, goal=goal)
    return Row(key, flush, (figure,), measure, warm)


def _measure_park(bench: Bench, server: Server) -> Sample:
    topic = fresh_topic(server, 1)
    time.sleep(2)
    before = resident_bytes(server.pids)
    command = bench.command(
        server, "park", topic=topic, queues=1, group=f"Group{topic}", connections=bench.parked_polls,
        suspend_ms=110_000, warm_up=3,
    )  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as generator:
        assert generator.stdin is not None
        assert generator.stdout is not None
        event = generator.stdout.readline()
        if '"parked"' not in event:
            raise LoadError(f"loadgen park on {server.label}: {event.strip() or 'no answer'}")
        added = resident_bytes(server.pids) - before
        idle = _idle_share(server, max(bench.seconds, 3))
        added = max(added, resident_bytes(server.pids) - before)
        generator.stdin.write("wake\n")
        generator.stdin.close()
        result = json.loads(generator.stdout.readline())
    values = {"park-rss": added / 1e6, "park-cpu": idle * 100, "park-wake": result["wake_all_ms"]}
    return Sample(values, result["errors"], result["latency_us"], None, result)


# ---------------------------------------------------------------- at rest


def _idle_share(server: Server, seconds: float) -> float:
    """CPUs used over the next `seconds`."""
    begin, before = time.monotonic(), cpu_seconds(server.pids)
    time.sleep(seconds)
    return (cpu_seconds(server.pids) - before) / (time.monotonic() - begin)


def _measure_idle(bench: Bench, server: Server) -> Sample:
    time.sleep(5)  # a JVM's start-up work is over by then
    share = _idle_share(server, max(bench.seconds, 10))
    resident = resident_bytes(server.pids)
    return Sample({"idle-rss": resident / 1e6, "idle-cpu": share * 100}, raw={"resident_bytes": resident})


def _measure_start(bench: Bench, server: Server) -> Sample:
    return Sample({"start": server.time_to_first_ack()})


# ---------------------------------------------------------------- the table

_IDLE = (
    Figure("idle-rss", "idle RSS, empty store, broker + name server", "MB", True, "≤ 45 MB"),
    Figure("idle-cpu", "idle CPU", "% of a core", True),
)
_START = (Figure("start", "process start to first ack", "s", True, "≤ 0.4 s"),)
_PARK = (
    Figure("park-rss", "10k parked polls: RSS added", "MB", True, "≤ 10 MB"),
    Figure("park-cpu", "10k parked polls: idle CPU", "% of a core", True, "≤ 0.2 %"),
    Figure("park-wake", "10k parked polls: wake all", "ms", True),
)

ROWS: tuple[Row, ...] = (
    _send_row("send-1-async", "sync send, 1 connection, async flush", "async", "", connections=1),
    _send_row("send-16-async", "sync send, 16 connections, async flush", "async", "", connections=16),
    _send_row("send-64-async", "sync send, 64 connections, async flush", "async", "≥ 1.3, p99 ≤ 1/3", connections=64),
    _send_row("send-1-sync", "sync send, 1 connection, sync flush", "sync", "", connections=1),
    _send_row("send-16-sync", "sync send, 16 connections, sync flush", "sync", "", connections=16),
    _send_row("send-64-sync", "sync send, 64 connections, sync flush", "sync", "≥ 1.4", connections=64),
    _send_row("pipelined", "pipelined, 4 connections x 64, async flush", "async", "≥ 1.1", connections=4, inflight=64),
    _send_row(
        "batch", "batches of 32, 8 connections x 4, async flush", "async", "≥ 1.3", "batch", connections=8, inflight=4
    ),
    _pull_row("pull-1", "pull 32 x 1 KiB, 1 connection, warm", 1, ""),
    _pull_row("pull-16", "pull 32 x 1 KiB, 16 connections, warm", 16, "≥ 2"),
    _latency_row("latency-async", "send to long-polling consumer, p50, async flush", "async", "≤ 1/3"),
    _latency_row("latency-sync", "send to long-polling consumer, p50, sync flush", "sync", ""),
    Row("idle", "async", _IDLE, _measure_idle, fresh=True),
    Row("start", "async", _START, _measure_start, fresh=True, starts_itself=True),
    Row("park", "async", _PARK, _measure_park, fresh=True),
)


def descriptor_limit() -> int:
    """Descriptors one process may open here; the parked row needs one a poll."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard if hard != resource.RLIM_INFINITY else os.sysconf("SC_OPEN_MAX")
