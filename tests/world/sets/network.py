"""The network of a set: a direction for each pair of machines, `m1>m2`, and for each machine and the store."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from tests.world.network import DELAY_S, Network, _Quiet

if TYPE_CHECKING:
    from tests.world.sets.member import Member


class SetNetwork(Network):
    """delay_s: of the directions in `lates`; others take the usual time."""

    def delay_of(self, direction: str) -> float:
        return self.delay_s if direction in self.lates else DELAY_S

    lates: frozenset[str] = frozenset()

    def hang_up_all(self, member: Member) -> None:
        """A process ends: its connections do, too. Those of a machine without power stay at the other end."""
        for client in self.clients.pop(member, ()):
            client.close()

    def vanish(self, member: Member) -> None:
        """A machine loses its power: its connections to those who copy from it stay at their ends."""
        for way in self.ways():
            if way.name.startswith(f"{member.name}>"):
                way.vanish()

    def answers_at(self, direction: str) -> bool:
        name = direction.partition(">")[2]
        return any(machine.listens for machine in self.machines.values() if getattr(machine, "name", "") == name)

    def heal(self) -> None:
        super().heal()
        self.lates = frozenset()

    def ways_to(self, address: str) -> tuple[str, str]:
        task = self.scheduler.current
        here: Member = task.owner  # type: ignore[union-attr,assignment]
        there = self._at(address)
        return f"{here.name}>{there.name}", f"{there.name}>{here.name}"

    def _at(self, address: str) -> Member:
        host, _, port = address.rpartition(":")
        found = self.machines.get(address) or self.machines[f"{host}:{int(port) - 1}"]  # the port for slaves
        return found  # type: ignore[return-value]

    def knock(self, address: str) -> socket.socket | None:
        """A connection to a broker's main port, which ends at once. Raises OSError when no process listens there."""
        machine = self.machines.get(address)
        if machine is None or not machine.listens:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        one, other = socket.socketpair()
        other.close()
        return _Quiet(one)
