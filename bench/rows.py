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

from bench.others import NATS, REDIS, RIG
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
    cpu_ms: float | None = None  # of all the server's processes, per 1,000 messages
    generator_cores: float | None = None


@dataclass(frozen=True)
class Bench:
    """What a row may use."""

    loadgen: Path
    seconds: float
    warm_up: float
    generator_cpus: str | None
    parked_polls: int = PARKED_POLLS

    def load(self, server: Server, mode: str, **options: Any) -> dict[str, Any]:
        """Run the generator against a server; the JSON it printed, and `cores`: CPUs the server used while measured."""
        pids = ",".join(map(str, server.pids))
        command = self.command(server, mode, watch=pids, **options)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if not done.stdout.startswith("{"):
            raise LoadError(f"loadgen {mode} on {server.label}: {done.stderr.strip() or done.returncode}")
        result = json.loads(done.stdout)
        result["cores"] = result["watched_cpu_s"] / max(result["seconds"], 0.001)
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
    others: tuple[str, ...] = ()  # of what is no RocketMQ broker: what this row can be measured on
    cpu_goal: str = ""  # for the CPU per message, as a ratio to the better Apache

    def takes(self, label: str) -> bool:
        return label in self.others or label not in (NATS, REDIS, RIG)


def _sample(key: str, value: float, result: dict[str, Any]) -> Sample:
    """A run of the generator whose figure is `value`."""
    messages = result["messages"]
    return Sample(
        {key: value}, result["errors"], result["latency_us"], result["cores"], result,
        cpu_ms=result["watched_cpu_s"] * 1e6 / messages if messages else None,
        generator_cores=result["generator_cpu_s"] / result["seconds"],
    )  # fmt: skip


def _rate(key: str, result: dict[str, Any]) -> Sample:
    return _sample(key, result["rate"], result)


def fresh_topic(server: Server, queues: int) -> str:
    """A topic nobody has written to."""
    topic = f"Bench{next(_topic_numbers)}"
    server.create_topic(topic, queues)
    return topic


# ---------------------------------------------------------------- sends


def _warm_sends(bench: Bench, server: Server) -> None:
    """What a JVM needs to compile its send path; the same for all brokers. What was compiled long ago needs less."""
    topic = fresh_topic(server, SEND_QUEUES)
    seconds = max(bench.seconds, 3) if server.compiles_under_load else 0.5
    bench.load(server, server.send_mode, topic=topic, queues=SEND_QUEUES, connections=64, seconds=seconds)


def _send_row(key: str, title: str, flush: str, goal: str, **options: Any) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        topic = fresh_topic(server, SEND_QUEUES)
        return _rate(key, bench.load(server, server.send_mode, topic=topic, queues=SEND_QUEUES, **options))

    return Row(key, flush, (Figure(key, title, "msg/s", goal=goal),), measure, _warm_sends, others=(NATS, REDIS, RIG))


def _batch_row(key: str, title: str, goal: str, **options: Any) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        topic = fresh_topic(server, SEND_QUEUES)
        # Batches fill the disk ten times as fast as single sends.
        seconds = min(bench.seconds, 3)
        return _rate(key, bench.load(server, "batch", topic=topic, queues=SEND_QUEUES, seconds=seconds, **options))

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server)
        measure(bench, server)

    return Row(key, "async", (Figure(key, title, "msg/s", goal=goal),), measure, warm, others=(RIG,))


# ---------------------------------------------------------------- pulls


_FILLED = "BenchFilled"


def _pull_row(key: str, title: str, goal: str, cpu_goal: str = "", **load: int) -> Row:
    def pull(bench: Bench, server: Server, **options: Any) -> dict[str, Any]:
        return bench.load(
            server,
            "pull",
            topic=_FILLED,
            group="BenchPullGroup",
            queues=PULL_QUEUES,
            **load,
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
        # The generator looks at every record while it warms up and then has the kernel drop the bodies: it would be the
        # limit, and not the broker.
        result = pull(bench, server, discard=True)
        if not result["discarded"]:
            raise LoadError(f"no answer of {server.label} came whose body could be dropped")
        return _rate(key, result)

    figures = (Figure(key, title, "msg/s", goal=goal),)
    return Row(key, "async", figures, measure, warm, others=(RIG,), cpu_goal=cpu_goal)


# ---------------------------------------------------------------- long polls


def _latency_row(key: str, title: str, flush: str, goal: str) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        topic = fresh_topic(server, 1)
        result = bench.load(server, "latency", topic=topic, queues=1, group=f"Group{topic}", heartbeat=True, rate=400)
        return _sample(key, result["latency_us"]["p50"] / 1000, result)

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server)
        measure(bench, server)

    figure = Figure(key, title, "ms", lower_is_better=True, goal=goal)
    return Row(key, flush, (figure,), measure, warm, others=(RIG,))


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
    _send_row("send-1-async", "sync send, 1 connection, async flush", "async", "≥ 1.5", connections=1),
    _send_row("send-16-async", "sync send, 16 connections, async flush", "async", "", connections=16),
    _send_row("send-64-async", "sync send, 64 connections, async flush", "async", "≥ 1.8, p99 ≤ 1/3", connections=64),
    _send_row("send-1-sync", "sync send, 1 connection, sync flush", "sync", "", connections=1),
    _send_row("send-16-sync", "sync send, 16 connections, sync flush", "sync", "", connections=16),
    _send_row("send-64-sync", "sync send, 64 connections, sync flush", "sync", "", connections=64),
    _send_row("pipelined", "pipelined, 4 connections x 64, async flush", "async", "≥ 3.5", connections=4, inflight=64),
    _batch_row("batch", "batches of 32, 8 connections x 4, async flush", "≥ 2.2", connections=8, inflight=4),
    _pull_row("pull-1", "pull 32 x 1 KiB, 1 connection, warm", "", connections=1),
    _pull_row("pull-16", "pull 32 x 1 KiB, 16 connections, warm", "≥ 2", "≤ 1/2", connections=16),
    _pull_row("pull-16x4", "pull 32 x 1 KiB, 16 connections x 4, warm", "≥ 2", "≤ 1/2", connections=16, inflight=4),
    _latency_row("latency-async", "send to long-polling consumer, p50, async flush", "async", "≤ 1/12"),
    _latency_row("latency-sync", "send to long-polling consumer, p50, sync flush", "sync", ""),
    Row("idle", "async", _IDLE, _measure_idle, fresh=True),
    Row("start", "async", _START, _measure_start, fresh=True, starts_itself=True),
    Row("park", "async", _PARK, _measure_park, fresh=True),
)


# What `--rows goals` stands for: the rows that have a goal, and those they are held against.
GOALS = (
    "send-1-async", "send-64-async", "send-1-sync", "send-64-sync", "pipelined", "batch", "pull-16", "pull-16x4",
    "latency-async", "latency-sync",
)  # fmt: skip


def descriptor_limit() -> int:
    """Descriptors one process may open here; the parked row needs one a poll."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard if hard != resource.RLIM_INFINITY else os.sysconf("SC_OPEN_MAX")
