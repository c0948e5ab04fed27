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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.backlogs import INTERVAL_S, SETTLE_S, TIME_OUT_S, cpu_share, measure_timers, settle, until_all
from bench.delayed_load import LEVEL, Wait, fill, measure_lateness
from bench.others import NATS, REDIS, RIG
from bench.servers import APACHES, Server, cpu_seconds, resident_bytes
from bench.sql92_load import Scan
from tests.support.apache import ask

BODY_BYTES = 1024
# Queues of a topic that is sent to, as Apache creates it by default.
SEND_QUEUES = 8
# 16 queues of 8,000 messages of 1 KiB: 160 MB, well inside the page cache, well outside the CPU's.
PULL_QUEUES, PULL_MESSAGES = 16, 128_000
PARKED_POLLS = 10_000
OPEN_HALVES, PENDING_TIMERS = 100_000, 1_000_000
# Rounds of a row by its flush. A disk that stalls moves a row of sync flush by up to half.
ROUNDS = {"async": 3, "sync": 5}
# Least and most seconds that a server which compiles under load is warmed up, and how far its last two may differ.
WARM_SECONDS, WARM_SECONDS_MOST, STEADY = 15, 60, 0.05

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
    open_halves: int = OPEN_HALVES
    pending_timers: int = PENDING_TIMERS

    def load(self, server: Server, mode: str, **options: Any) -> dict[str, Any]:
        """Run the generator against a server; the JSON it printed, and `cores`: CPUs the server used while measured."""
        pids = ",".join(map(str, server.pids))
        command = self.command(server, mode, watch=pids, **options)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return self._result(server, mode, done.stdout, done.stderr.strip() or str(done.returncode))

    def load_by_two(self, server: Server, mode: str, queues: int, connections: int, **options: Any) -> dict[str, Any]:
        """As `load`, by two generators at a time, with half of the connections each and queues of their own. Quantiles
        are those of the slower one: they cannot be added."""
        options |= {"watch": ",".join(map(str, server.pids)), "connections": connections // 2, "queues": queues}
        commands = [self.command(server, mode, first_queue=first, **options) for first in (0, queues)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        both = [subprocess.Popen(command, **pipes) for command in commands]
        said = [one.communicate() for one in both]
        first, second = (self._result(server, mode, out, error) for out, error in said)
        added = ("rate", "messages", "all_messages", "requests", "errors", "generator_cpu_s")
        sums = {name: first[name] + second[name] for name in added}
        slower = max(first, second, key=lambda one: one["latency_us"]["p99"])
        return slower | sums | {"first_error": first["first_error"] or second["first_error"]}

    def _result(self, server: Server, mode: str, out: str, error: str) -> dict[str, Any]:
        if not out.startswith("{"):
            raise LoadError(f"loadgen {mode} on {server.label}: {error.strip()}")
        result: dict[str, Any] = json.loads(out)
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
    lacking: tuple[str, ...] = ()  # brokers that do not have what is measured
    rounds: int = 3  # unless the command says another number

    def takes(self, label: str) -> bool:
        return label not in self.lacking and (label in self.others or label not in (NATS, REDIS, RIG))


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


def fresh_topic_name() -> str:
    return f"Bench{next(_topic_numbers)}"


def fresh_topic(server: Server, queues: int) -> str:
    """A topic that was never written to."""
    topic = fresh_topic_name()
    server.create_topic(topic, queues)
    return topic


# ---------------------------------------------------------------- sends


def is_steady(rates: Sequence[float]) -> bool:
    """True if a server that compiles under load was warmed for long enough: its last two seconds agree."""
    return len(rates) >= WARM_SECONDS and abs(rates[-1] - rates[-2]) <= STEADY * max(rates[-2:])


def warm_until_steady(server: Server, one_second: Callable[[], float]) -> None:
    """Load a server that compiles under load second by second, each of which returns its rate, until two agree."""
    if not server.compiles_under_load:
        return
    rates: list[float] = []
    while not is_steady(rates) and len(rates) < WARM_SECONDS_MOST:
        rates.append(one_second())


def _warm_sends(bench: Bench, server: Server, **options: Any) -> None:
    """Load a server before its sends are measured: a JVM compiles its path meanwhile; half a second for others.
    options: the load of the row; by default 64 connections."""
    topic = fresh_topic(server, SEND_QUEUES)
    load = {"connections": 64, **options}

    def send(seconds: float) -> float:
        found = bench.load(
            server, server.send_mode, topic=topic, queues=SEND_QUEUES, seconds=seconds, warm_up=0, **load
        )
        return float(found["rate"])

    send(0.5)
    warm_until_steady(server, lambda: send(1.0))


def _sends(bench: Bench, server: Server, mode: str, **options: Any) -> dict[str, Any]:
    """Send to a fresh topic. One generator would be the limit of the C server where it has several connections."""
    by_two = server.label == RIG and options["connections"] > 1
    load = bench.load_by_two if by_two else bench.load
    return load(server, mode, topic=fresh_topic(server, SEND_QUEUES), queues=SEND_QUEUES, **options)


def _send_row(key: str, title: str, flush: str, goal: str, **options: Any) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        return _rate(key, _sends(bench, server, server.send_mode, **options))

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server, **options)

    figures = (Figure(key, title, "msg/s", goal=goal),)
    return Row(key, flush, figures, measure, warm, others=(NATS, REDIS, RIG), rounds=ROUNDS[flush])


def _batch_row(key: str, title: str, goal: str, **options: Any) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        # Batches fill the disk ten times as fast as single sends.
        return _rate(key, _sends(bench, server, "batch", seconds=min(bench.seconds, 3), **options))

    def warm(bench: Bench, server: Server) -> None:
        _warm_sends(bench, server)
        topic = fresh_topic(server, SEND_QUEUES)
        load = {"topic": topic, "queues": SEND_QUEUES, "seconds": 1.0, "warm_up": 0, **options}
        warm_until_steady(server, lambda: float(bench.load(server, "batch", **load)["rate"]))
        measure(bench, server)

    return Row(key, "async", (Figure(key, title, "msg/s", goal=goal),), measure, warm, others=(RIG,))


# ---------------------------------------------------------------- pulls


_FILLED = "BenchFilled"


def _fill(bench: Bench, server: Server) -> None:
    server.create_topic(_FILLED, PULL_QUEUES)
    # Gently: a cold JVM refuses what waits 200 ms in its queue. A refused batch only leaves the queues shorter.
    filled = bench.load(server, "batch", topic=_FILLED, queues=PULL_QUEUES, messages=PULL_MESSAGES)
    if filled["all_messages"] < PULL_MESSAGES * 0.9:
        raise LoadError(f"{server.label} could not be filled: {filled['first_error']}")


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
        _fill(bench, server)
        checked = pull(bench, server, seconds=max(bench.seconds, 3), verify=True)
        if checked["errors"]:
            raise LoadError(f"{server.label} returned other messages than were sent: {checked['first_error']}")
        warm_until_steady(server, lambda: float(pull(bench, server, seconds=1.0, warm_up=0)["rate"]))

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
    return Row(key, flush, (figure,), measure, warm, others=(RIG,), rounds=ROUNDS[flush])


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


# ---------------------------------------------------------------- delays

#: Delayed messages a second.
DELAYED_RATE = 5_000


def _measure_delay(bench: Bench, server: Server) -> Sample:
    late, errors = measure_lateness(
        server, fresh_topic(server, 1), Wait(LEVEL), DELAYED_RATE, bench.seconds, bench.warm_up, BODY_BYTES
    )
    return Sample({f"delay-{name}": late[name] for name in ("p50", "p99")}, errors, raw=late)


def _warm_delays(bench: Bench, server: Server) -> None:
    _warm_sends(bench, server)
    measure_lateness(server, fresh_topic(server, 1), Wait(LEVEL), DELAYED_RATE, 0.5, 1.0, BODY_BYTES)


# ---------------------------------------------------------------- timers

#: Not one that Apache's precision of a second divides evenly: its messages come up to that early.
TIMER_MS = 2_000


def _timer(server: Server) -> Wait:
    return Wait(timer_ms=TIMER_MS, early_ms=1000 if server.label in APACHES else 0)


def _measure_timer(bench: Bench, server: Server) -> Sample:
    late, errors = measure_lateness(
        server, fresh_topic(server, 1), _timer(server), DELAYED_RATE, bench.seconds, bench.warm_up, BODY_BYTES
    )
    return Sample({f"timer-{name}": late[name] for name in ("p50", "p99")}, errors, raw=late)


def _warm_timers(bench: Bench, server: Server) -> None:
    _warm_sends(bench, server)
    measure_lateness(server, fresh_topic(server, 1), _timer(server), DELAYED_RATE, 0.5, 1.0, BODY_BYTES)


def _measure_pending_timers(bench: Bench, server: Server) -> Sample:
    found = measure_timers(server, fresh_topic_name(), bench.pending_timers, lambda: _warm_sends(bench, server))
    return Sample({"timer-pending-rss": found["rss"], "timer-pending-start": found["start"]}, raw=found)


# ---------------------------------------------------------------- transactions


def _measure_transactions(bench: Bench, server: Server) -> Sample:
    """A half message is acknowledged, its commit follows, then comes the next: what is lost of it is an error."""
    topic = fresh_topic(server, SEND_QUEUES)
    result = bench.load(server, "transaction", topic=topic, queues=SEND_QUEUES, connections=16)
    committed = until_all(server, topic, SEND_QUEUES, result["all_messages"])
    sample = _sample("transaction", result["rate"], result)
    sample.values["transaction-p99"] = result["latency_us"]["p99"] / 1000
    sample.errors += abs(result["all_messages"] - committed)
    return sample


def _warm_transactions(bench: Bench, server: Server) -> None:
    _warm_sends(bench, server)
    topic = fresh_topic(server, SEND_QUEUES)
    seconds = max(bench.seconds, 3) if server.compiles_under_load else 0.5
    bench.load(server, "transaction", topic=topic, queues=SEND_QUEUES, connections=16, seconds=seconds)


def _measure_open_halves(bench: Bench, server: Server) -> Sample:
    """Their producer's group has no member. What a round costs is what CPU is used in `INTERVAL_S`, less what an
    idle broker with as many messages uses; each of Apache's rounds puts all of them into the log again."""
    _warm_sends(bench, server)
    topic = fresh_topic(server, SEND_QUEUES)
    seconds = max(bench.seconds, INTERVAL_S) if bench.open_halves >= OPEN_HALVES else bench.seconds
    fill(server, topic, Wait(), bench.open_halves)
    time.sleep(SETTLE_S)
    before, idle = resident_bytes(server.pids), cpu_share(server.pids, seconds)
    result = bench.load(
        server, "transaction", topic=topic, queues=SEND_QUEUES, connections=16, messages=bench.open_halves, open=True,
        body=256,
    )  # fmt: skip
    time.sleep(TIME_OUT_S + SETTLE_S)  # all of them were due once, and no producer could be asked
    settle(server, idle)
    share = cpu_share(server.pids, seconds)
    values = {
        "open-halves-round": (share - idle) * INTERVAL_S * 1000,
        "open-halves-rss": (resident_bytes(server.pids) - before) / 1e6,
    }
    return Sample(values, result["errors"], raw=result | {"idle": idle, "open": share})


# ---------------------------------------------------------------- SQL92

#: Fulfilled by nothing that is sent. The one looks at what all messages have in common, the other at what no two have.
SQL92_ALIKE = "TAGS = 'no such tag'"
SQL92_DIFFER = "UNIQ_KEY = 'no such key' AND TAGS = 'Tag'"
#: Sends a second to another topic, alone and beside the scan.
SQL92_SEND_RATE = 1_000


def _unrelated_sends(bench: Bench, server: Server, topic: str) -> dict[str, Any]:
    return bench.load(server, "paced", topic=topic, queues=SEND_QUEUES, rate=SQL92_SEND_RATE, connections=4)


def _measure_sql92(bench: Bench, server: Server) -> Sample:
    topic = fresh_topic(server, SEND_QUEUES)
    alone = _unrelated_sends(bench, server, topic)
    with Scan(server, _FILLED, PULL_QUEUES, SQL92_DIFFER, connections=4) as scan:
        differ = scan.rate(bench.seconds)
    with Scan(server, _FILLED, PULL_QUEUES, SQL92_ALIKE, connections=4) as scan:
        rate = scan.rate(bench.seconds)
        beside = _unrelated_sends(bench, server, topic)
    p99s = [result["latency_us"]["p99"] for result in (alone, beside)]
    values = {
        "sql92-scan": rate,
        "sql92-differ": differ,
        "sql92-alone": p99s[0] / 1000,
        "sql92-beside": p99s[1] / 1000,
        "sql92-ratio": p99s[1] / max(p99s[0], 1.0),
    }
    return Sample(values, alone["errors"] + beside["errors"], raw={"alone": alone, "beside": beside})


def _warm_sql92(bench: Bench, server: Server) -> None:
    """Filled as for pulls; Apache's brokers have filters by property switched off."""
    ask(server.broker, 25, {}, b"enablePropertyFilter=true")
    _fill(bench, server)
    for expression in (SQL92_ALIKE, SQL92_DIFFER):
        with Scan(server, _FILLED, PULL_QUEUES, expression, connections=4) as scan:
            scan.rate(max(bench.seconds, 3) if server.compiles_under_load else 0.5)
    _unrelated_sends(bench, server, fresh_topic(server, SEND_QUEUES))


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
_START = (Figure("start", "process start to first ack", "s", True, "≤ 0.3 s"),)
_PARK = (
    Figure("park-rss", "10k parked polls: RSS added", "MB", True, "≤ 6 MB"),
    Figure("park-cpu", "10k parked polls: idle CPU", "% of a core", True, "≤ 0.2 %"),
    Figure("park-wake", "10k parked polls: wake all", "ms", True, "≤ 150 ms"),
)

_DELAY = (
    Figure("delay-p50", "5,000 delayed messages/s, due to delivered, p50, async flush", "ms", True),
    Figure("delay-p99", "5,000 delayed messages/s, due to delivered, p99, async flush", "ms", True, "≤ 20 ms"),
)

_SQL92 = (
    Figure("sql92-scan", "SQL92 that matches nothing, messages scanned, 4 connections x 4", "msg/s", goal="≥ 0.5"),
    Figure("sql92-differ", "the same, by a property that no two messages have alike", "msg/s", goal="≥ 0.5"),
    Figure("sql92-alone", "unrelated sends, 1,000/s, p99 alone", "ms", True),
    Figure("sql92-beside", "unrelated sends, 1,000/s, p99 beside the scan", "ms", True),
    Figure("sql92-ratio", "unrelated sends, p99 beside the scan over alone", "x", True, "≤ 2"),
)
_TIMER = (
    Figure("timer-p50", "5,000 timed messages/s, due to delivered, p50, async flush", "ms", True),
    Figure("timer-p99", "5,000 timed messages/s, due to delivered, p99, async flush", "ms", True, "≤ 20 ms"),
)
_PENDING = (
    Figure("timer-pending-rss", "1 M pending timers: RSS added", "MB", True, "≤ 20 MB"),
    Figure("timer-pending-start", "1 M pending timers: SIGKILL, start to first ack", "s", True, "≤ 1 s"),
)
_TRANSACTION = (
    Figure("transaction", "transactions: send and commit, 16 connections, async flush", "msg/s", goal="≥ 1"),
    Figure("transaction-p99", "transactions: send, p99, async flush", "ms", True, "≤ 1/2"),
)
_OPEN_HALVES = (
    Figure("open-halves-round", "100k open half messages, no producer to ask: CPU in 30 s", "ms", True, "< 5 ms"),
    Figure("open-halves-rss", "100k open half messages: RSS added", "MB", True, "≤ 20 MB"),
)

ROWS: tuple[Row, ...] = (
    _send_row("send-1-async", "sync send, 1 connection, async flush", "async", "≥ 1.8", connections=1),
    _send_row("send-16-async", "sync send, 16 connections, async flush", "async", "", connections=16),
    _send_row("send-64-async", "sync send, 64 connections, async flush", "async", "≥ 1.8, p99 ≤ 1/3", connections=64),
    _send_row("send-1-sync", "sync send, 1 connection, sync flush", "sync", "≥ 2", connections=1),
    _send_row("send-16-sync", "sync send, 16 connections, sync flush", "sync", "", connections=16),
    _send_row("send-64-sync", "sync send, 64 connections, sync flush", "sync", "", connections=64),
    _send_row("pipelined", "pipelined, 4 connections x 64, async flush", "async", "≥ 3.5", connections=4, inflight=64),
    _batch_row("batch", "batches of 32, 8 connections x 4, async flush", "≥ 2.2", connections=8, inflight=4),
    _pull_row("pull-1", "pull 32 x 1 KiB, 1 connection, warm", "", connections=1),
    _pull_row("pull-16", "pull 32 x 1 KiB, 16 connections, warm", "≥ 2", "≤ 1/2", connections=16),
    _pull_row("pull-16x4", "pull 32 x 1 KiB, 16 connections x 4, warm", "≥ 2", "≤ 1/2", connections=16, inflight=4),
    _latency_row("latency-async", "send to long-polling consumer, p50, async flush", "async", "to C ≤ 1.5"),
    _latency_row("latency-sync", "send to long-polling consumer, p50, sync flush", "sync", ""),
    Row("delay", "async", _DELAY, _measure_delay, _warm_delays),
    Row("sql92", "async", _SQL92, _measure_sql92, _warm_sql92),
    Row("timer", "async", _TIMER, _measure_timer, _warm_timers, lacking=APACHES[:1]),
    Row(
        "timer-pending",
        "async",
        _PENDING,
        _measure_pending_timers,
        fresh=True,
        starts_itself=True,
        lacking=APACHES[:1],
    ),
    Row("transaction", "async", _TRANSACTION, _measure_transactions, _warm_transactions),
    Row("open-halves", "async", _OPEN_HALVES, _measure_open_halves, fresh=True),
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
