"""One seed, one life: acts that actors thought up, done one after the other to a broker that the oracle watches.

An act is a dictionary that says all about itself, its chance included, so any of them may be left out: what the others
do stays the same. A list of acts is a script; `shrink.py` makes it short, and `--replay` plays it.
"""

from __future__ import annotations

import gc
import logging
import math
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from greenlet import GreenletExit

from appliance.engine.errors import AdminError
from appliance.engine.protocol.command import RemotingCommand
from tests.support.engine import ROOMY
from tests.support.peer import pull_fields, records
from tests.world.actors import ACTORS, GROUPS, Kind
from tests.world.machine import LOG_FILE_BYTES, Machine, Peer, simulated_machine
from tests.world.oracle import RESERVED_S, Oracle, Violation
from tests.world.threads import Killed, Scheduler

Act = dict[str, Any]
PULL, MAKE_GROUP = 11, 200
BEGIN_MS = 1_700_000_000_000
#: Virtual seconds after which a request that has no answer hangs.
ANSWER_S = 30.0
PEERS = 3
#: A master and its slave have found each other so long after they could not.
FLOWS_AGAIN_S = 15.0

STORE: dict[str, Any] = ROOMY | {
    "mapped_file_size_commit_log": LOG_FILE_BYTES,
    "max_message_size": 16_384,
    "mapped_file_size_consume_queue": 2000,
    "mapped_file_size_timer_log": 8192,
    "max_hash_slot_num": 300,
    "max_index_num": 2000,
    "clean_resource_interval_ms": 2000,
    "disk_max_used_space_ratio": 75,
    "disk_space_clean_forcibly_ratio": 85,
    "disk_space_warning_level_ratio": 95,
    "max_delivery_event_bytes": 0,
    "file_reserved_time_hours": int(RESERVED_S) // 3600,
}
BROKER: dict[str, Any] = {"default_topic_queue_nums": 4}


class Done(NamedTuple):
    """An act and what came of it."""

    act: Act
    outcome: str


class Failure(NamedTuple):
    """rule: of the violation."""

    rule: str
    text: str
    done: list[Done]


#: A process ends there.
_ENDS = (Killed, GreenletExit)


