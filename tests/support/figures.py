"""An engine whose figures are asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgspec
import pytest

from appliance.engine.clock import Clock
from appliance.engine.engine import Engine
from appliance.engine.loop_calls import run_on_loop
from appliance.engine.protocol.command import RemotingCommand
from tests.support.engine import Peer, pull_fields, send_fields
from tests.support.waiting import wait_for


class SkippingClock(Clock):
    """The machine's clock plus skipped time. set_by_ms: how far the wall clock was set forward or back."""

    def __init__(self) -> None:
        self.skipped_ms = 0
        self.set_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.skipped_ms + self.set_by_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_ms / 1000

    steady = monotonic


class WatchedEngine:
    """An engine, a peer, and its figures as they are asked for."""

    def __init__(self, engine: Engine, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.clock = clock
        self.patch = monkeypatch
        assert engine.broker is not None
        self.broker = engine.broker
        self.store = engine.broker.store
        self.peer = Peer(str(engine.broker_address))

    def runtime(self) -> dict[str, Any]:
        """28."""
        return msgspec.json.decode(self.ask(28).body)["table"]

    def metrics(self) -> dict[str, Any]:
        """Return what /metrics shows."""
        return self.engine.window.metrics()

    def overview(self) -> dict[str, Any]:
        """The first page, and GET /api/v1/broker."""
        return asdict(self.engine.window.overview.snapshot())

    def topic_row(self) -> dict[str, Any]:
        """T in the list of topics, a page and GET /api/v1/topics."""
        (row,) = self.engine.window.topics.page("T").rows
        return asdict(row)

    def queue_row(self) -> dict[str, Any]:
        """A topic's page."""
        return asdict(self.engine.window.topics.queue_rows("T")[0])

    def group_row(self) -> dict[str, Any]:
        """CG in the list of groups."""
        (row,) = self.engine.window.groups.page("CG").rows
        return asdict(row)

    def system(self) -> dict[str, Any]:
        """The system page."""
        return asdict(self.engine.window.system())

    def progress(self) -> dict[str, Any]:
        """208 of one queue."""
        body = self.ask(208, {"consumerGroup": "CG", "topic": "T"}).body
        found = re.findall(rb'"(\w+)":([0-9.]+)', body.replace(b'"queueId"', b""))
        sums: Counter[str] = Counter()
        for name, value in found:
            sums[name.decode()] += float(value)  # type: ignore[assignment]
        return dict(sums)

    def statistics(self) -> dict[str, Any]:
        """315: span and figure."""
        body = self.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}).body
        spans = msgspec.json.decode(body)
        return {f"{span}.{name}": value for span, figures in spans.items() for name, value in figures.items()}

    def sent_back(self) -> dict[str, Any]:
        """315 of what a group sent back; nothing is known of it before it has."""
        answer = self.peer.ask(315, {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "Warm@CG"})
        minute = msgspec.json.decode(answer.body)["statsMinute"]["sum"] if answer.code == 0 else 0
        return {"SNDBCK_PUT_NUMS": minute}

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        """On a connection of its own: idle ones are closed when time is skipped."""
        connections = self.engine.server.connections
        before = len(connections)
        peer = Peer(str(self.engine.broker_address))
        answer = peer.ask(code, fields, body)
        peer.close()
        wait_for(lambda: len(connections) <= before, "it is closed")
        assert answer.code == 0, answer
        return answer

    def on_loop(self, job: Callable[[], object]) -> None:
        assert run_on_loop(self.engine.loop.call_soon, job, lambda: False)

    def send(self, body: bytes = b"x", topic: str = "T", code: int = 0) -> None:
        assert self.peer.ask(310, send_fields(topic), body).code == code

    def delay(self, topic: str = "Slow") -> None:
        """A message that comes in 10 s."""
        assert self.peer.ask(310, send_fields(topic, properties="DELAY\x013\x02"), b"x").code == 0

    def wait(self, delay_ms: int, topic: str = "Timed", properties: str = "") -> None:
        """A message with a time of its own, which is in the index when this returns."""
        timers = self.broker.timers.index
        before = timers.indexed.queue_offset
        text = f"TIMER_DELAY_MS\x01{delay_ms}\x02{properties}"
        assert self.peer.ask(310, send_fields(topic, properties=text), b"x").code == 0
        wait_for(lambda: timers.indexed.queue_offset > before, "it is in the index")

    def pull(self, offset: int = 0) -> None:
        self.peer.ask(11, pull_fields("T", 0, offset))

    @property
    def end(self) -> int:
        return self.store.offset_range("T", 0)[1]

    def sample(self) -> None:
        self.clock.skipped_ms += 10_000
        self.on_loop(self.broker.stats.sample)
