"""Faults of a simulated set, chosen by the seed; and one round of it from the first start to the healing."""

from __future__ import annotations

from appliance.engine.failover.decision import Wish

from .world import World


class Faults:
    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds = [
            *(self.kill, self.power_cut, self.power_cut_of_all, self.pause, self.stall, self.disk_error),
            *(self.partition, self.partition, self.lonely_leader, self.lonely_leader, self.isolate, self.store_down),
            *(self.switch, self.clean_stop, self.wall_jump, self.kill_leader, self.kill_leader, self.slow_follower),
            self.slow_disk,
            self.store_full,
        ]
        # Rare violations are found sooner with the faults that lead to them.
        if world.sabotage == "stream stays open":
            self.kinds = [self.lonely_leader, self.lonely_leader, self.kill_leader]
        if world.sabotage == "no seen file":
            self.kinds = [self.lonely_leader, self.kill_leader, self.power_cut_of_all]
        if world.sabotage == "time-out is a failure":
            self.kinds = [self.kill, self.kill, self.deaf_leader, self.deaf_leader]
        if world.sabotage == "wall clock":
            self.kinds = [self.lonely_leader, self.lonely_leader, self.wall_jump]
        if world.sabotage == "truncation in memory":
            self.kinds = [self.lonely_leader, self.kill_leader, self.power_cut, self.power_cut_of_all]

    def happen(self) -> None:
        self.world.rng.choice(self.kinds)()

    def _any(self):
        return self.world.rng.choice(self.world.members)

    def _leader(self):
        return next((member for member in self.world.members if member.role == "leader"), self._any())

    def _down(self, member, power: bool) -> None:
        if member.running:
            member.kill(power)
            self.world.later(self.world.rng.uniform(0.1, 4.0), lambda: member.running or member.start())

    def kill(self) -> None:
        self._down(self._any(), False)

    def kill_leader(self) -> None:
        self._down(self._leader(), self.world.rng.random() < 0.5)

    def power_cut(self) -> None:
        self._down(self._any(), True)

    def power_cut_of_all(self) -> None:
        for member in self.world.members:
            self._down(member, True)

    def pause(self) -> None:
        self._any().paused_until = self.world.now + self.world.rng.uniform(0.3, 8.0)

    def stall(self) -> None:
        self._any().stalled_until = self.world.now + self.world.rng.uniform(0.1, 9.0)

    def disk_error(self) -> None:
        member = self._any()
        if member.running:
            member.broken = True
            self.world.later(self.world.rng.uniform(1.0, 4.0), lambda: self._down(member, False))

    def _block(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        self.world.cuts.update(pairs)
        self.world.later(seconds, lambda: self.world.cuts.difference_update(pairs))

    def partition(self) -> None:
        """Cut one direction between any two."""
        one, two = self.world.rng.sample([*self.world.by_uuid, "store"], 2)
        self._block([(one, two)], self.world.rng.uniform(0.2, 6.0))

    def isolate(self) -> None:
        one = self._any().uuid
        others = [*self.world.by_uuid, "store"]
        both = [(one, other) for other in others] + [(other, one) for other in others]
        self._block(both, self.world.rng.uniform(0.2, 8.0))

    def lonely_leader(self) -> None:
        """Cut the leader off from the store, and its messages to the others for a while."""
        rng, leader = self.world.rng, self._leader().uuid
        self._block(
            [(leader, "store"), ("store", leader)], rng.uniform(2.0, 4.5) * self.world.rules[leader].elect_after
        )
        self._block([(leader, other) for other in self.world.by_uuid if other != leader], rng.uniform(1.5, 4.0))

    def deaf_leader(self) -> None:
        """Let the leader's swaps arrive and their answers get lost."""
        self._block([("store", self._leader().uuid)], self.world.rng.uniform(0.5, 4.0))

    def slow_follower(self) -> None:
        """Let one disk hang while the power of all fails a moment later."""
        member = self._any()
        member.stalled_until = self.world.now + self.world.rng.uniform(0.1, 1.5)
        self.world.later(self.world.rng.uniform(0.05, 0.6), self.power_cut_of_all)

    def slow_disk(self) -> None:
        """Let each sync of a member take long: it leaves the in-sync set, and comes back."""
        member = self._any()
        member.sync_s = self.world.rng.uniform(0.3, 1.8)
        self.world.later(self.world.rng.uniform(2.0, 10.0), lambda: setattr(member, "sync_s", 0.0))

    def store_down(self) -> None:
        self.world.store.up = False
        self.world.later(self.world.rng.uniform(0.2, 6.0), lambda: setattr(self.world.store, "up", True))

    def store_full(self) -> None:
        """Let the store's quota be used up until someone makes room."""
        self.world.store.full = True
        self.world.later(self.world.rng.uniform(0.2, 8.0), lambda: setattr(self.world.store, "full", False))

    def switch(self) -> None:
        self._leader().wish = Wish("switch", self._any().uuid)

    def clean_stop(self) -> None:
        member = self._any()
        if member.running:
            member.wish = Wish("resign")
            self.world.later(self.world.rng.uniform(3.0, 6.0), lambda: member.running or member.start())

    def wall_jump(self) -> None:
        """Set the wall clock back, which only code that reads the wrong clock notices."""
        if self.world.sabotage == "wall clock":
            self._leader().wall_jump += self.world.rng.uniform(-3600, 0)

    def wipe(self) -> None:
        """Delete the key, or restore one that every member can recognise as old."""
        store = self.world.store
        if store.state is None:
            return
        least = min(member.seen for member in self.world.members)
        old = [state for state, _ in store.history if state is not None and state.epoch < least]
        if old and self.world.rng.random() < 0.5:
            state = self.world.rng.choice(old)
            store.revision += 1
            store.state = state
        else:
            store.revision += 1
            store.state = None
        store.history.clear()
        store.history.append((store.state, store.revision))


def one_round(seed: int, sabotage: str = "", synchronous: bool = True, seconds: float = 20.0) -> World:
    """Run one round; raise Violation if something is wrong."""
    world = World(seed, sabotage, synchronous)
    faults, rng = Faults(world), world.rng
    if sabotage == "no seen file":
        world.store.stale = 0.4
    world.advance(rng.uniform(1.0, 4.0))
    begin, wiped = world.now, seed % 10 == 9 or sabotage == "no seen file"
    while world.now < begin + seconds:
        faults.happen()
        world.advance(rng.choice((0.05, 0.3, 1.0, 2.0, 4.0)) * rng.uniform(0.5, 1.5))
        if wiped and world.now > begin + seconds / 2:
            faults.wipe()
            wiped = False
    world.heal()
    world.expect_a_leader()
    return world