class _Errors(logging.Handler):
    """Exceptions that the broker logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], _ENDS):
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}\n{_traceback(record)}")


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info)  # type: ignore[arg-type]


def script_of(seed: int, steps: int, only: frozenset[str] = frozenset()) -> list[Act]:
    """The acts of a seed. only: names of the actors that act; all without it."""
    chance = random.Random(f"script {seed}")
    kinds = [kind for kind in ACTORS.values() if not only or kind.actor in only]
    #: Each seed likes some acts more than others.
    weights = [kind.weight * chance.choice((0.3, 1.0, 1.0, 3.0)) for kind in kinds]
    script: list[Act] = []
    for number in range(steps):
        kind = chance.choices(kinds, weights)[0]
        act: Act = {"n": number, "act": kind.name}
        act |= kind.make(chance, script)
        script.append(act)
    script.append({"n": steps, "act": "settle"})
    return script


class World:
    """The world as actors use it: `ask`, `pass_time`, `restart` and the oracle."""

    def __init__(self, seed: int, machine: Machine) -> None:
        self.seed = seed
        self.machine = machine
        self.scheduler = machine.scheduler
        self.oracle = Oracle(self.scheduler.wall)
        #: One that copies the log; where the master waits for it, `is_sync`.
        self.slave: Machine | None = None
        self.is_sync = False
        self.broker_settings, self.store_settings = BROKER, STORE
        self.peers: list[Peer] = []
        self.act: Act = {}
        self.chance = random.Random(0)
        self.done: list[Done] = []
        self.kills = 0
        #: (topic, queue) -> all before is in the oracle.
        self._read_to: dict[tuple[str, int], int] = {}
        self._seen: Any = None
        self.act_began = 0.0
        self.requests = 0
        self._ports = 0
        #: Act of a send -> its messages.
        self.sent: dict[int, list[Any]] = {}

    # --- for actors

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def wall_ms(self) -> int:
        return int(self.scheduler.wall_ms)

    def peer(self, number: int | None = None) -> Peer:
        """The act's, or the one of a number; another one where the broker has hung up, as it does on silent clients."""
        number = (self.act["n"] if number is None else number) % PEERS
        peer = self.peers[number]
        if not peer.closed:
            peer.receive()
        if peer.closed:
            self.peers[number] = peer = self.machine.connect()
        return peer

    def ask(
        self, code: int, fields: dict[str, Any], body: bytes = b"", peer: Peer | None = None
    ) -> RemotingCommand | None:
        """The answer; None when the broker was killed, or closed the connection, before it came."""
        self.requests += 1
        answers = (peer or self.peer()).ask(code, fields, body)
        if not self.machine.run(lambda: answers.ended, ANSWER_S) and not self.machine.killed and not answers.ended:
            raise Violation("a request is not answered", f"code {code} {fields}")
        return answers.command

    @property
    def has_faults(self) -> bool:
        """The disk fails now or has failed in this life: changes may be refused."""
        return self.machine.disk.has_failed

    def ask_all(self, questions: list[tuple[int, dict[str, Any], bytes]]) -> list[RemotingCommand | None]:
        """The same for several at once, from all peers."""
        asked = []
        for index, question in enumerate(questions):
            self.requests += 1
            asked.append(self.peer(index).ask(*question))
        self.machine.run(lambda: all(one.ended for one in asked), ANSWER_S)
        if not self.machine.killed and not all(one.ended for one in asked):
            raise Violation("a request is not answered", "one of several")
        return [one.command for one in asked]

    def act_on(self, work: Callable[[], Any]) -> Any:
        """Do what an administrator does in the broker's own process. What it returned, or the `AdminError` that it
        raised; None when the broker was killed meanwhile."""
        ended: list[Any] = []

        def thread() -> None:
            try:
                ended.append(work())
            except AdminError as error:
                ended.append(error)

        task = self.scheduler.spawn(thread, "administrator", self.machine)
        if not self.machine.run(lambda: task.ended, ANSWER_S) and not self.machine.killed and not task.ended:
            raise Violation("an administrator is not answered", f"{self.act}")
        return ended[0] if ended else None

    def pass_time(self, seconds: float) -> None:
        """Let time pass. What arrives meanwhile is seen within a quarter of a second."""
        end = self.now + seconds
        while self.now < end and not self.machine.killed:
            self.machine.run(lambda: False, min(0.25, end - self.now))
            if not self.machine.killed:
                self.see_arrivals()

    @property
    def stalled(self) -> bool:
        """True if the master may wait for its slave: nothing new is acknowledged, nor shown."""
        if not self.is_sync:
            return False
        slave, network = self.slave, self.machine.network
        if slave is None or not slave.running or slave.disk.slow_s > 0.1 or self.scheduler.stands_still(slave):
            return True
        return bool(network.cuts) or network.delay_s > 0.1

    @property
    def waits_for_slave(self) -> bool:
        """The same, or until shortly ago."""
        return self.stalled or self.now < self.oracle.flows_since

    def lost_each_other(self) -> None:
        """A master and its slave have to find each other first."""
        if self.is_sync:
            self.oracle.flows_since = self.now + FLOWS_AGAIN_S
            self.oracle.trouble_since = min(self.oracle.trouble_since, self.act_began)  # nor can it save how far it is

    def see_slave(self) -> None:
        """Judge what was acknowledged by what the slave has."""
        if self.stalled:
            self.lost_each_other()
        elif self.is_sync and not self.waits_for_slave and not self.has_faults:
            self.oracle.trouble_since = math.inf
        acknowledged, self.oracle.acknowledged_end = self.oracle.acknowledged_end, -1
        slave = self.slave
        if not self.is_sync or acknowledged < 0:
            return
        self.oracle.on_slave = max(self.oracle.on_slave, acknowledged)
        if slave is None or not slave.running:
            return
        if acknowledged >= slave.broker.store.log.durable:
            raise Violation(
                "a sync master acknowledges what its slave does not have",
                f"{acknowledged}, the slave has the log up to {slave.broker.store.log.durable}",
            )

    # --- life and death

    def start(self) -> None:
        for _ in range(5):
            failure = self.machine.start()
            if failure is not None:
                raise Violation("the broker does not start", failure)
            if self.machine.running:
                break
            self._died()
        assert self.machine.running
        self.peers = [self.machine.connect() for _ in range(PEERS)]
        self.oracle.started(self.machine.log_at_start, self.now)
        if not self.act:
            self._make_groups()
        self.oracle.is_async = self.machine.config.store.flush_disk_type == "ASYNC_FLUSH"
        self._read_to.clear()
        self.learn_topics(at_start=True)
        self.lost_each_other()

    def _make_groups(self) -> None:
        self.act = {"n": 0}
        for group in (*GROUPS, "WORLD", "HOG", "BG", "TW", "ST", "SUB"):
            answer = self.ask(MAKE_GROUP, {}, b'{"groupName":"%b"}' % group.encode())
            assert answer is not None, "no answer"
            assert answer.code == 0, answer

    def _died(self, lost_power: bool = False) -> None:
        self.kills += 1
        if self.waits_for_slave:
            self.oracle.may_double()
        self.oracle.killed(self.now, lost_power)

    def stop(self) -> bool:
        """False when it was killed on its way."""
        self.see_failure(self.act_began)
        failed = self.has_faults
        if self.waits_for_slave:
            self.oracle.may_double()
        clean = self.machine.stop()
        if clean and failed:  # what could not be saved is as after a kill
            self.oracle.killed(self.now)
        elif clean:
            self.oracle.ended_at = self.now
        else:
            self._died()
        return clean

    def kill(self, mode: str, away_s: float = 0.0) -> None:
        self.see_failure(self.act_began)
        self.machine.kill(mode, self.chance)
        self._died(mode != "all")
        self.scheduler.now += away_s
        self.start()

    def next_port(self) -> int:
        """A slave's port: another one for each, since the master's former port stays its own."""
        self._ports += 10_000
        return 10_911 + self._ports

    def promote(self, mode: str, again_s: float) -> None:
        """Let the slave be the master from now on. mode: how it ends before, "" as it should. again_s: what came so
        shortly before may come again: it may not know yet that it came."""
        slave = self.slave
        assert slave is not None
        self.see_failure(self.act_began)
        self.machine.kill("all", self.chance)
        if mode:
            slave.kill(mode, self.chance)
        else:
            slave.stop()
        self.oracle.promoted(self.now - again_s)
        self._died()
        slave.configure({"broker_id": 0}, {"broker_role": "ASYNC_MASTER", "ha_master_address": ""})
        self.machine, self.slave, self.is_sync = slave, None, False
        self.start()
        for (_, topic, queue), commits in self.oracle.commits.items():
            commits.begun_at = max(commits.begun_at, self.machine.broker.store.min_offset(topic, queue))

    def see_failure(self, begun: float) -> None:
        """Before the broker ends, and after each act. begun: of the act."""
        if self.machine.log_failed and not self.oracle.disk_failed:
            self.oracle.disk_failed, self.oracle.failed_at = True, begun

    def learn_topics(self, at_start: bool = False) -> None:
        """Look up what became of topics whose deletion or change had no answer."""
        topics = self.machine.broker.topics
        if at_start:
            self.oracle.unsure |= self.oracle.doubtful
            self.oracle.doubtful.clear()
        for topic in sorted(self.oracle.unsure):
            config = topics.get(topic)
            if config is None:
                # Half a deletion: the topic is gone, and what it held may come back with the next one of its name.
                self.oracle.topics.pop(topic, None)
                self.oracle.deleted(topic, False)
            else:
                self.oracle.topics[topic] = config.read_queue_nums
        self.oracle.unsure.clear()
        for topic, queues in self.oracle.topics.items():
            config = topics.get(topic)
            if config is None:
                raise Violation("a topic is gone", topic)
            if config.read_queue_nums != queues:
                raise Violation(
                    "a topic has another number of queues", f"{topic}: {config.read_queue_nums}, not {queues}"
                )

    # --- looking

    def see_arrivals(self) -> None:
        """Read new messages in queues that grew without an answer to a client."""
        store = self.machine.broker.store
        self.oracle.log_ends(store.log.written, self.now)
        state = (store.published, self.machine.lives, tuple(self.oracle.topics.items()))
        if state == self._seen:
            return
        for topic, queues in list(self.oracle.topics.items()):
            for queue in range(queues):
                high = store.max_offset(topic, queue)
                key = (topic, queue)
                at = max(self._read_to.get(key, 0), store.min_offset(topic, queue))
                expected = self.oracle.expected.get(key, {})
                while at < high and at in expected:
                    at += 1
                if at < high and not self.machine.killed:
                    self._read(topic, queue, at, high)
                    if self.machine.killed:
                        return
                self._read_to[key] = max(at, high)
        self._seen = state

    def _read(self, topic: str, queue: int, at: int, high: int) -> set[int] | None:
        """Pull [at, high) as a consumer does; the offsets of what was given. None when the broker was killed."""
        found: set[int] = set()
        patience = 20
        while at < high:
            answer = self.ask(PULL, pull_fields(topic, queue, at, consumerGroup="WORLD"))
            if answer is None:
                if self.machine.killed:
                    return None
                raise Violation("a pull closes the connection", f"{topic}-{queue} at {at}")
            if answer.code == 0:
                for record in records(answer.body):
                    self.oracle.record(topic, queue, record, self.now)
                    found.add(record.queue_offset)
            elif answer.code not in (19, 20, 21):
                raise Violation("a pull is refused", f"{topic}-{queue} at {at}: {answer.code} {answer.remark}")
            after = int(answer.ext_fields["nextBeginOffset"])
            if after <= at and answer.code == 19 and patience > 0:  # the queue's file is being made again
                patience -= 1
                self.machine.run(lambda: False, 0.5)
                continue
            if after <= at and answer.code != 21:
                raise Violation("a pull does not get on", f"{topic}-{queue} at {at} of {high}: {answer.code} {after}")
            if answer.code == 21 and after == at:
                break
            at = after
        return found

    def look_at(self, topic: str, queue: int) -> tuple[int, int] | None:
        """Read all of a queue and judge it; what it spans, or None when the broker was killed."""
        store = self.machine.broker.store
        begin = store.log.min_offset
        low, high = store.offset_range(topic, queue)
        found = self._read(topic, queue, low, high)
        if found is None:
            return None
        self.oracle.retire(begin, self.now)
        if store.log.min_offset != begin:  # files went meanwhile
            self.oracle.retire(store.log.min_offset, self.now)
            return None
        self.oracle.whole(topic, queue, low, high, found)
        self._read_to[topic, queue] = high
        return low, high

    def look(self) -> None:
        for topic, queues in list(self.oracle.topics.items()):
            for queue in range(queues):
                if self.look_at(topic, queue) is None and self.machine.killed:
                    return

    # --- the story

    def perform(self, act: Act, errors: _Errors) -> None:
        self.act = act
        self.chance = random.Random(f"{self.seed} {act['n']}")
        self.scheduler.chance = random.Random(f"{self.seed} {act['n']} threads")
        random.seed(f"{self.seed} {act['n']} engine")
        kind: Kind = ACTORS[act["act"]]
        outcome, self.act_began = "", self.now
        try:
            outcome = kind.do(self, act) or ""
            if not self.machine.killed:
                self.see_arrivals()
            if not self.machine.killed:
                self.oracle.retire(self.machine.broker.store.log.min_offset, self.now)
            if self.machine.killed:
                outcome += " (killed)"
                self.kill(self.chance.choice(("all", "all", "none", "some", "last", "all but one", "first", "torn")))
                self.look()
                if self.machine.killed:
                    self.kill("all")
            self.see_failure(self.act_began)
            self.see_slave()
            if self.has_faults or self.waits_for_slave:
                self.oracle.excuse_replays()
            self.oracle.late(self.now)
            self.oracle.too_late_claims(self.now)
            if errors.found:
                raise Violation("the broker logs an exception", errors.found[0])
        finally:
            self.done.append(Done(act, outcome))


