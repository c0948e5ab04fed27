"""Users of a real set that enforces access control, through a kill and a member that was away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.protocol.codes import RequestCode as Code
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from tests.rig.broker_set import BrokerSet, Kind, Node
from tests.support.engine import send_fields
from tests.support.waiting import wait_for

ROOT = ("root", "the first one's secret")
ANN = ("ann", "ann's own secret")


def ask(node: Node, user: tuple[str, str], code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
    """Ask past the relay, from the member's own address, as its administrator does."""
    fields = {name: str(value) for name, value in fields.items()} | {ACCESS_KEY: user[0]}
    fields[SIGNATURE] = SigningKey(user[1]).sign(signed_content(fields, body))
    peer = node.peer()
    try:
        return peer.ask(code, fields, body)
    finally:
        peer.close()


def make(node: Node, user: tuple[str, str]) -> RemotingCommand:
    body = json.dumps({"username": user[0], "password": user[1], "userType": "Super"}).encode()
    return ask(node, ROOT, Code.AUTH_CREATE_USER, {"username": user[0]}, body)


def users_at(node: Node) -> list[str]:
    answer = ask(node, ROOT, Code.AUTH_LIST_USER, {})
    return [found["username"] for found in json.loads(answer.body or b"[]")]


def leader_of(brokers: BrokerSet, but: str = "") -> Node:
    def found() -> Node | None:
        node = brokers.leader()
        return node if node is not None and node.running and node.name != but else None

    return wait_for(found, "a leader", 90, every=0.05)


@pytest.fixture
def brokers(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    settings = {
        "ROCKETBOX_BROKER_ACCESSCONTROL": "enforce",
        "ROCKETBOX_STORE_HASECRETFILE": str(secret),
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
        "ROCKETBOX_BROKER_NAMESRVBROKERADDRESSES": "127.0.0.0/8",
    }
    with BrokerSet(tmp_path, Kind.FAILOVER, settings=settings, name_servers=1) as found:
        yield found


def test_users_are_there_after_a_kill_and_at_a_member_that_was_away(brokers, tmp_path):
    first = leader_of(brokers)
    wait_for(lambda: users_at(first) == ["root"], "the first user", 60, not_yet=(OSError, ValueError))
    brokers.wait_in_sync()
    assert make(first, ANN).code == 0
    first.kill()  # at once: the other one has ann, or she was not answered for
    second = leader_of(brokers, but=first.name)

    def sent() -> bool:
        return ask(second, ANN, Code.SEND_MESSAGE_V2, send_fields("Orders"), b"x").code == 0

    wait_for(sent, "ann to send to the new leader", 60, not_yet=(OSError,))
    assert users_at(second) == ["ann", "root"]
    disabled = json.dumps({"username": "ann", "userStatus": "disable"}).encode()
    assert ask(second, ROOT, Code.AUTH_UPDATE_USER, {"username": "ann"}, disabled).code == 0
    first.launch()
    brokers.wait_in_sync()
    refused = make(first, ("bob", "bob's own secret"))
    assert (refused.code, "changed there" in str(refused.remark)) == (16, True), refused
    assert ask(first, ANN, Code.AUTH_LIST_USER, {}).code == 16
    assert users_at(first) == ["ann", "root"]
    logs = [node.server.log_path.read_text(errors="replace") for node in brokers.nodes.values()]
    for text in (ROOT[1], ANN[1], "0123456789abcdef" * 4):
        assert not any(text in log for log in logs)
