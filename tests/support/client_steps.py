"""Drives procedures of the client's core without a shell: a scripted cluster answers, and a clock is set forward."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from appliance.client.core.steps import Call, CallFailed, Do, Sleep, Start, Tell, Together
from appliance.client.errors import ClientError
from appliance.engine.protocol.command import RemotingCommand

#: A cluster's reaction to a call: an answer, or a failure.
Cluster = Callable[[Call | Tell], RemotingCommand | CallFailed | None]


class SetClock:
    """Stands still, but for what sleeps and calls take."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_795_253_891_380 + int(self.now * 1000)


class Driver:
    """started: procedures that were begun to go on by themselves. calls: what was asked, in order. slept: seconds."""

    def __init__(self, cluster: Cluster, clock: SetClock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.started: list[Generator[Any, Any, Any]] = []
        self.calls: list[Call | Tell] = []
        self.slept: list[float] = []

    def run(self, procedure: Generator[Any, Any, Any], most_steps: int = 1000) -> Any:
        """Run a procedure. Return or raise what it does. AssertionError if it takes more steps."""
        outcome = None
        for _ in range(most_steps):
            try:
                effect = procedure.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = self._do(effect)
        raise AssertionError(f"it goes on after {most_steps} steps")

    def _do(self, effect: Any) -> Any:
        if isinstance(effect, Sleep):
            self.slept.append(effect.until - self._clock.now)
            self._clock.now = max(self._clock.now, effect.until)
            return None
        if isinstance(effect, Start):
            self.started.append(effect.procedure)
            return None
        if isinstance(effect, Together):
            return [self._one(procedure) for procedure in effect.procedures]
        if isinstance(effect, Do):
            return effect.act()
        self.calls.append(effect)
        outcome = self._cluster(effect)
        if isinstance(outcome, CallFailed) and outcome.kind == "timeout":
            self._clock.now = max(self._clock.now, effect.deadline)
        return outcome

    def _one(self, procedure: Generator[Any, Any, Any]) -> Any:
        try:
            return self.run(procedure)
        except ClientError as error:
            return error


def answer(code: int = 0, body: bytes = b"", remark: str | None = None, **fields: object) -> RemotingCommand:
    return RemotingCommand.response(code, remark, {name: str(value) for name, value in fields.items()}, body)


def route(*brokers: str, queues: int = 4, perm: int = 6) -> bytes:
    """A route's body: each broker has an address "<name>:10911" and so many queues."""
    return json.dumps(
        {
            "brokerDatas": [
                {"brokerAddrs": {"0": f"{name}:10911"}, "brokerName": name, "cluster": "C"} for name in brokers
            ],
            "filterServerTable": {},
            "queueDatas": [
                {"brokerName": name, "perm": perm, "readQueueNums": queues, "topicSysFlag": 0, "writeQueueNums": queues}
                for name in brokers
            ],
        }
    ).encode()