class Result(NamedTuple):
    """done: every act with what came of it. seconds: of the processor."""

    failure: Failure | None
    done: list[Done]
    figures: dict[str, Any]
    seconds: float


@contextmanager
def logged_errors() -> Any:
    """Exceptions that are logged are found; nothing else is formatted."""
    errors, root = _Errors(), logging.getLogger("appliance")
    level, propagate = root.level, root.propagate
    root.setLevel(logging.ERROR)
    root.propagate = False
    root.addHandler(errors)
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    try:
        yield errors
    finally:
        logging.disable(disabled)
        root.removeHandler(errors)
        root.setLevel(level)
        root.propagate = propagate


@contextmanager
def no_garbage() -> Iterator[None]:
    """Brokers that were killed are collected when all is over: looking for them takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def play(seed: int, script: list[Act], told: Callable[[Done], None] | None = None) -> Result:
    """Do all acts of a script, up to the first violation."""
    begun = time.process_time()
    scheduler = Scheduler(BEGIN_MS)
    failure = None
    random_state = random.getstate()
    random.seed(f"{seed} start")
    with no_garbage(), simulated_machine(scheduler, BROKER, STORE) as machine, logged_errors() as errors:
        world = World(seed, machine)
        try:
            world.start()
            for act in script:
                world.perform(act, errors)
                if told is not None:
                    told(world.done[-1])
        except Violation as violation:
            failure = Failure(violation.rule, str(violation), world.done)
        except Exception as error:  # of the broker while it starts or stops, or of the world itself
            rule = f"the story breaks off with {type(error).__name__}"
            failure = Failure(rule, f"{rule}: {error}\n{traceback.format_exc()}", world.done)
        figures = world.oracle.figures() | {"requests": world.requests, "virtual s": round(world.now - 1000.0, 1)}
    random.setstate(random_state)
    return Result(failure, world.done, figures, time.process_time() - begun)
