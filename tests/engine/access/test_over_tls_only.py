"""Users who have to come over TLS, and Super users who sign in clear from other machines."""

from __future__ import annotations

import json
import logging
import socket

import msgspec
import pytest

from appliance.engine.access import supers_in_clear
from appliance.engine.access.book import Account, Book, Changes
from tests.engine.access.test_enforced import ANN, CODE, ROOT, SignedPeer, Site, pull, send, start
from tests.support.tls import client_context, make_pair

__all__ = ["start"]

IN_CLEAR = "this user has to come over TLS, and this connection is in clear: switch TLS on in the client"
FAR = b"PROXY TCP4 10.7.0.1 10.0.0.1 1 2\r\n"


@pytest.fixture
def site(start, tmp_path) -> Site:
    certificate, key = make_pair(tmp_path)
    return start(
        tls_mode="permissive",
        tls_cert_file=str(certificate),
        tls_key_file=str(key),
        proxy_protocol_from="127.0.0.2",
        namesrv_anonymous_routes=False,
    )


def over_tls(site: Site, user: tuple[str, str]) -> SignedPeer:
    peer = SignedPeer(site.address, user)
    peer.sock = client_context().wrap_socket(peer.sock)
    site.running.peers.append(peer)
    return peer


def far(site: Site, user: tuple[str, str], encrypted: bool = False) -> SignedPeer:
    """Connect from another machine, as a balancer tells it."""
    host, _, port = site.address.rpartition(":")
    peer = SignedPeer(site.address, user)
    peer.sock.close()
    peer.sock = socket.create_connection((host, int(port)), 60, source_address=("127.0.0.2", 0))
    peer.sock.sendall(FAR)
    if encrypted:
        peer.sock = client_context().wrap_socket(peer.sock)
    site.running.peers.append(peer)
    return peer


def test_a_user_who_has_to_come_over_tls_is_refused_in_clear(site):
    ann = site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    users = site.running.window.users
    for _ in range(2):  # the second time by the guard
        assert send(ann, "Orders").code == 0
    change = users.act("ann", "require-tls", by="a test")
    assert [(one.field, one.before, one.after) for one in change.differences] == [("requireTls", None, "true")]
    assert ann.receive_all() == [], "what it held in clear ends"
    ann = site.peer(ANN)
    name_server = site.peer(ANN, str(site.running.engine.namesrv_address))
    for answer in (
        send(ann, "Orders"),
        send(ann, "Orders"),
        pull(ann, "readers", "Orders"),
        ann.ask(CODE.HEART_BEAT, {}, json.dumps({"clientID": "c"}).encode()),
        name_server.ask(CODE.GET_ROUTEINFO_BY_TOPIC, {"topic": "Orders"}),
    ):
        assert (answer.code, answer.remark, answer.body) == (16, IN_CLEAR, b"")
    # Only to a user who has proved itself.
    assert send(site.peer((ANN[0], "some other secret")), "Orders").remark != IN_CLEAR
    encrypted = over_tls(site, ANN)
    for _ in range(2):
        assert send(encrypted, "Orders").code == 0
    [row] = [row for row in users.refusals().rows if row.reason == "no_tls"]
    assert (row.user, row.resource, row.count) == ("ann", "", 5)
    assert users.one("ann").last.tls
    # Tools of Apache's change other things of the user, and are told nothing of this.
    body = json.dumps({"username": "ann", "userStatus": "enable", "password": ANN[1]}).encode()
    assert site.root.ask(CODE.AUTH_UPDATE_USER, {"username": "ann"}, body).code == 0
    told = json.loads(site.root.ask(CODE.AUTH_GET_USER, {"username": "ann"}).body)
    assert told == {"userStatus": "enable", "userType": "Normal", "username": "ann"}
    assert users.one("ann").requires_tls
    users.act("ann", "allow-clear", by="a test")
    assert send(ann, "Orders").code == send(encrypted, "Orders").code == 0
    assert [row for row in users.refusals().rows if row.reason == "no_tls"] == []


def test_where_no_tls_is_served_the_refusal_says_so(start):
    site = start()
    ann = site.make(ANN, "Topic:Orders Pub")
    site.running.window.users.act("ann", "require-tls", by="a test")
    answer = send(ann, "Orders")
    told = "this user has to come over TLS, and this server serves none: its tlsMode is disabled"
    assert (answer.code, answer.remark) == (16, told)


def test_in_report_mode_it_is_noted_and_passes(start):
    site = start(access_control="report")
    ann = site.make(ANN, "Topic:Orders Pub")
    site.running.window.users.act("ann", "require-tls", by="a test")
    ann = site.peer(ANN)
    assert send(ann, "Orders").code == 0
    [row] = site.running.window.users.refusals(q="ann").rows
    assert (row.reason, row.count) == ("no_tls", 1)
    site.running.window.users.act("root", "require-tls", by="a test")
    assert site.peer(ROOT).ask(CODE.AUTH_LIST_USER).code == 16, "users are never told without proof"


def test_the_journal_and_the_copies_have_it(tmp_path):
    books = [Book(tmp_path / name) for name in ("here", "there")]
    try:
        books[0].create("ann", "ann's own secret")
        less = []
        books[0].on_less = less.append
        books[0].change("ann", lambda account: msgspec.structs.replace(account, requires_tls=True))
        assert less == ["ann"]
        page = msgspec.json.decode(msgspec.json.encode(books[0].since("", 1 << 20)), type=Changes)
        assert books[1].take_copies(page.accounts, are_all=True) == ["ann"]
    finally:
        for book in books:
            book.close()
    for name in ("here", "there"):
        book = Book(tmp_path / name)
        assert list(book) == [Account("ann", ("ann's own secret",), requires_tls=True)]
        book.close()


def test_a_super_user_who_signs_in_clear_from_another_machine_is_told_of(site, caplog, monkeypatch):
    users, ann = site.running.window.users, site.make(ANN, "Topic:Orders Pub")

    def needs() -> list[str]:
        told = [one.sentence for one in site.running.window.overview.snapshot().needs]
        return [str(one) for one in told if one.code == "supers_in_clear"]

    with caplog.at_level(logging.WARNING, "appliance.engine.access"):
        assert site.root.ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0
        assert far(site, ROOT, encrypted=True).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0
        assert far(site, (ROOT[0], "some other secret")).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 16
        assert (send(far(site, ANN), "Orders").code, send(ann, "Orders").code) == (0, 0)
        assert (users.in_clear(), needs()) == ([], [])
        for _ in range(2):
            assert far(site, ROOT).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0
    [line] = [line for line in caplog.messages if "signs in clear" in line]
    assert "the Super user root signs in clear from=10.7.0.1" in line
    assert [(row.name, row.in_clear) for row in users.page().rows] == [("ann", False), ("root", True)]
    [told] = needs()
    assert "1 Super user, root, signs requests in clear from another machine" in told
    users.act("root", "require-tls", by="a test")
    assert (users.in_clear(), needs()) == ([], [])
    users.act("root", "allow-clear", by="a test")
    assert users.in_clear() == ["root"]
    monkeypatch.setattr(supers_in_clear, "_KEPT_S", -1.0)
    assert users.in_clear() == [], "it is over after a day"
