"""A gate before the handlers: the requests that it sees and stops, on every port and in every form of a request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import FLAG_ONEWAY, RemotingCommand
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.dispatcher import SEND_CODES, Dispatcher
from tests.support.batches import encode_member
from tests.support.engine import ROOMY, Peer, pull_fields, send_fields
from tests.support.fakes import FakeConnection
from tests.support.waiting import wait_for

JSON, ROCKETMQ = 0, 1


class Doorman:
    """A gate that lists its requests; `refuses` decides which ones it stops."""

    def __init__(self, refuses: Callable[[RemotingCommand, Connection], bool] = lambda request, conn: False) -> None:
        self._refuses = refuses
        self.seen: list[RemotingCommand] = []
        self.threads: set[str] = set()

    guard = None

    def watches(self, code: int) -> bool:
        return True

    def admit(self, request: RemotingCommand, conn: Connection) -> None:
        self.seen.append(request)
        self.threads.add(threading.current_thread().name)
        if self._refuses(request, conn):
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "not for you")


@pytest.fixture
def start_behind(tmp_path):
    """`start_behind(gate)` starts an engine behind a gate."""
    running: list[Engine] = []

    def start(*gates: Any) -> Engine:
        store = StoreConfig(
            **ROOMY, flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=8 << 20, max_hash_slot_num=5000,
            max_index_num=20_000,
        )  # fmt: skip
        broker = BrokerConfig(broker_name="broker-a")
        config = EngineConfig(data_dir=tmp_path, broker_port=0, namesrv_port=0, broker=broker, store=store)
        engine = Engine(config, gates)
        running.append(engine)
        engine.start()
        return engine

    yield start
    for engine in running:
        engine.stop()


def ports_of(engine: Engine) -> list[tuple[str, set[int]]]:
    """Return (address, codes it serves) of the broker, its VIP port and the name server."""
    tables = [listener.dispatcher.codes for listener in engine.server._listeners]
    host, _, port = str(engine.broker_address).rpartition(":")
    addresses = [str(engine.broker_address), f"{host}:{int(port) - 2}", str(engine.namesrv_address)]
    return list(zip(addresses, tables, strict=True))


def codecs_of(code):
    """Return the encodings that can hold the code: RocketBox's own may not fit the 16 bits of the binary header."""
    return (JSON, ROCKETMQ) if code < 1 << 15 else (JSON,)


def test_every_code_of_every_port_passes_in_both_encodings_and_one_way(start_behind):
    closed = False
    doorman = Doorman(lambda request, conn: closed)
    engine = start_behind(doorman)
    ports = ports_of(engine)
    closed = True
    for address, codes in ports:
        peer = Peer(address)
        doorman.seen.clear()
        for code in sorted(codes):
            for codec in codecs_of(code):
                answer = peer.ask(code, {"topic": "T"}, b"x", codec=codec)
                assert (code, codec, answer.code, answer.remark) == (code, codec, 16, "not for you")
                peer.send(code, {"topic": "T"}, b"x", flag=FLAG_ONEWAY, codec=codec)
        assert peer.ask(sorted(codes)[0]).code == 16  # and no answer to a one-way request came before it
        seen = [(one.code, one.codec, one.is_oneway) for one in doorman.seen]
        for code in codes:
            for codec in codecs_of(code):
                assert (code, codec, False) in seen
                assert (code, codec, True) in seen
        peer.close()
    assert doorman.threads == {"remoting-io"}
    assert engine.broker.store.put_count == 0
    closed = False


@pytest.mark.parametrize("codec", [JSON, ROCKETMQ])
def test_a_gate_may_refuse_one_topic_and_let_the_others_pass(start_behind, codec):
    engine = start_behind(
        Doorman(lambda request, conn: "Secret" in (request.ext_fields.get("b"), request.ext_fields.get("topic")))
    )
    peer = Peer(str(engine.broker_address))
    long_form = {
        "producerGroup": "PG",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
    }
    long_form |= {"bornTimestamp": 1, "flag": 0, "properties": ""}
    batch = encode_member(b"one") + encode_member(b"two")
    for topic, code in (("Secret", 16), ("Open", 0)):
        assert peer.ask(310, send_fields(topic), b"x", codec=codec).code == code
        assert peer.ask(10, long_form | {"topic": topic}, b"x", codec=codec).code == code
        assert peer.ask(320, send_fields(topic, m="true"), batch, codec=codec).code == code
        peer.send(310, send_fields(topic), b"x", flag=FLAG_ONEWAY, codec=codec)
    assert peer.ask(361, pull_fields("Secret", 0, 0), codec=codec).code == 16
    assert peer.ask(11, pull_fields("Secret", 0, 0), codec=codec).code == 16
    assert peer.ask(11, pull_fields("Open", 0, 0), codec=codec).code == 0
    assert engine.broker.store.put_count == 5
    assert engine.broker.topics.get("Secret") is None


