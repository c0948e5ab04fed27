"""A master that waits for slaves: acknowledged messages are with one, and so are those that consumers see."""

import time

import pytest

from tests.support.engine import RunningEngine, pull_fields, send_fields
from tests.support.ha import PlayedSlave
from tests.support.members_of_set import make
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL, start_slave, wait_same
from tests.support.waiting import wait_for

WAITS = "WAIT\x01true\x02"


@pytest.fixture
def slave_timeout_ms():
    return 400


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def master(tmp_path, request, slave_timeout_ms):
    port = reserve_port()
    store = SMALL | {"broker_role": "SYNC_MASTER", "ha_listen_port": port, "flush_disk_type": request.param}
    store["slave_timeout_ms"] = slave_timeout_ms
    running = RunningEngine(tmp_path / "master", store=store)
    running.ha_port = port
    yield running
    running.stop()


def follow(master) -> PlayedSlave:
    slave = PlayedSlave(master.ha_port)
    store = master.engine.broker.store
    slave.report(store.log.written)
    wait_for(
        lambda: any(one.acknowledged == store.log.written for one in master.engine.broker.replication.slaves), "it"
    )
    return slave


def pulled(master) -> int:
    answer = master.peer().ask(11, pull_fields("Orders", 0, 0))
    return len(answer.body)


def test_without_a_slave_it_is_12_after_the_timeout_and_nobody_sees_it(master):
    """As 5.3.3 answers (golden: sync-master-send-no-slave): 12, with the place where it lies."""
    peer = master.peer()
    begun = time.monotonic()
    answer = peer.ask(310, send_fields("Orders", 0, WAITS), b"alone")
    assert answer.code == 12
    assert time.monotonic() - begun > 0.35
    assert answer.ext_fields["queueOffset"] == "0"
    assert answer.ext_fields["msgId"]
    store = master.engine.broker.store
    assert store.max_offset("Orders", 0) == 0
    # Nor after several such messages; they are published when a slave has them, all of them and in order.
    for _ in range(3):
        assert peer.ask(310, send_fields("Orders", 0, WAITS), b"alone").code == 12
    assert store.max_offset("Orders", 0) == 0
    follow(master)
    wait_for(lambda: store.max_offset("Orders", 0) == 4, "them to be seen")
    assert pulled(master) > 0


@pytest.mark.parametrize("slave_timeout_ms", [60_000])  # what the slave has to do takes longer on a busy machine
def test_it_is_0_when_a_slave_has_it_and_not_before(master):
    peer, slave = master.peer(), follow(master)
    store = master.engine.broker.store
    begin = store.log.written
    peer.send(310, send_fields("Orders", 0, WAITS), b"x")
    offset, body = slave.frame()
    end = offset + len(body)
    with pytest.raises(TimeoutError):
        peer.receive(0.2)
    assert store.max_offset("Orders", 0) == 0
    slave.report(begin)  # not it yet
    slave.report(end - 1)  # nor all of it
    with pytest.raises(TimeoutError):
        peer.receive(0.1)
    slave.report(end)
    assert peer.receive().code == 0
    assert store.max_offset("Orders", 0) == 1


def test_who_does_not_wait_is_answered_at_once(master):
    answer = master.peer().ask(310, send_fields("Orders", 0, "WAIT\x01false\x02"), b"x")
    assert answer.code == 0
    assert master.engine.broker.store.max_offset("Orders", 0) == 0


@pytest.mark.parametrize("slave_timeout_ms", [60_000])
def test_a_batch_and_many_connections(master):
    slave = follow(master)
    peers = [master.peer() for _ in range(8)]
    for n, peer in enumerate(peers):
        for _ in range(20):
            peer.send(310, send_fields("Orders", n % 4, WAITS), b"x" * 100)
    store = master.engine.broker.store

    def all_answered() -> bool:
        slave.sock.settimeout(0.05)
        try:
            offset, body = slave.frame()
            slave.sock.settimeout(60)
            slave.report(offset + len(body))
        except TimeoutError:
            pass
        return sum(store.max_offset("Orders", q) for q in range(4)) == 160

    wait_for(all_answered, "all of them")
    for peer in peers:
        assert [peer.receive().code for _ in range(20)] == [0] * 20


