"""A connection that is tried as a client would make it: what is wrong, in words."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.console.system.snippets import LANGUAGES
from appliance.engine.config import Secret
from appliance.engine.engine import Engine
from appliance.engine.errors import InvalidInput
from appliance.engine.host_port import split_host_port
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.window.process.connecting import TLS_OF
from appliance.engine.window.snapshots import Route, RouteBroker
from tests.support.directories import shared_directory
from tests.support.engine import start_engine
from tests.support.tls import Authority, make_pair

ROOT = {"username": "root", "password": "the first one's Zq11 secret"}
WELL = ["try_port", "try_plain", "try_route", "try_broker_here", "try_open"]


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = start_engine(shared_directory(request, "plain"))
    engine.window.topic_commands.create("orders")
    yield engine
    engine.stop()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    running = []

    def start(**options: Any) -> Engine:
        advertise = {name: options.pop(name) for name in ("advertise",) if name in options}
        running.append(start_engine(tmp_path / f"data{len(running)}", broker=options, **advertise))
        running[-1].window.topic_commands.create("orders")
        return running[-1]

    yield start
    for one in running:
        one.stop()


def tried(engine: Engine, **asked: Any) -> list[str]:
    """The codes of the sentences."""
    checks = engine.window.try_connection(asked.pop("topic", "orders"), "billing", **asked)
    for check in checks:
        assert "%(" not in str(check.sentence)
        assert str(check.sentence).endswith(".")
    return [check.sentence.code for check in checks]


def level(engine: Engine, code: str, **asked: Any) -> str:
    checks = engine.window.try_connection("orders", "billing", **asked)
    return next(check.level for check in checks if check.sentence.code == code)


def test_every_client_of_the_page_can_be_tried(engine: Engine):
    assert set(TLS_OF) == set(LANGUAGES)
    for client in LANGUAGES:
        assert tried(engine, client=client) == WELL


def test_a_name_that_nobody_knows_ends_the_way(engine: Engine):
    assert tried(engine, host="no-such-host.invalid") == ["try_unknown_name", "try_open"]


def test_a_name_is_said_with_its_addresses(engine: Engine):
    assert tried(engine, host="localhost") == ["try_name", *WELL]


def test_an_address_on_which_it_does_not_listen(engine: Engine):
    assert tried(engine, host="127.0.0.2")[:1] == ["try_bound"]


def test_a_topic_that_is_not_there(engine: Engine):
    assert "try_topic_comes" in tried(engine, topic="nothing-yet")


def test_a_topic_that_nothing_makes(started: Callable[..., Engine]):
    engine = started(auto_create_topic_enable=False)
    assert "try_no_topic" in tried(engine, topic="nothing-yet")


@pytest.mark.parametrize(
    "asked",
    [{"host": "a b"}, {"host": "0.0.0.0"}, {"client": "perl"}, {"topic": "a b"}, {"topic": ""}, {"group": "\0"}],
)
def test_what_cannot_be_tried_is_refused(engine: Engine, asked: dict[str, str]):
    with pytest.raises(InvalidInput) as refused:
        engine.window.try_connection(**{"topic": "orders", "group": "billing", **asked})
    assert refused.value.field == next(iter(asked))


def test_a_user_where_nobody_asks(engine: Engine):
    assert tried(engine, user="ann")[-1] == "try_user_unneeded"


def test_tls_where_none_is_served(engine: Engine):
    assert tried(engine, tls=True) == ["try_port", "try_no_tls", "try_open"]


def tls(directory: Path, mode: str = "permissive", **pair: Any) -> dict[str, Any]:
    certificate, key = make_pair(directory, **pair)
    return {"tls_mode": mode, "tls_cert_file": str(certificate), "tls_key_file": str(key)}


def test_a_certificate_that_names_the_host(started: Callable[..., Engine], tmp_path: Path):
    engine = started(**tls(tmp_path, also=("127.0.0.1", "localhost")))
    assert tried(engine, tls=True) == ["try_port", "try_certificate", *WELL[2:]]
    assert tried(engine)[1] == "try_tls_possible"
    assert tried(engine, tls=True, client="go")[1] == "try_without_tls_possible"
    assert "BEGIN CERTIFICATE" in engine.window.client_door().certificate
    assert "PRIVATE" not in engine.window.client_door().certificate


def test_a_certificate_that_names_another_host(started: Callable[..., Engine], tmp_path: Path):
    engine = started(**tls(tmp_path, also=("mq.example.org",)))
    assert tried(engine, tls=True) == ["try_port", "try_unnamed", "try_open"]
    # Java's clients look at no name.
    assert tried(engine, tls=True, client="java") == ["try_port", "try_certificate", *WELL[2:]]


def test_a_certificate_that_names_the_name_server_and_not_the_broker(started: Callable[..., Engine], tmp_path: Path):
    """The name server tells the broker's address as a number."""
    engine = started(**tls(tmp_path, also=("localhost",)))
    codes = tried(engine, tls=True, host="localhost")
    assert codes == [
        "try_name",
        "try_port",
        "try_certificate",
        "try_route",
        "try_broker_here",
        "try_unnamed",
        "try_open",
    ]


