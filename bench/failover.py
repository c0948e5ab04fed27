#!/usr/bin/env python3
"""Times how long a set of two brokers takes no sends when its leader goes; prints markdown.

    bench/failover.py                                 10 rounds of each way to go
    bench/failover.py --rounds 30 --only kill,stop
    bench/failover.py --java 5                        and 5 of some as an unmodified Java client sees it

The longest silence after it: last acknowledgement to first, by 32 producers that try each broker in turn and give a
silent one 0.25 s. Three etcd servers on the same machine, everything through a relay in between. See bench/README.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.rounds import note
from tests.clients.agents import start_java
from tests.rig.broker_set import BrokerSet, Kind, Node
from tests.rig.drain import wait_quiet
from tests.rig.history import OK, Send, read_history
from tests.rig.raw_load import RawLoad
from tests.support.waiting import wait_for

TOPIC, QUEUES, PRODUCERS = "Failover", 4, 32
#: What clients that do not know of fail-over may need: their poll of routes, and connections that time out.
JAVA_S = 60.0
RECOVER_S = 40.0

Begin = Callable[[BrokerSet, Node], Callable[[], None]]


def kill(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    leader.kill()
    return leader.start


def stop(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    leader.begin_stop()

    def end() -> None:
        leader.stop()
        leader.start()

    return end


def isolate(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    cuts = [
        brokers.relay.fault("*", leader.name, hold=True),
        brokers.relay.fault(leader.name, "*", hold=True),
    ]
    return lambda: brokers.relay.lift(*cuts)


def freeze(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    leader.freeze()
    return leader.thaw


def isolate_with_etcd(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    assert brokers.etcd is not None
    member = brokers.etcd.leader()
    member.pause()
    end = isolate(brokers, leader)

    def both() -> None:
        member.resume()
        end()

    return both


def hang_disk(brokers: BrokerSet, leader: Node) -> Callable[[], None]:
    leader.faults.arm("sync", delay_ms=60_000, path="/commitlog/")

    def end() -> None:
        leader.faults.disarm()
        leader.kill()
        leader.start()

    return end


class Way(NamedTuple):
    title: str
    begin: Begin


WAYS = {
    "kill": Way("SIGKILL, ports closed", kill),
    "stop": Way("SIGTERM", stop),
    "isolate": Way("cut off from everything", isolate),
    "freeze": Way("SIGSTOP", freeze),
    "isolate_with_etcd": Way("cut off, the etcd leader with it", isolate_with_etcd),
    "hang_disk": Way("syncs of its log hang", hang_disk),
}


def settled(brokers: BrokerSet, members: int = 2) -> Node:
    """The leader, when all are in sync."""

    def look() -> Node | None:
        state = brokers.state()
        return brokers.leader() if state and len(state["isr"]) == members else None

    return wait_for(look, "all members to be in sync", RECOVER_S, every=0.05, not_yet=(OSError,))


def another(brokers: BrokerSet, leader: Node) -> None:
    """Until it leads no more, and somebody else does."""
    wait_for(lambda: brokers.leader() not in (None, leader), "another leader", RECOVER_S, every=0.05)


def gap_s(sends: Sequence[Send], at: float) -> float:
    """The longest time without an acknowledgement, from the last before `at` on."""
    times = sorted(send.back for send in sends if send.outcome == OK)
    before = max((time for time in times if time <= at), default=at)
    return max(b - a for a, b in pairwise([before, *(time for time in times if time > at)]))


def measure(brokers: BrokerSet, way: Way, rounds: int, chance: random.Random) -> list[float]:
    found = []
    for number in range(rounds):
        leader = settled(brokers)
        path = brokers.scratch / f"{way.begin.__name__}-{number}"
        load = RawLoad(
            path, brokers.clients, TOPIC, queues=QUEUES, producers=PRODUCERS, pause_ms=10, timeout_s=0.25,
            seed=chance.randrange(1 << 30), special=False, consumers=False,
        )  # fmt: skip
        try:
            load.wait_for(500)
            time.sleep(chance.uniform(0.3, 1.3))
            at = time.time()
            end = way.begin(brokers, leader)
            another(brokers, leader)
            load.wait_for(200)
            end()
            load.stop()
        finally:
            load.close()
        found.append(gap_s([one for one in read_history([path]) if isinstance(one, Send)], at))
        path.unlink()
    return found


def measure_java(brokers: BrokerSet, way: Way, rounds: int, chance: random.Random, version: str) -> list[float]:
    """An unmodified client: its own polls, time-outs and retries."""
    found = []
    for number in range(rounds):
        leader = settled(brokers)
        path = brokers.scratch / f"java-{way.begin.__name__}-{number}"
        agent = start_java(version, "json", brokers.scratch / f"agent-{number}")
        try:
            agent.do(
                "load.start", name="load", namesrv=brokers.namesrv, topic=TOPIC, history=str(path), threads=4,
                group="bench_java", seed=number,
            )  # fmt: skip
            agent.do("load.progress", name="load", more=200, timeout_ms=20_000)
            time.sleep(chance.uniform(0.0, 30.0))  # anywhere in its poll's period
            at = time.time()
            end = way.begin(brokers, leader)
            agent.begin("load.progress", name="load", more=400, timeout_ms=int(JAVA_S * 1000)).result(JAVA_S + 5)
            end()
            agent.do("load.stop", name="load")
        finally:
            agent.close()
        found.append(gap_s([one for one in read_history([path]) if isinstance(one, Send)], at))
        path.unlink()
    return found


def line(title: str, found: Sequence[float]) -> str:
    ordered = sorted(found)
    p99 = quantiles(ordered, n=100, method="inclusive")[98] if len(ordered) > 1 else ordered[0]
    return f"| {title} | {len(found)} | {median(found):.2f} s | {p99:.2f} s | {max(found):.2f} s |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default=",".join(WAYS), help=f"some of {','.join(WAYS)}")
    parser.add_argument("--java", type=int, default=0, help="rounds of kill, stop and isolate with Java 5.3.3")
    parser.add_argument("--election-ms", type=int, default=1000, help="etcd's")
    options = parser.parse_args(arguments)
    chance = random.Random(0)
    etcd = {"election_ms": options.election_ms, "heartbeat_ms": options.election_ms // 10}
    print(f"{time.strftime('%Y-%m-%d')}; sync flush, 2 members, last acknowledgement to first.\n")
    print("| the leader goes by | rounds | p50 | p99 | longest |")
    print("|---|---:|---:|---:|---:|")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        BrokerSet(Path(scratch), Kind.FAILOVER, etcd_flags=etcd) as brokers,
    ):
        brokers.create_topic(TOPIC, QUEUES)
        for name in options.only.split(","):
            note(WAYS[name].title)
            print(line(WAYS[name].title, measure(brokers, WAYS[name], options.rounds, chance)), flush=True)
        for name in ("kill", "stop", "isolate") if options.java else ():
            note(f"Java: {WAYS[name].title}")
            found = measure_java(brokers, WAYS[name], options.java, chance, "5.3.3")
            print(line(f"{WAYS[name].title}, as Java 5.3.3 sees it", found), flush=True)
        wait_quiet(brokers.nodes, TOPIC, QUEUES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
