"""`rocketbox wire-user` and `rocketbox policy` against a server with access control."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from appliance.engine.protocol.codes import RequestCode
from tests.commands.test_remote import ADMIN, HERE, asked, refused, told
from tests.engine.access.test_enforced import SignedPeer
from tests.support.directories import shared_directory
from tests.support.engine import send_fields
from tests.support.server import Server

FIRST = {"username": "root", "password": "the first one's Zq21 secret"}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "wire-user-commands")
    environment = ADMIN | {
        "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": json.dumps(FIRST),
    }
    options = {"roles": "broker,namesrv,console", "environment": environment}
    with Server(directory / "data", "--http-port", "0", **options) as running:
        yield running


def test_a_user_is_made_allowed_and_asked_about(server):
    made = asked(server, "wire-user", "create", "shop", **HERE)
    assert "userType: - -> Normal" in told(server, "wire-user", "create", "other", "--dry-run", **HERE)
    for verb in ("create", "rotate"):
        [secret] = re.findall(
            r"^secret, shown only now: ([0-9a-f]{40})$", told(server, "wire-user", verb, "seen", **HERE), re.M
        )
        other = SignedPeer(server.broker, ("seen", secret))
        refused_by = str(other.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").remark)
        assert "has no permission" in refused_by, refused_by
    told(server, "wire-user", "delete", "seen", "--yes", **HERE)
    peer = SignedPeer(server.broker, ("shop", made["secret"]))
    assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").code == 16
    [row] = asked(server, "policy", "refusals", **HERE)["items"]
    assert (row["user"], row["resource"], row["actions"]) == ("shop", "Topic:orders", ["Pub"])
    assert "Topic:orders" in told(server, "policy", "refusals", **HERE)
    told(server, "policy", "add", "shop", "Topic:orders*", "--action", "Pub", "--source", "127.0.0.0/8", **HERE)
    peer = SignedPeer(server.broker, ("shop", made["secret"]))
    assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").code == 0
    listed = told(server, "policy", "list", "shop", **HERE)
    rows = {row["user"]: row for row in asked(server, "policy", "who", "Topic:orders-1", **HERE)["items"]}
    assert (rows["shop"]["actions"], rows["shop"]["some"], len(rows["root"]["actions"])) == ([], ["Pub"], 6)
    assert "Topic:orders*" in listed
    assert "127.0.0.0/8" in listed
    question = ("policy", "check", "shop", "--action", "Pub", "--resource", "Topic:orders", "--address")
    assert asked(server, *question, "127.0.0.1", **HERE)["allowed"]
    assert not asked(server, *question, "192.0.2.1", **HERE)["allowed"]
    assert "The entry for Topic:orders* decides" in told(server, *question, "127.0.0.1", **HERE)
    told(server, "wire-user", "quotas", "shop", "--requests", "50", "--send-bytes", "0", **HERE)
    quotas = {row["quota"]: row["own"] for row in asked(server, "wire-user", "show", "shop", **HERE)["quotas"]}
    assert quotas == {"send_bytes": 0, "pull_bytes": None, "requests": 50, "connections": None}
    refused(server, 6, "wire-user", "quotas", "shop", "--requests", "-1", **HERE)
    told(server, "wire-user", "remove-quotas", "shop", "--yes", **HERE)
    assert {row["own"] for row in asked(server, "wire-user", "show", "shop", **HERE)["quotas"]} == {None}
    rotated = asked(server, "wire-user", "rotate", "shop", **HERE)
    assert rotated["secret"] != made["secret"]
    assert "add --yes" in refused(server, 2, "wire-user", "disable", "shop", **HERE)
    told(server, "wire-user", "disable", "shop", "--yes", **HERE)
    rows = asked(server, "wire-user", "list", **HERE)["items"]
    assert [(row["name"], row["enabled"], row["secrets"]) for row in rows] == [("root", True, 1), ("shop", False, 2)]
    told(server, "policy", "remove", "shop", "Topic:orders*", "--yes", **HERE)
    assert asked(server, "policy", "list", "shop", **HERE)["items"] == []
    assert "last Super user" in refused(server, 5, "wire-user", "delete", "root", "--yes", **HERE)
    told(server, "wire-user", "delete", "shop", "--yes", **HERE)
    refused(server, 3, "wire-user", "show", "shop", **HERE)
    said = told(server, "audit", "list", "--json", **HERE)
    for secret in (made["secret"], rotated["secret"], FIRST["password"]):
        assert secret not in said + listed
        assert secret not in server.log_path.read_text(errors="replace")
