"""Rounds: load, one to three faults at random moments, everything well again, and the checker on what is left.

    python -m tests.rig.rounds --kind failover --rounds 300          # each with a seed of its own, printed
    python -m tests.rig.rounds --kind failover --rounds 1 --seed 4711 --keep /tmp/round

A round's seed makes its schedule and its load; what the machine does meanwhile it does not.
"""

from __future__ import annotations

import argparse
import errno
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.clients.agents import Agent, start_go, start_java
from tests.rig import checker
from tests.rig.broker_set import BrokerSet, Kind, Node
from tests.rig.checker import Replica
from tests.rig.drain import QUIET_S, described, drain, wait_quiet
from tests.rig.history import Send, read_history
from tests.rig.raw_load import RawLoad
from tests.support.etcd import EtcdMember

QUEUES = 4
#: Rounds after which a set is restarted as a whole, its replicas are compared with those before, and it is closed.
ROUNDS_OF_A_SET = 10
LOAD_S = (1.5, 4.0)
LASTS_S = (0.2, 3.5)
RECOVERED_S = 30.0
LATE_S = 10.0
#: Acknowledgements that must come before the first fault and again after the last.
WARM = 60


class RoundFailed(AssertionError):
    """A round failed; the text has the seed, the findings, and the directory of the history and the logs."""


End = Callable[[], None]
#: Begins a fault on a set; returns a description of its target and a function that ends it.
Begin = Callable[[BrokerSet, random.Random], "tuple[str, End]"]


class Planned(NamedTuple):
    at_s: float
    lasts_s: float
    name: str


# --- faults


def _leader(brokers: BrokerSet) -> Node:
    """Return the leader; the first broker if there is none."""
    return brokers.leader() or next(iter(brokers.nodes.values()))


def _follower(brokers: BrokerSet, chance: random.Random) -> Node:
    leader = _leader(brokers)
    return chance.choice([node for node in brokers.nodes.values() if node is not leader])


def _one(brokers: BrokerSet, chance: random.Random) -> Node:
    return _leader(brokers) if chance.random() < 0.65 else _follower(brokers, chance)


def _restart(*nodes: Node) -> End:
    def end() -> None:
        for node in nodes:
            node.kill()
            node.launch()

    return end