def test_a_certificate_that_has_ended(started: Callable[..., Engine], tmp_path: Path):
    engine = started(**tls(tmp_path, days=1, also=("127.0.0.1",)))
    assert tried(engine, tls=True) == ["try_port", "try_expired", "try_open"]


def test_a_server_that_takes_encrypted_connections_only(started: Callable[..., Engine], tmp_path: Path):
    engine = started(**tls(tmp_path, "enforcing", also=("127.0.0.1",)))
    assert tried(engine) == ["try_port", "try_tls_needed", "try_open"]
    assert tried(engine, tls=True, client="go")[1] == "try_without_tls_needed"
    assert tried(engine, tls=True)[1:] == ["try_certificate", *WELL[2:]]


def test_a_server_that_wants_certificates_of_clients(started: Callable[..., Engine], tmp_path: Path):
    (tmp_path / "clients").mkdir()
    authority = Authority(tmp_path / "clients")
    certificate, key = authority.signed("server")
    options = {"tls_mode": "enforcing", "tls_cert_file": str(certificate), "tls_key_file": str(key)}
    options |= {"tls_client_auth": "required", "tls_client_ca_file": str(authority.path)}
    engine = started(**options)
    codes = tried(engine, tls=True, client="java")
    assert codes == ["try_port", "try_certificate", "try_client_certificate", *WELL[2:]]
    assert "try_nameless" in tried(engine, tls=True)
    assert engine.window.client_door().certificate == "", "an authority signed it, whom clients trust"


def test_an_address_that_leads_each_client_to_itself(started: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch):
    engine = started()
    # As seen by a client elsewhere; both lead here.
    monkeypatch.setattr(
        "appliance.engine.window.process.connecting.is_loopback", lambda address: "localhost" not in address
    )
    assert tried(engine, host="localhost")[3:] == ["try_route", "try_told_loopback", "try_open"]


# --- access


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest) -> Iterator[Engine]:
    first = Secret(json.dumps(ROOT))
    options = {"access_control": "enforce", "init_authentication_user": first, "namesrv_anonymous_routes": False}
    engine = start_engine(shared_directory(request, "guarded"), broker=options)
    engine.window.topic_commands.create("orders")
    users = engine.window.users
    for name in ("ann", "bob", "cid", "dan"):
        users.create(name)
    users.put_entry("ann", "Topic:orders", ["Pub", "Sub"], ["10.0.0.0/8"])
    users.put_entry("ann", "Group:billing", ["Sub"])
    users.put_entry("bob", "Topic:*", ["Pub", "Sub"])
    users.put_entry("bob", "Topic:orders", ["Pub"], decision="Deny")
    users.act("cid", "disable")
    users.act("dan", "require-tls")
    yield engine
    engine.stop()