def test_own_appends_that_wait_too_long_are_not_made_twice(master):
    """A delayed message's delivery is stored, though no slave has it: it is not delivered again when one comes."""
    peer = master.peer()
    slave = follow(master)
    peer.send(310, send_fields("Orders", 0, "DELAY\x011\x02WAIT\x01true\x02"), b"later")
    offset, body = slave.frame()
    slave.report(offset + len(body))
    assert peer.receive().code in (0, 12)  # 12 if the report was late, on a busy machine
    slave.close()
    store = master.engine.broker.store
    end = offset + len(body)
    wait_for(lambda: store.log.written > end, "the delivery to be stored")
    time.sleep(1.5)  # it waits too long in the meantime
    assert store.max_offset("Orders", 0) == 0
    follow(master)
    wait_for(lambda: store.max_offset("Orders", 0) == 1, "the delivery")
    time.sleep(1.5)
    assert store.max_offset("Orders", 0) == 1


def test_a_master_that_is_too_far_ahead_takes_no_more(tmp_path):
    port = reserve_port()
    store = {
        "broker_role": "SYNC_MASTER",
        "ha_listen_port": port,
        "slave_timeout_ms": 50,
        "ha_slave_fallbehind_max_bytes": 20_000,
    }
    running = RunningEngine(tmp_path, store=store)
    running.ha_port = port
    try:
        peer = running.peer()
        codes = [peer.ask(310, send_fields("Orders", 0, WAITS), b"x" * 5000).code for _ in range(8)]
        assert codes[0] == 12
        assert codes[-1] == 14
        follow(running)
        wait_for(lambda: running.engine.broker.store.log.refused is None, "it to take messages again")
    finally:
        running.stop()


@pytest.mark.parametrize("slave_timeout_ms", [60_000])  # a real slave on a busy machine is no dead one
def test_with_a_slave_of_ours(master, tmp_path):
    slave = start_slave(tmp_path / "slave", master.engine.namesrv_address)
    try:
        wait_same(master, slave)
        wait_for(lambda: master.engine.broker.replication.slaves, "it")
        peer = master.peer()
        for n in range(200):
            assert peer.ask(310, send_fields("Orders", n % 4, WAITS), b"%d" % n).code == 0
        assert slave.engine.broker.store.kept() >= master.engine.broker.store.published
        wait_same(master, slave)
    finally:
        slave.stop()


def test_a_slave_takes_tables_while_the_master_waits_for_another_one(tmp_path, impatient):
    """Its last record is not shown there: the other slave lacks it."""
    store = SMALL | {"broker_role": "SYNC_MASTER", "ha_listen_port": reserve_port(), "in_sync_replicas": 3}
    master = RunningEngine(tmp_path / "master", store=store | {"slave_timeout_ms": 200})
    master.ha_port = master.engine.config.store.ha_listen_port
    slave = start_slave(tmp_path / "slave", master.engine.namesrv_address)
    peer = master.peer()
    other = PlayedSlave(master.ha_port)
    assert peer.ask(310, send_fields("Orders", 0, WAITS), b"x").code == 12
    other.report(master.engine.broker.store.log.written)
    wait_for(lambda: master.engine.broker.store.max_offset("Orders", 0) == 1, "it to be with both")
    other.close()
    assert peer.ask(310, send_fields("Orders", 0, WAITS), b"y").code == 12
    wait_for(lambda: slave.engine.broker.store.max_offset("Orders", 0) == 2, "the slave to have both")
    slave.stop()
    slave = start_slave(tmp_path / "slave", master.engine.namesrv_address)
    make(peer, "Later", 4)
    wait_for(lambda: slave.engine.broker.topics.get("Later") is not None, "the topic")
    assert master.engine.broker.store.max_offset("Orders", 0) == 1
    for one in (slave, master):
        one.stop()


def test_in_sync_replicas_of_one_waits_for_nobody(tmp_path):
    """This is upstream's own default."""
    store = {"broker_role": "SYNC_MASTER", "ha_listen_port": reserve_port(), "in_sync_replicas": 1}
    running = RunningEngine(tmp_path, store=store)
    try:
        running.put("Orders", b"x")
    finally:
        running.stop()
