"""The last request of each user, its address, over TLS or not; also where only the guard sees it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from appliance.engine.access.book import MOST_USERS
from appliance.engine.access.last_requests import LastRequests
from appliance.engine.clock import Clock
from appliance.engine.protocol.codes import RequestCode
from tests.engine.access.test_enforced import ANN, BOB, ROOT, SignedPeer, Site, pull, start  # noqa: F401
from tests.engine.access.test_guard import passed, send
from tests.engine.access.test_heartbeats import beat
from tests.support.tls import client_context, make_pair
from tests.support.waiting import wait_for

CODE = RequestCode


@pytest.fixture
def site(start) -> Site:  # noqa: F811
    return start()


def last(site: Site, user: tuple[str, str]):
    return site.running.window.users.one(user[0]).last


def noted_at(site: Site, user: tuple[str, str]) -> float:
    found = site.running.engine._access.last.all().get(user[0])
    return 0.0 if found is None else found.at


def test_the_newest_request_is_told_also_if_only_the_guard_saw_it(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    assert last(site, ANN) is None
    assert send(ann, "Orders").code == 0
    first = last(site, ANN)
    assert (first.request, first.address, first.tls) == ("SEND_MESSAGE_V2", "127.0.0.1", False)
    assert pull(ann, "readers", "Orders").code == 0
    assert last(site, ANN).request == "PULL_MESSAGE"
    before = passed(site)
    assert send(ann, "Orders").code == 0
    assert passed(site) > before, "the gate did not see it"
    found = last(site, ANN)
    assert found.request == "SEND_MESSAGE_V2"
    assert found.at_ms >= first.at_ms - 2000


def test_it_outlives_its_connection_and_not_its_user(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    assert send(ann, "Orders").code == 0
    assert pull(ann, "readers", "Orders").code == 0
    assert send(ann, "Orders").code == 0
    ann.close()
    wait_for(lambda: not site.running.window.users.one(ANN[0]).limited.connections, "the connection is gone")
    assert last(site, ANN).request == "SEND_MESSAGE_V2"
    site.running.window.users.delete(ANN[0])
    site.make(ANN)
    wait_for(lambda: last(site, ANN) is None, "it is another one of that name")


def test_a_connection_that_is_closed_with_its_user_says_nothing_of_the_next_one(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub")
    for _ in range(2):
        assert send(ann, "Orders").code == 0
    site.running.window.users.delete(ANN[0])
    with pytest.raises(ConnectionError):
        ann.receive()
    site.make(ANN)
    assert last(site, ANN) is None


def test_housekeeping_hides_nothing(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    asked = {"consumerGroup": "readers", "topic": "Orders", "queueId": 0}
    ann.ask(CODE.QUERY_CONSUMER_OFFSET, asked)
    assert last(site, ANN).request == "QUERY_CONSUMER_OFFSET"
    assert send(ann, "Orders").code == 0
    ann.ask(CODE.QUERY_CONSUMER_OFFSET, asked)
    assert last(site, ANN).request == "SEND_MESSAGE_V2"


def test_a_refused_request_is_not_what_a_user_did(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub")
    assert send(ann, "Secret").code == 16
    assert last(site, ANN) is None
    assert send(ann, "Orders").code == 0
    assert pull(ann, "readers", "Orders").code == 16
    assert last(site, ANN).request == "SEND_MESSAGE_V2"


def test_a_heartbeat_counts_if_all_of_it_is_allowed(site: Site):
    ann = site.make(ANN, "Topic:Orders Sub", "Group:mine Sub")
    for groups in ({"other": ["Orders"]}, {"mine": ["Orders"], "other": ["Orders"]}):
        for _ in range(2):
            assert beat(ann, groups).code == 16
    assert ann.ask(CODE.HEART_BEAT, {}, b"{").code == 1
    assert send(ann, "Secret").code == 16, "by now what they would have noted is there"
    assert last(site, ANN) is None
    noted = [0.0]
    for _ in range(2):  # the second one, which equals it, is not looked at
        assert beat(ann, {"mine": ["Orders"]}).code == 0
        wait_for(lambda: noted_at(site, ANN) > noted[0], "it is noted")
        noted[0] = noted_at(site, ANN)
    assert last(site, ANN).request == "HEART_BEAT"


def test_in_report_mode_it_is_done_all_the_same(start):  # noqa: F811
    site = start(access_control="report")
    assert send(site.make(ANN), "Secret").code == 0
    assert last(site, ANN).request == "SEND_MESSAGE_V2"


def test_nobody_else_speaks_for_a_user(site: Site):
    ann = site.make(ANN, "Topic:Orders Pub")
    assert send(ann, "Orders").code == 0
    before = last(site, ANN)
    assert pull(site.peer((ANN[0], "some other secret")), "readers", "Orders").code == 16
    assert last(site, ANN).request == before.request
    assert [row.last.request for row in site.running.window.users.page(q=ROOT[0]).rows] == ["AUTH_CREATE_ACL"]


def test_over_tls_it_says_so(start, tmp_path):  # noqa: F811
    certificate, key = make_pair(tmp_path)
    site = start(tls_mode="permissive", tls_cert_file=str(certificate), tls_key_file=str(key))
    site.make(BOB, "Topic:Orders Pub")
    secret = SignedPeer(site.address, BOB)
    secret.sock = client_context().wrap_socket(secret.sock)
    try:
        for _ in range(2):
            assert send(secret, "Orders").code == 0
            assert last(site, BOB).tls
    finally:
        secret.close()


def test_memory_is_bounded():
    conn = SimpleNamespace(last_active=1.0, born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x01", channel=b"", grants=None)
    found = LastRequests(Clock(), list)
    for number in range(MOST_USERS + 5):
        found.note(f"u{number}", CODE.SEND_MESSAGE, conn)  # type: ignore[arg-type]
    assert len(found.all()) == MOST_USERS
    assert "u4" not in found.all()
    assert "u5" in found.all()
