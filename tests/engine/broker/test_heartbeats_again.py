"""A heartbeat that repeats the last one is taken without being read, with the same effect as if it were."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.clients import ClientManager
from appliance.engine.broker.filters import consumer_filters
from appliance.engine.protocol.command import RemotingCommand, encode_command
from tests.engine.broker.conftest import BrokerDesk, consumer, subscription
from tests.support.clock import FakeClock
from tests.support.effort import effort
from tests.support.fakes import FakeConnection

PEERS = 3


class Wire:
    """A desk that receives frames. reads_all: every heartbeat's body is decoded."""

    def __init__(self, directory: Path, clock: FakeClock, reads_all: bool = False) -> None:
        self.desk = BrokerDesk(directory, clock)
        heard_again = self.desk.clients.heard_again

        def heard(*beat: Any) -> bool:
            self.taken_unread = not reads_all and heard_again(*beat)
            return self.taken_unread

        self.taken_unread = False
        self.desk.clients.heard_again = heard  # type: ignore[method-assign]
        self.peers = [FakeConnection(f"127.0.0.1:{port}") for port in range(1, PEERS + 1)]

    def ask(self, peer: FakeConnection, code: int, body: bytes = b"", version: int = 479, **ext: str) -> Any:
        """Return the answer in comparable form."""
        peer.answers.clear()
        self.taken_unread = False
        frame = encode_command(RemotingCommand(code, opaque=77, version=version, ext_fields=ext, body=body))
        (meta,) = struct.unpack_from(">i", frame, 4)
        self.desk.dispatcher.dispatch(peer, memoryview(frame), 8, len(frame), meta)  # type: ignore[arg-type]
        while self.desk.later:
            self.desk.later.pop(0)()
        (answer,) = peer.answers
        return answer.code, answer.remark, answer.ext_fields, answer.flag

    def all_that_is_known(self) -> Any:
        clients: ClientManager = self.desk.clients
        members = {
            info.group_name: (
                info.consume_type,
                info.message_model,
                info.consume_from_where,
                info.fingerprint,
                info.subscriptions,
                [
                    (c.conn.remote_host, c.client_id, c.language, c.version, c.last_update_ms, c.subscriptions)
                    for c in info.channels.values()
                ],
            )
            for info in clients.consumer_groups()
        }
        producers = {
            group: [(c.conn.remote_host, c.client_id, c.last_update_ms) for c in clients.producer_channels(group)]
            for group in clients.producer_groups()
        }
        found = {name: getattr(clients.producer_of(name), "remote_host", None) for name in ("a", "b")}
        tables = (
            sorted(c.group_name for c in self.desk.groups.all()),
            sorted(c.topic_name for c in self.desk.topics.all()),
        )
        told = [[notice.ext_fields for notice in peer.notices] for peer in self.peers]
        return members, producers, found, tables, told, [peer.closed for peer in self.peers]


def body(client_id: str, groups: list[Any], producers: list[str], **more: Any) -> bytes:
    named = [{"groupName": name} for name in producers]
    return json.dumps({"clientID": client_id, "consumerDataSet": groups, "producerDataSet": named} | more).encode()


GROUPS = [
    consumer("G", "T"),
    consumer("G", "T", "U"),
    consumer("G", subscription("T", "x || y", 5)),
    consumer("G", "T", messageModel="BROADCASTING"),
    consumer("H", "T", consumeType="CONSUME_ACTIVELY"),
    consumer("H", "V"),
    consumer("bad group!", "T"),
]
BODIES = st.builds(
    body,
    st.sampled_from("ab"),
    st.lists(st.sampled_from(GROUPS), max_size=2),
    st.lists(st.sampled_from("PQ"), max_size=2),
    heartbeatFingerprint=st.sampled_from([0, 0, 0, 5]),
    withoutSub=st.booleans(),
)
BEATS = st.tuples(st.just("beat"), st.integers(0, PEERS - 1), st.integers(0, 3), st.sampled_from([479, 479, 409]))
STEPS = st.one_of(
    BEATS,
    BEATS,
    BEATS,
    st.tuples(st.just("leave"), st.integers(0, PEERS - 1), st.sampled_from("GH"), st.sampled_from("PQ")),
    st.tuples(st.just("close"), st.integers(0, PEERS - 1)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 119, 125])),
    st.tuples(st.just("scan")),
    st.tuples(st.just("delete"), st.sampled_from("GH")),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(BODIES, min_size=4, max_size=4), st.lists(STEPS, max_size=30))
