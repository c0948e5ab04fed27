"""A RocketBox broker's registration with a RocketBox name server, over loopback."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.engine.broker import registration, registration_body
from appliance.engine.broker.registration import Network, Registration
from appliance.engine.broker.registration_body import TableText
from appliance.engine.broker.role import RegisteredAs
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.config import BrokerConfig, EngineConfig
from appliance.engine.namesrv import processor
from appliance.engine.namesrv.register_body import read_register_body
from appliance.engine.namesrv.route_data import BrokerKey
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.data_version import DataVersion
from tests.support.clock import FakeClock
from tests.support.engine import start_engine
from tests.support.golden import frames, transcripts
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

from .conftest import LiveNamesrv

BROKER = "10.0.0.1:10911"
HA = "10.0.0.1:10912"


def topic(name: str, perm: int = 6, read_queue_nums: int = 8) -> TopicConfig:
    return TopicConfig(topic_name=name, perm=perm, read_queue_nums=read_queue_nums)


class Topics:
    """A broker's topic table, as registration reads TopicConfigManager."""

    def __init__(self, *names: str) -> None:
        self.table = {name: topic(name) for name in names}
        self.generation = 0
        self.data_version = DataVersion(1000, 0, 0)
        self.on_change: list[Callable[[list[TopicConfig]], None]] = []

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def all(self) -> list[TopicConfig]:
        return list(self.table.values())

    def put(self, *topics: TopicConfig, announce: bool = True) -> list[TopicConfig]:
        for topic in topics:
            self.table[topic.topic_name] = topic
        self.generation += 1
        self.data_version = DataVersion(1000, self.data_version.counter + 1, 0)
        if announce:
            self.announce(*topics)
        return list(topics)

    def announce(self, *topics: TopicConfig) -> None:
        for listener in self.on_change:
            listener(list(topics))


@pytest.fixture
def topics() -> Topics:
    return Topics("TBW102", "SELF_TEST_TOPIC", "broker-x")


