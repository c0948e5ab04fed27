"""Requests that no client sends: each gets a clear refusal, the connection goes on, and nothing changes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from appliance.engine.access import book as book_module
from appliance.engine.access import gate, requests
from appliance.engine.access.book import Account
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.signature import signed_content
from tests.engine.access.test_enforced import ANN, BOB, CODE, SignedPeer, Site, send, start  # noqa: F401
from tests.engine.test_wall_clock import wall  # noqa: F401
from tests.support.engine import send_fields


@pytest.fixture
def site(start) -> Site:  # noqa: F811
    return start()


def asked_raw(peer: SignedPeer, fields: list[tuple[str, str]], code: int = CODE.SEND_MESSAGE_V2) -> RemotingCommand:
    """Send a header with exactly these fields, in JSON that a dict cannot hold."""
    told = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields)
    header = f'{{"code":{code},"extFields":{{{told}}},"flag":0,"language":"JAVA","opaque":77,"version":1}}'.encode()
    peer.send_bytes(struct.pack(">iI", 4 + len(header) + 1, len(header)), header, b"x")
    return peer.receive()


def signed(peer: SignedPeer, fields: dict[str, Any]) -> list[tuple[str, str]]:
    told = {name: str(value) for name, value in fields.items()} | {"AccessKey": peer.user[0]}
    return [*told.items(), ("Signature", peer.key.sign(signed_content(told, b"x")))]


@pytest.mark.parametrize("size", [5000, 200_000, 1 << 20])
def test_a_long_signature(site, size):
    ann = site.make(ANN, "Topic:T Pub")
    assert [send(ann, "T").code for _ in range(3)] == [0] * 3
    fields = [(name, value) for name, value in signed(ann, send_fields("T")) if name != "Signature"]
    answer = asked_raw(ann, [*fields, ("Signature", "A" * size)])
    assert (answer.code, bool(answer.remark)) == (16 if size < 1 << 18 else 13, True)
    assert send(ann, "T").code == 0


def test_a_field_that_is_there_twice(site):
    """A field that comes twice has one value, which is checked and handled, and the signature is of that."""
    ann = site.make(ANN, "Topic:Open Pub")
    assert [send(ann, "Open").code for _ in range(3)] == [0] * 3
    for first, last in (("Open", "Secret"), ("Secret", "Open")):
        for of in (first, last):
            fields = signed(ann, send_fields(of))
            told = [(name, first if name == "b" else value) for name, value in fields] + [("b", last)]
            answer = asked_raw(ann, told)
            assert answer.code == (0 if of == last == "Open" else 16), (first, last, of, answer)
    assert site.running.engine.broker.topics.get("Secret") is None
    for name in ("AccessKey", "Signature"):
        fields = signed(ann, send_fields("Open"))
        assert asked_raw(ann, [*fields, (name, "root")]).code == 16


def test_a_field_that_is_there_twice_in_the_other_codec(site):
    ann = site.make(ANN, "Topic:Open Pub")
    for first, last in (("Open", "Secret"), ("Secret", "Open")):
        for of in (first, last):
            told = [(name, first if name == "b" else value) for name, value in signed(ann, send_fields(of))]
            fields = b"".join(
                struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()
                for name, value in [*told, ("b", last)]
            )
            header = struct.pack(">hBhiiii", CODE.SEND_MESSAGE_V2, 0, 1, 77, 0, 0, len(fields)) + fields
            ann.send_bytes(struct.pack(">iI", 4 + len(header) + 1, 1 << 24 | len(header)), header, b"x")
            assert ann.receive().code == (0 if of == last == "Open" else 16), (first, last, of)
    assert site.running.engine.broker.topics.get("Secret") is None


def test_names_with_a_nul(site):
    ann = site.make(ANN, "Topic:T Pub")
    ask = site.root.ask
    for name in ("a\0", "\0", "ann\0", "a b", "..", "x" * 65, ""):
        body = json.dumps({"username": name, "password": "a secret of nul"}).encode()
        answer = ask(CODE.AUTH_CREATE_USER, {"username": name}, body)
        assert (answer.code in (16, 29), bool(answer.remark)) == (True, True), (name, answer)
    for resource in ("Topic:a\0", "Topic:\0*", "Group:a\nb"):
        assert site.allow("ann", f"{resource} Pub").code in (16, 29), resource
    for topic in ("T\0", "T\0*", "\0T"):
        assert send(ann, topic).code == 16
    assert asked_raw(ann, [("AccessKey", "ann\0"), ("Signature", "x"), ("b", "T")]).code == 16
    listed = json.loads(ask(CODE.AUTH_LIST_USER).body)
    assert sorted(user["username"] for user in listed) == ["ann", "root"]


def test_a_policy_with_100_000_entries(site, monkeypatch):
    site.make(ANN, "Topic:T Pub")
    # Each entry is compared with those before it: 14,000 of them, which a body has room for, took a minute.
    monkeypatch.setattr(requests, "_entry_of", lambda given: pytest.fail("so many entries were read"))
    for many, told in ((100_000, "bytes, at most"), (5000, "a user has at most 1000 entries")):
        entries = [{"resource": f"Topic:t{number}", "actions": ["Pub"], "decision": "Allow"} for number in range(many)]
        body = json.dumps({"subject": "User:ann", "policies": [{"entries": entries}]}).encode()
        answer = site.root.ask(CODE.AUTH_CREATE_ACL, {"subject": "User:ann"}, body)
        assert (answer.code in (1, 16), told in str(answer.remark)) == (True, True), answer
    told = json.loads(site.root.ask(CODE.AUTH_GET_ACL, {"subject": "User:ann"}).body)
    assert [entry["resource"] for entry in told["policies"][0]["entries"]] == ["Topic:T"]
    assert send(site.peer(ANN), "T").code == 0


def test_fifty_thousand_users_at_once_are_refused_and_none_is_made(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(book_module, "User", lambda account: made.append(account))
    users = book_module.Book(tmp_path / "access.journal")
    try:
        with pytest.raises(book_module.BookRefusal, match="10000 users at most"):
            users.add(Account(f"user{number}", ("a secret of many",)) for number in range(50_000))
        assert (list(users), made) == ([], [])
    finally:
        users.close()


def test_more_users_than_there_may_be(site, monkeypatch):
    monkeypatch.setattr(book_module, "MOST_USERS", 5)
    for number in range(4):
        site.make((f"user{number}", "a secret of many"))
    body = json.dumps({"username": "more", "password": "a secret of many"}).encode()
    answer = site.root.ask(CODE.AUTH_CREATE_USER, {"username": "more"}, body)
    assert (answer.code, "there are 5 users" in str(answer.remark)) == (16, True), answer
    assert site.root.ask(CODE.AUTH_DELETE_USER, {"username": "user0"}).code == 0
    assert site.root.ask(CODE.AUTH_CREATE_USER, {"username": "more"}, body).code == 0


@pytest.mark.parametrize("hours", [24 * 400, -24 * 400])
def test_a_clock_that_is_set_lets_nobody_in_and_keeps_nobody_out(site, wall, monkeypatch, hours):  # noqa: F811
    monkeypatch.setattr(gate, "_FAILURES_S", 3600.0)
    ann = site.make(ANN, "Topic:T Pub")
    site.make(BOB, "Topic:T Pub")
    assert send(ann, "T").code == 0
    for _ in range(10):
        assert send(site.peer((BOB[0], "some other secret")), "T").code == 16
    before_ms = site.running.window.users.one("ann").last.at_ms
    wall.seconds = hours * 3600
    assert send(site.peer(BOB), "T").code == 16, "its time is not over"
    assert [send(peer, "T").code for peer in (ann, ann, site.peer(ANN))] == [0] * 3
    assert (site.running.window.users.one("ann").last.at_ms > before_ms) == (hours > 0)
    rows = [row for row in site.running.window.users.refusals().rows if row.user == BOB[0]]
    assert sum(row.count for row in rows) == 11


@pytest.mark.parametrize(
    "network",
    ["10.0.0.0/33", "::/129", "10.0.0.1/8/8", "10.0.0", "fe80::1%eth0", "0x7f.1", "10.1.1.1\0", "::ffff:127.0.0.1/128"],
)
def test_networks_that_are_none(site, network):
    site.make(ANN)
    entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow", "sourceIps": [network]}
    acl = {"subject": "User:ann", "policies": [{"entries": [entry]}]}
    answer = site.root.ask(CODE.AUTH_CREATE_ACL, {"subject": "User:ann"}, json.dumps(acl).encode())
    assert (answer.code in (16, 29), bool(answer.remark)) == (True, True), answer


def test_networks_of_both_families(site):
    site.make(ANN)
    for network, code in (
        ("::/0", 16),
        ("10.0.0.0/8", 16),
        ("127.0.0.0/8", 0),
        ("127.0.0.1", 0),
    ):
        entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow", "sourceIps": [network]}
        acl = {"subject": "User:ann", "policies": [{"entries": [entry]}]}
        assert site.root.ask(CODE.AUTH_CREATE_ACL, {"subject": "User:ann"}, json.dumps(acl).encode()).code == 0
        assert send(site.peer(ANN), "T").code == code, network
