"""One seed, one life of a set: acts, done one after the other to members that the oracle watches.

As in `tests/world/world.py` an act says all about itself, so that any may be left out.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from typing import Any

from appliance.engine.errors import AdminError
from appliance.engine.failover.decision import Wish
from appliance.engine.failover.set_state import decode_state
from appliance.engine.protocol.command import RemotingCommand
from tests.support.peer import pull_fields, records, send_fields
from tests.world.actors.administrators import CREATE_TOPIC, DELETE_TOPIC, topic_fields
from tests.world.actors.kind import Act
from tests.world.actors.purges import purges_of
from tests.world.machine import LOG_FILE_BYTES, Peer, simulated_machines
from tests.world.oracle import Place, Violation
from tests.world.sets.etcd import NAME, Etcd
from tests.world.sets.member import KEYS, Member, simulated_membership
from tests.world.sets.network import SetNetwork
from tests.world.sets.oracle import Sent, SetOracle
from tests.world.threads import Scheduler
from tests.world.world import BEGIN_MS, STORE, Done, Failure, Result, logged_errors, no_garbage

SEND, PULL = 310, 11
FOUND, NO_MORE = 0, (19, 20, 21)
TOPICS = ("A", "B")
QUEUES = 4
#: `messageDelayLevel`, its first ones.
LEVELS_S = (1.0, 5.0)
MODES = ("all", "all", "none", "some", "torn")
#: Longest that a client waits for an answer.
ANSWER_S = 10.0
#: When nothing is in the way a set has come together, and a leader serves, within so many seconds.
TOGETHER_S = 60.0


class SetWorld:
    """The set as acts use it."""

    def __init__(self, seed: int, scheduler: Scheduler, network: SetNetwork, etcd: Etcd, members: list[Member]) -> None:
        self.seed = seed
        self.scheduler, self.network, self.etcd, self.members = scheduler, network, etcd, members
        self.oracle = SetOracle()
        self.act: Act = {}
        self.chance = random.Random(0)
        self.done: list[Done] = []
        self.requests = 0
        self._peers: dict[str, Peer] = {}
        #: (member, its life, epoch) of all that led.
        self._led: set[tuple[str, int, int]] = set()

    @property
    def now(self) -> float:
        return self.scheduler.now

    def run(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let all members run until `done()`; False after so many seconds."""
        end = self.now + seconds

        def look() -> bool:
            for member in self.members:
                if member.running and member.loop._poller.answered:
                    member.loop._poller.answered = False
                    member._receive()
            self._see_leaders()
            return done()

        while True:
            for member in self.members:
                if member.running and member.disk.dead:
                    member._end()
            if self.scheduler.run(look, end - self.now):
                return True
            if not any(member.running and member.disk.dead for member in self.members):
                return False

    def pass_time(self, seconds: float) -> None:
        self.run(lambda: False, seconds)

    def _see_leaders(self) -> None:
        for member in self.members:
            if member.serves and (led := (member.name, member.lives, member.broker.role.epoch)) not in self._led:
                self._led.add(led)
                self.oracle.leads += 1

    def leader(self) -> Member | None:
        """One that takes itself for the leader: there may be two for a while."""
        found = [member for member in self.members if member.serves]
        return found[self.act.get("pick", 0) % len(found)] if found else None

    def who(self, name: str) -> Member:
        if name == "leader":
            return self.leader() or self.members[0]
        return self.members[int(name) % len(self.members)]

    def ask(self, member: Member, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand | None:
        """The answer; None when none came in time."""
        if not member.running or member.disk.dead:
            return None
        self.requests += 1
        peer = self._peers.get(member.name)
        if peer is not None and not peer.closed:
            peer.receive()
        if peer is None or peer.closed:
            self._peers[member.name] = peer = member.connect()
        answers = peer.ask(code, fields, body)
        self.run(lambda: answers.ended, ANSWER_S)
        return answers.command

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
        """Pull all that a leader shows of a queue, and judge it. False if it ceased to be one."""
        if not member.serves:
            return False
        low, end = member.broker.store.offset_range(topic, queue)
        found: set[int] = set()
        at, patience = low, 20
        while at < end:
            answer = self.ask(member, PULL, pull_fields(topic, queue, at))
            if answer is None or not member.serves:
                return False
            if answer.code == FOUND:
                for record in records(answer.body):
                    self.oracle.record(topic, queue, record, self.now)
                    found.add(record.queue_offset)
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
        if member.serves and at >= end:
            self.oracle.whole(topic, queue, found, end)
        return True

    def perform(self, act: Act, errors: Any) -> None:
        self.act = act
        self.chance = random.Random(f"{self.seed} {act['n']}")
        self.scheduler.chance = random.Random(f"{self.seed} {act['n']} threads")
        random.seed(f"{self.seed} {act['n']} engine")
        outcome = ""
        try:
            outcome = _ACTS[act["act"]](self, act) or ""
            self.run(lambda: True, 0.0)
            if errors.found:
                raise Violation("a member logs an exception", errors.found[0])
        finally:
            roles = " ".join(f"{member.name}:{member.role or '-'}" for member in self.members)
            self.done.append(Done(act, f"{outcome} [{roles}]"))


# --- clients


def _send(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        world.pass_time(1.0)
        return "nobody leads"
    body = b"%d " % act["n"] + b"x" * act.get("size", 0)
    delay = LEVELS_S[act["level"] - 1] if "level" in act else 0.0
    message = Sent(act["n"], act["topic"], body, world.now, delay, 0)
    world.oracle.send(message)
    text = f"DELAY\x01{act['level']}\x02" if delay else ""
    answer = world.ask(leader, SEND, send_fields(act["topic"], act["queue"], text), body)
    if answer is None or answer.code != 0:
        return "no answer" if answer is None else f"{leader.name} refuses with {answer.code}"
    fields = answer.ext_fields
    world.oracle.topics.setdefault(act["topic"], QUEUES)
    world.oracle.acknowledged(message, Place(act["topic"], int(fields["queueId"]), int(fields["queueOffset"])))
    return f"{leader.name} at {fields['queueId']}:{fields['queueOffset']}"


def _look(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    return f"{leader.name} {sum(world.read(leader, act['topic'], queue) for queue in range(QUEUES))}"


# --- administrators


def _make(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    answer = world.ask(leader, CREATE_TOPIC, topic_fields(act["topic"], QUEUES))
    if answer is not None and answer.code == 0:
        world.oracle.topics[act["topic"]] = QUEUES
        return f"{leader.name} made it"
    return "no answer" if answer is None else f"refused with {answer.code} {answer.remark}"


def _delete(world: SetWorld, act: Act) -> str:
    leader = world.leader()
    if leader is None:
        return "nobody leads"
    answer = world.ask(leader, DELETE_TOPIC, {"topic": act["topic"]})
    sure = answer is not None and answer.code == 0
    world.oracle.removed(act["topic"], sure)
    if sure:
        _then(world, leader, act)
    return f"{leader.name} deleted it" if sure else "no answer" if answer is None else f"refused with {answer.code}"


def _purge(world: SetWorld, act: Act) -> str:
    leader, topic = world.leader(), act["topic"]
    if leader is None:
        return "nobody leads"
    if not all(world.read(leader, topic, queue) for queue in range(QUEUES)) or not leader.serves:
        return "it does not serve"
    broker = leader.broker
    ends = {queue: broker.store.max_offset(topic, queue) for queue in range(QUEUES)}
    purges = purges_of(broker, leader.pools)
    answer = world.act_on(leader, lambda: purges.purge(topic, force=True))
    if answer is None or isinstance(answer, AdminError):
        world.oracle.removed(topic, False, dict.fromkeys(range(QUEUES), 1 << 60))
        return "no answer" if answer is None else f"refused: {answer}"
    world.oracle.removed(topic, True, ends)
    _then(world, leader, act)
    return f"{leader.name} purged it: {ends}"


def _then(world: SetWorld, leader: Member, act: Act) -> None:
    """The leader dies as soon as it has answered."""
    if act.get("then") and leader.running:
        leader.kill(act["then"], world.chance)


# --- faults


def _kill(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    if not member.running:
        world.start(member)
        return f"{member.name} starts"
    member.kill(act["mode"], world.chance)
    world.pass_time(act["away"])
    if not act["stays"]:
        world.start(member)
    return f"{member.name} dies"


def _kill_soon(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    if member.running:
        member.disk.kill_in = act["changes"]
    return member.name


def _restart(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    if member.running:
        member.stop()
    world.pass_time(act["away"])
    if not member.running:
        world.start(member)
    return f"{member.name} again"


def _cut(world: SetWorld, act: Act) -> str:
    names = [*(member.name for member in world.members), NAME]
    leader = world.leader()
    chosen = set()
    for one, other in act["pairs"]:
        one, other = (
            (leader.name if leader is not None else "m0") if name == "leader" else names[name % len(names)]
            for name in (one, other)
        )
        chosen.add(f"{one}>{other}")
    if act["late"]:
        world.network.lates, world.network.delay_s = frozenset(chosen), act["late"]
    else:
        world.network.cuts |= chosen
    world.pass_time(act["for"])
    if not act["stays"]:
        world.network.heal()
    return " ".join(sorted(chosen))


def _heal(world: SetWorld, act: Act) -> str:
    world.network.heal()
    return ""


def _store(world: SetWorld, act: Act) -> str:
    """The store does not answer for a while, takes no writes, or is put back to what it was before."""
    etcd = world.etcd
    if act["how"] == "copy":
        etcd.copy()
    elif act["how"] == "restore":
        if world.network.cuts or not all(member.role for member in world.members) or not etcd.restore():
            return "not now"
        world.pass_time(act["for"])
        return _adopt(world)
    else:
        setattr(etcd, act["how"], True)
        world.pass_time(act["for"])
        setattr(etcd, act["how"], False)
    return ""


def _adopt(world: SetWorld) -> str:
    """An operator has the member with the newest epoch, and of those the longest log, begin the set anew."""
    able = [one for one in world.members if one.running and one.service is not None and one.seat.broker is not None]
    if not able:
        return "nobody is there"
    best = max(able, key=lambda one: (one.service.status.seen, one.broker.store.log.written))  # type: ignore[union-attr]
    if len(able) < len(world.members):
        return "not now"
    answer = world.act_on(best, lambda: best.service.ask(Wish("adopt"), 10.0))  # type: ignore[union-attr]
    return f"{best.name} adopts: {answer}"


def _still(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    world.scheduler.stand_still(member, act["for"])
    return member.name


def _clock(world: SetWorld, act: Act) -> str:
    member = world.who(act["who"])
    member.wall.step(act["ms"])
    world.oracle.clocks_moved = True
    return member.name


def _wait(world: SetWorld, act: Act) -> str:
    world.pass_time(act["seconds"])
    return ""


def _together(world: SetWorld) -> Member | None:
    """The one leader, when all others are in sync and have its log."""
    leaders = [member for member in world.members if member.serves]
    value = world.etcd.keys.get(f"{KEYS}/state")
    if len(leaders) != 1 or value is None or any(not member.role for member in world.members):
        return None
    state = decode_state(value[0])
    uuids = {member.service.status.uuid for member in world.members}  # type: ignore[union-attr]
    if any(member.seat.broker is None for member in world.members) or not uuids <= set(state.isr):
        return None
    log = leaders[0].broker.store.log
    same = all(one.broker.store.log.written == log.written for one in world.members)
    return leaders[0] if same and log.written == leaders[0].broker.store.published else None


def _settle(world: SetWorld, act: Act) -> str:
    """Nothing is in the way; then the set comes together, and has all."""
    world.network.heal()
    for member in world.members:
        member.disk.kill_in = -1
        if not member.running:
            world.start(member)
    until = world.now + TOGETHER_S
    adopted = ""
    while not world.run(lambda: _together(world) is not None, 5.0):
        if any(one.service is not None and one.service.status.astray for one in world.members):
            adopted = _adopt(world)
        for member in world.members:
            if not member.running:
                world.start(member)
        if world.now > until:
            why = {one.name: one.service and (one.service.status.role, one.service.status.why) for one in world.members}
            raise Violation("a set does not come together", f"{why} {adopted}")
    world.pass_time(LEVELS_S[-1] + 5.0)
    leader = None
    for _ in range(20):
        leader = _together(world)
        if leader is not None:
            break
        world.pass_time(1.0)
    if leader is None:
        raise Violation("a set falls apart though nothing is in the way")
    for topic in TOPICS:
        for queue in range(QUEUES):
            if not world.read(leader, topic, queue):
                return "it does not serve"
    world.oracle.late()
    world.pass_time(5.0)
    if _together(world) is leader:
        _compare(world, leader)
    return f"{leader.name} leads"


def _compare(world: SetWorld, leader: Member) -> None:
    store = leader.broker.store
    for topic in world.oracle.topics:
        if leader.broker.topics.get(topic) is None:
            raise Violation("a topic is gone", topic)
    for member in world.members:
        theirs = member.broker.store
        at, end = max(store.log.min_offset, theirs.log.min_offset), store.log.written
        while at < end:
            size = min(LOG_FILE_BYTES - at % LOG_FILE_BYTES, end - at)
            if store.log.read(at, size) != theirs.log.read(at, size):
                raise Violation("a member's log is another one", f"{member.name} within {size} bytes from {at}")
            at += size
        for topic in TOPICS:
            if (leader.broker.topics.get(topic) is None) != (member.broker.topics.get(topic) is None):
                raise Violation("a member has other topics", f"{member.name}: {topic}")
            for queue in range(QUEUES):
                ours, other = store.offset_range(topic, queue), theirs.offset_range(topic, queue)
                if ours != other and ours[0] < ours[1]:
                    raise Violation(
                        "a member's queue is another one", f"{member.name} {topic}-{queue} {other}, not {ours}"
                    )


# --- thinking up


def _someone(chance: random.Random) -> str:
    return chance.choice(("leader", "leader", "0", "1", "2"))


def _new_send(chance: random.Random) -> Act:
    act: Act = {"topic": chance.choice(TOPICS), "queue": chance.randrange(QUEUES), "pick": chance.randrange(2)}
    if chance.random() < 0.2:
        act["level"] = chance.randint(1, len(LEVELS_S))
    if chance.random() < 0.2:
        act["size"] = chance.choice((300, 2000, 9000))
    return act


def _new_topic(chance: random.Random) -> Act:
    return {"topic": chance.choice(TOPICS), "pick": chance.randrange(2)}


def _new_removal(chance: random.Random) -> Act:
    return _new_topic(chance) | {"then": chance.choice(("", "", "all", "none"))}


def _new_cut(chance: random.Random) -> Act:
    places = ("leader", 0, 1, 2, 3)
    pairs = [[one, other] for one, other in (chance.sample(places, 2) for _ in range(chance.choice((1, 1, 2, 4))))]
    if chance.random() < 0.4:  # the leader alone, or in one direction
        others = [place for place in places[1:] if chance.random() < 0.8]
        pairs = [["leader", place] for place in others]
        if chance.random() < 0.6:
            pairs += [[place, "leader"] for place in others]
    return {
        "pairs": pairs, "for": chance.choice((0.3, 2.0, 8.0, 15.0)), "stays": chance.random() < 0.5,
        "late": chance.choice((0.0, 0.0, 0.0, 0.3, 2.0)),
    }  # fmt: skip


_KINDS: dict[str, tuple[float, Callable[[random.Random], Act], Callable[[SetWorld, Act], str]]] = {
    "send": (30, _new_send, _send),
    "look": (5, _new_topic, _look),
    "make": (1, _new_topic, _make),
    "delete": (1.5, _new_removal, _delete),
    "purge": (1.5, _new_removal, _purge),
    "kill": (
        2.5,
        lambda chance: {
            "who": _someone(chance), "mode": chance.choice(MODES), "away": chance.choice((0.0, 1.0, 8.0)),
            "stays": chance.random() < 0.3,
        },
        _kill,
    ),
    "kill soon": (
        1.5,
        lambda chance: {"who": _someone(chance), "changes": int(chance.expovariate(1 / 15))},
        _kill_soon,
    ),
    "restart": (1, lambda chance: {"who": _someone(chance), "away": chance.choice((0.0, 3.0))}, _restart),
    "cut": (3, _new_cut, _cut),
    "heal": (2, lambda chance: {}, _heal),
    "store": (
        1,
        lambda chance: {
            "how": chance.choice(("down", "full", "copy", "copy", "restore")), "for": chance.choice((0.5, 3.0, 9.0)),
        },
        _store,
    ),
    "stand still": (1, lambda chance: {"who": _someone(chance), "for": chance.choice((0.5, 3.0, 20.0))}, _still),
    "clock": (
        0.5,
        lambda chance: {"who": _someone(chance), "ms": chance.choice((-3_600_000, -3000, 300, 3000, 600_000))},
        _clock,
    ),
    "wait": (6, lambda chance: {"seconds": chance.choice((0.05, 0.3, 1.0, 1.0, 3.0, 6.0))}, _wait),
    "settle": (0.6, lambda chance: {}, _settle),
}  # fmt: skip
_ACTS = {name: do for name, (_, _, do) in _KINDS.items()}


def script_of(seed: int, steps: int) -> list[Act]:
    """The acts of a seed; the first one says how many members there are, and how many have to be in sync."""
    chance = random.Random(f"set {seed}")
    members = chance.choice((2, 3, 3))
    script: list[Act] = [{"n": 0, "act": "begin", "members": members, "min": chance.choice((1, 1, 2))}]
    names = list(_KINDS)
    weights = [weight * chance.choice((0.3, 1.0, 1.0, 3.0)) for weight, _, _ in _KINDS.values()]
    for number in range(1, steps):
        name = chance.choices(names, weights)[0]
        script.append({"n": number, "act": name, **_KINDS[name][1](chance)})
    script.append({"n": steps, "act": "settle"})
    return script


def _begin(world: SetWorld) -> None:
    """The first member makes the set, the others join."""
    for member in world.members:
        world.start(member)
        if not world.run(lambda: world.leader() is not None, 30.0):
            raise Violation("nobody makes the set", str(world.members[0].service and world.members[0].service.status))
    if not world.run(lambda: _together(world) is not None, 30.0):
        raise Violation("a new set does not come together")


def play(seed: int, script: list[Act], told: Callable[[Done], None] | None = None) -> Result:
    """The same as `tests.world.world.play`, for a set."""
    begun = time.process_time()
    scheduler, etcd = Scheduler(BEGIN_MS), Etcd()
    network = SetNetwork(scheduler)
    scheduler.chance = random.Random(f"{seed} begin")
    state = random.getstate()
    random.seed(f"{seed} start")
    said = script[0] if script and script[0]["act"] == "begin" else {"members": 3, "min": 1}
    store = STORE | {"flush_disk_type": "SYNC_FLUSH", "broker_role": "SYNC_MASTER", "disk_max_used_space_ratio": 90}
    made: list[Member] = []

    def make() -> Member:
        number = len(made)
        made.append(Member(scheduler, number, store, network, etcd, said["min"], number == 0, BEGIN_MS))
        return made[-1]

    failure = None
    with (
        no_garbage(), simulated_machines(scheduler, network, make), simulated_membership(scheduler),
        logged_errors() as errors,
    ):  # fmt: skip
        while len(made) < said["members"]:
            make()
        world = SetWorld(seed, scheduler, network, etcd, made)
        try:
            _begin(world)
            for act in script:
                if act["act"] == "begin":
                    world.done.append(Done(act, ""))
                    continue
                world.perform(act, errors)
                if told is not None:
                    told(world.done[-1])
        except Violation as violation:
            failure = Failure(violation.rule, str(violation), world.done)
        except Exception as error:
            rule = f"the story breaks off with {type(error).__name__}"
            failure = Failure(rule, f"{rule}: {error}\n{traceback.format_exc()}", world.done)
        oracle = world.oracle
        figures = {
            "sent": len(oracle.sent), "acknowledged": sum(one.fate != "unknown" for one in oracle.sent.values()),
            "leaders": oracle.leads, "virtual s": round(world.now - 1000.0, 1), "requests": world.requests,
        }  # fmt: skip
    random.setstate(state)
    return Result(failure, world.done, figures, time.process_time() - begun)
