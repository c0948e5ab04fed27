"""Ten minutes of sends and two groups, whose processes and broker are killed all the time: nothing is lost or altered,
an ordered group keeps its order, what comes twice is what a kill explains, and memory stays as it is."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.effort import effort
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]
SECONDS = effort(60, 600, 3600)
#: Messages that each of two producers sends in a second.
RATE = effort(50, 100, 1000)
#: Time between two kills.
PAUSE_S = 7.0
QUEUES, WORKERS = 8, 8
#: Seconds of a member's work that may come again when it is killed, or the broker is: offsets are committed, and kept,
#: each 5 s.
UNCOMMITTED_S = 15.0
#: Growth of a process in its last four fifths.
GROWTH_BYTES = 5 << 20

#: What both know of a message: its number and a body that follows from it.
BODY = """
import hashlib, os, pathlib, signal, sys, threading, time
from appliance.client import Client, ClientError, Message, SendResult

def is_ready():
    pathlib.Path(sys.argv[3] + ".ready").touch()

def body_of(name):
    return f"{name} ".encode() + hashlib.sha256(name.encode()).digest() * (1 + hash_of(name) % 20)

def hash_of(name):
    return int.from_bytes(name.encode(), "big") % 251

log = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
"""
PRODUCER = (
    BODY
    + """
namesrv, topic, _, name, rate = sys.argv[1:]
going = [True]
signal.signal(signal.SIGTERM, lambda *_: going.clear())
is_ready()

def messages():
    begin, number = time.monotonic(), 0
    while going:
        time.sleep(max(0.0, begin + number / float(rate) - time.monotonic()))
        yield Message(topic, body_of(f"{name}-{number}"), shard=number % 64)
        number += 1

with Client(namesrv, timeout=10) as client:
    for number, outcome in enumerate(client.producer(max_in_flight=500).send_many(messages(), window=100)):
        if isinstance(outcome, SendResult):
            os.write(log, f"{name}-{number}\\n".encode())
        else:
            assert isinstance(outcome, ClientError)
"""
)
CONSUMER = (
    BODY
    + """
namesrv, topic, _, group, ordered, workers = sys.argv[1:]

def handle(message):
    name = message.body.partition(b" ")[0].decode()
    assert message.body == body_of(name), "altered"
    line = f"{name} {message.queue.queue_id} {message.queue_offset} {time.monotonic()}\\n"
    os.write(log, line.encode())

with Client(namesrv, timeout=10) as client:
    consumer = client.push_consumer(group, start="first", ordered=ordered == "True", workers=int(workers))
    consumer.subscribe(topic, handler=handle)

    def look():
        while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL or not consumer.assignment():
            time.sleep(0.05)
        is_ready()

    threading.Thread(target=look, daemon=True).start()
    consumer.run()
