"""A member of a simulated set: its disk, its stream, and the loop that reads, decides and acts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from appliance.engine.failover import decision as d
from appliance.engine.failover.machine import decide, pause, release_until, wants_read
from appliance.engine.failover.parts import Known, LogHealth, MemberReport, StreamStatus
from appliance.engine.failover.set_state import EpochStart, Leader
from appliance.engine.replication.ack_pace import AckPace

from .oracle import Violation

if TYPE_CHECKING:
    from .world import World

Steps = Generator[float, None, None]

#: A connection without a sign of life is given up after this time, a disk without one after the other.
SILENCE_S, DISK_STALL_S = 2.5, 5.0
#: A report that takes longer is late.
LATE_S = 0.5
HEARTBEAT_S = 0.25


class Link:
    """A bound stream of one epoch, in both directions. bound: False for an observer."""

    def __init__(self, leader: SimulatedMember, follower: SimulatedMember, now: float) -> None:
        self.leader, self.follower, self.epoch = leader, follower, leader.leads
        self.leader_open = self.follower_open = True
        self.sent = self.follower_end = len(follower.log)
        self.durable = -1
        self.moved_at = self.connected_at = leader.clock()
        self.pace = AckPace(LATE_S)
        self.heard_at, self.spoken_at = now, now
        self.sent_at = -1.0
        self.frames: deque[Callable[[], object]] = deque()
        self.reports: deque[Callable[[], object]] = deque()
        self.reported = -1


class DiskError(Exception):
    pass


class SimulatedMember:
    """A member. log: ids, each counting as one byte. durable: how many of them are on the disk."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.uuid = world, f"m{number}"
        self.me = Leader(self.uuid, number, f"host{number}:1", f"host{number}:2")
        self.rate = world.rng.uniform(0.89, 1.11)
        self.offset = world.rng.uniform(0, 1000)
        self.wall_jump = 0.0
        # The disk.
        self.log: list[int] = []
        self.durable = 0
        self.ghost: list[int] = []  # bytes that were cut in memory only
        self.seen = 0
        self.set_id = ""
        self.epochs: tuple[EpochStart, ...] = ()
        self.known = Known()
        self.quarantine: set[int] = set()
        # The process.
        self.life = 0
        self.running = False
        self.paused_until = 0.0
        self.stalled_until = 0.0
        self.sync_s = 0.0
        self.start()

    def __repr__(self) -> str:
        return self.uuid

    def clock(self) -> float:
        return self.world.now * self.rate + self.offset + self.wall_jump

    # --- a process comes and goes

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.running, self.broken = True, False
        self.memory = d.Memory()
        self.role, self.leads, self.published = "fenced", 0, 0
        self.told: frozenset[str] = frozenset()
        self.awaited: frozenset[str] = frozenset()
        self.following: tuple[str, int] = ("", 0)
        self.closed_at = -1
        self.drained: bool | None = None
        self.draining = False
        self.wish: d.Wish | None = None
        self.answers: list[d.Answer] = []
        self.deadline = 0.0
        self.link: Link | None = None
        self.links: dict[str, Link] = {}
        self.refusals = 0
        self.cut_at, self.cut_epochs, self.stranger = -1, self.epochs, False
        self.heard_at = 0.0
        self.in_sync_since = 0
        self.syncing: tuple[float, int] | None = None
        self.moved_disk_at = world.now
        world.run(self, self._service())
        world.run(self, self._io())

    def kill(self, power: bool = False) -> None:
        """The page cache survives a kill, and not a power cut."""
        self.running, self.role = False, "fenced"
        self.life += 1
        for link in [*self.links.values(), *([self.link] if self.link else [])]:
            self.world.hang_up(link, link.leader is self)
        if power:
            kept = self.world.rng.randint(self.durable, len(self.log))
            del self.log[kept:]
            self.world.oracle.electable_hold_all()
        if self.world.sabotage == "truncation in memory" and len(self.ghost) > len(self.log):
            self.log += self.ghost[len(self.log) :]
            self.durable = len(self.log)
        self.ghost = []
        if self.world.sabotage == "no seen file":
            self.seen = 0

    # --- the thread `failover`

    def _service(self) -> Steps:
        world = self.world
        swapped: d.Swapped | None = None
        if world.sabotage == "epoch resumed":
            yield from self._resume()
        while True:
            read, unread = None, False
            if wants_read(self.memory):
                read = yield from world.store.look(self)
                unread = read is None
            now = self.clock()
            self.memory, acts = decide(
                self.memory, now, self._sight(now, read, unread, swapped), world.rules[self.uuid]
            )
            self.deadline = release_until(self.memory, world.rules[self.uuid])
            world.decided(self, acts)
            swapped = None
            try:
                for act in acts:
                    swapped = (yield from self._do(act)) or swapped
            except DiskError:
                yield 0.25
            if not acts:
                yield pause(self.memory, now, world.rules[self.uuid])

    def _resume(self) -> Steps:
        read = yield from self.world.store.look(self)
        if read and read.state and read.state.leader == self.me:
            self.memory = self.memory._replace(key=read, reign=d.Reign(read.state, read.revision, self.clock()))
            self.closed_at, self.durable = len(self.log), len(self.log)

    def _sight(self, now: float, read: d.Read | None, unread: bool, swapped: d.Swapped | None) -> d.Sight:
        world, link = self.world, self.link
        end = len(self.log)
        reports = []
        for uuid, out in self.links.items():
            if out.leader_open and out.durable >= 0:
                durable = out.durable
                if world.sabotage == "joiner not waited for" and uuid not in self.in_sync():
                    durable = end
                pace = out.pace.took_s(now), out.pace.late_s(now)
                reports.append(MemberReport(uuid, uuid, durable, out.sent, out.moved_at, out.connected_at, 0, *pace))
        following = link is not None and link.follower_open
        return d.Sight(
            me=self.me,
            seen=self.seen,
            set_id=self.set_id,
            epoch=self.epochs[-1].epoch if self.epochs else 0,
            epoch_start=self.epochs[-1].start if self.epochs else 0,
            health=LogHealth(end, self.durable, self.published, not self.broken, "broken", self.alive()),
            stream=StreamStatus(
                self.following[0] if following else "",
                self.following[1] if following else 0,
                self.heard_at,
                self.refusals >= 3,
                self.cut_at,
                self.stranger,
                0,
                "",
            ),
            members=reports,
            role=self.role,
            nonce=world.nonce(),
            random=world.rng.random(),
            read=read,
            unread=unread,
            swapped=swapped,
            closed_at=self.closed_at,
            following=self.following,
            awaited=self.told,
            drained=self.drained,
            wish=self.wish,
            cluster="one",
            others=world.announced,
            known=self.known,
        )

    def in_sync(self) -> tuple[str, ...]:
        return self.memory.reign.state.isr if self.memory.reign is not None else ()

    def alive(self) -> bool:
        if self.world.sabotage == "beat without the disk":
            return True
        return self.syncing is None or self.world.now - self.syncing[0] < DISK_STALL_S

    def _sync(self) -> Steps:
        """Raises DiskError."""
        until = len(self.log)
        yield self.world.rng.uniform(0.001, 0.01)
        while self.world.now < self.stalled_until:
            yield 0.05
        if self.broken:
            raise DiskError
        self.durable = max(self.durable, min(until, len(self.log)))

    def _do(self, act: d.Act) -> Generator[float, None, d.Swapped | None]:
        world, rng = self.world, self.world.rng
        kind = type(act)
        if kind is d.Swap:
            swapped = yield from world.store.exchange(self, act)
            if swapped.how == "unknown" and world.sabotage == "time-out is a failure":
                self.memory = self.memory._replace(pending=None)
                return None
            return swapped
        if kind is d.See:
            yield 0.002
            self.seen = max(self.seen, act.epoch)
        elif kind is d.Join:
            yield 0.002
            self.set_id = act.set_id
        elif kind is d.Note:
            yield 0.002
            self.known = act.known
        elif kind is d.BeginEpoch:
            yield 0.002
            self.epochs += (EpochStart(act.epoch, act.start),)
        elif kind is d.Await:
            self.told = act.awaited
            if world.sabotage == "await comes late":
                world.later(0.15, lambda: setattr(self, "awaited", act.awaited))
            else:
                self.awaited = act.awaited
        elif kind is d.CloseStream:
            if world.sabotage != "stream stays open":
                self.following = ("", 0)
                self._drop_link()
            yield from self._sync()
            self.closed_at = len(self.log)
        elif kind is d.Lead:
            yield rng.uniform(0.02, 0.3)
            if self.broken:
                raise DiskError
            self.role, self.leads, self.published = "leader", act.epoch, 0
            self.told = self.awaited = act.awaited
            self.links, self.drained, self.draining, self.closed_at = {}, None, False, -1
        elif kind is d.Fence:
            self._fence()
            yield 0.01
        elif kind is d.Follow:
            if self.role != "follower":
                self._fence()
                yield rng.uniform(0.02, 0.1)
                self.role = "follower"
            self._drop_link()
            self._follow(act.leader.uuid, act.epoch)
        elif kind is d.Cut:
            yield from self._cut(act)
        elif kind is d.SetAside:
            self._drop_link()
            yield rng.uniform(0.01, 0.1)
            self.quarantine.update(self.log)
            self.log, self.durable, self.epochs, self.known = [], 0, (), Known()
            world.oracle.electable_hold_all()
            self.following, self.role, self.stranger = ("", 0), "follower", False
        elif kind is d.Drain:
            self.draining = True
            for _ in range(40):
                if self.published == len(self.log):
                    break
                yield act.seconds / 40
            self.drained = self.published == len(self.log)
        elif kind is d.Answer:
            self.answers.append(act)
            if self.wish is not None and self.wish.kind == "resign":
                self.kill()
                yield 0.0
            self.wish = None
        return None

    def _fence(self) -> None:
        self.role, self.leads, self.draining = "fenced", 0, False
        for link in self.links.values():
            self.world.hang_up(link, True)
        self.links = {}

    def _follow(self, uuid: str, epoch: int) -> None:
        self.following = (uuid, epoch)
        self.closed_at, self.refusals, self.cut_at, self.stranger = -1, 0, -1, False
        self.world.run(self, self._connect(uuid, epoch))

    def _drop_link(self) -> None:
        if self.link is not None:
            self.world.hang_up(self.link, False)
            self.link = None

    def _cut(self, act: d.Cut) -> Steps:
        world = self.world
        self._drop_link()
        yield world.rng.uniform(0.01, 0.1)
        epochs = self.cut_epochs
        if world.sabotage == "tail is not cut":
            self.epochs = epochs
        else:
            self.quarantine.update(self.log[act.point :])
            if world.sabotage == "truncation in memory":
                self.ghost = list(self.log)
            del self.log[act.point :]
            self.durable = min(self.durable, len(self.log))
            world.oracle.electable_hold_all()
            yield world.rng.uniform(0.0, 0.02)
            self.epochs = epochs
        self.role = "follower"
        self._follow(act.leader.uuid, act.epoch)

    # --- the stream

    def _connect(self, uuid: str, epoch: int) -> Steps:
        """Connect, and connect again, as long as this leader and epoch are followed."""
        world = self.world
        other = world.by_uuid[uuid]
        while self.following == (uuid, epoch) and self.cut_at < 0 and not self.stranger:
            yield world.rng.uniform(0.04, 0.12)
            if self.following != (uuid, epoch):
                return
            if self.link is not None and self.link.follower_open:
                if world.now - self.link.heard_at > SILENCE_S:
                    self._drop_link()
                continue
            if world.blocked(self.uuid, uuid) or world.blocked(uuid, self.uuid) or other.paused_until > world.now:
                continue
            if not other.running:
                self.refusals += 1
            elif other.role == "leader" and other.leads == epoch:
                self._shake_hands(other)

    def _shake_hands(self, leader: SimulatedMember) -> None:
        world, end = self.world, len(self.log)
        if self.seen > leader.leads:
            leader.seen = max(leader.seen, self.seen)
            return
        point = consistent_point(self.epochs, end, leader.epochs, len(leader.log))
        if point is None:
            self.stranger = True
        elif point < end and world.sabotage == "tail is not cut":
            self.epochs = leader.epochs
        elif point < end:
            self.cut_at, self.cut_epochs = point, leader.epochs
            return
        else:
            self.epochs = leader.epochs
        if not self.stranger:
            self.link = leader.links[self.uuid] = Link(leader, self, world.now)
            self.refusals, self.heard_at = 0, self.clock()
            self.in_sync_since = end

    def frame(self, link: Link, start: int, records: list[int], confirm: int) -> None:
        """Bytes of the leader arrive."""
        if self.link is not link or not link.follower_open:
            return
        link.heard_at, self.heard_at = self.world.now, self.clock()
        if start == len(self.log):
            self.log += records
        elif self.world.sabotage == "" and self.log[start : start + len(records)] != records:
            raise Violation(f"{self} is sent other bytes at {start} than it has")
        if confirm >= self.in_sync_since:
            self.world.oracle.serve(self, min(confirm, len(self.log)))

    def report(self, link: Link, durable: int) -> None:
        """A follower's report arrives at its leader."""
        if not link.leader_open or self.links.get(link.follower.uuid) is not link:
            return
        if durable > link.durable:
            link.durable, link.moved_at = durable, self.clock()
            link.pace.takes(durable, len(self.log), self.clock())

    # --- the I/O thread

    def _io(self) -> Steps:
        world = self.world
        rng = world.rng
        while True:
            yield rng.uniform(0.02, 0.07)
            self._sync_turn()
            link = self.link
            if link is not None and link.follower_open and self.alive():
                durable = len(self.log) if world.sabotage == "written is reported" else self.durable
                if durable != link.reported:
                    link.reported = durable
                    world.deliver(link, False, lambda link=link, end=durable: link.leader.report(link, end))
            if self.role == "leader":
                self._lead_turn()

    def _sync_turn(self) -> None:
        """One sync at a time: begun in one turn, done in a later one."""
        now = self.world.now
        if self.broken:
            return
        if self.syncing is not None:
            if now < self.stalled_until or now < self.syncing[0] + self.sync_s:
                return
            self.durable = max(self.durable, min(self.syncing[1], len(self.log)))
            self.syncing = None
        if self.durable < len(self.log) or now < self.stalled_until:
            self.syncing = (now, len(self.log))

    def _lead_turn(self) -> None:
        world = self.world
        end = len(self.log)
        for link in list(self.links.values()):
            if not link.leader_open:
                self.links.pop(link.follower.uuid, None)
                continue
            if link.durable >= link.sent == end:
                link.moved_at = self.clock()
            if self.alive() and (link.sent < end or world.now - link.sent_at > HEARTBEAT_S):
                if link.sent < end:
                    link.pace.sends(end, self.clock())
                start, records, confirm = link.sent, self.log[link.sent : end], self.published
                link.sent, link.sent_at = end, world.now
                world.deliver(link, True, lambda a=link, b=start, c=records, e=confirm: a.follower.frame(a, b, c, e))
        self._publish()

    def _publish(self) -> None:
        world = self.world
        until = self.durable
        if world.synchronous and world.sabotage != "release without the others":
            awaited: frozenset[str] = self.awaited
            if world.sabotage == "join after the swap":
                awaited = awaited & set(self.in_sync())
            if world.sabotage == "shrink before the answer" and self.memory.pending is not None:
                awaited = awaited & set(self.memory.pending.swap.state.isr)
            ends = sorted(self.links[u].durable if u in self.links else -1 for u in awaited)
            if world.sabotage == "observer counted" and ends:
                ends[0] = len(self.log)
            until = min([until, *ends])
        elif not world.synchronous and self.clock() > self.deadline:
            return
        if until > self.published:
            world.oracle.publish(self, until)

    def append(self, message: int) -> bool:
        if self.role != "leader" or self.draining or self.broken or self.paused_until > self.world.now:
            return False
        self.log.append(message)
        return True


def consistent_point(
    own: tuple[EpochStart, ...], own_end: int, leaders: tuple[EpochStart, ...], leaders_end: int
) -> int | None:
    """Return the end of the logs' common part, by the newest epoch with one start in both; None without one."""
    own = tuple(entry for entry in own if entry.start < own_end)
    if not own_end:
        return 0
    for at in range(len(own) - 1, -1, -1):
        if own[at] in leaders:
            there = leaders.index(own[at])
            end = own[at + 1].start if at + 1 < len(own) else own_end
            leaders_one = leaders[there + 1].start if there + 1 < len(leaders) else leaders_end
            return min(end, leaders_one)
    return None
