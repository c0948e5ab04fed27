"""Messages that clients send in a second of their own processor time, to RocketBox on a core of its own.

    .venv/bin/python bench/clients.py [--seconds 4] [--rounds 3] [--clients python,java-5.3.3,go] [--pin split|none]

Bodies of 1 KiB, 8 queues, asynchronous flush. "sync": one thread that waits for each answer; "async": 256 on their way.
The clients take turns in each round; the table has medians: messages a second of processor time, and by the clock.
Each client sends some before, which does not count; what the JVM compiles later does. The Python client is pure Python:
there is no compiled one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.servers import RocketBoxServer
from tests.clients import programs
from tests.clients.agents import Agent, start_go, start_python

CLIENTS = ("python", "java-5.3.3", "java-4.9.8", "go")
WAYS = ("sync", "async")
_BODY_BYTES = 1024
_TOPIC = "bench-clients"
_WARM_UP = 2000
_CLOCK_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def start(client: str, scratch: Path) -> Agent:
    if client == "python":
        return start_python(scratch)
    if client == "go":
        return start_go(scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    version = client.removeprefix("java-")
    # Not as for tests: with both compilers and the default collector.
    command = [programs.java(), "-Xmx512m", f"-Duser.home={scratch}", "-cp", *programs.java_agent(version)]
    return Agent(client, command, scratch, os.environ | {"HOME": str(scratch)})


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _CLOCK_TICK_S


def measure(agent: Agent, how: str, seconds: float) -> tuple[float, float]:
    """Return (messages a second of processor time, messages a second by the clock) of about so many seconds."""

    def send(count: int) -> tuple[float, float]:
        cpu, began = cpu_s(agent.pid), time.monotonic()
        agent.do("producer.many", name="bench", topic=_TOPIC, count=count, bytes=_BODY_BYTES, how=how)
        return cpu_s(agent.pid) - cpu, time.monotonic() - began

    _, took = send(_WARM_UP)
    count = max(_WARM_UP, int(_WARM_UP * seconds / took))
    cpu, took = send(count)
    return count / max(cpu, _CLOCK_TICK_S), count / took


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--pin", choices=("split", "none"), default="split", help="split: a core for each side")
    given = parser.parse_args(arguments)
    names = given.clients.split(",")
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="rocketbox-bench-") as directory:
        server = RocketBoxServer("rocketbox", "async", "0" if given.pin == "split" else None, Path(directory))
        if given.pin == "split":
            os.sched_setaffinity(0, {1})  # the clients inherit it
        server.start()
        agents: dict[str, Agent] = {}
        try:
            server.create_topic(_TOPIC, 8)
            for name in names:
                agents[name] = start(name, Path(directory) / name)
                agents[name].do("producer.start", name="bench", group="bench", namesrv=server.namesrv)
            for _ in range(given.rounds):
                for name, agent in agents.items():
                    for how in WAYS:
                        samples.setdefault((name, how), []).append(measure(agent, how, given.seconds))
        finally:
            for agent in agents.values():
                agent.kill()
            server.stop()
    print("| client | how | messages a second of processor time | by the clock |\n|---|---|---:|---:|")
    for (name, how), found in samples.items():
        by_cpu, by_clock = (statistics.median(one) for one in zip(*found, strict=True))
        print(f"| {name} | {how} | {by_cpu:,.0f} | {by_clock:,.0f} |")


if __name__ == "__main__":
    main()
