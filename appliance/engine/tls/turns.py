"""Turns of addresses on a thread that encrypts: the bulk or the handshakes of one address do not hold up others.

As long as the work of a tick is short, each event is handled at once. The events behind a tick's first TURN_S are put
off, in a line for each address, and so are all events while there is a line. Then each address has one step at a time,
for TURN_S, before the loop looks for new events. A step is one piece of 64 KiB, or one message of a handshake.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ..remoting.event_loop import EventLoop
from ..shares import address_of

#: Time that steps have between two looks for new events.
TURN_S = 0.002


class Guest(Protocol):
    """Something whose events may be put off. peer: the address of a connection, as records have it."""

    peer: bytes

    def park(self) -> None:
        """Watch no events until `resume`."""

    def resume(self, mask: int) -> None:
        """Watch again, and handle the events that were put off; nothing, if it has ended."""


class Turns:
    """Owned by the loop's thread."""

    def __init__(self, loop: EventLoop) -> None:
        # Constant after construction.
        self._loop = loop
        self._clock = loop.clock
        # Owned by the thread. _tick: the loop's time of the tick that _until belongs to.
        self._lines: dict[bytes, deque[tuple[Guest, int]]] = {}
        self._tick = self._until = -1.0

    def put_off(self, guest: Guest, mask: int) -> bool:
        """True if the events are kept for a turn of the guest's address; False if they are to be handled now."""
        if not self._lines:
            if self._tick != self._loop.monotonic:
                self._tick = self._loop.monotonic
                self._until = self._clock.monotonic() + TURN_S
                return False
            if self._clock.monotonic() < self._until:
                return False
            self._loop.call_soon(self._go_on)
        guest.park()
        self._lines.setdefault(address_of(guest.peer), deque()).append((guest, mask))
        return True

    def _go_on(self) -> None:
        lines = self._lines
        until = self._clock.monotonic() + TURN_S
        try:
            while lines:
                address = next(iter(lines))
                line = lines.pop(address)
                guest, mask = line.popleft()
                if line:
                    lines[address] = line  # behind the others
                guest.resume(mask)
                if self._clock.monotonic() >= until:
                    break
        finally:
            if lines:
                self._loop.call_soon(self._go_on)