def test_whether_heartbeats_are_read_makes_no_difference(bodies: list[bytes], steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        clock = FakeClock()
        wires = [Wire(Path(name) / "quick", clock), Wire(Path(name) / "reads", clock, reads_all=True)]
        try:
            for step in steps:
                if step[0] == "wait":
                    clock.advance(step[1] * 1000)
                    continue
                said = [take(wire, step, bodies) for wire in wires]
                assert said[0] == said[1], step
                known = [wire.all_that_is_known() for wire in wires]
                assert known[0] == known[1], step
        finally:
            for wire in wires:
                wire.desk.stop()


def take(wire: Wire, step: Any, bodies: list[bytes]) -> Any:
    if step[0] == "beat":
        return wire.ask(wire.peers[step[1]], 34, bodies[step[2]], step[3])
    if step[0] == "leave":
        return wire.ask(wire.peers[step[1]], 35, clientID="a", consumerGroup=step[2], producerGroup=step[3])
    if step[0] == "close":
        gone = wire.peers[step[1]]
        wire.desk.clients.on_close(gone)  # type: ignore[arg-type]
        wire.peers[step[1]] = FakeConnection(gone.remote_host)
    elif step[0] == "scan":
        wire.desk.clients.scan_expired()
    else:
        wire.ask(FakeConnection(), 207, groupName=step[1])
    return None


@pytest.fixture
def wire(tmp_path: Path) -> Any:
    found = Wire(tmp_path, FakeClock())
    yield found
    found.desk.stop()


def unread(wire: Wire, text: bytes, peer: int = 0, version: int = 479) -> bool:
    """True if such a heartbeat is taken unread."""
    code, _, fields, _ = wire.ask(wire.peers[peer], 34, text, version)
    assert code == 0
    if wire.taken_unread:  # of a client without V2, whose next heartbeat is to name all subscriptions again
        assert fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    return wire.taken_unread


def test_the_second_of_a_kind_is_taken_unread_until_something_changes(wire):
    usual = body("a", [consumer("G", "T", "%RETRY%G")], ["CLIENT_INNER_PRODUCER"])
    # The first makes the group and its retry topic; whatever happens to tables meanwhile, the second sees them.
    assert [unread(wire, usual) for _ in range(4)] == [False, False, True, True]
    assert not unread(wire, usual, version=409)  # another client
    assert not unread(wire, usual)
    assert unread(wire, usual)
    other = body("b", [consumer("G", "T", "%RETRY%G")], ["CLIENT_INNER_PRODUCER"])
    assert not unread(wire, other, peer=1)
    assert [unread(wire, usual), unread(wire, usual)] == [False, True]  # the group has changed
    wire.ask(wire.peers[0], 17, topic="New", readQueueNums="1", writeQueueNums="1", perm="6")
    assert [unread(wire, usual), unread(wire, usual)] == [False, True]  # and there is a new topic
    wire.desk.clients.unregister_consumer(wire.peers[1], "G")
    wire.ask(wire.peers[0], 35, clientID="a", producerGroup="CLIENT_INNER_PRODUCER")
    assert [unread(wire, usual), unread(wire, usual)] == [False, True]
    assert not unread(wire, body("a", [], ["CLIENT_INNER_PRODUCER"]))
    assert not unread(wire, body("a", [], ["CLIENT_INNER_PRODUCER"]))  # it is still in G, which is left in 120 s


def test_a_client_with_v2_is_always_read(wire):
    text = body("a", [consumer("G", "T")], [], heartbeatFingerprint=9)
    assert [unread(wire, text) for _ in range(3)] == [False] * 3


def test_an_expression_that_found_no_room_is_taken_when_there_is_some(wire, monkeypatch):
    """The client keeps sending the same, so it must be read again until the expression was taken."""
    filters = wire.desk.filters
    monkeypatch.setattr(consumer_filters, "MOST_ENTRIES", 1)
    monkeypatch.setattr(consumer_filters, "FEW_CHARS", 0)  # a connection always has room for a few
    other = body("other", [consumer("H", subscription("T", "a > 1", expressionType="SQL92"))], [])
    usual = body("a", [consumer("G", subscription("T", "b > 1", expressionType="SQL92"))], [])
    unread(wire, other, peer=1)
    assert [unread(wire, usual) for _ in range(4)] == [False] * 4
    assert filters.get("T", "G") is None
    filters.unregister("H")
    assert [unread(wire, usual) for _ in range(3)] == [False, True, True]
    assert filters.get("T", "G").expression == "b > 1"


def test_times_go_on(wire):
    text = body("a", [consumer("G", "T")], ["P"])
    assert [unread(wire, text), unread(wire, text)] == [False, False]
    for _ in range(10):
        wire.desk.clock.advance(100_000)
        assert unread(wire, text)
        wire.desk.clients.scan_expired()
    (channel,) = wire.desk.clients.consumer_group("G").channels.values()
    assert channel.last_update_ms == wire.desk.clock.wall_ms()
    assert wire.desk.clients.producer_of("a") is wire.peers[0]
    # The body leaves out one of two groups: the client leaves it 120 s after it last named it, whether that was read or
    # not.
    assert not unread(wire, body("a", [], ["P"]))
    wire.desk.clock.advance(119_000)
    unread(wire, body("a", [], ["P"]))
    assert wire.desk.clients.consumer_group("G") is not None
    wire.desk.clock.advance(2000)
    unread(wire, body("a", [], ["P"]))
    assert wire.desk.clients.consumer_group("G") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
TEXT = st.one_of(st.text(max_size=30), st.sampled_from(["G", "T", "%RETRY%G", "", "*", "a || b"]))
SUBSCRIPTION_BODY = st.fixed_dictionaries(
    {},
    optional={
        "topic": TEXT | JSON,
        "subString": TEXT | JSON,
        "tagsSet": st.lists(TEXT, max_size=3) | JSON,
        "codeSet": st.lists(st.integers(-(1 << 33), 1 << 33), max_size=3) | JSON,
        "subVersion": st.integers(-(1 << 65), 1 << 65) | JSON,
        "expressionType": TEXT | JSON,
        "classFilterMode": JSON,
    },
)
CONSUMER_BODY = st.fixed_dictionaries(
    {},
    optional={
        "groupName": TEXT | JSON,
        "consumeType": st.sampled_from(["CONSUME_PASSIVELY", 0, 1, 2, 7]) | JSON,
        "messageModel": st.sampled_from(["CLUSTERING", 0, 1]) | JSON,
        "consumeFromWhere": st.integers(-2, 9) | JSON,
        "subscriptionDataSet": st.lists(SUBSCRIPTION_BODY, max_size=3) | JSON,
        "unitMode": JSON,
    },
)
HEARTBEAT_BODY = st.fixed_dictionaries(
    {},
    optional={
        "clientID": TEXT | JSON,
        "consumerDataSet": st.lists(CONSUMER_BODY, max_size=3) | JSON,
        "producerDataSet": st.lists(st.fixed_dictionaries({"groupName": TEXT | JSON}), max_size=3) | JSON,
        "heartbeatFingerprint": st.integers(-(1 << 65), 1 << 65) | JSON,
        "withoutSub": JSON,
        "whatever": JSON,
    },
)


@settings(max_examples=effort(100, 250, 3_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(HEARTBEAT_BODY.map(lambda value: json.dumps(value).encode()), st.binary(max_size=80)), max_size=6
    )
)
def test_whatever_a_heartbeat_holds_it_is_answered_and_harms_nobody(bodies: list[bytes]) -> None:
    """Each is sent twice: the second may be taken unread, with the same answer."""
    with tempfile.TemporaryDirectory() as name:
        wire = Wire(Path(name), FakeClock())
        try:
            honest = body("honest", [consumer("honest-group", "T")], [])
            unread(wire, honest, peer=1)
            for text in bodies:
                first = wire.ask(wire.peers[0], 34, text)
                assert first[0] in (0, 1), first
                assert wire.ask(wire.peers[0], 34, text) == first
                encode_command(RemotingCommand(0, ext_fields=first[2], remark=first[1]))
            listed = wire.desk.ask(38, {"consumerGroup": "honest-group"})
            assert "honest" in json.loads(listed.body)["consumerIdList"]
            unread(wire, honest, peer=1)
            assert unread(wire, honest, peer=1)
        finally:
            wire.desk.stop()