def kill(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _one(brokers, chance)
    node.kill()
    return node.name, _restart(node)


def kill_all(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    nodes = list(brokers.nodes.values())
    for node in nodes:
        node.begin_kill()
    for node in nodes:
        node.kill()
    chance.shuffle(nodes)
    return "all", _restart(*nodes)


def stop(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Send SIGTERM; the broker has its usual 10 s to end."""
    node = _one(brokers, chance)
    node.begin_stop()

    def end() -> None:
        # A stopped process or a broken disk would use up its 10 s.
        node.thaw()
        node.faults.disarm()
        node.stop()
        node.launch()

    return node.name, end


def freeze(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _one(brokers, chance)
    node.freeze()
    return node.name, node.thaw


def freeze_and_kill(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Freeze the leader and kill a follower meanwhile."""
    leader, other = _leader(brokers), _follower(brokers, chance)
    leader.freeze()
    other.kill()

    def end() -> None:
        leader.thaw()
        _restart(other)()

    return f"{leader.name}, {other.name}", end


def cut_then_kill(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Cut the leader from its followers for a moment, then kill it: its log may end with records that no other has."""
    leader = _leader(brokers)
    others = [node for node in brokers.nodes.values() if node is not leader]
    cuts = [brokers.relay.fault(other.name, leader.name, hold=True) for other in others]
    time.sleep(chance.uniform(0.2, 1.0))
    leader.kill()

    def end() -> None:
        _restart(leader)()
        brokers.relay.lift(*cuts)  # the bytes sent last reach a connection that is already given up

    return leader.name, end


def cut_replication(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Cut the connections between the leader and one follower or all, one way or both."""
    leader = _leader(brokers)
    others = [node for node in brokers.nodes.values() if node is not leader]
    if len(others) > 1 and chance.random() < 0.5:
        others = [chance.choice(others)]
    way = chance.choice(("to", "from", "both"))
    cuts = [brokers.relay.fault(other.name, leader.name, way, hold=True) for other in others]
    return f"{','.join(other.name for other in others)}>{leader.name} {way}", lambda: brokers.relay.lift(*cuts)


def slow_replication(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    leader = _leader(brokers)
    if chance.random() < 0.5:
        cut = brokers.relay.fault("*", leader.name, chance.choice(("to", "from")), delay_ms=chance.randrange(5, 400))
    else:
        cut = brokers.relay.fault("*", leader.name, chance.choice(("to", "from")), drip=chance.randrange(50, 5000))
    return leader.name, lambda: brokers.relay.lift(cut)


def isolate(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Cut one broker from everything: clients, brokers, name servers, the store."""
    node = _one(brokers, chance)
    way = chance.choice(("both", "both", "to", "from"))
    cuts = [
        brokers.relay.fault("*", node.name, way, hold=True),
        brokers.relay.fault(node.name, "*", {"to": "from", "from": "to"}.get(way, way), hold=True),
    ]
    return f"{node.name} {way}", lambda: brokers.relay.lift(*cuts)


def cut_clients(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _leader(brokers)
    cut = brokers.relay.fault("clients", node.name, chance.choice(("to", "from", "both")), hold=True)
    return node.name, lambda: brokers.relay.lift(cut)


def cut_name_servers(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    cuts = [brokers.relay.fault("*", name, hold=True) for name in brokers.namesrvs]
    return "all", lambda: brokers.relay.lift(*cuts)


def refuse(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Refuse a broker's connections, as a firewall whose rules change: the broker runs, and seems to be gone."""
    node = _one(brokers, chance)
    brokers.relay.refuse(node.name)
    return node.name, lambda: brokers.relay.accept(node.name)


def slow_disk(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _one(brokers, chance)
    delay_ms = chance.choice((20, 100, 400, 1500))
    node.faults.arm("sync", delay_ms=delay_ms, path=chance.choice(("/commitlog/", "")))
    return f"{node.name} {delay_ms} ms", lambda: node.faults.disarm("sync")


def broken_disk(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Let syncs or writes of the log fail; at the end restart the process, as an operator would."""
    node = _one(brokers, chance)
    call, error = chance.choice((("sync", errno.EIO), ("write", errno.EIO), ("write", errno.ENOSPC)))
    node.faults.arm(call, error=error, path="/commitlog/")

    def end() -> None:
        node.faults.disarm(call)
        _restart(node)()

    return f"{node.name} {call} {errno.errorcode[error]}", end


def wrong_clock(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _one(brokers, chance)
    seconds = chance.choice((-3600, 3600, -5, 5))
    node.faults.move_clock(seconds)
    return f"{node.name} {seconds} s", lambda: node.faults.move_clock(0)


def cut_store(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    node = _one(brokers, chance)
    way = chance.choice(("to", "from", "both"))
    cuts = [brokers.relay.fault(node.name, f"e{number}", way, hold=True) for number in (1, 2, 3)]
    return f"{node.name} {way}", lambda: brokers.relay.lift(*cuts)


def refuse_store(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    names = [f"e{number}" for number in (1, 2, 3)]
    for name in names:
        brokers.relay.refuse(name)
    return "all", lambda: [brokers.relay.accept(name) for name in names] and None


def _etcd_members(brokers: BrokerSet, chance: random.Random) -> list[EtcdMember]:
    """Return the etcd leader or all members; the first member if none leads."""
    assert brokers.etcd is not None
    if chance.random() < 0.4:
        return list(brokers.etcd.members)
    try:
        return [brokers.etcd.leader(1.0)]
    except AssertionError:
        return brokers.etcd.members[:1]


def pause_etcd(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    members = [member for member in _etcd_members(brokers, chance) if member.running]  # others were killed just before
    for member in members:
        member.pause()

    def end() -> None:
        for member in members:
            member.resume()

    return ",".join(member.name for member in members), end


def kill_etcd(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    members = _etcd_members(brokers, chance)
    for member in members:
        member.kill()

    def end() -> None:
        for member in members:
            if not member.running:
                member.start()

    return ",".join(member.name for member in members), end


def kill_with_etcd_leader(brokers: BrokerSet, chance: random.Random) -> tuple[str, End]:
    """Kill the leader together with etcd members, as if they shared a machine that fails."""
    node = _leader(brokers)
    node.begin_kill()
    name, end_etcd = kill_etcd(brokers, chance)
    node.kill()

    def end() -> None:
        end_etcd()
        _restart(node)()

    return f"{node.name} {name}", end


PLAIN: dict[str, Begin] = {
    one.__name__: one
    for one in (
        kill, kill_all, stop, freeze, freeze_and_kill, cut_then_kill, cut_replication, slow_replication, isolate,
        cut_clients, cut_name_servers, refuse, slow_disk, broken_disk, wrong_clock,
    )
}  # fmt: skip
FAILOVER = PLAIN | {
    one.__name__: one for one in (cut_store, refuse_store, pause_etcd, kill_etcd, kill_with_etcd_leader)
}
#: Faults that are common in production are planned more often.
_OFTEN = ("kill", "isolate", "freeze", "cut_replication")


def plan(kind: Kind, seed: int, only: Sequence[str] = ()) -> list[Planned]:
    """Return the faults of a round, in the order in which they begin. only: take them from these kinds."""
    chance = random.Random(seed)
    names = list(only) or [*(FAILOVER if kind.elects else PLAIN), *_OFTEN]
    count = chance.choice((1, 1, 2, 3))
    faults = [
        Planned(chance.uniform(0.0, LOAD_S[0]), chance.uniform(*LASTS_S), chance.choice(names)) for _ in range(count)
    ]
    return sorted(faults)


# --- a round


class Clients:
    """Official clients, started on first use. Each writes its sends and their outcomes to a file of its own."""

    VERSIONS = ("java-4.9.8", "java-5.3.3", "go")

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._agents: dict[str, Agent] = {}

    def begin(self, brokers: BrokerSet, topic: str, seed: int) -> list[Path]:
        """Let the clients send until `stop`; return the paths of their histories."""
        paths = []
        for name in self.VERSIONS:
            if name not in self._agents:
                _, _, version = name.partition("-")
                place = self._scratch / name
                self._agents[name] = start_java(version, "json", place) if version else start_go(place)
            paths.append(brokers.scratch / f"history-{seed}-{name}")
            self._agents[name].do(
                "load.start", name=topic, namesrv=brokers.namesrv, topic=topic, history=str(paths[-1]), threads=2,
                group=f"{name.replace('.', '_')}_{seed}", retries=seed % 2, timeout_ms=1500, seed=seed, instance=topic,
                poll_ms=1000,
            )  # fmt: skip
        return paths

    def stop(self, topic: str) -> Callable[[], int]:
        """Stop sending. Returns a function that waits until all have ended and returns how many were acknowledged."""
        ending = [agent.begin("load.stop", name=topic) for agent in self._agents.values()]
        return lambda: sum(int(one.result(40)["acknowledged"]) for one in ending)

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()


class Rounds:
    """Rounds on one set. note: prints a line per round. clients: send as well in rounds whose seed 3 divides.
    patience_s: time to wait for missing messages; replicas have four times as long to become equal."""

    def __init__(
        self,
        brokers: BrokerSet,
        note: Callable[[str], None] = print,
        only: Sequence[str] = (),
        clients: Clients | None = None,
        patience_s: float = LATE_S,
    ) -> None:
        self._brokers, self._note, self._only, self._clients = brokers, note, only, clients
        self._patience_s = patience_s
        self._last: tuple[str, int, list[Replica]] | None = None
        self.acknowledged = 0

    def run(self, seed: int, faults: Sequence[Planned] | None = None) -> None:
        """Run one round with the faults of the seed, or with `faults` if given. Raises RoundFailed."""
        faults = plan(self._brokers.kind, seed, self._only) if faults is None else faults
        try:
            self._run(seed, faults)
        except Exception as failed:
            self._fail(seed, faults, failed)

    def restart(self, seed: int) -> None:
        """Restart all brokers and check that the state after the last round is unchanged. Raises RoundFailed."""
        if self._last is None:
            return
        topic, log_start, before = self._last
        try:
            self._brokers.restart_all()
            deadline = time.monotonic() + QUIET_S
            while True:  # before they have their roles all show nothing, and so agree
                wait_quiet(self._brokers.nodes, topic, QUEUES)
                wrong = checker.changed(before, drain(self._brokers.nodes, topic, QUEUES, log_start))
                if not wrong or time.monotonic() > deadline:
                    break
            assert not wrong, "\n".join(wrong)
        except Exception as failed:
            self._fail(seed, (), failed)

    def _fail(self, seed: int, faults: Sequence[Planned], failed: BaseException) -> None:
        told = ", ".join(f"{one.name} {one.at_s:.2f}+{one.lasts_s:.2f} s" for one in faults) or "a restart of all"
        (self._brokers.scratch / "seed").write_text(f"{seed}\n{told}\n{failed}\n")
        raise RoundFailed(
            f"seed {seed} ({self._brokers.kind.value}: {told}): {failed}\nhistory and logs: {self._brokers.scratch}\n"
            f"{described(self._brokers)}\n{self._brokers.said()}"
        ) from failed

    def _run(self, seed: int, faults: Sequence[Planned]) -> None:
        brokers = self._brokers
        chance = random.Random(seed + 1)
        topic = f"Round_{seed}"
        brokers.wait_in_sync()
        brokers.create_topic(topic, QUEUES)
        leader = brokers.leader()
        assert leader is not None
        log_start = leader.log_end()
        path = brokers.scratch / f"history-{seed}"
        clients = self._clients if seed % 3 == 0 else None
        theirs = clients.begin(brokers, topic, seed) if clients else []
        ended: Callable[[], int] | None = None
        # A broker with a wrong clock delivers delayed messages at the wrong time.
        special = not any(one.name == "wrong_clock" for one in faults)
        load = RawLoad(path, brokers.clients, topic, queues=QUEUES, seed=seed, special=special)
        try:
            load.wait_for(WARM, what="before the first fault")
            told = self._disturb(faults, chance)
            brokers.heal(chance)
            load.wait_for(WARM, RECOVERED_S, "when all is well again")
            ended = clients.stop(topic) if clients else None
            totals = load.stop()
            time.sleep(max(0.0, totals["due"] + 0.3 - time.time()))
            more = ended() if ended else 0
            sends = [one for one in read_history([path, *theirs]) if isinstance(one, Send)]
            replicas = self._drain(topic, log_start, sends)
            brokers.wait_in_sync()
        finally:
            load.close()
            if clients and not ended:
                clients.stop(topic)
        asynchronous = brokers.kind is Kind.ASYNCHRONOUS
        check = checker.check_asynchronous if asynchronous else checker.check
        wrong = check(read_history([path, *theirs]), replicas)
        outcomes = f"{totals['ok'] + more:.0f} ok, {totals['fail']:.0f} refused, {totals['unknown']:.0f} unknown"
        self._note(f"seed {seed}: {outcomes}{f', {more} ok of official clients' if clients else ''}; {told}")
        assert not wrong, "\n".join(wrong)
        self.acknowledged += int(totals["ok"]) + more
        self._last = topic, log_start, replicas
        for one in (path, *theirs):
            one.unlink()

    def _drain(self, topic: str, log_start: int, sends: Sequence[Send]) -> list[Replica]:
        """Return the replicas when all is quiet. Delayed messages may come late, so missing ones are waited for."""
        patient = time.monotonic() + (self._patience_s if self._brokers.kind is not Kind.ASYNCHRONOUS else 0.0)
        while True:
            wait_quiet(self._brokers.nodes, topic, QUEUES, 4 * self._patience_s)
            replicas = drain(self._brokers.nodes, topic, QUEUES, log_start)
            if time.monotonic() > patient or not any(checker.lost(sends, replica) for replica in replicas):
                return replicas
            time.sleep(0.3)

    def _disturb(self, faults: Sequence[Planned], chance: random.Random) -> str:
        """Begin and end each fault in its time; return a description for the round's line."""
        begun = time.monotonic()
        kinds = FAILOVER
        ends: list[tuple[float, End]] = []
        told = []
        waiting = list(faults)
        until = chance.uniform(*LOAD_S)
        while waiting or ends or time.monotonic() - begun < until:
            now = time.monotonic() - begun
            if waiting and waiting[0].at_s <= now:
                fault = waiting.pop(0)
                what, end = kinds[fault.name](self._brokers, chance)
                told.append(f"{fault.name} {what} {fault.lasts_s:.1f} s")
                ends.append((time.monotonic() - begun + fault.lasts_s, end))
            for due in [one for one in ends if one[0] <= now]:
                ends.remove(due)
                due[1]()
            time.sleep(0.01)
        return ", ".join(told)


def run_rounds(
    kind: Kind,
    seeds: Sequence[int],
    scratch: Path,
    note: Callable[[str], None] = print,
    only: Sequence[str] = (),
    official: bool = True,
    at_once: int = 1,
) -> int:
    """Run a round for each seed, on as many sets as that takes, `at_once` of them in parallel. Only the first of the
    parallel lanes has official clients. Returns how many messages were acknowledged. Raises RoundFailed."""

    def lane(number: int) -> int:
        # Each lane starts its processes in its own thread, since they die with the thread that started them.
        directory = scratch / f"lane-{number}"
        return _lane(kind, seeds[number::at_once], directory, note, only, official and number == 0)

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lane, range(at_once)))


def _lane(
    kind: Kind, seeds: Sequence[int], scratch: Path, note: Callable[[str], None], only: Sequence[str], official: bool
) -> int:
    acknowledged = 0
    clients = Clients(scratch / "clients") if official else None
    try:
        for first in range(0, len(seeds), ROUNDS_OF_A_SET):
            directory = scratch / f"set-{first}"
            members = 2 if kind is Kind.PLAIN else 2 + (seeds[0] + first // ROUNDS_OF_A_SET) % 2
            with BrokerSet(directory, kind, members) as brokers:
                rounds = Rounds(brokers, note, only, clients)
                for seed in seeds[first : first + ROUNDS_OF_A_SET]:
                    rounds.run(seed)
                rounds.restart(seeds[first])
            acknowledged += rounds.acknowledged
            shutil.rmtree(directory)
    finally:
        if clients:
            clients.close()
    return acknowledged


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], default=Kind.FAILOVER.value)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; others count on from it")
    parser.add_argument("--only", default="", help=f"some of {','.join(FAILOVER)}")
    parser.add_argument("--raw", action="store_true", help="without official clients")
    parser.add_argument("--go-on", action="store_true", help="after a round that failed, with a new set")
    parser.add_argument("--keep", type=Path, help="a directory for histories and logs, kept")
    options = parser.parse_args(arguments)
    first = options.seed or random.randrange(1, 1 << 30)
    only = [name for name in options.only.split(",") if name]
    keep = options.keep or Path(tempfile.mkdtemp(prefix="rounds-"))
    print(f"seeds {first} to {first + options.rounds - 1}, below {keep}", flush=True)
    seeds, failed, begun = list(range(first, first + options.rounds)), 0, time.monotonic()
    while seeds:
        done: list[int] = []

        def note(line: str, done: list[int] = done) -> None:
            done.append(1)
            print(f"{time.monotonic() - begun:6.0f} s  {line}", flush=True)

        try:
            run_rounds(Kind(options.kind), seeds, keep / f"from-{seeds[0]}", note, only, not options.raw)
            break
        except RoundFailed as failure:
            failed += 1
            print(f"FAILED: {failure}", flush=True)
            if not options.go_on:
                break
            bad = int(str(failure).split()[1])
            seeds = [seed for seed in seeds if seed > bad]
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
