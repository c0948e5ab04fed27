"""Administration over the wire: from which addresses it is accepted, and what is recorded of it."""

from __future__ import annotations

import ipaddress
import json
import struct
from typing import Any

import msgspec
import pytest

from appliance.engine import wire_gate
from appliance.engine.broker.wire_acts import broker_acts
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.request_kinds import ADMIN, KINDS
from appliance.engine.remoting import server as remoting_server
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.window.admin_pool import POOL
from appliance.engine.wire_act import WireAct
from appliance.engine.wire_gate import MAX_NAMES, MAX_STATE_CHARS, Act, WireGate, bounded, is_loopback, plain
from tests.support.clock import FakeClock
from tests.support.engine import ROOMY, Peer, send_fields
from tests.support.waiting import wait_for

LOOPBACK = ("127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1")
ELSEWHERE = ("10.0.0.5", "128.0.0.1", "126.9.9.9", "::2", "fe80::1", "::ffff:10.0.0.5", "::", "7f00::1")
TOPIC = {"defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_addresses_are(host):
    assert is_loopback(encode_host(host, 4711))


@pytest.mark.parametrize("host", ELSEWHERE)
def test_other_addresses_are_not(host):
    assert not is_loopback(encode_host(host, 4711))


def test_a_mapped_loopback_that_was_not_unmapped_is_loopback():
    raw = ipaddress.ip_address("::ffff:127.0.0.1").packed + struct.pack(">i", 1)
    assert is_loopback(raw)


class Ear:
    """Keeps the acts to be recorded."""

    def __init__(self) -> None:
        self.acts: list[WireAct] = []

    def record(self, act: WireAct) -> None:
        self.acts.append(act)


class Conn:
    """Takes answers as a connection does."""

    relayed = False

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.born_host = encode_host(host, 4711)
        self.remote_host = host
        self.answers: list[RemotingCommand] = []

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if request.witness is not None:
            request.witness.answered(request, response)
        self.answers.append(response)


@pytest.mark.parametrize(
    ("policy", "local", "foreign"), [("loopback", True, False), ("all", True, True), ("off", False, False)]
)
def test_three_policies(policy, local, foreign):
    gate = WireGate(policy, Ear(), FakeClock(), {})  # type: ignore[arg-type]
    assert [gate.takes_from(encode_host(host, 1)) for host in ("127.0.0.1", "10.0.0.5")] == [local, foreign]


def request(code: int = 17, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, ext_fields={"topic": "T", "perm": "6"}, body=body)


def asked(handler: Any, conn: Conn, about: RemotingCommand, act: Act) -> list[WireAct]:
    """Return the acts recorded for a request."""
    ear = Ear()
    gate = WireGate("loopback", ear, FakeClock(), {about.code: act})  # type: ignore[arg-type]
    table = Dispatcher({}, (gate,))
    table.add(about.code, handler)
    table.dispatch_request(conn, about)  # type: ignore[arg-type]
    return ear.acts


def topic_set(**act: Any) -> Act:
    return Act("topic.set", lambda request: (request.ext_fields["topic"],), **act)


def test_the_handler_of_somebody_who_may_not_is_never_called():
    conn = Conn("10.0.0.5")
    (act,) = asked(lambda request, conn: pytest.fail("called"), conn, request(), topic_set())
    assert conn.answers[0].code == 16
    for word in ("loopback address only", "10.0.0.5", "127.0.0.1", "console", "--wire-admin all"):
        assert word in str(conn.answers[0].remark)
    assert (act.result, act.peer, act.action, act.target) == ("refused", "10.0.0.5:4711", "topic.set", "T")


def test_before_and_after_hold_what_differs_and_what_was_asked():
    table = {"T": {"queues": 4, "order": False}}

    def handler(request, conn):
        table["T"] = {"queues": 8, "order": False}
        return RemotingCommand.response(0, ext={"count": "3"})

    conn = Conn()
    act = topic_set(state=lambda names: dict(table[names[0]]), told=("perm",), answered=("count",))
    (written,) = asked(handler, conn, request(), act)
    assert conn.answers[0].code == 0
    assert (written.before, written.after) == ({"queues": 4}, {"queues": 8, "count": "3", "perm": "6"})
    assert (written.result, written.host, written.port) == ("done", "127.0.0.1", 4711)


def refuse(request, conn):
    raise RefusedRequest(29, "no such name")


def fail(request, conn):
    raise OSError("no space left")


@pytest.mark.parametrize(
    ("handler", "result", "reason"),
    [
        (refuse, "refused", "no such name"),
        (fail, "failed", "OSError: no space left"),
        (lambda request, conn: RemotingCommand.response(1, "broken"), "failed", "broken"),
        (lambda request, conn: RemotingCommand.response(17, "none"), "refused", "none"),
    ],
)
def test_what_did_not_happen_is_written_down_with_its_reason(handler, result, reason):
    acts = asked(handler, Conn(), request(), topic_set())
    assert [(one.result, one.after) for one in acts] == [(result, {"reason": reason})]


def test_an_answer_that_comes_later_is_written_down_when_it_comes():
    conn = Conn()
    about = request()
    acts = asked(lambda request, conn: None, conn, about, topic_set())
    assert acts == []
    conn.respond(about, RemotingCommand.response(0))
    assert [one.result for one in acts] == ["done"]


def test_a_state_that_cannot_be_told_afterwards_does_not_undo_the_act():
    states = iter([{"queues": 4}])
    act = topic_set(state=lambda _: next(states))
    acts = asked(lambda request, conn: RemotingCommand.response(0), Conn(), request(), act)
    assert [(one.result, one.target) for one in acts] == [("done", "T")]


class FullPool:
    """A pool without room."""

    def submit(self, job: Any, size: int = 0, conn: Any = None, answered: bool = True) -> bool:
        return False


def test_an_act_that_its_pool_has_no_room_for_is_written_down():
    ear, conn = Ear(), Conn()
    gate = WireGate("loopback", ear, FakeClock(), {17: topic_set()})  # type: ignore[arg-type]
    table = Dispatcher({"admin": FullPool()}, (gate,))  # type: ignore[dict-item]
    table.add(17, lambda request, conn: pytest.fail("called"), "admin")
    table.dispatch_request(conn, request())  # type: ignore[arg-type]
    assert [answer.code for answer in conn.answers] == [2]
    assert [(act.target, act.result) for act in ear.acts] == [("T", "refused")]


def test_a_malformed_request_is_for_its_handler_to_refuse():
    acts = asked(refuse, Conn(), RemotingCommand(18, body=b"{"), broker_acts(None, None, None, dict)[18])  # type: ignore[arg-type]
    assert [(act.target, act.result) for act in acts] == [("", "refused")]


def test_a_long_body_of_somebody_who_is_refused_is_not_read():
    named = Act("topic.set", lambda request: pytest.fail("was read"))
    assert len(asked(refuse, Conn("10.0.0.5"), request(18, bytes(5000)), named)) == 1


def test_a_properties_text_that_no_handler_takes_is_not_read_for_the_audit_log(monkeypatch):
    """12 MB of "a=b" took a processor for seconds, beside the refusal."""
    named = Act("config.change", wire_gate.option_names)
    assert asked(refuse, Conn(), request(25, b"a=b\n" * 65536), named)[0].target.startswith("a, a, ")
    monkeypatch.setattr(wire_gate, "parse_properties", lambda text: pytest.fail("was read"))
    assert asked(refuse, Conn(), request(25, b"a=b\n" * 65537), named)[0].target == ""


def test_an_administrative_code_without_an_act_is_not_served():
    table = Dispatcher({}, (WireGate("all", Ear(), FakeClock(), {}),))  # type: ignore[arg-type]
    with pytest.raises(LookupError):
        table.add(17, refuse)
    with pytest.raises(LookupError):
        table.add(31_999, refuse)


def test_texts_of_peers_are_cut_and_hold_no_control_characters():
    assert plain("a\nb\ud800\x1b[31m") == "a\\u000ab\\ud800\\u001b[31m"
    assert len(plain("x" * 70_000)) == 512
    wide = bounded({str(n): ["y" * 1000] * 100 for n in range(1000)})
    assert wide["…"] > 1000 - MAX_NAMES
    assert len(msgspec.json.encode(wide)) < 2 * MAX_STATE_CHARS
    assert bounded({"a": 1, "b": None, "c": [True, 1.5], "d": {"e": "f"}}) == {
        "a": 1, "b": None, "c": [True, 1.5], "d": {"e": "f"},
    }  # fmt: skip


# --- a whole engine


@pytest.fixture
def start_seen_from(tmp_path, monkeypatch):
    """`start_seen_from("10.0.0.5", wire_admin="all")` starts an engine whose peers all seem to come from there."""
    running: list[Engine] = []

    def start(host: str = "127.0.0.1", **options: Any) -> Engine:
        monkeypatch.setattr(remoting_server, "encode_host", lambda _, port: encode_host(host, port))
        engine = Engine(
            EngineConfig(
                data_dir=tmp_path / "data",
                broker_port=0,
                namesrv_port=0,
                broker=BrokerConfig(broker_name="broker-a"),
                store=StoreConfig(
                    **ROOMY, flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=8 << 20, max_hash_slot_num=5000,
                    max_index_num=20_000,
                ),
                **options,
            )
        )  # fmt: skip
        engine.start()
        running.append(engine)
        return engine

    yield start
    for engine in running:
        engine.stop()


def vip_of(engine: Engine) -> str:
    host, _, port = str(engine.broker_address).rpartition(":")
    return f"{host}:{int(port) - 2}"


def acts_of(engine: Engine, count: int) -> list[WireAct]:
    """Return the recorded acts, once there are `count` of them."""
    wait_for(lambda: engine.wire_audit.last >= count, f"{count} acts, there are {engine.wire_audit.last}")
    return engine.wire_audit.after("", 0)[1]


def test_every_administrative_code_is_refused_from_elsewhere_on_every_port(start_seen_from):
    engine = start_seen_from("10.0.0.5")
    ports = (engine.broker_address, vip_of(engine), engine.namesrv_address)
    tables = [listener.dispatcher.codes for listener in engine.server._listeners]
    asked = 0
    for address, codes in zip(ports, tables, strict=True):
        peer = Peer(str(address))
        for code in sorted(code for code in codes if KINDS[code] == ADMIN):
            answer = peer.ask(code, {"topic": "T", "group": "G"})
            assert (code, answer.code) == (code, 16), answer
            assert "10.0.0.5" in str(answer.remark)
            asked += 1
        peer.close()
    assert asked == 14 + 14 + 6
    acts = acts_of(engine, asked)
    assert {act.result for act in acts} == {"refused"}
    assert len(acts) == asked


def test_clients_and_brokers_go_on_from_anywhere(start_seen_from):
    engine = start_seen_from("10.0.0.5")
    peer = Peer(str(engine.broker_address))
    assert peer.ask(310, send_fields("MadeBySend"), b"x").code == 0
    beat = b'{"clientID":"c1","producerDataSet":[],"consumerDataSet":[{"groupName":"CG","subscriptionDataSet":[],'
    beat += b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
    beat += b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"}]}'
    assert peer.ask(34, {}, beat).code == 0
    commit = {"consumerGroup": "CG", "topic": "MadeBySend", "queueId": 0, "commitOffset": 1}
    assert peer.ask(15, commit).code == 0
    queue = b'{"topic":"MadeBySend","brokerName":"broker-a","queueId":0}'
    lock = b'{"consumerGroup":"CG","clientId":"c1","mqSet":[%b]}' % queue
    assert peer.ask(41, {}, lock).code == 0
    names = Peer(str(engine.namesrv_address))
    broker = {"clusterName": "C", "brokerAddr": "10.0.0.9:10911", "brokerName": "b", "brokerId": 0}
    assert names.ask(103, broker, b"{}").code == 0
    wait_for(lambda: names.ask(105, {"topic": "MadeBySend"}).code == 0, "the topic that the send made is registered")
    assert names.ask(104, broker).code == 0
    assert engine.wire_audit.last == 0
    assert not engine.wire_audit._waiting


def test_off_refuses_loopback_too_and_the_window_goes_on(start_seen_from):
    engine = start_seen_from("127.0.0.1", wire_admin="off")
    answer = Peer(str(engine.broker_address)).ask(17, {"topic": "T"} | TOPIC)
    assert answer.code == 16
    assert "--wire-admin loopback" in str(answer.remark)
    assert engine.window.topic_commands.create("FromConsole").registered
    assert [act.result for act in acts_of(engine, 1)] == ["refused"]


def test_all_takes_administration_from_anywhere_and_writes_it_down(start_seen_from):
    engine = start_seen_from("10.0.0.5", wire_admin="all")
    assert Peer(str(engine.broker_address)).ask(17, {"topic": "T"} | TOPIC).code == 0
    (act,) = acts_of(engine, 1)
    assert (act.result, act.action, act.target, act.host) == ("done", "topic.set", "T", "10.0.0.5")
    assert act.port > 0


def test_each_act_tells_what_was_and_what_became(start_seen_from):
    engine = start_seen_from()
    peer, names = Peer(str(engine.broker_address)), Peer(str(engine.namesrv_address))

    def ask(who: Peer, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> None:
        answer = who.ask(code, fields, body)
        assert answer.code == 0, (code, answer)

    group = b'{"groupName":"CG","consumeEnable":true,"retryMaxTimes":%d}'
    ask(peer, 17, {"topic": "T"} | TOPIC)
    ask(peer, 17, {"topic": "T"} | TOPIC | {"readQueueNums": 8})
    ask(peer, 200, {}, group % 16)
    ask(peer, 200, {}, group % 3)
    for _ in range(3):
        ask(peer, 310, send_fields("T"), b"x")
    ask(peer, 15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1})
    ask(peer, 222, {"topic": "T", "group": "CG", "timestamp": -1, "queueId": 0, "offset": 3})
    ask(peer, 314, {"srcGroup": "CG", "destGroup": "CG2", "topic": "T", "offline": "true"})
    ask(peer, 25, {}, b"brokerPermission=4\n")
    ask(peer, 329)
    ask(names, 100, {"namespace": "N", "key": "k", "value": "one"})
    ask(names, 100, {"namespace": "N", "key": "k", "value": "two"})
    ask(names, 102, {"namespace": "N", "key": "k"})
    ask(names, 318, {}, b"orderMessageEnable=true\n")
    ask(names, 205, {"brokerName": "broker-a"})
    ask(peer, 207, {"groupName": "CG", "removeOffset": "true"})
    ask(names, 216, {"topic": "T"})
    ask(peer, 215, {"topic": "T"})
    acts = acts_of(engine, 16)
    assert {act.result for act in acts} == {"done"}
    seen = [(act.action, act.target, act.before, act.after) for act in acts]
    assert seen[0][:2] == ("topic.set", "T")
    assert seen[0][2] is None
    assert seen[0][3]["read_queues"] == 4
    assert ("topic.set", "T", {"read_queues": 4}, {"read_queues": 8}) in seen
    assert ("group.set", "CG", {"retryMaxTimes": 16}, {"retryMaxTimes": 3}) in seen
    told = {"timestamp": "-1", "queueId": "0", "offset": "3"}
    assert ("offset.reset", "CG, T", {"queue 0": 1}, {"queue 0": 3} | told) in seen
    assert ("offset.clone", "CG2, T", None, {"queue 0": 3, "srcGroup": "CG", "offline": "true"}) in seen
    assert ("config.change", "brokerPermission", {"brokerPermission": "6"}, {"brokerPermission": "4"}) in seen
    assert ("system.clean", "log", None, None) in seen
    assert ("kv.put", "N, k", {"value": "one"}, {"value": "two"}) in seen
    assert ("kv.delete", "N, k", {"value": "two"}, None) in seen
    settings = ({"orderMessageEnable": "false"}, {"orderMessageEnable": "true"})
    assert ("namesrv.change", "orderMessageEnable", *settings) in seen
    assert next(after for action, _, _, after in seen if action == "broker.wipe_write")["wipeTopicCount"]
    assert ("route.delete", "T", {"brokers": "broker-a"}, {"brokers": ""}) in seen
    deleted = next(act for act in acts if act.action == "topic.delete")
    assert (deleted.before["read_queues"], deleted.after) == (8, None)
    gone = next(act for act in acts if act.action == "group.delete")
    assert (gone.before["retryMaxTimes"], gone.after) == (3, {"removeOffset": "true"})


def test_what_the_window_does_is_not_written_down_here(start_seen_from):
    engine = start_seen_from()
    engine.window.topic_commands.create("T")
    engine.window.topic_commands.edit("T", write_queues=4)
    engine.window.group_commands.create("CG")
    engine.window.group_commands.delete("CG", force=True)
    engine.window.option_commands.change({"brokerPermission": "4"})
    engine.window.retention.clean("topics")
    engine.window.topic_commands.delete("T", force=True)
    assert POOL in engine._pools
    assert Peer(str(engine.broker_address)).ask(17, {"topic": "Wire"} | TOPIC).code == 0
    assert [act.target for act in acts_of(engine, 1)] == ["Wire"]


def test_what_clients_ask_all_the_time_passes_no_gate(start_seen_from):
    engine = start_seen_from()
    table = engine.server._listeners[0].dispatcher
    assert [handler.__name__ for _, handler in table._hot.values()] == [
        *["hot_send"] * 3, "hot_pull", "hot_lite_pull",
    ]  # fmt: skip
    decode, _ = table._hot[b'{"code":10,"']
    names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag".split()
    assert decode(json.dumps({"opaque": 7, "extFields": dict.fromkeys(names, "1")}).encode()).extFields.topic == "1"
    watched = {code for code, entry in table._handlers.items() if entry.gates}
    assert watched == {code for code in table.codes if KINDS[code] == ADMIN}


def test_a_log_that_cannot_be_written_is_a_failed_check(start_seen_from):
    engine = start_seen_from()
    assert "wire_audit" not in {check.name for check in engine.window.checks()}
    engine.wire_audit.failure = "No space left on device"
    (check,) = [check for check in engine.window.checks() if check.name == "wire_audit"]
    assert (check.level, "No space left on device" in str(check.sentence)) == ("failed", True)


def test_a_name_server_beside_a_broker_of_another_process_writes_a_file_of_its_own(start_seen_from):
    both = start_seen_from()
    names = start_seen_from(roles=frozenset({"namesrv"}))
    for engine, key in ((both, "one"), (names, "two")):
        assert Peer(str(engine.namesrv_address)).ask(100, {"namespace": "N", "key": key, "value": "v"}).code == 0
    assert [act.target for act in acts_of(both, 1)] == ["N, one"]
    assert [act.target for act in acts_of(names, 1)] == ["N, two"]
    assert both.wire_audit.series != names.wire_audit.series


def test_an_address_from_a_header_is_never_this_machines():
    gate = WireGate("loopback", Ear(), FakeClock(), {})  # type: ignore[arg-type]
    assert gate.takes_from(encode_host("127.0.0.1", 1), relayed=False)
    assert not gate.takes_from(encode_host("127.0.0.1", 1), relayed=True)