"""
)


class Process:
    """A client's process, and the next ones in its place."""

    def __init__(self, program: str, namesrv: str, topic: str, directory: Path, name: str, *arguments: str) -> None:
        self._command = [sys.executable, "-c", program, namesrv, topic]
        self._directory, self._name, self._arguments = directory, name, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.logs: list[Path] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        own = f"{self._name}.{len(self.logs)}"
        self.logs.append(self._directory / own)
        arguments = self._arguments or (own, str(RATE))
        with (self._directory / f"{own}.err").open("wb") as err:
            self._process = subprocess.Popen([*self._command, str(self.logs[-1]), *arguments], cwd=ROOT, stderr=err)

    def wait(self) -> None:
        """Until it has begun."""
        ready = self._directory / f"{self.logs[-1].name}.ready"
        wait_for(lambda: ready.exists() or self._has_ended(), f"the start of {ready}", 180, every=0.1)

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def end(self, number: signal.Signals) -> None:
        """End it by a signal once it has begun; with SIGTERM it has nothing left to do, and says so by its status."""
        assert self._process is not None
        self.wait()
        self._process.send_signal(number)
        status = self._process.wait(120)
        errors = (self._directory / f"{self.logs[-1].name}.err").read_text()
        assert status == (-number if number == signal.SIGKILL else 0), errors
        assert "altered" not in errors, errors

    def again(self, number: signal.Signals) -> None:
        self.end(number)
        self.start()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def lines(self) -> Iterator[list[str]]:
        for log in self.logs:
            if log.exists():
                yield from (line.split() for line in log.read_text().splitlines())

    def resident(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096


def names_of(processes: list[Process]) -> Counter[str]:
    return Counter(words[0] for process in processes for words in process.lines())


@contextmanager
def closing_all(*groups: list[Process]) -> Iterator[None]:
    with ExitStack() as stack:
        for process in itertools.chain(*groups):
            stack.callback(process.close)
            process.start()
        yield


@pytest.mark.nightly
def test_nothing_is_lost_in_minutes_of_kills(rocketbox_fresh, tmp_path):
    box, topic = rocketbox_fresh, "soak"
    with box.client(timeout=60.0) as client:
        client.admin().create_topic(topic, queues=QUEUES)

    def made(program: str, name: str, *arguments: str) -> Process:
        return Process(program, box.namesrv, topic, tmp_path, name, *arguments)

    senders = [made(PRODUCER, f"sender{n}") for n in range(2)]
    members = [made(CONSUMER, f"member{n}", "members", "False", str(WORKERS)) for n in range(3)]
    ordered = [made(CONSUMER, f"ordered{n}", "ordered", "True", str(WORKERS)) for n in range(2)]
    broker_kills = 0
    with closing_all(senders, members, ordered):

        def kill_broker() -> None:
            nonlocal broker_kills
            for process in (*senders, *members, *ordered):  # they begin with a server
                process.wait()
            box.kill()
            box.start()
            broker_kills += 1

        # The first of each kind lives to the end; the others end in turn.
        acts: list[Callable[[], None]] = [
            lambda: members[1].again(signal.SIGKILL),
            lambda: senders[1].again(signal.SIGKILL),
            lambda: ordered[1].again(signal.SIGKILL),
            lambda: members[2].again(signal.SIGTERM),
            lambda: senders[1].again(signal.SIGTERM),
            lambda: ordered[1].again(signal.SIGTERM),
            kill_broker,
        ]
        staying = [senders[0], members[0], ordered[0]]
        begin, sizes, kills, changes = time.monotonic(), [], 0, 0
        for number, act in enumerate(itertools.cycle(acts)):
            time.sleep(PAUSE_S)
            if time.monotonic() - begin > SECONDS:
                break
            act()
            kills += number % len(acts) in (0, 2)
            changes += number % len(acts) in (0, 2, 3, 5)
            sizes.append([process.resident() for process in staying])
        before = sizes[len(sizes) // 5]
        grown = [last - first for last, first in zip(sizes[-1], before, strict=True)]
        for process in senders:
            process.end(signal.SIGTERM)
        acknowledged = names_of(senders)
        for group in (members, ordered):
            wait_for(
                lambda g=group: acknowledged.keys() <= names_of(g).keys(), "all that was acknowledged", 180, every=1
            )
        for process in (*members, *ordered):
            process.end(signal.SIGTERM)
    assert max(acknowledged.values()) == 1
    assert len(acknowledged) > SECONDS * RATE, "the senders stood still"
    for group in (members, ordered):
        again = sum(names_of(group).values()) - len(names_of(group))
        explained = (kills + broker_kills) * 2 * RATE * UNCOMMITTED_S + changes * len(group) * WORKERS
        print(f"{len(acknowledged)} acknowledged, {again} came again, {kills} kills, {broker_kills} of the broker")
        assert again <= explained, (again, kills, broker_kills)
    assert_in_order(ordered)
    print(f"grown: {grown}")
    assert max(grown) <= GROWTH_BYTES, [[size >> 10 for size in of] for of in zip(*sizes, strict=True)]


def assert_in_order(members: list[Process]) -> None:
    """None is handled before those in front of it in its queue were."""
    highest: dict[str, int] = {}
    lines = (words for member in members for words in member.lines())
    for _, queue, offset, _ in sorted(lines, key=lambda words: float(words[3])):
        assert int(offset) <= highest.get(queue, -1) + 1, f"{offset} of queue {queue} came after {highest.get(queue)}"
        highest[queue] = max(highest.get(queue, -1), int(offset))
