"""The check of usual sends and pulls, compiled or in `pure_guard.py`: it lets nothing pass that the gate would
refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.engine.access.policies import checked_entry
from appliance.engine.hotpath import COMPILED, Signer
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.signature import SigningKey, signed_content
from tests.engine.access.test_enforced import ANN, BOB, CODE, SignedPeer, Site, pull, start  # noqa: F401
from tests.engine.access.test_enforced import send as send_anything
from tests.engine.access.test_odd_frames import frame_of
from tests.engine.access.test_quotas_enforced import set_quotas, settle
from tests.support.engine import send_fields
from tests.support.peer import Peer


@pytest.fixture
def site(start) -> Site:  # noqa: F811
    return start()


#: A send that the compiled twin takes.
KEY = "UNIQ_KEY\x017F0000015C5C4E0E2F2A691F8DF80000\x02"


def send(peer: Peer, topic: str, body: bytes = b"x") -> RemotingCommand:
    return send_anything(peer, topic, body, i=KEY)


def passed(site: Site) -> int:
    """Return the requests that the guard let pass."""
    return int(site.running.engine._access.gate.guard.passed)


def learned(site: Site, *entries: str, user: tuple[str, str] = ANN) -> SignedPeer:
    """Return a client that has sent to T, so that the guard knows it."""
    peer = site.make(user, *(entries or ("Topic:T Pub,Sub", "Group:g Sub")))
    assert isinstance(peer, SignedPeer)
    assert [send(peer, "T").code for _ in range(2)] == [0, 0]  # the first one makes the topic
    before = passed(site)
    assert send(peer, "T").code == 0
    assert passed(site) == before + 1
    return peer


def tampered(peer: SignedPeer, body: bytes = b"x", without: str = "", **fields: Any) -> int:
    """Send to T by a connection that the guard knows, changed after it was signed; return the code of the answer."""
    told = {name: str(value) for name, value in send_fields("T", i=KEY).items()} | {"AccessKey": peer.user[0]}
    told["Signature"] = peer.key.sign(signed_content(told, b"x"))
    told |= fields
    told.pop(without, None)
    return Peer.ask(_Raw(peer), CODE.SEND_MESSAGE_V2, told, body).code


class _Raw(Peer):
    """The connection of a peer, without its signing."""

    def __init__(self, peer: Peer) -> None:
        self.__dict__ = peer.__dict__


def signing_on(peer: Peer, user: tuple[str, str] | None) -> Peer:
    """Return another user on the connection of a peer; None for a peer that signs nothing. They ask in turns."""
    made = SignedPeer.__new__(Peer if user is None else SignedPeer)
    made.__dict__ = dict(peer.__dict__)
    if user is not None:
        made.user, made.key = user, SigningKey(user[1])
    return made


def test_sends_and_pulls_of_one_resource_pass_after_the_first(site):
    ann = learned(site)
    assert pull(ann, "g", "T").code == 0
    before = passed(site)
    for offset in range(3):
        assert pull(ann, "g", "T", offset).code in (0, 19, 20)
        assert send(ann, "T").code == 0
    assert passed(site) == before + 6


@pytest.mark.parametrize("use_library", [True, False] if COMPILED else [False])
def test_the_signature_is_checked_of_each_request(site, monkeypatch, use_library):
    if COMPILED:
        monkeypatch.setattr("appliance.engine.access.gate.Signer", lambda keys: Signer(keys, use_library))
    ann = learned(site)
    before = passed(site)
    assert tampered(ann) == 0
    assert passed(site) == before + 1
    good = "A" * 27 + "="
    for change in (
        {"body": b"y"}, {"h": "1"}, {"i": "KEYS\x01other\x02"}, {"new": "z"}, {"AccessKey": "root"}, {"AccessKey": ""},
        {"Signature": ""}, {"Signature": good}, {"Signature": good * 4000}, {"without": "Signature"},
        {"without": "AccessKey"}, {"without": "n"},
    ):  # fmt: skip
        assert tampered(ann, **change) == 16, change
    assert passed(site) == before + 1
    assert tampered(ann) == 0


def test_a_signature_that_goes_on_in_the_body_is_none(site):
    ann = learned(site)
    fields = {name: str(value) for name, value in send_fields("T", i=KEY).items()} | {"AccessKey": ANN[0]}
    signature = ann.key.sign(signed_content(fields, b"=x"))
    for cut, code in ((28, 0), (27, 16)):
        header = [*fields.items(), ("Signature", signature[:cut])]
        ann.send_bytes(frame_of(CODE.SEND_MESSAGE_V2, 1, header, b"=x", 77))
        assert ann.receive().code == code


def test_the_other_port_has_the_guard_too(site):
    ann = learned(site)
    host, _, port = site.address.rpartition(":")
    other = site.peer(ANN, f"{host}:{int(port) - 2}")
    before = passed(site)
    for peer, code in ((signing_on(other, None), 16), (other, 0), (other, 0), (signing_on(other, None), 16)):
        assert send(peer, "T").code == code
    assert passed(site) == before + 1
    assert send(ann, "T").code == 0


def test_names_are_signed_in_the_order_of_java(site):
    """It compares UTF-16 units, so not code points."""
    ann = learned(site)
    told = {name: str(value) for name, value in send_fields("T", i=KEY).items()} | {"AccessKey": ANN[0]}
    told |= {"\ufb01": "1", "\U0001f600": "2"}
    by_code_points = "".join(told[name] for name in sorted(told)).encode() + b"x"
    assert by_code_points != signed_content(told, b"x")
    for content, code in ((signed_content(told, b"x"), 0), (by_code_points, 16)):
        fields = told | {"Signature": ann.key.sign(content)}
        assert Peer.ask(_Raw(ann), CODE.SEND_MESSAGE_V2, fields, b"x").code == code


def test_a_change_of_the_user_is_seen_at_once(site):
    ann = learned(site)
    before = passed(site)
    assert site.allow("ann", "Topic:T Sub").code == 0
    assert send(ann, "T").code == 16
    assert passed(site) == before


def test_after_a_change_of_others_one_request_is_admitted_anew(site):
    ann = learned(site)
    before = passed(site)
    for number in range(1, 3):
        site.make((f"other{number}", "a secret of others"))
        assert [send(ann, "T").code for _ in range(3)] == [0] * 3
        assert passed(site) == before + 2 * number
    site.running.engine._access.gate.guard.forget()  # another user has a quota now
    assert [send(ann, "T").code for _ in range(3)] == [0] * 3
    assert passed(site) == before + 6


@pytest.mark.parametrize("act", ["disable", "delete", "secret"])
def test_a_user_who_is_gone_is_refused_on_a_connection_that_stands(site, act, monkeypatch):
    monkeypatch.setattr("appliance.engine.access.parts._GRACE_S", 600.0)
    ann = learned(site)
    if act == "delete":
        assert site.root.ask(CODE.AUTH_DELETE_USER, {"username": "ann"}).code == 0
    else:
        body = {"username": "ann"} | ({"userStatus": "disable"} if act == "disable" else {"password": "quite another"})
        assert site.root.ask(CODE.AUTH_UPDATE_USER, {"username": "ann"}, json.dumps(body).encode()).code == 0
    assert send(ann, "T").code == 16


def test_another_topic_or_group_needs_its_own_right(site):
    ann = learned(site)
    assert pull(ann, "g", "T").code == 0
    for answer in (send(ann, "Other"), send(ann, "%RETRY%other"), pull(ann, "other", "T"), pull(ann, "g", "Other")):
        assert answer.code == 16, answer
    # The same letters, cut elsewhere.
    assert pull(ann, "gT", "").code == 16


def test_two_users_on_one_connection_keep_their_own_rights(site):
    ann = learned(site)
    site.make(BOB, "Topic:Bobs Pub")
    bob = signing_on(ann, BOB)
    for peer, topic, code in [(ann, "T", 0), (bob, "T", 16), (bob, "Bobs", 0), (ann, "Bobs", 16)] * 2:
        assert send(peer, topic).code == code, (peer.user, topic)


def test_two_users_with_one_secret_keep_their_own_rights(site):
    ann = learned(site)
    for name in ("bob", "an", "anna"):
        user = (name, ANN[1])
        site.make(user, "Topic:Other Pub")
        assert [send(ann, "T").code, send(signing_on(ann, user), "T").code] == [0, 16], name


def test_a_quota_that_comes_holds_for_connections_that_stand(site):
    ann = learned(site)
    set_quotas(site, ANN, send_bytes=1000)
    assert send(ann, "T", b"x" * 4000).code == 0
    before = passed(site)
    assert send(ann, "T", b"x" * 4000).code == 2
    assert passed(site) == before


def test_default_quotas_hold_for_connections_that_stand(site):
    ann = learned(site)
    before = passed(site)
    site.running.engine.options.change({"userSendBytesPerSecond": "1000"}, None, False, "a test")
    settle(site)
    assert [send(ann, "T", b"x" * 4000).code for _ in range(2)] == [0, 2]
    assert passed(site) == before


def test_a_connection_over_a_new_default_is_asked_again(site):
    """It stays open, since another user signs on it, too."""
    site.make(BOB, "Topic:T Pub")
    ann = learned(site)
    both = site.peer(ANN)
    bob = signing_on(both, BOB)
    assert [send(bob, "T").code, send(both, "T").code] == [0, 0]
    before = passed(site)
    site.running.engine.options.change({"userConnections": "1"}, None, False, "a test")
    settle(site)
    assert [send(both, "T").code, send(ann, "T").code] == [2, 0]
    assert passed(site) == before + 1


def test_what_was_admitted_before_a_change_is_not_kept_for_after_it(site, monkeypatch):
    """The right is taken away between the look at the user and the guard's note."""
    ann = learned(site)
    book = site.running.engine._access.book
    book.set_entries("ann", (*book.get("ann").account.custom, checked_entry("Topic:U", ["Pub"], (), "Allow")), ())
    settle(site)  # the brake looks at the user, too
    get, changes = book.get, ["ann"]

    def changing(name: str) -> Any:
        user = get(name)
        if name in changes:
            changes.clear()
            book._keep(type(user)(replace(user.account, custom=())))
        return user

    monkeypatch.setattr(book, "get", changing)
    assert [send(ann, "T").code, send(ann, "T").code] == [0, 16]


