"""Messages that clients send and handle in a second of their own processor time, with RocketBox on a core of its own.

    .venv/bin/python bench/clients.py [--seconds 4] [--rounds 3] [--clients python,java-5.3.3,go] [--pin split|none]

Bodies of 1 KiB, 8 queues, asynchronous flush. "sync": one thread that waits for each answer; "async": 256 on their way;
"push": a consumer whose handler does nothing, of the Python clients only. The clients take turns in each round; the
tables have medians: messages a second of processor time, and by the clock. Each client sends some before, which does
not count; what the JVM compiles later does. "python" is pure Python, "python-compiled" has its compiled parts. For
these also: how long a send waits beside a round trip of the same bytes, how long a message takes from before its send
to its handler, and the memory of idle consumers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.servers import RocketBoxServer
from client_wheel import build
from tests.clients import programs
from tests.clients.agents import Agent, start_cpp, start_go, start_python

CLIENTS = ("python", "python-compiled", "java-5.3.3", "java-4.9.8", "go", "cpp")
WAYS = ("sync", "async")
_LATENCIES = 2000
_BODY_BYTES = 1024
_TOPIC = "bench-clients"
#: Without messages: a group without offsets begins with the first of a young topic.
_IDLE_TOPIC = "bench-clients-idle"
_WARM_UP = 2000
#: Messages that wait for consumers, for each second of a round.
_PUSHED = 50_000
_CLOCK_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def start(client: str, scratch: Path) -> Agent:
    if client == "python":
        return start_python(scratch, pure=True)
    if client == "python-compiled":
        return start_python(scratch, compiled_parts(scratch))
    if client == "cpp":
        return start_cpp(scratch)
    if client == "go":
        return start_go(scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    version = client.removeprefix("java-")
    # Not as for tests: with both compilers and the default collector.
    command = [programs.java(), "-Xmx512m", f"-Duser.home={scratch}", "-cp", *programs.java_agent(version)]
    return Agent(client, command, scratch, os.environ | {"HOME": str(scratch)})


def compiled_parts(scratch: Path) -> Path:
    """Build the compiled parts of the Python client; return the directory to import them from."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        build.lay_out_speedups(Path(directory))
        build.build(directory, scratch)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(scratch)
    return scratch


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


def measure_push(agent: Agent, namesrv: str, seconds: float, number: int, pushed: int) -> tuple[float, float]:
    """Return the same of messages that were sent before, as far as there are so many."""

    def handle(count: int, group: str) -> tuple[float, float]:
        cpu, began = cpu_s(agent.pid), time.monotonic()
        agent.do("consumer.many", namesrv=namesrv, topic=_TOPIC, group=group, count=count)
        return cpu_s(agent.pid) - cpu, time.monotonic() - began

    _, took = handle(_WARM_UP, f"warm-{agent.pid}-{number}")
    count = min(pushed, max(_WARM_UP, int(_WARM_UP * seconds / took)))
    cpu, took = handle(count, f"push-{agent.pid}-{number}")
    return count / max(cpu, _CLOCK_TICK_S), count / took


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--idle", type=int, default=1000, help="consumers whose memory is measured")
    parser.add_argument("--pin", choices=("split", "none"), default="split", help="split: a core for each side")
    given = parser.parse_args(arguments)
    names = given.clients.split(",")
    pushed = max(_WARM_UP, int(_PUSHED * given.seconds))
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {}
    waited: dict[str, list[dict[str, float]]] = {}
    idle: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="rocketbox-bench-") as directory:
        server = RocketBoxServer("rocketbox", "async", "0" if given.pin == "split" else None, Path(directory))
        if given.pin == "split":
            os.sched_setaffinity(0, {1})  # the clients inherit it
        server.start()
        agents: dict[str, Agent] = {}
        try:
            server.create_topic(_TOPIC, 8)
            server.create_topic(_IDLE_TOPIC, 8)
            for name in names:
                agents[name] = start(name, Path(directory) / name)
                agents[name].do("producer.start", name="bench", group="bench", namesrv=server.namesrv)
            ours = {name: agent for name, agent in agents.items() if name.startswith("python")}
            for agent in list(ours.values())[:1]:
                agent.do("producer.many", name="bench", topic=_TOPIC, count=pushed, bytes=_BODY_BYTES, how="async")
            for number in range(given.rounds):
                for name, agent in agents.items():
                    for how in WAYS:
                        samples.setdefault((name, how), []).append(measure(agent, how, given.seconds))
                for name, agent in ours.items():
                    found = measure_push(agent, server.namesrv, given.seconds, number, pushed)
                    samples.setdefault((name, "push"), []).append(found)
                    topic = f"{_TOPIC}-{name}-{number}"
                    found = agent.do("producer.waited", name="bench", topic=topic, bytes=_BODY_BYTES, count=_LATENCIES)
                    waited.setdefault(name, []).append(found)
            for name, agent in ours.items() if given.idle else ():
                made = agent.do(
                    "consumer.idle", namesrv=server.namesrv, topic=_IDLE_TOPIC, group=f"idle-{name}", count=given.idle
                )
                idle[name] = made["bytes"]
        finally:
            for agent in agents.values():
                agent.kill()
            server.stop()
    print("| client | how | messages a second of processor time | by the clock |\n|---|---|---:|---:|")
    for (name, how), rates in samples.items():
        by_cpu, by_clock = (statistics.median(one) for one in zip(*rates, strict=True))
        print(f"| {name} | {how} | {by_cpu:,.0f} | {by_clock:,.0f} |")
    print("\n| client | a send, us | a round trip, us | their ratio | to the handler, us |\n|---|---:|---:|---:|---:|")
    for name, rounds in waited.items():
        send, raw, way = (statistics.median(one[key] for one in rounds) for key in ("send", "raw", "to_handler"))
        print(f"| {name} | {send * 1e6:.0f} | {raw * 1e6:.0f} | {send / raw:.2f} | {way * 1e6:.0f} |")
    for name, size in idle.items():
        print(f"\n{given.idle} idle consumers of {name} take {size / 2**20:.0f} MiB.")


if __name__ == "__main__":
    main()
