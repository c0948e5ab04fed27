"""A whole engine inside the test's process; and the peers that speak to it, so that a test takes both from here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from appliance.engine.clock import Clock
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.store.queues.consume_queue import unpack_entries
from appliance.engine.window.window import Window
from tests.support.peer import Peer, pull_fields, read_queue, records, send_fields
from tests.support.waiting import wait_for

__all__ = [
    "ROOMY", "Peer", "RunningEngine", "pull_fields", "queue_entry", "read_queue", "records", "send_fields",
    "start_engine",
]  # fmt: skip

HEART_BEAT = 34
SEND = 310
COMMIT = 15

#: Whatever the machine's own disk looks like.
ROOMY = {
    "disk_max_used_space_ratio": 95,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
}


def queue_entry(engine: Engine, topic: str, queue_id: int, offset: int) -> tuple[int, int, int]:
    """Return (physical offset, size, tag code) at a queue offset, read as a thread other than remoting-io has to."""
    store = engine.broker.store
    queue = store.find_queue(topic, queue_id)
    assert queue is not None, (topic, queue_id)
    files = store.queues.new_files()
    try:
        [entry] = unpack_entries(store.queues.read_entries(queue, offset, 1, files))
    finally:
        files.close()
    return entry


def start_engine(
    data_dir: Path,
    broker: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
    store_dir: str | None = None,
    bind: str = "127.0.0.1",
    advertise: str | None = None,
    clock: Clock | None = None,
    ports: tuple[int, int] = (0, 0),
) -> Engine:
    """Broker and name server on free ports; small log files, async flush unless told otherwise. store_dir: where the
    store lies, if not below data_dir. clock: the broker's, if it is another one than the machine's. ports: of
    the broker, and the one that clients are told."""
    small = {"mapped_file_size_commit_log": 8 << 20, "max_hash_slot_num": 5000, "max_index_num": 20_000}
    store_options = ROOMY | {"flush_disk_type": "ASYNC_FLUSH"} | small | (store or {})
    engine = Engine(
        EngineConfig(
            data_dir=data_dir,
            store_dir=Path(store_dir or ""),
            bind=bind,
            advertise=advertise,
            broker_port=ports[0],
            advertise_port=ports[1],
            namesrv_port=0,
            broker=BrokerConfig(**({"broker_name": "broker-a"} | (broker or {}))),
            store=StoreConfig(**store_options),
        ),
        clock=clock,
    )
    engine.start()
    return engine


class RunningEngine:
    """An engine, its window and a peer."""

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self.data_dir = data_dir
        self.options = options
        self.engine: Engine = start_engine(data_dir, **options)
        _ = self.window  # as where a console begins
        self.peers: list[Peer] = []
        self._own: Peer | None = None

    @classmethod
    def of(cls, engine: Engine) -> RunningEngine:
        """Wrap an engine that the caller started, and stops."""
        made = cls.__new__(cls)
        made.engine, made.peers, made._own = engine, [], None
        return made

    @property
    def window(self) -> Window:
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
        """Close all peers, and wait until the broker has noticed."""
        for peer in self.peers:
            peer.close()
        self.peers.clear()
        self._own = None
        clients = self.engine.broker.clients
        wait_for(lambda: not clients.consumer_groups() and not clients.producer_groups(), "nobody is online")

    def put(self, topic: str, *bodies: bytes, queue: int = 0, properties: str = "", **fields: Any) -> None:
        """Send messages as a producer does. A missing topic is made with 4 queues."""
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
        """Have the sampler take one more sample, now."""
        parts = self.window._parts
        assert parts is not None
        parts.sampler.sample()

    def restart(self) -> None:
        self.stop()
        self.engine = start_engine(self.data_dir, **self.options)

    def stop(self) -> None:
        self.hang_up()
        self.engine.stop()