def test_few_resources_are_kept_for_a_connection(site):
    ann = learned(site, "Topic:* Pub")
    for number in range(64):
        send(ann, f"T{number}")
    before = passed(site)
    assert send(ann, "T").code == 0
    assert passed(site) == before
    assert send(ann, "T").code == 0
    assert passed(site) == before + 1


@pytest.mark.parametrize("size", [600, 70_000])
def test_long_names_and_long_texts_are_left_to_python(site, size):
    ann = learned(site, "Topic:* Pub,Sub", "Group:* Sub")
    before = passed(site)
    for _ in range(2):
        assert send(ann, "L" * size).code != 0
        assert pull(ann, "g" * size, "T").code != 0
    for _ in range(2):
        send_anything(ann, "T", i=KEY, n="N" * 60_000, o="O" * 60_000)
    assert passed(site) == before
    assert send(ann, "T").code == 0


def test_the_user_of_a_certificate_and_users_who_sign_are_told_apart(site):
    """On one connection: without a name the certificate stands for its user, and for no other."""
    site.make(BOB, "Topic:Bobs Pub")
    ann = learned(site)
    bob, nobody = signing_on(ann, BOB), signing_on(ann, None)
    assert send(nobody, "T").code == 16
    port = ann.sock.getsockname()[1]
    [conn] = [one for one in site.running.engine.server.connections.values() if one.remote_host.endswith(f":{port}")]
    assert send(ann, "T").code == 0
    conn.certified = "bob"
    assert [send(bob, "Bobs").code for _ in range(2)] == [0, 0]
    before = passed(site)
    for peer, topic, code in (
        (nobody, "Bobs", 0), (nobody, "Bobs", 0), (nobody, "T", 16), (ann, "Bobs", 16), (nobody, "Bobs", 0),
        (ann, "T", 0), (ann, "T", 0), (nobody, "T", 16), (nobody, "Bobs", 0), (bob, "Bobs", 0), (nobody, "Bobs", 0),
    ):  # fmt: skip
        assert send(peer, topic).code == code, (peer, topic)
    assert passed(site) == before + 3
    conn.certified = ""
    book = site.running.engine._access.book
    book.update("bob", is_enabled=False)
    assert send(nobody, "Bobs").code == 16


def test_a_user_with_two_secrets_is_served_by_both(site):
    ann = learned(site)
    other = site.running.window.users.act("ann", "rotate").secret
    for secret in (ann.user[1], other):
        peer, before = site.peer(("ann", secret)), passed(site)
        assert [send(peer, "T").code for _ in range(3)] == [0] * 3
        assert passed(site) == before + 2
    assert [send(ann, "T").code for _ in range(2)] == [0, 0]


def test_in_report_mode_what_would_be_refused_is_counted_each_time(start):  # noqa: F811
    site = start(access_control="report")
    site.make(BOB)
    bob = site.peer(BOB)
    for _ in range(3):
        assert send(bob, "T").code == 0
    assert passed(site) == 0
    assert [row.count for row in site.running.window.users.refusals().rows if row.user == "bob"] == [3]