def test_a_gate_sees_all_header_fields_of_a_hot_request(start_behind):
    doorman = Doorman()
    engine = start_behind(doorman)
    signed = {"AccessKey": "me", "Signature": "s3cret", "unheardOf": "\u00e9"}
    peer = Peer(str(engine.broker_address))
    assert peer.ask(310, send_fields("T") | signed, b"body").code == 0
    assert peer.ask(11, pull_fields("T", 0, 0) | signed).code == 0
    sent, pulled = [one for one in doorman.seen if one.code in (310, 11)]
    assert sent.ext_fields.items() >= signed.items()
    assert (sent.ext_fields["b"], sent.body) == ("T", b"body")
    assert pulled.ext_fields.items() >= signed.items()


def test_who_a_peer_has_proved_to_be_stays_with_its_connection(start_behind):
    def stranger(request: RemotingCommand, conn: Connection) -> bool:
        if request.ext_fields.get("AccessKey") == "me":
            conn.principals |= {"me"}
        return request.code in SEND_CODES and "me" not in conn.principals

    engine = start_behind(Doorman(stranger))
    known, unknown = Peer(str(engine.broker_address)), Peer(str(engine.broker_address))
    assert known.ask(310, send_fields("T") | {"AccessKey": "me"}, b"x").code == 0
    assert known.ask(310, send_fields("T"), b"x").code == 0
    assert unknown.ask(310, send_fields("T"), b"x").code == 16


def test_administration_that_another_gate_refuses_is_written_down(start_behind):
    engine = start_behind(Doorman(lambda request, conn: request.code == 17))
    assert Peer(str(engine.broker_address)).ask(17, {"topic": "T", "perm": 6}).code == 16
    wait_for(lambda: engine.wire_audit.last == 1, "one act")
    (act,) = engine.wire_audit.after("", 0)[1]
    assert (act.action, act.target, act.result) == ("topic.set", "T", "refused")
    assert act.after["reason"] == "not for you"
    assert engine.broker.topics.get("T") is None


# --- one table


def test_a_gate_that_fails_is_closed():
    def broken(request: RemotingCommand, conn: Connection) -> bool:
        raise KeyError("no such user")

    table, conn = Dispatcher({}, (Doorman(broken),)), FakeConnection("10.0.0.5:4711")
    table.add(310, lambda request, conn: pytest.fail("called"))
    table.dispatch_request(conn, RemotingCommand(310))  # type: ignore[arg-type]
    assert [answer.code for answer in conn.answers] == [1]


def test_nobody_behind_the_gate_that_refuses_is_asked():
    first, second = Doorman(lambda request, conn: True), Doorman()
    table, conn = Dispatcher({}, (first, second)), FakeConnection("10.0.0.5:4711")
    table.add(310, lambda request, conn: pytest.fail("called"))
    table.dispatch_request(conn, RemotingCommand(310))  # type: ignore[arg-type]
    assert [len(first.seen), len(second.seen)] == [1, 0]


def test_only_what_a_gate_watches_passes_it_and_loses_its_hot_way():
    doorman = Doorman()
    doorman.watches = lambda code: code == 310  # type: ignore[method-assign]
    table, conn = Dispatcher({}, (doorman,)), FakeConnection("10.0.0.5:4711")
    for code in (310, 11):
        table.add(code, lambda request, conn: RemotingCommand.response(0))
        table.add_hot(code, dict, lambda *frame: None)
        table.dispatch_request(conn, RemotingCommand(code))  # type: ignore[arg-type]
    assert [one.code for one in doorman.seen] == [310]
    for port in (table, table.without(361)):
        assert list(port._hot) == [b'{"code":11,"']
        assert {code for code, entry in port._handlers.items() if entry.gates} == {310}
