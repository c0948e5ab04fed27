"""Members change their roles while clients send and consume: no acknowledged message is lost, no other one appears, and
a planned switch fails no send."""

from __future__ import annotations

import itertools
import threading

from appliance.engine.failover import brokers
from tests.support.effort import effort
from tests.support.engine import pull_fields, records, send_fields
from tests.support.members_of_set import PULL, SEND, wait_for_same_log
from tests.support.waiting import wait_for

QUEUES = 4


class Producer(threading.Thread):
    """Sends one message after another to the announced leader, and notes the acknowledged ones."""

    def __init__(self, name, target):
        super().__init__(name=name, daemon=True)
        self.target = target
        self.acknowledged: list[bytes] = []
        self.refused: list[str] = []
        self.tried: set[bytes] = set()
        self.patience_s = 60.0
        self.done = False

    def run(self):
        peers = {}
        for number in itertools.count():
            if self.done:
                break
            body = f"{self.name} {number}".encode()
            self.tried.add(body)
            member = self.target()
            try:
                if member not in peers:
                    peers[member] = member.peer()
                    peers[member].patience_s = self.patience_s  # a leader that lost the set may not answer
                peer = peers[member]
                answer = peer.ask(SEND, send_fields("Orders", number % QUEUES), body)
            except (OSError, EOFError, AssertionError) as error:
                peers.pop(member, None)
                self.refused.append(f"{type(error).__name__}: {error}")
                continue
            if answer.code == 0:
                self.acknowledged.append(body)
            else:
                self.refused.append(f"{answer.code}: {answer.remark}")


def everything(member):
    """(queue, offset) -> body."""
    found = {}
    for queue in range(QUEUES):
        peer = member.peer()
        offset = 0
        while True:
            some = records(peer.ask(PULL, pull_fields("Orders", queue, offset)).body)
            if not some:
                break
            for record in some:
                assert record.queue_offset == offset
                found[queue, offset] = record.body
                offset += 1
    return found


def test_a_planned_switch_fails_no_send(members, monkeypatch):
    monkeypatch.setattr(brokers, "HAND_OVER_S", 60.0)  # a switch takes long on a busy machine
    one, two = members
    one.lead(1)
    one.running.put("Orders", b"first")
    one.take_in(two)
    producers = [Producer(f"p{n}", lambda: one) for n in range(4)]
    for producer in producers:
        producer.start()
    wait_for(lambda: all(len(producer.acknowledged) > 20 for producer in producers), "sends before")
    assert one.brokers.drain(60.0)
    two.lead(2)
    one.follow(two, 2)
    one.brokers.relay_to(two.leader, 60.0)
    counts = [len(producer.acknowledged) for producer in producers]
    wait_for(
        lambda: all(len(p.acknowledged) > count + 20 for p, count in zip(producers, counts, strict=True)),
        "sends by way of the relay",
    )
    for producer in producers:
        producer.done = True
    for producer in producers:
        producer.join(60)
        assert producer.refused == []
    found = everything(two)
    sent = [body for producer in producers for body in producer.acknowledged]
    assert sorted(found.values()) == sorted([b"first", *sent])


def test_nothing_acknowledged_is_lost_over_many_changes(members):
    """Each change is a planned switch, a leader fenced with messages under way, or an election in spite of it."""
    one, two = members
    leader, follower = one, two
    leader.lead(1)
    leader.running.put("Orders", b"first")
    leader.take_in(follower)
    now = [leader]
    producers = [Producer(f"p{n}", lambda: now[0]) for n in range(3)]
    for producer in producers:
        producer.patience_s = 10.0
        producer.start()
    seen: dict[tuple[int, int], bytes] = {}
    for epoch in range(2, effort(11, 102, 102)):
        kind = epoch % 3
        if kind == 0:
            leader.brokers.drain(2.0)
        elif kind == 1:
            leader.fence()
        follower.lead(epoch)
        now[0] = follower
        leader, follower = follower, leader
        follower.follow(leader, epoch)
        leader.await_only(follower)
        if epoch % 10 == 0:
            for place, body in everything(leader).items():
                assert seen.setdefault(place, body) == body
            count = len(producers[0].acknowledged)
            wait_for(lambda: len(producers[0].acknowledged) > count, "sends to go on")  # noqa: B023
    for producer in producers:
        producer.done = True
    for producer in producers:
        producer.join(60)
        assert len(producer.acknowledged) > 40
    wait_for_same_log(one, two)
    wait_for(lambda: follower.store.published == leader.store.published, "the follower to show it")
    found = everything(leader)
    for place, body in seen.items():
        assert found[place] == body
    acknowledged = [body for producer in producers for body in producer.acknowledged]
    held = set(found.values())
    assert [body for body in acknowledged if body not in held] == []
    assert held <= {b"first"}.union(*(producer.tried for producer in producers))
    follower.brokers.stream()
    assert everything(follower) == found


def test_a_consumer_goes_on_over_changes(members):
    one, _ = members
    one.lead(1)
    one.running.put("Orders", b"0")
    consumer = one.running.join("c1", "g")
    got: list[bytes] = []
    stop = threading.Event()

    def consume():
        while not stop.is_set():
            fields = pull_fields("Orders", 0, len(got)) | {"sysFlag": 2, "suspendTimeoutMillis": 1000}
            consumer.send(PULL, fields | {"consumerGroup": "g"})
            while not (answer := consumer.receive()).is_response:
                pass
            if answer.code == 0:
                got.extend(record.body for record in records(answer.body))
            elif answer.code == 14:  # a change that takes longer than a second
                assert "this broker becomes leader" in answer.remark, answer
            else:
                assert answer.code in (19, 20, 2), answer

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    for epoch in range(2, 12):
        one.lead(epoch)
        one.running.put("Orders", str(epoch - 1).encode())
        wait_for(lambda: len(got) == epoch, "the consumer to get it")  # noqa: B023
    stop.set()
    thread.join(60)
    assert got == [str(n).encode() for n in range(11)]
