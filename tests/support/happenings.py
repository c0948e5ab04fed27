"""Events that make an engine's figures move. Each lasts as long as its block."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from appliance.engine.broker.transactions.decisions import NOBODY
from appliance.engine.disk import DiskUsage
from appliance.engine.remoting.dispatcher import WorkerPool
from appliance.engine.window.health import disk_room
from appliance.engine.window.transactions.snapshots import HalfPlace
from tests.support.engine import Peer, pull_fields, send_fields
from tests.support.figures import SkippingClock, WatchedEngine
from tests.support.store import sync_in_python
from tests.support.waiting import wait_for

DAY_MS = 24 * 3600 * 1000


@contextmanager
def a_message(watched: WatchedEngine) -> Iterator[None]:
    watched.send(b"longer than the first one")
    yield


@contextmanager
def a_delayed_message(watched: WatchedEngine) -> Iterator[None]:
    watched.delay()
    yield


@contextmanager
def a_delay_that_ends(watched: WatchedEngine) -> Iterator[None]:
    watched.clock.skipped_ms += 11_000
    wait_for(lambda: watched.broker.delays.deliver.delivered, "the message is delivered")
    yield


@contextmanager
def a_delay_whose_topic_is_gone(watched: WatchedEngine) -> Iterator[None]:
    watched.delay("Going")
    watched.broker.topics.delete("Going")
    watched.clock.skipped_ms += 11_000
    wait_for(lambda: sum(watched.broker.delays.deliver.given_up.values()), "the message is given up")
    yield


@contextmanager
def a_timed_message(watched: WatchedEngine) -> Iterator[None]:
    watched.wait(3_000_000)
    yield


@contextmanager
def a_time_that_comes(watched: WatchedEngine) -> Iterator[None]:
    watched.wait(10_000)
    watched.clock.skipped_ms += 11_000
    wait_for(lambda: watched.broker.timers.deliver.delivered, "the message is delivered")
    wait_for(lambda: watched.broker.timers.deliver.late_ms, "it was late")
    yield


@contextmanager
def a_second_of_timers(watched: WatchedEngine) -> Iterator[None]:
    watched.on_loop(watched.broker.stats.sample)
    watched.wait(60)
    wait_for(lambda: watched.broker.timers.deliver.delivered, "the message is delivered")
    watched.clock.skipped_ms += 1000
    watched.on_loop(watched.broker.stats.sample)
    yield


@contextmanager
def a_timed_message_that_is_cancelled(watched: WatchedEngine) -> Iterator[None]:
    at = watched.clock.wall_ms() + 10_000
    time = f"TIMER_DELIVER_MS\x01{at}\x02"
    for text in ("UNIQ_KEY\x01K\x02", "TIMER_DEL_UNIQKEY\x01Timed+K\x02"):
        assert watched.peer.ask(310, send_fields("Timed", properties=time + text), b"x").code == 0
    watched.clock.skipped_ms += 12_000
    wait_for(lambda: watched.broker.timers.deliver.cancelled, "the mark has taken it out")
    yield


@contextmanager
def a_timed_message_whose_topic_is_gone(watched: WatchedEngine) -> Iterator[None]:
    watched.wait(10_000, "GoingToo")
    watched.broker.topics.delete("GoingToo")
    watched.clock.skipped_ms += 11_000
    wait_for(lambda: sum(watched.broker.timers.deliver.given_up.values()), "the message is given up")
    yield


@contextmanager
def a_roll(watched: WatchedEngine) -> Iterator[None]:
    watched.wait(3_000_000)
    watched.broker.timers.roll.keep(watched.store.log.written)
    wait_for(lambda: watched.broker.timers.roll.rolled, "it is stored once more")
    yield


@contextmanager
def a_new_topic(watched: WatchedEngine) -> Iterator[None]:
    known = watched.metrics()["namesrv_topics"]
    watched.send(topic="New")
    wait_for(lambda: watched.metrics()["namesrv_topics"] != known, "the name server knows it")
    yield


@contextmanager
def a_pull(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    watched.pull()
    yield


@contextmanager
def a_pull_by_expression(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    watched.peer.ask(11, pull_fields("T", 0, 0, expressionType="SQL92", subscription="price > 5"))
    yield


@contextmanager
def a_delivery_that_is_noted(watched: WatchedEngine) -> Iterator[None]:
    before = watched.broker.deliveries.service.written
    watched.send()
    watched.pull()
    watched.on_loop(watched.broker.deliveries.recorder.hand_over)
    wait_for(lambda: watched.broker.deliveries.service.written > before, "it is in a file")
    yield


@contextmanager
def a_delivery_that_the_disk_refuses(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    a_file_in_the_way = watched.engine.config.data_dir / "rocketbox" / "deliveries"
    assert not a_file_in_the_way.exists(), "nothing was pulled yet"
    a_file_in_the_way.write_bytes(b"")
    watched.pull()
    watched.on_loop(watched.broker.deliveries.recorder.hand_over)
    wait_for(lambda: watched.broker.deliveries.service.dropped > 0, "it is dropped")
    yield


@contextmanager
def an_empty_pull(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    watched.pull(watched.end)
    yield


@contextmanager
def ten_seconds_of_traffic(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    watched.pull()
    watched.pull(watched.end)
    watched.sample()
    yield


@contextmanager
def two_mornings(watched: WatchedEngine) -> Iterator[None]:
    watched.send()
    watched.pull()
    for _ in range(2):
        watched.clock.skipped_ms += DAY_MS
        watched.on_loop(watched.broker.stats.sample)
    yield


@contextmanager
def a_write_that_fails(watched: WatchedEngine) -> Iterator[None]:
    def write_all(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    watched.patch.setattr(watched.store.disk, "write_all", write_all)
    watched.send(code=14)
    yield


@contextmanager
def a_disk_that_is_full(watched: WatchedEngine) -> Iterator[None]:
    with watched.patch.context() as patch:
        patch.setattr(watched.store.cleaner, "look", lambda: None)  # it would find that the disk is not full
        watched.on_loop(lambda: watched.store.log.refuse("the disk is full"))
        watched.send(code=14)
        yield
        watched.on_loop(lambda: watched.store.log.refuse(None))


@contextmanager
def a_disk_that_fills(watched: WatchedEngine) -> Iterator[None]:
    watched.patch.setattr(watched.store.disk, "usage", lambda path: DiskUsage(777, 223))
    watched.patch.setattr(disk_room, "disk_usage", lambda path: DiskUsage(777, 223))
    watched.store.cleaner.look()
    yield


@contextmanager
def a_log_file_that_expired(watched: WatchedEngine) -> Iterator[None]:
    for _ in range(3):
        watched.send(bytes(900_000))
    wait_for(lambda: watched.store.log.durable == watched.store.log.written, "the log is synced")
    found: list[Any] = []
    watched.on_loop(lambda: found.extend(watched.store.log.remove_before(2 << 20)))
    assert len(found) == 1
    yield


@contextmanager
def a_sync_that_takes_long(watched: WatchedEngine) -> Iterator[None]:
    go_on, real = threading.Event(), watched.store.disk.fdatasync
    watched.patch.setattr(watched.store.disk, "fdatasync", lambda fd: (go_on.wait(60), real(fd)))
    sync_in_python(watched.store)
    watched.send()
    yield
    go_on.set()


@contextmanager
def an_index_that_waits(watched: WatchedEngine) -> Iterator[None]:
    with watched.store.index.lock:
        watched.send()
        yield


@contextmanager
def jobs_in(pool: WorkerPool, clock: SkippingClock) -> Iterator[None]:
    go_on, begun = threading.Event(), threading.Event()
    pool.submit(lambda: (begun.set(), go_on.wait(60)))
    assert begun.wait(60)
    pool.submit(lambda: None)
    clock.skipped_ms += 1000
    yield
    go_on.set()


@contextmanager
def pulls_that_wait_for_the_disk(watched: WatchedEngine) -> Iterator[None]:
    with jobs_in(watched.engine._pools["pull-cold"], watched.clock):
        yield


@contextmanager
def searches_that_wait(watched: WatchedEngine) -> Iterator[None]:
    with jobs_in(watched.engine._pools["key-query"], watched.clock):
        yield


@contextmanager
def smaller_pools(watched: WatchedEngine) -> Iterator[None]:
    for name in ("pull-cold", "key-query"):
        watched.patch.setattr(watched.engine._pools[name], "capacity", 5)
    yield


@contextmanager
def a_producer_that_back_pressure_stops(watched: WatchedEngine) -> Iterator[None]:
    watched.on_loop(lambda: watched.engine.server.hold_producers(True))
    producer = Peer(str(watched.engine.broker_address))
    producer.send(310, send_fields("T"), b"x")
    wait_for(lambda: watched.engine.server.held_producers().number, "it is held")
    watched.clock.skipped_ms += 1000
    yield
    watched.on_loop(lambda: watched.engine.server.hold_producers(False))
    assert producer.receive().code == 0
    producer.close()


@contextmanager
def a_minute(watched: WatchedEngine) -> Iterator[None]:
    watched.clock.skipped_ms += 60_000
    yield


@contextmanager
def a_log_that_grows(watched: WatchedEngine) -> Iterator[None]:
    for _ in range(3):
        watched.send(bytes(900_000))
    yield


@contextmanager
def a_log_that_grows_fast(watched: WatchedEngine) -> Iterator[None]:
    watched.patch.setattr(disk_room, "disk_usage", lambda path: DiskUsage(777, 223))
    with a_second_of_traffic(watched):
        yield


@contextmanager
def files_that_make_room(watched: WatchedEngine) -> Iterator[None]:
    for _ in range(150):
        watched.send()
    for _ in range(3):
        watched.send(bytes(900_000))
    queue = watched.store.find_queue("T", 0)
    wait_for(lambda: queue.tail_base == queue.max_offset, "the entries are in files")
    watched.patch.setattr(watched.store.disk, "usage", lambda path: DiskUsage(777, 223))

    def is_done() -> bool:
        watched.store.cleaner.no_room()  # again: recovery may still need the first log file
        return watched.store.cleaner.status.queue_files_deleted > 0

    wait_for(is_done, "queue files are gone")
    yield


@contextmanager
def many_keys(watched: WatchedEngine) -> Iterator[None]:
    for _ in range(30):
        watched.send()
    wait_for(lambda: not watched.store.index.behind, "all is indexed")
    yield


@contextmanager
def a_connection(watched: WatchedEngine) -> Iterator[None]:
    peer = Peer(str(watched.engine.broker_address))
    assert peer.ask(28).code == 0
    yield
    peer.close()


@contextmanager
def a_group(watched: WatchedEngine) -> Iterator[None]:
    watched.ask(200, {}, b'{"groupName":"NewGroup"}')
    yield


@contextmanager
def a_parked_pull(watched: WatchedEngine) -> Iterator[None]:
    peer = Peer(str(watched.engine.broker_address))
    peer.send(11, pull_fields("T", 0, watched.end, sysFlag=6, suspendTimeoutMillis=15_000))
    wait_for(lambda: watched.broker.pull.long_polling.count, "it is parked")
    yield
    peer.close()


@contextmanager
def another_broker(watched: WatchedEngine) -> Iterator[None]:
    peer = Peer(str(watched.engine.namesrv_address))
    broker = {"clusterName": "C", "brokerAddr": "10.0.0.9:10911", "brokerName": "b", "brokerId": 0}
    assert peer.ask(103, broker, b"{}").code == 0
    yield
    peer.close()


@contextmanager
def clients(watched: WatchedEngine) -> Iterator[None]:
    peer = Peer(str(watched.engine.broker_address))
    beat = b'{"clientID":"c1","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"CG",'
    beat += b'"subscriptionDataSet":[{"topic":"T","subString":"*"}],"consumeType":"CONSUME_PASSIVELY",'
    beat += b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"}]}'
    assert peer.ask(34, {}, beat).code == 0
    yield
    peer.close()


@contextmanager
def members_that_disagree(watched: WatchedEngine) -> Iterator[None]:
    peers = [Peer(str(watched.engine.broker_address)) for _ in range(2)]
    for number, peer in enumerate(peers):
        data = b'{"topic":"T","subString":"Tag%d","tagsSet":["Tag%d"],"codeSet":[%d]}' % (number, number, number)
        beat = b'{"clientID":"c%d","producerDataSet":[],"consumerDataSet":[{"groupName":"CG",' % number
        beat += b'"subscriptionDataSet":[%b],"consumeType":"CONSUME_PASSIVELY",' % data
        beat += b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"}]}'
        assert peer.ask(34, {}, beat).code == 0
    yield
    for peer in peers:
        peer.close()


@contextmanager
def other_settings(watched: WatchedEngine) -> Iterator[None]:
    watched.engine.window.topic_commands.edit("T", read_queues=8, write_queues=8, writable=False)
    yield


@contextmanager
def another_group(watched: WatchedEngine) -> Iterator[None]:
    watched.ask(200, {}, b'{"groupName":"Another"}')
    watched.ask(15, {"consumerGroup": "Another", "topic": "T", "queueId": 0, "commitOffset": 0})
    yield


@contextmanager
def another_topic_of_the_group(watched: WatchedEngine) -> Iterator[None]:
    watched.ask(15, {"consumerGroup": "CG", "topic": "Warm", "queueId": 0, "commitOffset": 0})
    yield


@contextmanager
def a_retry(watched: WatchedEngine) -> Iterator[None]:
    watched.send(topic="%RETRY%CG")
    yield


@contextmanager
def a_dead_letter(watched: WatchedEngine) -> Iterator[None]:
    """A message that its consumer sends back for good."""
    place = watched.store.log.min_offset
    watched.ask(36, {"offset": place, "group": "CG", "originTopic": "Warm", "delayLevel": -1})
    watched.sample()
    yield


@contextmanager
def a_commit(watched: WatchedEngine) -> Iterator[None]:
    watched.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1})
    yield


@contextmanager
def a_second_of_traffic(watched: WatchedEngine) -> Iterator[None]:
    parts = watched.engine.window._running()
    parts.sampler.sample()
    watched.send()
    watched.pull()
    watched.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1})
    parts.sampler.sample()
    yield


@contextmanager
def a_minute_of_silence(watched: WatchedEngine) -> Iterator[None]:
    for _ in range(61):
        watched.engine.window._running().sampler.sample()
    yield


@contextmanager
def a_check_that_fails(watched: WatchedEngine) -> Iterator[None]:
    watched.engine.wire_audit.failure = "No space left on device"
    yield
    watched.engine.wire_audit.failure = None


def _half(watched: WatchedEngine, group: str = "PG") -> tuple[int, Peer]:
    """A half message, and a producer that may be asked about it; its offset in the half queue."""
    peer = Peer(str(watched.engine.broker_address))
    peer.ask(34, {}, json.dumps({"clientID": "p", "producerDataSet": [{"groupName": "PG"}]}).encode())
    sent = watched.engine.window.sender.send("T", b"x", half_of=group)
    return sent.queue_offset, peer


@contextmanager
def a_half_message(watched: WatchedEngine) -> Iterator[None]:
    _, peer = _half(watched)
    watched.clock.skipped_ms += 1000  # it gets older
    yield
    peer.close()


@contextmanager
def transactions_that_end(watched: WatchedEngine) -> Iterator[None]:
    for action in ("commit", "roll_back"):
        offset, peer = _half(watched)
        watched.engine.window.transaction_commands.act(action, [HalfPlace(offset)], reason="a test")
        peer.close()
    yield


@contextmanager
def a_producer_that_is_asked(watched: WatchedEngine) -> Iterator[None]:
    offset, peer = _half(watched)
    watched.engine.window.transaction_commands.act("check", [HalfPlace(offset)])
    yield
    peer.close()


@contextmanager
def a_producer_that_is_not_there(watched: WatchedEngine) -> Iterator[None]:
    _half(watched, "Nobody")[1].close()
    watched.clock.skipped_ms += 60_000
    wait_for(lambda: watched.broker.transactions.open_halves.parked_groups(), "it waits for a producer")
    yield


@contextmanager
def a_transaction_that_nobody_decides(watched: WatchedEngine) -> Iterator[None]:
    offset, peer = _half(watched)
    half = watched.broker.transactions.acts.half_at(offset)
    assert half is not None
    watched.on_loop(lambda: watched.broker.transactions.decisions.discard(half, 15, NOBODY))
    yield
    peer.close()


@contextmanager
def a_half_message_that_is_lost(watched: WatchedEngine) -> Iterator[None]:
    offset, peer = _half(watched)
    watched.on_loop(lambda: watched.broker.transactions.decisions.forget(offset))
    yield
    peer.close()
