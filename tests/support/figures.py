"""An engine whose figures are asked for, and what makes each of them move."""

from __future__ import annotations

import errno
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from appliance.engine.clock import Clock
from appliance.engine.engine import Engine
from appliance.engine.loop_calls import run_on_loop
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.dispatcher import WorkerPool
from appliance.engine.store.disk import DiskUsage
from appliance.engine.window import checks
from tests.engine.window.conftest import wait_for
from tests.support.engine import Peer, pull_fields, send_fields

DAY_MS = 24 * 3600 * 1000


class SkippingClock(Clock):
    """The machine's, and time that is skipped."""

    def __init__(self) -> None:
        self.skipped_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.skipped_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_ms / 1000

    steady = monotonic


class House:
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
        """What /metrics shows."""
        return self.engine.window.metrics()

    def overview(self) -> dict[str, Any]:
        """The first page, and GET /api/v1/broker."""
        overview = self.engine.window.overview()
        return {name: getattr(overview, name) for name in overview.__annotations__}

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

    def pull(self, offset: int = 0) -> None:
        self.peer.ask(11, pull_fields("T", 0, offset))

    @property
    def end(self) -> int:
        return self.store.offset_range("T", 0)[1]

    def sample(self) -> None:
        self.clock.skipped_ms += 10_000
        self.on_loop(self.broker.stats.sample)


# --- what makes them move; each holds as long as its block


@contextmanager
def a_message(house: House) -> Iterator[None]:
    house.send(b"longer than the first one")
    yield


@contextmanager
def a_new_topic(house: House) -> Iterator[None]:
    known = house.metrics()["namesrv_topics"]
    house.send(topic="New")
    wait_for(lambda: house.metrics()["namesrv_topics"] != known, "the name server knows it")
    yield


@contextmanager
def a_pull(house: House) -> Iterator[None]:
    house.send()
    house.pull()
    yield


@contextmanager
def an_empty_pull(house: House) -> Iterator[None]:
    house.send()
    house.pull(house.end)
    yield


@contextmanager
def ten_seconds_of_traffic(house: House) -> Iterator[None]:
    house.send()
    house.pull()
    house.pull(house.end)
    house.sample()
    yield


@contextmanager
def two_mornings(house: House) -> Iterator[None]:
    house.send()
    house.pull()
    for _ in range(2):
        house.clock.skipped_ms += DAY_MS
        house.on_loop(house.broker.stats.sample)
    yield


