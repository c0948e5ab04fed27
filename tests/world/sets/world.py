"""A set as its acts use it: clients' requests, time, and who leads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from appliance.engine.errors import AdminError
from appliance.engine.failover.set_state import decode_state
from appliance.engine.protocol.command import RemotingCommand
from tests.support.peer import pull_fields, records
from tests.world.machine import Machine, Peer
from tests.world.oracle import Violation
from tests.world.sets.etcd import Etcd
from tests.world.sets.kind import Act, Kind
from tests.world.sets.member import KEYS, Member
from tests.world.sets.name_server import ROUTE, NameServerMachine, Route, route_in
from tests.world.sets.network import SetNetwork
from tests.world.sets.oracle import Sent, SetOracle
from tests.world.threads import Scheduler
from tests.world.world import Done

PULL = 11
FOUND, NO_SUCH_QUEUE, NO_SUCH_TOPIC, NO_MORE = 0, 1, 17, (19, 20, 21)
#: Longest that a client waits for an answer.
ANSWER_S = 10.0
#: A leader that stood still has read the store so many seconds after it, and one that is cut off has noticed so many
#: seconds after another one began.
AWAKE_S = 5.0
#: A member that nothing happened to for so long is well.
WELL_S = 20.0


class SetWorld:
    """The set as acts use it."""

    def __init__(
        self,
        seed: int,
        scheduler: Scheduler,
        network: SetNetwork,
        etcd: Etcd,
        members: list[Member],
        name_server: NameServerMachine,
        kinds: dict[str, Kind],
    ) -> None:
        self.seed = seed
        self.scheduler, self.network, self.etcd, self.members = scheduler, network, etcd, members
        self.name_server = name_server
        self.oracle = SetOracle()
        self.act: Act = {}
        self.chance = random.Random(0)
        self.done: list[Done] = []
        self.requests = 0
        #: Act of a send -> its message.
        self.by_act: dict[int, Sent] = {}
        #: A member's machine was replaced: only so many may join.
        self.replaced = False
        self._kinds = kinds
        self._peers: dict[str, Peer] = {}
        #: (member, its life, epoch) of all that led -> when they began.
        self._led: dict[tuple[str, int, int], float] = {}
        #: Member -> when something happened to it; "" for the network and the store.
        self._hurt: dict[str, float] = {}

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def _machines(self) -> list[Machine]:
        return [*self.members, self.name_server]

    def run(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let all members run until `done()`; False after so many seconds."""
        end = self.now + seconds
        machines = self._machines

        def look() -> bool:
            if not self.scheduler.stirred:
                return done()
            self.scheduler.stirred = ticked = False
            for machine in machines:
                if machine.running and machine.loop._poller.answered:
                    machine.loop._poller.answered = False
                    machine._receive()
                    ticked = True
            if ticked:  # whoever begins to lead does so on its loop
                self._see_leaders()
            return done()

        while True:
            for member in self.members:
                if member.running and member.disk.dead:
                    self.hurt(member)
                    member._end()
            if self.scheduler.run(look, end - self.now):
                return True
            if not any(member.running and member.disk.dead for member in self.members):
                return False

    def pass_time(self, seconds: float) -> None:
        self.run(lambda: False, seconds)

    def hurt(self, member: Member | None = None, seconds: float = 0.0) -> None:
        """Something happens to a member, or to the network or the store, and lasts so long."""
        self._hurt["" if member is None else member.name] = self.now + seconds

    def _is_well(self, name: str) -> bool:
        return self._hurt.get(name, 0.0) < self.now - WELL_S

    def _see_leaders(self) -> None:
        for member in self.members:
            if member.serves and (led := (member.name, member.lives, member.broker.role.epoch)) not in self._led:
                self._led[led] = self.now
                self.oracle.led()
                for topic, queue in self.oracle.offsets:
                    self.oracle.begins(topic, queue, member.broker.store.min_offset(topic, queue))
                self._judge_election(member)

    def _judge_election(self, leader: Member) -> None:
        """Another member that has older messages would have been the better one."""
        value = self.etcd.keys.get(f"{KEYS}/state")
        if value is None or not self._is_well("") or self.oracle.is_async:
            return
        in_sync, log = decode_state(value[0]).isr, leader.broker.store.log
        for other in self.members:
            if other is leader or not other.role or other.seat.broker is None or not self._is_well(other.name):
                continue
            theirs = other.broker.store.log
            if other.service.status.uuid in in_sync and theirs.min_offset < log.min_offset:  # type: ignore[union-attr]
                raise Violation(
                    "a member that deleted more was elected",
                    f"{leader.name} begins at {log.min_offset}, {other.name} at {theirs.min_offset}",
                )

    def leader(self) -> Member | None:
        """One that takes itself for the leader: there may be two for a while."""
        found = [member for member in self.members if member.serves]
        return found[self.act.get("pick", 0) % len(found)] if found else None

    def is_behind(self, member: Member) -> bool:
        """True for a leader that stood still or was cut off while another was elected, until it has to know."""
        if not member.serves:
            return False
        stood_still = self.scheduler.still_until(member) >= self.now - AWAKE_S
        return any(
            epoch > member.broker.role.epoch and (stood_still or begun >= self.now - AWAKE_S)
            for (_, _, epoch), begun in self._led.items()
        )

    def who(self, name: str) -> Member:
        if name == "leader":
            return self.leader() or self.members[0]
        return self.members[int(name) % len(self.members)]

    def together(self) -> Member | None:
        """The one leader, when all others are in sync and have its log."""
        leaders = [member for member in self.members if member.serves]
        value = self.etcd.keys.get(f"{KEYS}/state")
        if len(leaders) != 1 or value is None or any(not member.role for member in self.members):
            return None
        state = decode_state(value[0])
        uuids = {member.service.status.uuid for member in self.members}  # type: ignore[union-attr]
        if any(member.seat.broker is None for member in self.members) or not uuids <= set(state.isr):
            return None
        log = leaders[0].broker.store.log
        same = all(one.broker.store.log.written == log.written for one in self.members)
        return leaders[0] if same and log.written == leaders[0].broker.store.published else None

    # --- clients

    def ask(self, member: Machine, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand | None:
        """The answer; None when none came in time."""
        return self.ask_all(member, [(code, fields, body)])[0]

    def ask_all(
        self, member: Machine, questions: list[tuple[int, dict[str, Any], bytes]]
    ) -> list[RemotingCommand | None]:
        """The answers to requests that are sent at once."""
        if not member.running or member.disk.dead:
            return [None] * len(questions)
        self.requests += len(questions)
        peer = self._peers.get(member.address)
        if peer is not None and not peer.closed:
            peer.receive()
        if peer is None or peer.closed:
            self._peers[member.address] = peer = member.connect()
        answers = [peer.ask(*question) for question in questions]
        self.run(lambda: all(one.ended for one in answers), ANSWER_S)
        return [one.command for one in answers]

    def route(self, topic: str) -> Route | None:
        """The name server's answer to a client."""
        return route_in(self.ask(self.name_server, ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"}))

    def master(self, topic: str) -> Member | None:
        """The member that the name server takes for the master."""
        route = self.route(topic)
        address = None if route is None else route.brokers.get(0)
        found = [member for member in self.members if member.address == address and member.role]
        return found[0] if found else None

    def act_on(self, member: Member, work: Callable[[], Any]) -> Any:
        """The same as `World.act_on`, for a set."""
        ended: list[Any] = []

        def thread() -> None:
            try:
                ended.append(work())
            except AdminError as error:
                ended.append(error)

        task = self.scheduler.spawn(thread, "administrator", member)
        self.run(lambda: task.ended, 30.0)
        return ended[0] if ended else None

    def start(self, member: Member) -> None:
        for _ in range(5):
            failure = member.start()
            if failure is not None:
                raise Violation("a member does not start", f"{member.name}: {failure}")
            if member.running:
                return
        raise AssertionError("a member dies at each start")

    def read(self, member: Member, topic: str, queue: int) -> bool:
        """Pull all that a leader shows of a queue, and judge it. False if it ceased to be one, perhaps unawares."""
        if not member.serves:
            return False
        low, end = member.broker.store.offset_range(topic, queue)
        found: set[int] = set()
        at, patience = low, 20
        while at < end:
            answer = self.ask(member, PULL, pull_fields(topic, queue, at, consumerGroup="WORLD"))
            if answer is None or not member.serves or self.is_behind(member):
                return False
            if answer.code == FOUND:
                for record in records(answer.body):
                    self.oracle.record(topic, queue, record, self.now)
                    found.add(record.queue_offset)
            elif answer.code == NO_SUCH_QUEUE and member.serves:
                raise Violation(
                    "a queue with messages cannot be read", f"{topic}-{queue} of {member.name}: {answer.remark}"
                )
            elif answer.code == NO_SUCH_TOPIC and topic in self.oracle.topics and self.together() is member:
                raise Violation("a topic is gone", f"{topic} of {member.name}: {answer.remark}")
            elif answer.code not in NO_MORE:
                return False
            after = int(answer.ext_fields["nextBeginOffset"])
            if after <= at:
                patience -= 1
                if answer.code == 21 or patience < 0:
                    break
                self.pass_time(0.5)
                continue
            at = after
        if self.is_behind(member):
            return False
        if member.serves and at >= end and (begin := member.broker.store.min_offset(topic, queue)) >= low:
            self.oracle.whole(member.name, topic, queue, found, (begin, end), self.now)
        return True

    def perform(self, act: Act, errors: Any) -> None:
        self.act = act
        self.chance = random.Random(f"{self.seed} {act['n']}")
        self.scheduler.chance = random.Random(f"{self.seed} {act['n']} threads")
        random.seed(f"{self.seed} {act['n']} engine")
        outcome = ""
        try:
            outcome = self._kinds[act["act"]].do(self, act) or ""
            self.run(lambda: True, 0.0)
            if errors.found:
                raise Violation("a member logs an exception", errors.found[0])
        finally:
            roles = " ".join(f"{member.name}:{member.role or '-'}" for member in self.members)
            self.done.append(Done(act, f"{outcome} [{roles}]"))