def test_routes_that_are_told_to_users_only_are_looked_up(guarded: Engine):
    assert tried(guarded, user="root")[2:] == ["try_route", "try_broker_here", "try_may"]


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("", ["try_no_user"]),
        ("nobody", ["try_unknown_user"]),
        ("cid", ["try_disabled"]),
        ("ann", ["try_no_entry", "try_no_entry"]),
        ("bob", ["try_denied", "try_no_entry"]),
        ("dan", ["wire_user_shut_out"]),
    ],
)
def test_what_a_user_may_not(guarded: Engine, user: str, found: list[str]):
    assert tried(guarded, user=user)[4:] == found
    assert level(guarded, found[0], user=user) == "failed"


def test_who_may_not_ask_of_users_is_not_told_that_a_client_signs_nothing(guarded: Engine):
    """Their form has no user, so their trials would all fail."""
    assert tried(guarded, user=None)[4:] == ["try_user_unsaid"]
    assert level(guarded, "try_user_unsaid", user=None) == "warning"


def test_a_user_with_rights_from_some_addresses(guarded: Engine):
    assert tried(guarded, user="ann", address="10.2.3.4")[4:] == ["try_may"]
    with pytest.raises(InvalidInput):
        tried(guarded, user="ann", address="somewhere")


def test_a_trial_counts_as_no_refusal_of_anybody(guarded: Engine):
    before = guarded.window.users.refusals().total
    tried(guarded, user="ann")
    assert guarded.window.users.refusals().total == before


def test_nothing_fails_while_access_control_only_reports(started: Callable[..., Engine]):
    engine = started(access_control="report")
    assert level(engine, "try_no_user_reported") == "warning"
    assert level(engine, "try_unknown_user", user="ann") == "warning"
    assert level(engine, "try_user_unsaid_reported", user=None) == "warning"


# --- what it connects to


def route_to(address: str) -> bytes:
    told = {"brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": address}}], "queueDatas": []}
    return json.dumps(told).encode()


@contextmanager
def another_name_server(engine: Engine, body: bytes) -> Iterator[str]:
    """Somebody else's, on the port of ours, with this answer; yield its host."""
    port = split_host_port(engine.window.addresses().namesrv or "")[1]
    with socket.create_server(("127.0.0.9", port)) as listening:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                with sock:
                    frame = sock.recv(65_536)
                    if frame:
                        sock.sendall(encode_command(RemotingCommand(0, decode_frame(frame).opaque, flag=1, body=body)))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield "127.0.0.9"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_route_of_another_name_server_is_not_followed(engine: Engine):
    """Or whoever names a host could have any port of any machine tried from here."""
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0)
        with another_name_server(engine, route_to(f"127.0.0.1:{inner.getsockname()[1]}")) as host:
            assert tried(engine, host=host)[2:] == ["try_other_name_server", "try_open"]
        with pytest.raises(BlockingIOError):
            inner.accept()


@pytest.mark.parametrize("body", [b"[]", b"1", b'{"brokerDatas":[{}]}', b'{"brokerDatas":[{"brokerAddrs":{"0":7}}]}'])
def test_an_answer_that_is_no_route(engine: Engine, body: bytes):
    with another_name_server(engine, body) as host:
        assert tried(engine, host=host)[2:] == ["try_no_answer", "try_open"]


def test_a_broker_with_an_address_that_is_none(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    """Other brokers register what they like."""
    body = route_to("nonsense")
    route = Route("orders", (RouteBroker("b", "c", {"0": "nonsense"}),), ())
    monkeypatch.setattr("appliance.engine.window.window.Window.route", lambda self, topic: route)
    with another_name_server(engine, body) as host:
        assert tried(engine, host=host)[2:] == ["try_route", "try_unknown_broker", "try_open"]
