"""Addresses take turns on the threads of TLS: many connections of one do not hold up those of another."""

from __future__ import annotations

from contextlib import suppress

from appliance.engine.protocol.message_id import encode_host
from appliance.engine.tls.turns import TURN_S, Turns
from tests.support.clock import FakeClock
from tests.support.tls import raw


class Loop:
    """The part of an event loop that is used here; `tick` is one turn of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.monotonic = 0.0
        self.soon: list = []

    def call_soon(self, callback) -> None:
        self.soon.append(callback)

    def tick(self, *events) -> None:
        self.clock.advance(ms=1)
        self.monotonic = self.clock.monotonic()
        for guest in events:
            if not guest.parked:
                guest.on_event()
        calls, self.soon = self.soon, []
        for call in calls:
            with suppress(ZeroDivisionError):  # which the loop logs
                call()


class Guest:
    """A guest whose step takes 1 ms."""

    def __init__(self, name: str, host: str, turns: Turns, loop: Loop, done: list[str]) -> None:
        self.name, self.peer, self.parked = name, encode_host(host, 1), False
        self._turns, self._loop, self._done = turns, loop, done

    def on_event(self) -> None:
        if not self._turns.put_off(self, 1):
            self.step()

    def step(self) -> None:
        self._loop.clock.advance(ms=1)
        self._done.append(self.name)

    def park(self) -> None:
        assert not self.parked
        self.parked = True

    def resume(self, mask: int) -> None:
        assert mask == 1
        self.parked = False
        self.step()


def guests():
    loop, done = Loop(), []
    turns = Turns(loop)
    many = [Guest(f"a{n}", "10.0.0.1", turns, loop, done) for n in range(20)]
    one = Guest("b", "10.0.0.2", turns, loop, done)
    return loop, done, many, one


def test_few_events_are_handled_at_once():
    loop, done, many, one = guests()
    for _ in range(5):
        loop.tick(many[0], one)
        assert not loop.soon
    assert done == ["a0", "b"] * 5


def test_an_address_with_one_connection_waits_for_one_step_of_each_other():
    loop, done, many, one = guests()
    loop.tick(*many, one)
    at_once = round(TURN_S / 0.001)
    assert done[:at_once] == [f"a{n}" for n in range(at_once)]
    assert "b" in done[: at_once + 3], done  # behind those of its tick, one of the others goes first
    # And while the others' line lasts, each of its later events has the next turn but one.
    for _ in range(4):
        before = len(done)
        loop.tick(one, *many)
        assert "b" in done[before : before + 2], done[before:]


def test_each_event_is_handled_once_and_the_line_ends():
    loop, done, many, one = guests()
    loop.tick(*many, one)
    while loop.soon:
        loop.tick()
    assert sorted(done) == sorted(guest.name for guest in (*many, one))
    loop.tick(one)
    assert done[-1] == "b"
    assert not loop.soon


def test_a_guest_that_fails_does_not_stop_the_others():
    loop, done, many, one = guests()
    many[3].step = lambda: 1 / 0
    loop.tick(*many, one)
    while loop.soon:
        loop.tick()
    assert sorted(done) == sorted(guest.name for guest in (*many, one) if guest is not many[3])


def test_handshakes_and_bulk_that_are_put_off_are_whole(rigs, monkeypatch):
    monkeypatch.setattr("appliance.engine.tls.turns.TURN_S", -1.0)  # all but the first event of a tick
    rig = rigs()
    peers = [rig.peer() for _ in range(10)]
    silent = raw(rig.address)
    for n in range(5):
        sent = [(peer, peer.send(1, {"n": n}, bytes([n]) * 300_000)) for peer in peers]
        for peer, opaque in sent:
            answer = peer.receive()
            assert (answer.opaque, answer.code) == (opaque, 0)
    silent.close()
    for peer in peers[:5]:
        peer.close()
    for peer in peers[5:]:
        assert peer.ask(1, {}, b"x").code == 0
