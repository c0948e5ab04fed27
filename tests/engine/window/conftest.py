"""A running engine, and what peers do to it, in the words of the trade."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.engine import Engine
from appliance.engine.window import EngineAdmin
from tests.support.engine import Peer, send_fields, start_engine

HEART_BEAT = 34
SEND = 310
COMMIT = 15


class House:
    """An engine, its window and a peer."""

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self.data_dir = data_dir
        self.options = options
        self.engine: Engine = start_engine(data_dir, **options)
        self.peers: list[Peer] = []
        self._own: Peer | None = None

    @property
    def window(self) -> EngineAdmin:
        return self.engine.window

    def peer(self) -> Peer:
        assert self.engine.broker_address is not None
        self.peers.append(Peer(self.engine.broker_address))
        return self.peers[-1]

    def _ours(self) -> Peer:
        """One connection for all that needs no client of its own."""
        if self._own is None:
            self._own = self.peer()
        return self._own

    def hang_up(self) -> None:
        """All peers go."""
        for peer in self.peers:
            peer.close()
        self.peers.clear()
        self._own = None

    def put(self, topic: str, *bodies: bytes, queue: int = 0, properties: str = "", **fields: Any) -> None:
        """Send messages as a producer does; the topic comes to be with 4 queues."""
        for body in bodies:
            answer = self._ours().ask(SEND, send_fields(topic, queue, properties, **fields), body)
            assert answer.code == 0, answer

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
        assert self._ours().ask(COMMIT, fields).code == 0

    def join(
        self,
        client_id: str,
        group: str,
        topic: str = "Orders",
        tags: str = "*",
        model: str = "CLUSTERING",
        also: str = "",
        **data: Any,
    ) -> Peer:
        """A consumer of a group comes; it stays as long as its peer. also: a producer group that it names besides."""
        words = [] if tags == "*" else [tag.strip() for tag in tags.split("||")]
        subscription = {
            "topic": topic, "subString": tags, "tagsSet": words, "codeSet": [], "subVersion": time.time_ns() // 1000,
            "expressionType": "TAG",
        }  # fmt: skip
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription | data],
        }  # fmt: skip
        producers = [{"groupName": also}] if also else []
        return self._beat(client_id, {"consumerDataSet": [consumer], "producerDataSet": producers})

    def produce_as(self, client_id: str, group: str) -> Peer:
        return self._beat(client_id, {"consumerDataSet": [], "producerDataSet": [{"groupName": group}]})

    def _beat(self, client_id: str, body: dict[str, Any]) -> Peer:
        peer = self.peer()
        answer = peer.ask(HEART_BEAT, {}, json.dumps({"clientID": client_id} | body).encode())
        assert answer.code == 0, answer
        return peer

    def sample(self) -> None:
        """Have the sampler look once more, now."""
        parts = self.window._parts
        assert parts is not None
        parts.sampler.sample()

    def restart(self) -> None:
        self.stop()
        self.engine = start_engine(self.data_dir, **self.options)

    def stop(self) -> None:
        self.hang_up()
        self.engine.stop()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Houses with options of their own."""
    made: list[House] = []

    def make(**options: Any) -> House:
        made.append(House(tmp_path / str(len(made)), **options))
        return made[-1]

    yield make
    for found in made:
        found.stop()
