"""Slaves at a whole broker: when it listens, which ones it accepts, and the cost of a killed or slow one."""

import errno
import json
import socket

import pytest

from appliance.engine.config import EngineConfig, StoreConfig
from appliance.engine.errors import StartError
from appliance.engine.replication import places
from appliance.engine.replication.master import MAX_SLAVES
from appliance.engine.replication.places import MAX_SILENT
from tests.support.engine import RunningEngine
from tests.support.ha import PlayedSlave
from tests.support.ports import reserve_port
from tests.support.tls import is_closed
from tests.support.waiting import wait_for


@pytest.fixture
def master(tmp_path):
    port = reserve_port()
    running = RunningEngine(tmp_path / "master", store={"ha_listen_port": port})
    running.ha_port = port
    yield running
    running.stop()


def log_of(running, end: int) -> bytes:
    return (running.data_dir / "store" / "commitlog" / f"{0:020d}").read_bytes()[:end]


def test_nobody_listens_unless_told_to(tmp_path):
    running = RunningEngine(tmp_path)
    try:
        assert running.engine.broker.replication is None
        port = int(running.engine.broker_address.rpartition(":")[2]) + 1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    finally:
        running.stop()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_slave_gets_every_byte_as_it_comes(tmp_path, flush):
    port = reserve_port()
    running = RunningEngine(tmp_path, store={"ha_listen_port": port, "flush_disk_type": flush})
    try:
        running.put("Orders", *[b"before %d" % n for n in range(20)])
        slave = PlayedSlave(port)
        slave.report(0)
        store = running.engine.broker.store
        assert slave.copy_to(store.log.written) == log_of(running, store.log.written)
        for n in range(50):
            running.put("Orders", b"while %d" % n)
            slave.copy_to(store.log.written)
            slave.report(store.log.written)
        assert bytes(slave.log) == log_of(running, store.log.written)
        wait_for(lambda: running.engine.broker.replication.slaves[0].acknowledged == store.log.written, "its report")
    finally:
        running.stop()


def test_it_starts_where_the_slave_was_cut_off(master):
    master.put("Orders", b"1", b"2")
    written = master.engine.broker.store.log.written
    first = PlayedSlave(master.ha_port)
    first.report(0)
    first.copy_to(written)
    first.close()
    master.put("Orders", b"3")
    again = PlayedSlave(master.ha_port)
    again.report(written - 5)  # in the middle of a record, as Apache's slaves may stop
    end = master.engine.broker.store.log.written
    assert again.copy_to(end) == log_of(master, end)[written - 5 :]


def test_strangers_are_bounded_and_garbage_is_let_go(master):
    sockets = [socket.create_connection(("127.0.0.1", master.ha_port)) for _ in range(3 * MAX_SILENT)]
    server = master.engine.broker.replication
    wait_for(lambda: len(server.slaves) == MAX_SILENT, "the bound")
    for sock in sockets:
        sock.settimeout(60)
    assert [sock.recv(1) for sock in sockets[:-MAX_SILENT]] == [b""] * 2 * MAX_SILENT
    sockets[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert is_closed(sockets[-1])
    master.put("Orders", b"goes on")
    for sock in sockets:
        sock.close()
    wait_for(lambda: not server.slaves, "all of them to go")


def test_a_slave_connects_while_others_hold_connections_and_send_nothing(master):
    silent = [socket.create_connection(("127.0.0.1", master.ha_port)) for _ in range(2 * MAX_SLAVES)]
    master.put("Orders", b"1")
    end = master.engine.broker.store.log.written
    slave = PlayedSlave(master.ha_port)
    slave.report(0)
    assert slave.copy_to(end) == log_of(master, end)
    for sock in silent:
        sock.close()


def test_slaves_of_one_address_leave_a_place_to_another_address(master, monkeypatch):
    master.put("Orders", b"1")
    end = master.engine.broker.store.log.written
    many = []
    for _ in range(MAX_SLAVES):
        many.append(PlayedSlave(master.ha_port))
        many[-1].report(0)
        many[-1].copy_to(end)
    one_more = PlayedSlave(master.ha_port)
    one_more.report(0)
    assert one_more.is_closed(), "an address that has all places gets no further one"
    for slave in many[1:]:
        slave.report(end)
    server = master.engine.broker.replication
    wait_for(lambda: sum(one.acknowledged == end for one in server.slaves) == MAX_SLAVES - 1, "their reports")
    monkeypatch.setattr(places, "address_of", lambda peer: peer[:4])
    other = PlayedSlave(master.ha_port, source="127.0.0.2")
    other.report(0)
    assert other.copy_to(end) == log_of(master, end)
    assert many[0].is_closed(), "the slave with the least of the log gave way"
    for slave in [*many, other]:
        slave.close()


def test_only_this_machine_is_let_in_unless_others_are_named(master):
    server = master.engine.broker.replication
    assert server._refusal("127.0.0.9") == ""
    assert server._refusal("::ffff:127.0.0.1") == ""
    assert "haSlaveAddresses" in server._refusal("10.0.0.7")
    assert "haSlaveAddresses" in server._refusal("fe80::1")


def test_stopping_ends_it_at_once(tmp_path):
    port = reserve_port()
    running = RunningEngine(tmp_path, store={"ha_listen_port": port})
    slave = PlayedSlave(port)
    slave.report(0)
    running.stop()
    assert slave.is_closed()


@pytest.mark.parametrize(("role", "broker_id"), [("SLAVE", 0), ("SYNC_MASTER", 1)])
def test_role_and_number_go_together(tmp_path, role, broker_id):
    config = EngineConfig(data_dir=tmp_path, store=StoreConfig(broker_role=role))
    config = EngineConfig(data_dir=tmp_path, broker=config.broker.__class__(broker_id=broker_id), store=config.store)
    with pytest.raises(StartError, match="brokerId"):
        config.check()


def test_907_tells_of_slaves(master):
    assert json.loads(master.peer().ask(907, {}).body)["haConnectionInfo"] == []
    slave = PlayedSlave(master.ha_port)
    slave.report(0)
    master.put("Orders", b"x")
    end = master.engine.broker.store.log.written
    slave.copy_to(end)

    def told() -> dict:
        return json.loads(master.peer().ask(907, {}).body)

    # The sent position is noted after the sending.
    wait_for(lambda: told()["haConnectionInfo"][0]["transferFromWhere"] == end, "it has sent all")
    [one] = told()["haConnectionInfo"]
    assert (one["slaveAckOffset"], one["diff"]) == (0, end)
    slave.report(end)
    wait_for(lambda: told()["haConnectionInfo"][0]["diff"] == 0, "its report")
    assert (told()["inSyncSlaveNums"], told()["master"]) == (1, True)
    slave.close()


def test_a_shortage_of_descriptors_does_not_end_the_listening(master, monkeypatch):
    make, short = socket.socketpair, [True]

    def socketpair():
        if short:
            short.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        return make()

    monkeypatch.setattr("appliance.engine.replication.slave_link.socket.socketpair", socketpair)
    first = PlayedSlave(master.ha_port)
    assert first.is_closed()
    second = PlayedSlave(master.ha_port)
    wait_for(lambda: master.engine.broker.replication.slaves, "the next one to be served")
    first.close()
    second.close()