@contextmanager
def a_write_that_fails(house: House) -> Iterator[None]:
    def write_all(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    house.patch.setattr(house.store.disk, "write_all", write_all)
    house.send(code=14)
    yield


@contextmanager
def a_disk_that_is_full(house: House) -> Iterator[None]:
    house.on_loop(lambda: house.store.log.refuse("the disk is full"))
    house.send(code=14)
    yield
    house.on_loop(lambda: house.store.log.refuse(None))


@contextmanager
def a_disk_that_fills(house: House) -> Iterator[None]:
    house.patch.setattr(house.store.disk, "usage", lambda path: DiskUsage(1000, 777, 223))
    house.patch.setattr(checks, "disk_usage", lambda path: DiskUsage(1000, 777, 223))
    house.store.cleaner.look()
    yield


@contextmanager
def a_log_file_that_expired(house: House) -> Iterator[None]:
    for _ in range(3):
        house.send(bytes(900_000))
    wait_for(lambda: house.store.log.durable == house.store.log.written, "the log is synced")
    found: list[Any] = []
    house.on_loop(lambda: found.extend(house.store.log.remove_before(2 << 20)))
    assert len(found) == 1
    yield


@contextmanager
def a_sync_that_takes_long(house: House) -> Iterator[None]:
    go_on, real = threading.Event(), house.store.disk.fdatasync
    house.patch.setattr(house.store.disk, "fdatasync", lambda fd: (go_on.wait(20), real(fd)))
    house.send()
    yield
    go_on.set()


@contextmanager
def an_index_that_waits(house: House) -> Iterator[None]:
    with house.store.index.lock:
        house.send()
        yield


@contextmanager
def jobs_in(pool: WorkerPool, clock: SkippingClock) -> Iterator[None]:
    go_on, begun = threading.Event(), threading.Event()
    pool.submit(lambda: (begun.set(), go_on.wait(20)))
    assert begun.wait(5)
    pool.submit(lambda: None)
    clock.skipped_ms += 1000
    yield
    go_on.set()


@contextmanager
def pulls_that_wait_for_the_disk(house: House) -> Iterator[None]:
    with jobs_in(house.engine._pools["pull-cold"], house.clock):
        yield


@contextmanager
def searches_that_wait(house: House) -> Iterator[None]:
    with jobs_in(house.engine._pools["key-query"], house.clock):
        yield


@contextmanager
def smaller_pools(house: House) -> Iterator[None]:
    for name in ("pull-cold", "key-query"):
        house.patch.setattr(house.engine._pools[name], "capacity", 5)
    yield


@contextmanager
def a_producer_that_back_pressure_stops(house: House) -> Iterator[None]:
    house.on_loop(lambda: house.engine.server.hold_producers(True))
    producer = Peer(str(house.engine.broker_address))
    producer.send(310, send_fields("T"), b"x")
    wait_for(lambda: house.engine.server.held_producers().number, "it is held")
    house.clock.skipped_ms += 1000
    yield
    house.on_loop(lambda: house.engine.server.hold_producers(False))
    assert producer.receive().code == 0
    producer.close()


@contextmanager
def a_minute(house: House) -> Iterator[None]:
    house.clock.skipped_ms += 60_000
    yield


@contextmanager
def a_log_that_grows(house: House) -> Iterator[None]:
    for _ in range(3):
        house.send(bytes(900_000))
    yield


@contextmanager
def a_log_that_grows_fast(house: House) -> Iterator[None]:
    house.patch.setattr(checks, "disk_usage", lambda path: DiskUsage(1000, 777, 223))
    with a_second_of_traffic(house):
        yield


@contextmanager
def files_that_make_room(house: House) -> Iterator[None]:
    for _ in range(150):
        house.send()
    for _ in range(3):
        house.send(bytes(900_000))
    queue = house.store.find_queue("T", 0)
    wait_for(lambda: queue.tail_base == queue.max_offset, "the entries are in files")
    house.patch.setattr(house.store.disk, "usage", lambda path: DiskUsage(1000, 777, 223))
    house.store.cleaner.no_room()
    wait_for(lambda: house.store.cleaner.status.queue_files_deleted, "queue files are gone")
    yield


@contextmanager
def many_keys(house: House) -> Iterator[None]:
    for _ in range(30):
        house.send()
    wait_for(lambda: not house.store.index.behind, "all is indexed")
    yield


@contextmanager
def a_connection(house: House) -> Iterator[None]:
    peer = Peer(str(house.engine.broker_address))
    assert peer.ask(28).code == 0
    yield
    peer.close()


@contextmanager
def a_group(house: House) -> Iterator[None]:
    house.ask(200, {}, b'{"groupName":"NewGroup"}')
    yield


@contextmanager
def a_parked_pull(house: House) -> Iterator[None]:
    peer = Peer(str(house.engine.broker_address))
    peer.send(11, pull_fields("T", 0, house.end, sysFlag=6, suspendTimeoutMillis=15_000))
    wait_for(lambda: house.broker.pull.long_polling.count, "it is parked")
    yield
    peer.close()


@contextmanager
def another_broker(house: House) -> Iterator[None]:
    peer = Peer(str(house.engine.namesrv_address))
    broker = {"clusterName": "C", "brokerAddr": "10.0.0.9:10911", "brokerName": "b", "brokerId": 0}
    assert peer.ask(103, broker, b"{}").code == 0
    yield
    peer.close()


@contextmanager
def clients(house: House) -> Iterator[None]:
    peer = Peer(str(house.engine.broker_address))
    beat = b'{"clientID":"c1","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"CG",'
    beat += b'"subscriptionDataSet":[{"topic":"T","subString":"*"}],"consumeType":"CONSUME_PASSIVELY",'
    beat += b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"}]}'
    assert peer.ask(34, {}, beat).code == 0
    yield
    peer.close()


@contextmanager
def a_commit(house: House) -> Iterator[None]:
    house.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1})
    yield


@contextmanager
def a_second_of_traffic(house: House) -> Iterator[None]:
    parts = house.engine.window._running()
    parts.sampler.sample()
    house.send()
    house.pull()
    house.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1})
    parts.sampler.sample()
    yield


@contextmanager
def a_minute_of_silence(house: House) -> Iterator[None]:
    for _ in range(61):
        house.engine.window._running().sampler.sample()
    yield


@contextmanager
def a_check_that_fails(house: House) -> Iterator[None]:
    house.engine.wire_audit.failure = "No space left on device"
    yield
    house.engine.wire_audit.failure = None