@pytest.fixture(params=["over the wire", "directly"])
def make_registration(
    request: pytest.FixtureRequest, tmp_path: Path, topics: Topics, live_namesrv: LiveNamesrv
) -> Iterator[Callable[..., Registration]]:
    """Make registrations. directly: `live_namesrv` gets changes as the name server of the same process does."""
    made: list[Registration] = []

    def make(
        *namesrvs: str, address: str = BROKER, on_orders: Any = None, says_good_bye: bool = True, **broker: Any
    ) -> Registration:
        config = EngineConfig(data_dir=tmp_path / "broker")
        config = replace(config, broker=replace(config.broker, broker_name="broker-x", **broker))
        made.append(
            Registration(
                config.broker,
                Network(address, HA, namesrvs),
                topics,  # type: ignore[arg-type]
                on_orders,
                registered_as=RegisteredAs(says_good_bye=says_good_bye),
            )
        )
        if request.param == "directly":
            made[-1].tell_directly(live_namesrv.address, lambda *args: live_namesrv.namesrv.register_again(*args))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_the_first_registration_brings_all_topics(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    assert live_namesrv.topics() == set(topics.table)
    route = live_namesrv.route("TBW102")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": BROKER}
    assert registered.status == {live_namesrv.address: True}


def test_a_changed_topic_is_routed_when_register_topics_returns(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    for n in range(20):
        changed = topics.put(topic(f"New-{n}", read_queue_nums=n + 1))
        assert registered.register_topics(changed) == {live_namesrv.address: True}
        route = live_namesrv.route(f"New-{n}")
        assert route is not None
        assert route["queueDatas"][0]["readQueueNums"] == n + 1


def test_only_the_table_comes_over_the_wire_when_changes_are_told_directly(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    link = registered._links[live_namesrv.address]
    asked = link._client._opaque
    for n in range(5):
        changed = topics.put(topic(f"New-{n}"))
        assert registered.register_topics(changed) == {live_namesrv.address: True}
    assert live_namesrv.route("New-4") is not None
    assert link._client._opaque - asked == (5 if link.direct is None else 0)


def test_a_broker_whose_connection_has_gone_is_not_taken_directly(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration]
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    link = registered._links[live_namesrv.address]
    registered.unregister(2.0)
    body = registration_body.encode_body(DataVersion(2000, 9, 0), registration_body.encode_topic(topic("Late"), 6))
    again = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=dict(link._header), body=body)
    assert live_namesrv.namesrv.register_again(again, 5000).code == 1
    assert live_namesrv.brokers() == set()
    assert live_namesrv.topics() == set()


def test_a_topic_created_by_a_send_is_routed_soon(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    topics.put(topic("Auto"))
    wait_for(lambda: live_namesrv.route("Auto") is not None, "the route of an automatically created topic")


def test_two_changes_that_share_a_version_both_arrive(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    """The second change is made, and counted, before the first is sent: both go out under the version of the second."""
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    registered.register_topics(topics.put(topic("A"), topic("B")))
    first = topics.put(topic("A", perm=4), announce=False)
    second = topics.put(topic("B", perm=4), announce=False)
    for changed in (first, second):
        topics.announce(*changed)
        assert registered.register_topics(changed) == {live_namesrv.address: True}
    for name in "AB":
        route = live_namesrv.route(name)
        assert route is not None
        assert route["queueDatas"][0]["perm"] == 4


def test_a_name_server_that_comes_later_is_told(
    tmp_path: Path, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    late = LiveNamesrv(tmp_path / "late")
    late.port = reserve_port()
    registered = make_registration(late.address)
    assert not registered.wait_registered(late.address, 0.3)
    assert registered.register_topics(topics.put(topic("Before"))) == {late.address: False}
    late.start()
    try:
        assert registered.wait_registered(late.address, 60)
        assert late.topics() == set(topics.table)
    finally:
        late.stop()


@pytest.mark.parametrize("change", [False, True], ids=["nothing changed", "a topic changed"])
def test_a_name_server_that_restarts_is_told_again_without_waiting_for_the_period(
    live_namesrv: LiveNamesrv,
    make_registration: Callable[..., Registration],
    topics: Topics,
    change: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for bound in ("MIN_PERIOD_S", "MAX_PERIOD_S"):
        monkeypatch.setattr(registration, bound, 3600.0)
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    live_namesrv.stop()
    if change:
        topics.put(topic("Meanwhile"))
    live_namesrv.start()
    wait_for(lambda: live_namesrv.topics() == set(topics.table), "all topics at the name server that restarted")


def test_a_name_server_that_forgot_us_gets_the_whole_table_instead_of_the_change(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    live_namesrv.namesrv.routes.unregister(BrokerKey("DefaultCluster", BROKER), "broker-x")
    assert live_namesrv.topics() == set()
    assert registered.register_topics(topics.put(topic("New"))) == {live_namesrv.address: True}
    assert live_namesrv.topics() == set(topics.table)


def test_a_dead_name_server_does_not_delay_the_living(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    dead = f"127.0.0.1:{reserve_port()}"
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts and never answers
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        registered = make_registration(dead, silent, live_namesrv.address)
        assert registered.wait_registered(live_namesrv.address, 60)
        known = registered.register_topics(topics.put(topic("New")))
        assert known == {dead: False, silent: False, live_namesrv.address: True}
        registered.unregister(1.0)
    wait_for(lambda: live_namesrv.brokers() == set(), "the living name server to forget the broker")


def test_the_same_name_server_twice_is_one(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration]
) -> None:
    registered = make_registration(live_namesrv.address, live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    assert len(live_namesrv.server.connections) == 1


def test_good_bye_removes_the_broker_before_unregister_returns(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration]
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    assert live_namesrv.brokers() == {"broker-x"}
    registered.unregister(2.0)
    assert live_namesrv.brokers() == set()


def test_a_leader_of_a_set_hangs_up_without_a_good_bye(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 104 makes a name server of 4.9 remove the holder of the id: by then the next leader."""
    codes = []
    invoke = registration.RemotingClient.invoke_sync

    def heard(client: Any, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        codes.append(command.code)
        return invoke(client, command, timeout_ms)

    monkeypatch.setattr(registration.RemotingClient, "invoke_sync", heard)
    registered = make_registration(live_namesrv.address, says_good_bye=False)
    assert registered.wait_registered(live_namesrv.address, 5)
    registered.unregister(2.0)
    assert set(codes) == {RequestCode.REGISTER_BROKER}
    wait_for(lambda: not live_namesrv.brokers(), "the closed connection tells enough")


@pytest.mark.parametrize(("leads", "stood_still_s", "waits"), [(True, 60, 2), (True, 0.5, 1), (False, 60, 1)])
def test_a_leader_that_stood_still_looks_before_it_says_that_it_leads(
    topics: Topics, leads: bool, stood_still_s: float, waits: int
) -> None:
    clock, waited = FakeClock(), list[float]()
    table = TableText(topics, lambda: 6)  # type: ignore[arg-type]
    link = registration.NameServerLink(
        "127.0.0.1:1", {}, table, BrokerConfig, lambda answer: None, clock, RegisteredAs(says_good_bye=not leads)
    )

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(ms=int((seconds + stood_still_s) * 1000))

    link.wait = wait  # type: ignore[method-assign, assignment]
    link._rest(1.0)
    assert len(waited) == waits


def test_who_may_have_been_forgotten_is_told_at_once(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration]
) -> None:
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 5)
    names = {"brokerName": "broker-x", "brokerAddr": BROKER, "clusterName": "DefaultCluster", "brokerId": "0"}
    other = registration.RemotingClient(live_namesrv.address)
    try:
        other.invoke_sync(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=names), 5000)
        assert live_namesrv.brokers() == set()
        registered.hurry(0.0)
        wait_for(lambda: live_namesrv.brokers() == {"broker-x"}, "long before its period it is known again")
        other.invoke_sync(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=names), 5000)
        registered.hurry(30.0)
        wait_for(lambda: live_namesrv.brokers() == {"broker-x"}, "it is known again")
        other.invoke_sync(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=names), 5000)
        wait_for(lambda: live_namesrv.brokers() == {"broker-x"}, "within a second, without being asked once more")
    finally:
        other.close()


class _Elsewhere:
    """A name server as the client of a link meets it, on the test's clock. away: (from, to) in seconds of that."""

    def __init__(self, clock: FakeClock, away: tuple[float, float]) -> None:
        self._clock = clock
        self._away = away
        self._began = clock.monotonic()
        self._connected_at = -1.0
        #: Seconds at which it took a registration.
        self.taken: list[float] = []

    def now(self) -> float:
        return self._clock.monotonic() - self._began

    def is_connected(self) -> bool:
        return self._connected_at >= 0 and not self._connected_at < self._away[1] <= self.now() and not self._is_away()

    def _is_away(self) -> bool:
        return self._away[0] <= self.now() < self._away[1]

    def invoke_sync(self, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert request.code == RequestCode.REGISTER_BROKER
        if self._is_away():
            raise registration.RemotingError("nothing listens there")
        self._connected_at = self.now()
        self.taken.append(self.now())
        return RemotingCommand.response(0)

    def close(self) -> None:
        pass


def _registered(topics: Topics, seconds: float, away: tuple[float, float], registered_as: RegisteredAs) -> list[float]:
    """Return when a name server took registrations, in `seconds` of a broker that registers each 30 s."""
    clock = FakeClock()
    table = TableText(topics, lambda: 6)  # type: ignore[arg-type]
    link = registration.NameServerLink(
        "127.0.0.1:1", {}, table, BrokerConfig, lambda answer: None, clock, registered_as
    )
    there = _Elsewhere(clock, away)
    link._client = there  # type: ignore[assignment]

    def wait(timeout: float) -> None:
        clock.advance(ms=max(1, round(timeout * 1000)))
        if there.now() >= seconds:
            link.request_stop()

    link.wait = wait  # type: ignore[method-assign, assignment]
    link.run()
    return there.taken


@pytest.mark.parametrize("away_s", [0.2, 1.5, 7.0, 40.0, 300.0])
def test_a_broker_is_back_soon_at_a_name_server_that_restarted(topics: Topics, away_s: float) -> None:
    """Without the broker it has no routes."""
    back = 13.3 + away_s
    taken = _registered(topics, back + 20, (13.3, back), RegisteredAs(says_good_bye=False))
    assert taken[0] == 0, "the first one comes at once"
    after = [at for at in taken if at >= back]
    assert after[0] - back <= (1.3 if away_s < 1 else 5.0)


def test_a_new_leader_registers_each_second_for_a_while(topics: Topics) -> None:
    """A name server of 4.9 may have taken the old one in between."""
    taken = _registered(topics, 120, (1000, 1000), RegisteredAs(hurry_s=30.0, says_good_bye=False))
    gaps = [later - earlier for earlier, later in itertools.pairwise(taken)]
    assert taken[0] == 0
    assert len(gaps) > 30
    assert max(gaps[:29]) <= 1.1
    assert min(gaps[-2:]) >= 29, "later it takes its time"


def test_it_is_told_again_each_period(
    live_namesrv: LiveNamesrv,
    make_registration: Callable[..., Registration],
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "MIN_PERIOD_S", 0.2)
    registered = make_registration(live_namesrv.address, register_name_server_period_ms=1)
    assert registered.wait_registered(live_namesrv.address, 60)
    live_namesrv.namesrv.routes.delete_topic("TBW102", None)
    wait_for(lambda: "TBW102" in live_namesrv.topics(), "the next period's registration")


@pytest.fixture
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MIN_PERIOD_S", 0.2)


def _taken_down(link: Any, monkeypatch: pytest.MonkeyPatch) -> list[RemotingCommand]:
    """Return a list that collects registrations sent over the wire from now on."""
    sent: list[RemotingCommand] = []
    invoke = link._client.invoke_sync

    def invoke_sync(request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        sent.append(request)
        answer: RemotingCommand = invoke(request, timeout_ms)
        return answer

    monkeypatch.setattr(link._client, "invoke_sync", invoke_sync)
    return sent


def test_a_period_without_a_change_costs_a_few_hundred_bytes(
    live_namesrv: LiveNamesrv,
    make_registration: Callable[..., Registration],
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    short_periods: None,
) -> None:
    topics.put(*(topic(f"topic-{n}") for n in range(1_000)))
    registered = make_registration(live_namesrv.address, register_name_server_period_ms=1)
    assert registered.wait_registered(live_namesrv.address, 60)
    sent = _taken_down(registered._links[live_namesrv.address], monkeypatch)
    wait_for(lambda: len(sent) >= 3, "three periods")
    assert max(len(encode_command(one)) for one in sent) < 1000
    assert live_namesrv.topics() == set(topics.table)
    for forget in (
        lambda: live_namesrv.namesrv.routes.delete_topic("topic-7", None),
        lambda: live_namesrv.namesrv.routes.unregister(BrokerKey("DefaultCluster", BROKER), "broker-x"),
    ):
        forget()
        wait_for(lambda: live_namesrv.topics() == set(topics.table), "the whole table, which the name server asked for")
        del sent[:]
        wait_for(lambda: any(not one.body for one in sent), "a period that leaves it out again")
    topics.put(topic("Unannounced"), announce=False)
    wait_for(lambda: "Unannounced" in live_namesrv.topics(), "the whole table, in which something changed")


def test_a_name_server_that_does_not_say_that_it_knows_tables_gets_them(
    live_namesrv: LiveNamesrv,
    make_registration: Callable[..., Registration],
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    short_periods: None,
) -> None:
    topics.put(*(topic(f"topic-{n}") for n in range(1_000)))
    registered = make_registration(live_namesrv.address, register_name_server_period_ms=1)
    assert registered.wait_registered(live_namesrv.address, 60)
    monkeypatch.setattr(processor, "KNOWS_TABLES", "nothing")
    sent = _taken_down(registered._links[live_namesrv.address], monkeypatch)
    registered.register_all()
    wait_for(lambda: len(sent) >= 4, "periods")
    # The first may have been under way before its answers changed.
    assert all(one.body for one in sent[2:])


def test_a_broker_without_write_permission_takes_it_from_all_its_topics(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    registered = make_registration(live_namesrv.address, broker_permission=4)
    assert registered.wait_registered(live_namesrv.address, 60)
    registered.register_topics(topics.put(topic("New", perm=7)))
    for name, perm in (("TBW102", 4), ("New", 4)):
        route = live_namesrv.route(name)
        assert route is not None
        assert route["queueDatas"][0]["perm"] == perm


def test_order_configurations_are_handed_on(
    live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration], topics: Topics
) -> None:
    live_namesrv.namesrv.kv.put("ORDER_TOPIC_CONFIG", "TopicA", "broker-x:4")
    seen: list[dict[str, str]] = []
    registered = make_registration(live_namesrv.address, on_orders=seen.append)
    assert registered.wait_registered(live_namesrv.address, 60)
    registered.register_topics(topics.put(topic("New")))
    assert seen
    assert all(orders == {"TopicA": "broker-x:4"} for orders in seen)
    live_namesrv.namesrv.kv.put("ORDER_TOPIC_CONFIG", "TopicA", "broker-x:5")
    registered.register_topics(topics.put(topic("New2")))
    assert seen[-1] == {"TopicA": "broker-x:5"}


def test_a_slave_learns_its_master(live_namesrv: LiveNamesrv, make_registration: Callable[..., Registration]) -> None:
    master = make_registration(live_namesrv.address)
    assert master.wait_registered(live_namesrv.address, 60)
    slave = make_registration(live_namesrv.address, address="10.0.0.2:10911", broker_id=1)
    assert slave.wait_registered(live_namesrv.address, 60)
    assert (master.master, slave.master) == (None, (BROKER, HA))


# --- what is on the wire


def _recorded() -> tuple[dict[str, str], dict[str, Any]]:
    """Return (header, body) of the first registration of a 5.3.3 broker."""
    path = next(path for path in transcripts("5.3.3") if path.name == "namesrv-broker-start.jsonl.gz")
    for line, frame in frames(path):
        if line["code"] == RequestCode.REGISTER_BROKER:
            request = decode_frame(frame)
            return request.ext_fields, json.loads(request.body)
    raise AssertionError("no registration in the recording")


def test_header_and_body_are_those_of_5_3_3(tmp_path: Path) -> None:
    header, body = _recorded()
    wrapper = body["topicConfigSerializeWrapper"]
    topics = Topics()
    topics.data_version = DataVersion(wrapper["dataVersion"]["timestamp"], wrapper["dataVersion"]["counter"], 0)
    for name, config in wrapper["topicConfigTable"].items():
        topics.table[name] = msgspec.convert(config, TopicConfig)
    config = EngineConfig(data_dir=tmp_path)
    config = replace(config, broker=replace(config.broker, broker_name="broker-a"))
    ours = Registration(config.broker, Network("127.0.0.1:20911", "127.0.0.1:20912", ("127.0.0.1:1",)), topics)
    (link,) = ours._links.values()
    assert link._header | {"bodyCrc32": header["bodyCrc32"]} == header
    ((_, text),) = link._table.whole()
    wrapper["mappingDataVersion"]["timestamp"] = wrapper["dataVersion"]["timestamp"]
    assert text.decode() == json.dumps(body, separators=(",", ":"))


def test_a_table_that_would_not_fit_a_frame_goes_in_parts_of_different_versions(
    live_namesrv: LiveNamesrv,
    make_registration: Callable[..., Registration],
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration_body, "MAX_TABLE_BYTES", 20_000)
    for n in range(1000):
        topics.table[f"Topic-{n}"] = topic(f"Topic-{n}")
    bodies = TableText(topics, lambda: 6).whole()  # type: ignore[arg-type]
    assert len(bodies) > 5
    assert max(len(body) for _, body in bodies) < 21_000
    versions = [version for version, _ in bodies]
    assert len(set(versions)) == len(versions)
    assert versions[-1] == topics.data_version
    registered = make_registration(live_namesrv.address)
    assert registered.wait_registered(live_namesrv.address, 60)
    assert live_namesrv.topics() == set(topics.table)
    # Changed topics in every part are accepted, not only new ones.
    for n in range(1000):
        topics.table[f"Topic-{n}"] = topic(f"Topic-{n}", perm=4)
    topics.put(topic("Last"), announce=False)
    registered.register_all()
    assert registered.wait_registered(live_namesrv.address, 60)
    for name in ("Topic-0", "Topic-500", "Topic-999"):
        route = live_namesrv.route(name)
        assert route is not None
        assert route["queueDatas"][0]["perm"] == 4


def test_the_text_of_an_unchanged_table_is_made_once(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    encode = registration_body.encode_topic

    def counted(config: Any, permission: int) -> bytes:
        made.append(config.topic_name)
        return encode(config, permission)

    monkeypatch.setattr(registration_body, "encode_topic", counted)
    table = TableText(topics, lambda: 6)  # type: ignore[arg-type]
    assert table.whole() == table.whole()
    assert len(made) == 3
    topics.put(topic("New"))
    assert table._parts
    table.increment([topic("New")], None)
    assert not table._parts, "a text that will not be wanted is not kept"
    del made[3:]
    ((version, body),) = table.whole()
    assert len(made) == 7
    assert version == topics.data_version
    assert set(read_register_body(body, 479, False).topics) == set(topics.table)


def test_a_change_announced_late_does_not_bring_back_what_was_changed_since(topics: Topics) -> None:
    """Announcements are made outside the table's lock: an older one may come last."""
    older, newer = topic("Both"), msgspec.structs.replace(topic("Both"), read_queue_nums=16)
    gone = topic("Gone")
    topics.put(older, newer, announce=False)
    table = TableText(topics, lambda: 6)  # type: ignore[arg-type]
    _, body = table.increment([older, gone], None)
    told = read_register_body(body, 479, False).topics
    assert {name: shape.read_queue_nums for name, shape in told.items()} == {"Both": 16}


def test_a_broker_with_its_name_server_in_one_process_tells_it_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registration.register_topics, "__defaults__", (60.0,))
    engine = start_engine(tmp_path)
    try:
        assert engine.broker is not None
        assert engine.namesrv is not None
        (link,) = engine.broker.registration._links.values()
        asked = link._client._opaque
        assert engine.window.topic_commands.create("Direct").registered == {link.address: True}
        assert engine.namesrv.routes.route("Direct") is not None
        assert link._client._opaque == asked
    finally:
        engine.stop()
