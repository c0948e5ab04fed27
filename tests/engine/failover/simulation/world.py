"""A broker set in one thread: events by time, everything else by the seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from appliance.engine.failover import machine
from appliance.engine.failover.decision import Act, Follow, Lead, Other, Rules, Swap, Wish

from .member import Link, SimulatedMember, Steps
from .oracle import Oracle, Violation
from .store import SimulatedStore

#: After everything is healed, a leader must accept within so many seconds.
HEALED_S = 20.0

#: Possible mistakes in the implementation; the oracle finds each of them.
SABOTAGES = (
    "release without the others",
    "shrink before the answer",
    "join after the swap",
    "await comes late",
    "joiner not waited for",
    "written is reported",
    "stream stays open",
    "no seen file",
    "time-out is a failure",
    "truncation in memory",
    "tail is not cut",
    "epoch resumed",
    "observer counted",
    "wall clock",
    "beat without the disk",
)


class World:
    def __init__(self, seed: int, sabotage: str = "", synchronous: bool = True, members: int = 0) -> None:
        assert sabotage in ("", *SABOTAGES)
        self.rng = random.Random(seed)
        self.seed, self.sabotage, self.synchronous = seed, sabotage, synchronous
        self.now = 0.0
        self.steps = self.turns = self._number = self._messages = 0
        self._events: list[tuple[float, int, SimulatedMember | None, int, Steps | Callable[[], object]]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.announced: dict[str, Other] = {}
        self.happened: list[str] = []
        self.oracle = Oracle(self)
        self.store = SimulatedStore(self)
        count = members or self.rng.choice((2, 3, 3))
        self.rules = {
            f"m{n}": Rules(
                "set",
                f"m{n}",
                synchronous,
                elect_after=2.0 if synchronous else 5.0,
                bootstrap=n == 1,
                slow_after=2.0,
                slow_wait=1.5,
            )
            for n in range(1, count + 1)
        }
        self.by_uuid: dict[str, SimulatedMember] = {}
        for n in range(1, count + 1):
            self.by_uuid[f"m{n}"] = SimulatedMember(self, n)
        self.members = list(self.by_uuid.values())
        self.later(0.1, self._send)
        self.later(0.1, self._announce)

    # --- time

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self._push(self.now + seconds, None, 0, what)

    def run(self, member: SimulatedMember, steps: Steps) -> None:
        self._push(self.now + 0.001, member, member.life, steps)

    def _push(self, at: float, member: SimulatedMember | None, life: int, what: Steps | Callable[[], object]) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, member, life, what))

    def advance(self, seconds: float) -> None:
        """Run all events of the next seconds."""
        until, events = self.now + seconds, self._events
        while events[0][0] <= until:
            at, _, member, life, what = heapq.heappop(events)
            self.now = at
            if member is None:
                self.steps += 1
                what()  # type: ignore[operator]
            elif member.life == life:
                if member.paused_until > at:
                    self._push(member.paused_until, member, life, what)
                    continue
                self.steps += 1
                delay = next(what, None)  # type: ignore[call-overload]
                if delay is not None and member.life == life:
                    self._push(at + delay, member, life, what)
        self.now = until

    def nonce(self) -> str:
        self._number += 1
        return str(self._number)

    # --- the network

    def blocked(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def deliver(self, link: Link, to_follower: bool, what: Callable[[], object]) -> None:
        """Deliver in order. A blocked frame arrives later, as long as both ends are open."""
        waiting = link.frames if to_follower else link.reports
        waiting.append(what)
        source, target = (link.leader, link.follower) if to_follower else (link.follower, link.leader)

        def arrive() -> None:
            if not (link.follower_open if to_follower else link.leader_open):
                return
            if (source.uuid, target.uuid) in self.cuts or target.paused_until > self.now:
                self.later(0.1, arrive)
            else:
                waiting.popleft()()

        self.later(self.rng.uniform(0.0005, 0.02), arrive)

    def hang_up(self, link: Link, by_leader: bool) -> None:
        """Close one end. The other end notices it if the network lets it, otherwise by silence."""
        if by_leader:
            link.leader_open = False
        else:
            link.follower_open = False
        if not self.blocked(link.leader.uuid, link.follower.uuid) and not self.blocked(
            link.follower.uuid, link.leader.uuid
        ):
            self.later(self.rng.uniform(0.001, 0.01), lambda: self._both_closed(link))

    @staticmethod
    def _both_closed(link: Link) -> None:
        link.leader_open = link.follower_open = False

    # --- who uses the set

    def _send(self) -> None:
        """Send to every member that takes it: two may believe that they lead."""
        for member in self.members:
            if member.running and self.rng.random() < 0.7:
                self._messages += 1
                member.append(self._messages)
        self.later(self.rng.uniform(0.02, 0.2), self._send)

    def _announce(self) -> None:
        for member in self.members:
            if member.running and not self.blocked(member.uuid, "store") and self.store.up:
                self.announced[member.uuid] = Other(member.seen, len(member.log))
        self.later(3.0, self._announce)

    def decided(self, member: SimulatedMember, acts: tuple[Act, ...]) -> None:
        self.turns += 1
        for act in acts:
            if type(act) in (Follow, Lead) or (type(act) is Swap and act.purpose != "keep"):
                self.happened.append(f"{self.now:8.3f} {member} {type(act).__name__} {_short(act)}")

    # --- the end

    def heal(self) -> None:
        self.cuts.clear()
        self.store.up, self.store.full = True, False
        self.store.lost = self.store.stale = self.store.late = 0.0
        for member in self.members:
            member.paused_until = member.stalled_until = min(member.stalled_until, self.now)
            if member.broken and member.running:
                member.kill()
            if not member.running:
                member.start()

    def expect_a_leader(self, seconds: float = HEALED_S) -> None:
        """Check after the healing that one member leads and acknowledges. A frozen set is adopted as an operator would
        do it, by the leader or else the member with the longest log of the highest epoch."""
        before = len(self.oracle.shown)
        for turn in range(int(seconds * 2)):
            self.advance(0.5)
            if turn > 6 and any(member.memory.role == "frozen" for member in self.members):
                best = max(self.members, key=_rank)
                best.wish = best.wish or Wish("adopt")
            for member in self.members:
                if not member.running:
                    member.start()
            if turn > 4 and len(self.oracle.shown) > before + 5:
                return
            if not self.synchronous and any(m.role == "leader" and m.published == len(m.log) > 5 for m in self.members):
                return
        raise Violation(f"nobody accepts {seconds} s after all was healed: {[m.memory[-2:] for m in self.members]}")


def _rank(member: SimulatedMember) -> tuple[int, int, int]:
    return member.epochs[-1].epoch if member.epochs else 0, len(member.log), member.role == "leader"


def _short(act: Act) -> str:
    if type(act) is Swap:
        return f"{act.purpose} epoch {act.state.epoch}"
    return str(act.epoch)  # type: ignore[union-attr]


def without_checks() -> None:
    """Disable the checks of `machine`, so that only the oracle can find a sabotage."""
    machine.check = lambda *_: None  # type: ignore[assignment]
