"""A broker and its name server that check the sender's signature and rights for each request."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from appliance.engine.access.gate import Caller
from appliance.engine.config import Secret
from appliance.engine.errors import InvalidInput, RefusedRequest, StartError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.message_id import encode_offset_id
from appliance.engine.protocol.request_kinds import BROKER, KINDS, ROUTE_CODES
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from appliance.engine.window.window import Window
from appliance.engine.wire_act import WireAct
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields
from tests.support.tls import client_context, make_pair
from tests.support.waiting import wait_for

ROOT = ("root", "the first one's secret")
ANN, BOB = ("ann", "ann's own secret"), ("bob", "bob's own secret")
FIRST = Secret(json.dumps({"username": ROOT[0], "password": ROOT[1]}))
CODE = RequestCode


class SignedPeer(Peer):
    """A client that signs with a user name and a secret."""

    def __init__(self, address: str, user: tuple[str, str]) -> None:
        super().__init__(address)
        self.user = user
        self.key = SigningKey(user[1])

    def send(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", **how: Any) -> int:
        fields = {name: str(value) for name, value in (ext or {}).items()} | {ACCESS_KEY: self.user[0]}
        fields[SIGNATURE] = self.key.sign(signed_content(fields, body))
        return super().send(code, fields, body, **how)


class Site:
    """A running engine, and clients of it."""

    def __init__(self, running: RunningEngine) -> None:
        self.running = running
        self.address = str(running.engine.broker_address)
        self.root = self.peer(ROOT)
        self._runs = True

    def stop(self) -> None:
        """Stop the engine; a second call does nothing."""
        if self._runs:
            self._runs = False
            self.running.stop()

    def peer(self, user: tuple[str, str] | None = None, address: str | None = None) -> Peer:
        made = Peer(address or self.address) if user is None else SignedPeer(address or self.address, user)
        self.running.peers.append(made)
        return made

    def make(self, user: tuple[str, str], *entries: str) -> Peer:
        """Make a Normal user with entries like "Topic:t Pub,Sub" or "Topic:t All Deny", by mqadmin's requests."""
        body = {"username": user[0], "password": user[1], "userType": "Normal"}
        assert self.root.ask(CODE.AUTH_CREATE_USER, {"username": user[0]}, json.dumps(body).encode()).code == 0
        if entries:
            assert self.allow(user[0], *entries).code == 0
        return self.peer(user)

    def allow(self, name: str, *entries: str) -> RemotingCommand:
        told = []
        for text in entries:
            resource, actions, decision = (*text.split(" "), "Allow")[:3]
            told.append({"resource": resource, "actions": actions.split(","), "decision": decision})
        acl = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": told}]}
        return self.root.ask(CODE.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, json.dumps(acl).encode())


@pytest.fixture
def start(tmp_path):
    """`start(access_control="report")` returns a site whose first user is ROOT."""
    sites: list[Site] = []

    def begin(store: dict[str, Any] | None = None, **broker: Any) -> Site:
        options = {"access_control": "enforce", "init_authentication_user": FIRST} | broker
        sites.append(Site(RunningEngine(tmp_path / "data", broker=options, store=store)))
        return sites[-1]

    yield begin
    for site in sites:
        site.stop()


@pytest.fixture
def site(start) -> Site:
    return start()


def given_acts(site: Site) -> list[WireAct]:
    """Return the entries of the audit log about secrets that were given."""
    _, acts = site.running.engine.wire_audit.after("", 0)
    return [act for act in acts if act.action == "wire-user.give"]


def has_route(peer: Peer, topic: str) -> bool:
    """True once the broker has told its name server of a topic."""
    return peer.ask(CODE.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


def last_of(site: Site, name: str) -> str | None:
    """Return the last request of a user that was allowed."""
    last = site.running.window.users.one(name).last
    return None if last is None else last.request


def send(peer: Peer, topic: str, body: bytes = b"x", **fields: Any) -> RemotingCommand:
    return peer.ask(CODE.SEND_MESSAGE_V2, send_fields(topic, **fields), body)


def pull(peer: Peer, group: str, topic: str, offset: int = 0) -> RemotingCommand:
    return peer.ask(CODE.PULL_MESSAGE, pull_fields(topic, 0, offset, consumerGroup=group, sysFlag=4))


def test_who_signs_and_may_sends_and_reads_and_nobody_else_does(site):
    ann = site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    site.make(BOB)
    sent = send(ann, "Orders", b"hello")
    assert sent.code == 0, sent
    assert [record.body for record in records(pull(ann, "readers", "Orders").body)] == [b"hello"]
    liar = site.peer((ANN[0], "some other secret"))
    nobody = site.peer(("nobody", "a secret of nobody"))
    for peer in (site.peer(), liar, nobody, site.peer(BOB)):
        for answer in (send(peer, "Orders"), pull(peer, "readers", "Orders")):
            assert (answer.code, answer.body) == (16, b""), answer
    assert [record.body for record in records(pull(ann, "readers", "Orders").body)] == [b"hello"]


def test_unknown_disabled_and_wrongly_signed_users_are_told_the_same(site):
    site.make(ANN)
    site.make(BOB)
    status = json.dumps({"username": "bob", "userStatus": "disable"}).encode()
    assert site.root.ask(CODE.AUTH_UPDATE_USER, {"username": "bob"}, status).code == 0
    answers = {
        str(send(site.peer(user), "Orders").remark)
        for user in (("nobody", "a secret of nobody"), BOB, (ANN[0], "not ann's secret"))
    }
    assert len(answers) == 1


@pytest.mark.parametrize("codec", [0, 1])
def test_no_code_of_any_port_is_done_for_who_does_not_sign_or_may_nothing(site, codec):
    """Exceptions are routes, which name servers give to all clients, and brokers of this machine."""
    bob = site.make(BOB)
    engine = site.running.engine
    host, _, port = site.address.rpartition(":")
    ports = (site.address, f"{host}:{int(port) - 2}", str(engine.namesrv_address))
    asked = 0
    for address, listener in zip(ports, engine.server._listeners, strict=True):
        strangers = (site.peer(address=address), site.peer(bob.user, address))
        for code in sorted(listener.dispatcher.codes):
            if code in ROUTE_CODES or KINDS[code] == BROKER or (codec and code > 0x7FFF):
                continue
            for peer in strangers:
                if code in (CODE.HEART_BEAT, CODE.UNREGISTER_CLIENT) and isinstance(peer, SignedPeer):
                    continue  # without a group they need no right
                if code in (CODE.VIEW_MESSAGE_BY_ID, CODE.END_TRANSACTION) and isinstance(peer, SignedPeer):
                    continue  # checked when the record is read, below
                if code in (CODE.GET_ALL_TOPIC_CONFIG, CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) and peer != strangers[0]:
                    continue  # empty tables, below
                # Names that do not exist, so what is let through by mistake finds something to do.
                fields = dict.fromkeys(
                    ("topic", "b", "group", "consumerGroup", "groupName", "srcGroup", "destGroup", "producerGroup"), "x"
                )
                answer = peer.ask(code, fields, b"{}", codec=codec)
                assert answer.code == 16 or (answer.code == 1 and isinstance(peer, SignedPeer)), (code, answer)
                asked += 1
    assert asked > 150


def test_what_a_normal_user_may_not_even_with_everything_on_topics_and_groups(site):
    ann = site.make(ANN, "Topic:* All", "Group:* All")
    for code in (CODE.GET_BROKER_CONFIG, CODE.GET_BROKER_RUNTIME_INFO, CODE.GET_ALL_CONSUMER_OFFSET):
        assert ann.ask(code).code == 16
        assert site.root.ask(code).code == 0
    site.allow("ann", "Cluster:* Get")
    assert ann.ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0
    site.allow("ann", "* All")
    for code in (CODE.AUTH_LIST_USER, CODE.AUTH_LIST_ACL, CODE.AUTH_CREATE_USER, CODE.AUTH_CREATE_ACL):
        assert ann.ask(code, {"username": "eve", "subject": "User:ann"}, b"{}").code == 16


def test_a_message_named_by_its_place_is_read_only_by_who_may_read_its_topic(site):
    ann = site.make(ANN, "Topic:Mine Pub,Sub", "Topic:Secret Pub", "Group:readers Sub")
    bob = site.make(BOB, "Topic:Secret Get")
    offset = {}
    for topic in ("Mine", "Secret"):
        assert send(ann, topic, topic.encode()).code == 0
        offset[topic] = int(send(ann, topic).ext_fields["msgId"][-16:], 16)
    for topic, peer, code in (("Mine", ann, 0), ("Secret", ann, 16), ("Mine", bob, 16), ("Secret", bob, 0)):
        answer = peer.ask(CODE.VIEW_MESSAGE_BY_ID, {"offset": offset[topic]})
        assert answer.code == code, (topic, answer)
        assert (topic.encode() in answer.body) == (code == 0)
    for topic, code in (("Mine", 0), ("Secret", 16)):
        back = {"offset": offset[topic], "group": "readers", "delayLevel": 1, "maxReconsumeTimes": 3}
        last_before = last_of(site, "ann")
        assert ann.ask(CODE.CONSUMER_SEND_MSG_BACK, back).code == code
        # One that is refused by its record is not what the user did last.
        if code == 0:
            assert last_before == "VIEW_MESSAGE_BY_ID"
            wait_for(lambda: last_of(site, "ann") == "CONSUMER_SEND_MSG_BACK", "what was allowed is the last request")
            assert ann.ask(CODE.VIEW_MESSAGE_BY_ID, {"offset": offset[topic]}).code == 0
            wait_for(lambda: last_of(site, "ann") == "VIEW_MESSAGE_BY_ID", "the next one is")
        assert ann.ask(CODE.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40}).code == 1
        assert last_of(site, "ann") == "VIEW_MESSAGE_BY_ID"
    assert last_of(site, "bob") == "VIEW_MESSAGE_BY_ID"


def test_only_who_may_send_to_the_topic_ends_its_transaction(site):
    ann = site.make(ANN, "Topic:Paid Pub,Sub", "Group:readers Sub")
    bob = site.make(BOB, "Topic:Other Pub")
    half = send(ann, "Paid", b"half", i="PGROUP\x01PG\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01K1\x02", f=4)
    assert half.code == 0, half
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitLogOffset": int(half.ext_fields["msgId"][-16:], 16), "commitOrRollback": 8, "msgId": "K1",
        "transactionId": "K1",
    }  # fmt: skip
    assert bob.ask(CODE.END_TRANSACTION, fields).code == 16
    assert (last_of(site, "bob"), last_of(site, "ann")) == (None, "SEND_MESSAGE_V2")
    assert ann.ask(CODE.END_TRANSACTION, fields).code == 0
    wait_for(lambda: last_of(site, "ann") == "END_TRANSACTION", "what was allowed is the last request")
    wait_for(lambda: b"half" in pull(ann, "readers", "Paid").body, "the message that ann committed")


def test_only_producers_who_may_send_to_the_topic_are_asked_about_its_transactions(start):
    site = start(transaction_time_out_ms=1, transaction_check_interval_ms=1)
    ann, bob = site.make(ANN, "Topic:Paid Pub"), site.make(BOB, "Topic:Other Pub")
    join = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "PG"}]}).encode()
    assert bob.ask(CODE.HEART_BEAT, {}, join).code == 0
    assert send(ann, "Paid", b"half", i="PGROUP\x01PG\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01K1\x02", f=4).code == 0
    check = site.running.engine.broker.transactions.check
    looked = check._act
    looks: list[int] = []
    check._act = lambda found: looks.append(len(found)) or looked(found)  # type: ignore[method-assign,func-returns-value]
    wait_for(lambda: len(looks) > 2, "some looks at the transaction")
    assert check.asked == 0, "its group has bob only"
    assert ann.ask(CODE.HEART_BEAT, {}, join).code == 0  # who is not the first of the group
    for _ in range(3):
        question = ann.receive()
        assert (question.code, b"half" in question.body) == (CODE.CHECK_TRANSACTION_STATE, True)
    opaque = bob.send(CODE.GET_BROKER_RUNTIME_INFO)
    assert bob.receive().opaque == opaque, "nothing came before the answer"


def test_retries_are_read_by_their_own_group_only(site):
    ann = site.make(ANN, "Group:readers Sub", "Topic:T Sub")
    bob = site.make(BOB, "Group:others Sub", "Topic:T Sub,Pub")
    assert pull(bob, "others", "%RETRY%readers").code == 16
    assert send(bob, "%RETRY%readers").code == 16
    assert pull(ann, "readers", "%RETRY%readers").code != 16


def test_a_forbidden_topic_in_a_heartbeat_is_refused(site):
    ann = site.make(ANN, "Group:readers Sub", "Topic:T Sub")
    for topic, code in (("T", 0), ("Secret", 16)):
        consumer = {"groupName": "readers", "subscriptionDataSet": [{"topic": topic}]}
        beat = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
        assert ann.ask(CODE.HEART_BEAT, {}, beat).code == code


def test_a_right_that_is_taken_away_ends_at_once_for_held_pulls_too(site, monkeypatch):
    ann = site.make(ANN, "Group:readers Sub", "Topic:T Sub,Pub")
    assert send(ann, "T").code == 0
    ann.send(CODE.PULL_MESSAGE, pull_fields("T", 0, 1, consumerGroup="readers", sysFlag=6, suspendTimeoutMillis=60_000))
    connections = site.running.engine.server.connections
    wait_for(lambda: any(conn.parked_count for conn in list(connections.values())), "the held pull")
    bob = SignedPeer.__new__(SignedPeer)  # another user on the same connection changes nothing
    bob.__dict__ |= ann.__dict__ | {"user": BOB, "key": SigningKey(BOB[1])}
    site.make(BOB)
    bob.send(CODE.GET_BROKER_RUNTIME_INFO)
    assert ann.receive().code == 16
    monkeypatch.setattr("appliance.engine.access.parts._GRACE_S", 600.0)
    assert site.root.ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann"}).code == 0
    assert send(site.root, "T", b"behind the change").code == 0
    assert ann.is_closed()
    again = site.peer(ANN)
    assert send(again, "T").code == 16


def test_a_held_pull_stands_when_its_user_is_given_more(site):
    ann = site.make(ANN, "Group:readers Sub", "Topic:T Sub")
    assert send(site.root, "T").code == 0
    ann.send(CODE.PULL_MESSAGE, pull_fields("T", 0, 1, consumerGroup="readers", sysFlag=6, suspendTimeoutMillis=60_000))
    connections = site.running.engine.server.connections
    wait_for(lambda: any(conn.parked_count for conn in list(connections.values())), "the held pull")
    users = site.running.window.users
    users.put_entry("ann", "Topic:T", ["Pub", "Sub"], by="a test")
    users.act("ann", "rotate", by="a test")
    assert send(site.root, "T", b"behind the change").code == 0
    answer = ann.receive()
    assert (answer.code, b"behind the change" in answer.body) == (0, True)
    assert send(ann, "T").code == 0


def test_who_comes_after_a_right_was_taken_away_stays_connected(site, monkeypatch):
    before = site.make(ANN, "Topic:T Pub", "Topic:U Pub")
    assert send(before, "T").code == 0
    loop = site.running.engine._access._loop
    begun, later = loop.call_later, []
    monkeypatch.setattr("appliance.engine.access.parts._GRACE_S", 4711.0)
    monkeypatch.setattr(loop, "call_later", lambda s, call: later.append(call) if s == 4711.0 else begun(s, call))
    assert site.root.ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topic:U"}).code == 0
    wait_for(lambda: later, "the end of connections is due")
    after = site.peer(ANN)
    assert (send(after, "T").code, send(before, "T").code) == (0, 0)
    loop.call_soon(later.pop())
    assert before.is_closed()
    assert (send(after, "T").code, send(after, "U").code) == (0, 16)


def test_a_right_that_is_taken_away_while_a_record_is_read_counts(site):
    site.make(ANN, "Topic:T Sub")
    gate = site.running.engine._access.gate
    caller = Caller(gate, gate._book.get("ann"), ipaddress.ip_address("127.0.0.1"), CODE.VIEW_MESSAGE_BY_ID, None)
    caller.check_topic("T", "Sub")
    changes = (
        lambda: site.allow("ann", "Topic:T Pub"),
        lambda: site.allow("ann", "Topic:T Sub"),
        lambda: site.running.window.users.act("ann", "disable"),
        lambda: site.running.window.users.delete("ann"),
    )
    for change, may in zip(changes, (False, True, False, False), strict=True):
        change()
        if may:
            caller.check_topic("T", "Sub")
        else:
            with pytest.raises(RefusedRequest):
                caller.check_topic("T", "Sub")


def test_who_changes_their_own_secret_is_answered(site):
    body = json.dumps({"username": "root", "password": "a new one for root"}).encode()
    assert site.root.ask(CODE.AUTH_UPDATE_USER, {"username": "root"}, body).code == 0
    assert site.peer(ROOT).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 16
    assert site.peer(("root", "a new one for root")).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0


def test_no_answer_file_or_page_shows_a_secret(site, tmp_path, caplog):
    secrets = [secret.encode() for _, secret in (ROOT, ANN, BOB)]
    ann = site.make(ANN, "Topic:T Pub")
    site.make(BOB)
    send(site.peer((ANN[0], "wrong secret of ann")), "T")
    answers = [
        site.root.ask(code, fields)
        for code, fields in (
            (CODE.AUTH_LIST_USER, {}),
            (CODE.AUTH_GET_USER, {"username": "ann"}),
            (CODE.AUTH_LIST_ACL, {}),
            (CODE.AUTH_GET_ACL, {"subject": "User:ann"}),
            (CODE.GET_BROKER_CONFIG, {}),
            (CODE.GET_BROKER_RUNTIME_INFO, {}),
            (CODE.AUTH_CREATE_USER, {"username": "ann"}),
        )
    ]
    assert b"ann" in answers[0].body
    seen = [repr(answer).encode() + answer.body for answer in answers]
    seen += [repr(site.running.window.options.listing()).encode(), repr(site.running.engine.config).encode()]
    seen.append(caplog.text.encode())
    site.stop()
    seen += [
        path.read_bytes()
        for path in sorted((tmp_path / "data").rglob("*"))
        if path.is_file() and path.name != "access.journal"
    ]
    assert not [what[:300] for what in seen for secret in secrets if secret in what]
    assert ann.user[1].encode() in (tmp_path / "data/rocketbox/access.journal").read_bytes()


def test_users_and_entries_outlive_a_restart_and_the_first_is_made_once(start):
    site = start()
    site.make(ANN, "Topic:T Pub")
    site.running.restart()
    again = Site(site.running)
    assert send(again.peer(ANN), "T").code == 0
    listed = json.loads(again.root.ask(CODE.AUTH_LIST_USER).body)
    assert [(user["username"], user["userType"]) for user in listed] == [("ann", "Normal"), ("root", "Super")]


def test_a_user_who_is_refused_all_the_time_hides_no_other_in_the_log(start, caplog):
    site = start()
    ann, bob = site.make(ANN), site.make(BOB)
    for _ in range(30):
        assert send(bob, "Orders").code == 16
    assert send(ann, "Orders").code == 16
    told = [record.getMessage() for record in caplog.records if "access: refused" in record.getMessage()]
    assert [sum(f"user='{name}'" in text for text in told) for name in ("bob", "ann")] == [20, 1]


def test_report_mode_lets_everything_through_and_tells_what_would_not_be(start, caplog):
    site = start(access_control="report")
    site.make(BOB)
    for peer in (site.peer(), site.peer(BOB), site.peer(("bob", "not bob's secret"))):
        assert send(peer, "Orders").code == 0
    told = [record.getMessage() for record in caplog.records if "would be refused" in record.getMessage()]
    assert len(told) == 3
    assert "Topic:Orders" in told[1]
    window = site.running.window
    assert kinds(window) == {("", "", (), "no_user"), ("bob", "", (), "not_proved"), MISSING}
    asked = "bob", "Pub", "Topic:Orders", "127.0.0.1"
    assert (window.users.decide(*asked).allowed, window.users.decide(*asked).passes) == (False, True)
    window.users.put_entry("bob", "Topic:Orders", ["Pub"])
    assert MISSING not in kinds(window), "the entry allows it by now"
    window.users.delete("bob")
    assert {user for user, *_ in kinds(window)} == {""}, "rows of a user go with it"


#: Bob sends to a topic that no entry of his names.
MISSING = "bob", "Topic:Orders", ("Pub",), "no_entry"


def kinds(window: Window) -> set[tuple[str, str, tuple[str, ...], str]]:
    """Return what was refused, or would have been."""
    return {(row.user, row.resource, row.actions, row.reason) for row in window.users.refusals(page_size=500).rows}


def test_who_may_do_something_on_a_topic_is_told_with_what(site):
    site.make(ANN, "Topic:Orders Pub,Sub", "Group:readers Sub")
    site.make(BOB, "Group:* All")
    window = site.running.window
    window.users.create("off")
    window.users.put_entry("off", "*", ["All"])
    window.users.act("off", "disable")
    window.users.create("near")
    window.users.put_entry("near", "Topic:*", ["Get"], ["10.0.0.0/8"])
    every = ("Get", "Pub", "Sub", "Update", "Create", "Delete")
    found = {(row.user, row.actions, row.some) for row in window.users.who_may("Topic:Orders").rows}
    assert found == {("root", every, ()), ("ann", ("Pub", "Sub"), ()), ("near", (), ("Get",))}
    # The retry topic is the group's: who may consume for the group may send there.
    found = {(row.user, row.actions) for row in window.users.who_may("Topic:%RETRY%readers").rows}
    assert found == {("root", every), ("bob", every), ("ann", ("Pub", "Sub"))}
    assert [row.user for row in window.users.who_may("Group:other", sort="-user").rows] == ["root", "bob"]
    with pytest.raises(InvalidInput):
        window.users.who_may("Topic:Ord*")


def test_what_was_refused_is_told_by_user_resource_and_reason(site):
    ann = site.make(ANN, "Topic:Secret Pub Deny")
    for topic in ("Secret", "Orders", "Orders"):
        assert send(ann, topic).code == 16
    assert ann.ask(CODE.GET_BROKER_RUNTIME_INFO).code == 16
    assert ann.ask(CODE.AUTH_LIST_USER).code == 16
    assert site.peer(("nobody at all", "a secret of nobody")).ask(CODE.GET_BROKER_RUNTIME_INFO).code == 16
    window = site.running.window
    rows = {(row.user, row.resource): row for row in window.users.refusals(sort="-count").rows}
    assert {key: (row.count, row.actions, row.reason, row.request) for key, row in rows.items()} == {
        ("ann", "Topic:Orders"): (2, ("Pub",), "no_entry", "SEND_MESSAGE_V2"),
        ("ann", "Topic:Secret"): (1, ("Pub",), "denied", "SEND_MESSAGE_V2"),
        ("ann", "Cluster:DefaultCluster"): (1, ("Get",), "no_entry", "GET_BROKER_RUNTIME_INFO"),
        ("ann", ""): (1, (), "not_super", "AUTH_LIST_USER"),
        ("", ""): (1, (), "not_proved", "GET_BROKER_RUNTIME_INFO"),
    }
    assert window.users.refusals(sort="-count").rows[0].count == 2
    assert {row.resource for row in window.users.refusals(q="orders").rows} == {"Topic:Orders"}
    window.users.act("ann", "make-super")
    assert {user for user, *_ in kinds(window)} == {""}


def test_in_report_mode_too_nobody_makes_users_who_may_not(start):
    site = start(access_control="report")
    bob = site.make(BOB, "* All")
    eve = json.dumps({"username": "eve", "password": "eve's own secret", "userType": "Super"}).encode()
    for peer in (site.peer(), bob, site.peer(("bob", "not bob's secret"))):
        assert peer.ask(CODE.AUTH_CREATE_USER, {"username": "eve"}, eve).code == 16
        assert peer.ask(CODE.AUTH_LIST_USER).code == 16
    assert b"eve" not in site.root.ask(CODE.AUTH_LIST_USER).body


def beat(peer: Peer, group: str, topic: str, client_id: str) -> RemotingCommand:
    consumer = {"groupName": group, "subscriptionDataSet": [{"topic": topic}]}
    return peer.ask(CODE.HEART_BEAT, {}, json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode())


def test_what_is_relayed_to_a_client_holds_no_signature(site):
    """The client could sign other requests of its user with it."""
    ann = site.make(ANN, "Topic:T Sub", "Group:readers Sub")
    assert beat(ann, "readers", "T", "c").code == 0
    site.root.send(CODE.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "readers", "clientId": "c"})
    question = ann.receive()
    while question.code != CODE.GET_CONSUMER_RUNNING_INFO:
        question = ann.receive()
    assert question.ext_fields["clientId"] == "c"
    assert not {ACCESS_KEY, SIGNATURE, "SecurityToken"} & question.ext_fields.keys()


def test_a_message_that_a_client_is_given_to_consume_is_of_a_topic_that_the_asker_may_read(site):
    ann = site.make(ANN, "Topic:Mine Pub,Sub", "Topic:Secret Pub", "Group:readers Sub,Update")
    assert beat(ann, "readers", "Mine", "c").code == 0
    place = send(ann, "Secret", b"secret").ext_fields["msgId"]
    asked = {"consumerGroup": "readers", "clientId": "c", "msgId": place}
    assert ann.ask(CODE.CONSUME_MESSAGE_DIRECTLY, asked).code == 16


def test_a_list_of_names_is_looked_at_within_bounds(site):
    ann = site.make(ANN, "Group:readers Get", "Topic:* Get")
    asked = {"consumerGroup": "readers", "topicList": ";".join(f"t{number}" for number in range(1001))}
    assert "at most 1000" in str(ann.ask(CODE.GET_CONSUME_STATS, asked).remark)
    asked["topicList"] = "t;" * 5000
    assert "at most" not in str(ann.ask(CODE.GET_CONSUME_STATS, asked).remark)


def test_the_log_names_whose_entries_were_changed(site):
    site.make(ANN)
    site.make(BOB)
    entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}
    acl = {"subject": "User:bob", "policies": [{"entries": [entry]}]}
    assert site.root.ask(CODE.AUTH_CREATE_ACL, {"subject": "User:ann"}, json.dumps(acl).encode()).code == 0
    audit = site.running.engine.wire_audit
    wait_for(
        lambda: [act.target for act in audit.after("", 0)[1] if act.action == "wire-acl.set"] == ["bob"], "the act"
    )


def test_the_log_says_that_a_secret_was_replaced_and_not_by_what(site):
    site.make(ANN)
    for secret in ("a second secret of ann's", "a third secret of ann's"):
        body = json.dumps({"username": "ann", "password": secret}).encode()
        assert site.root.ask(CODE.AUTH_UPDATE_USER, {"username": "ann"}, body).code == 0
    audit = site.running.engine.wire_audit
    acts = lambda: [act for act in audit.after("", 0)[1] if act.target == "ann"]  # noqa: E731
    wait_for(lambda: len(acts()) == 3, "the acts")
    made, second, third = acts()
    assert second.before == {"secretsMark": made.after["secretsMark"]}
    marks = [act.after["secretsMark"] for act in (made, second, third)]
    assert third.before == {"secretsMark": marks[1]}
    assert len(set(marks)) == 3
    assert {act.after["byUser"] for act in (made, second, third)} == {ROOT[0]}
    assert "secret of ann" not in repr(acts())


def test_guessing_is_stopped_for_the_one_who_guesses(site):
    ann = site.make(ANN, "Topic:T Pub")
    assert send(ann, "T").code == 0
    guesser = site.peer((ANN[0], "not ann's secret"))
    for _ in range(10):
        assert send(guesser, "T").code == 16
    # From this address ann is refused for a minute, except on connections that had proved the name; other users are
    # not.
    assert send(site.peer(ANN), "T").code == 16
    assert send(ann, "T").code == 0
    assert site.root.ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0


def test_a_network_of_ipv6_guesses_as_one_address(start):
    site = start(proxy_protocol_from="127.0.0.2")
    site.make(ANN, "Topic:T Pub")
    host, _, port = site.address.rpartition(":")

    def code_from(address: str, secret: str) -> int:
        peer = site.peer((ANN[0], secret))
        peer.sock.close()
        peer.sock = socket.create_connection((host, int(port)), 60, source_address=("127.0.0.2", 0))
        peer.sock.sendall(f"PROXY TCP6 {address} 2001:db8::ffff 1 2\r\n".encode())
        return send(peer, "T").code

    for number in range(10):
        assert code_from(f"2001:db8::{number}", "not ann's secret") == 16
    assert code_from("2001:db8::a", ANN[1]) == 16, "one host may have all of a /64"
    assert code_from("2001:db8:0:1::a", ANN[1]) == 0


def test_a_client_sends_again_after_guesses_from_another_address(site):
    gate = site.running.engine._access.gate
    ann = site.make(ANN, "Topic:T Pub")
    for _ in range(20):
        gate._failures.add(b"\x0a\x00\x00\x05", "ann")
    assert send(ann, "T").code == 0


def test_routes_are_told_to_who_does_not_sign_unless_told_otherwise(start):
    site = start(namesrv_anonymous_routes=False)
    ann = site.make(ANN, "Cluster:* Get")
    name_server = str(site.running.engine.namesrv_address)
    assert site.peer(address=name_server).ask(CODE.GET_BROKER_CLUSTER_INFO).code == 16
    assert site.peer(ann.user, name_server).ask(CODE.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("anonymous", [True, False])
def test_a_topic_that_a_user_has_no_right_on_looks_like_one_that_is_not_there(start, anonymous, codec):
    site = start(namesrv_anonymous_routes=anonymous)
    ann = site.make(ANN, "Topic:Orders Sub", "Group:readers Sub", "Topic:Shut Pub Deny")
    name_server = str(site.running.engine.namesrv_address)
    for topic in ("Orders", "Secret", "Shut", "%RETRY%readers", "%RETRY%others"):
        assert send(site.root, topic).code == 0
        wait_for(partial(has_route, site.peer(ROOT, name_server), topic), "its route")

    def ask(user: tuple[str, str] | None, topic: str) -> RemotingCommand:
        peer = site.peer(user, name_server)
        return peer.ask(CODE.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, codec=codec)

    unknown = ask(ROOT, "Nothing")
    assert unknown.code == 17
    for topic in ("Secret", "Shut", "%RETRY%others"):
        answer = ask(ann.user, topic)
        assert (answer.code, answer.remark) == (17, str(unknown.remark).replace("Nothing", topic))
        assert ask(ROOT, topic).code == 0
    # The template's route tells nothing, and new topics are made by it.
    for topic in ("Orders", "%RETRY%readers", "TBW102"):
        assert ask(ann.user, topic).code == 0
    for user in (None, (ANN[0], "some other secret"), ("nobody", "a secret of nobody")):
        assert {ask(user, topic).code for topic in ("Orders", "Secret")} == {0 if anonymous else 16}


def test_routes_do_not_tell_if_a_guessed_secret_is_right(start):
    site = start()
    ann = site.make(ANN)
    assert send(site.root, "Secret").code == 0
    name_server = str(site.running.engine.namesrv_address)
    wait_for(partial(has_route, site.peer(ROOT, name_server), "Secret"), "its route")
    assert all(has_route(site.peer((ANN[0], f"guess number {n}"), name_server), "Secret") for n in range(10))
    assert has_route(site.peer(ann.user, name_server), "Secret"), "it is not looked at"
    # Clients with a wrong secret keep asking for routes, and lock nobody out who sends.
    assert site.allow("ann", "Topic:Secret Pub").code == 0
    assert send(site.peer(ann.user), "Secret").code == 0


def test_the_own_broker_registers_and_a_stranger_does_not(start):
    site = start(namesrv_broker_addresses="")
    name_server = str(site.running.engine.namesrv_address)
    told = site.peer(address=name_server).ask(CODE.GET_BROKER_CLUSTER_INFO).body
    assert b"broker-a" in told


@pytest.mark.parametrize(
    ("broker", "store", "word"),
    [
        ({"init_authentication_user": Secret()}, {}, "Super user"),
        ({"init_authentication_user": Secret(json.dumps({"username": "a b", "password": "x" * 20}))}, {}, "name"),
        ({"init_authentication_user": Secret(json.dumps({"username": "a", "password": "12345678"}))}, {}, "examples"),
        ({}, {"broker_role": "SLAVE", "ha_master_address": "127.0.0.1:1"}, "SLAVE"),
    ],
)
def test_a_start_that_is_refused(tmp_path, broker, store, word):
    options = {"access_control": "enforce", "init_authentication_user": FIRST} | broker
    if store:
        options["broker_id"] = 1
    with pytest.raises(StartError, match=re.escape(word)):
        RunningEngine(tmp_path / "data", broker=options, store=store)


def test_mqadmins_requests_and_their_odd_cases(site):
    ask = site.root.ask
    body = json.dumps({"username": "ann", "password": ANN[1]}).encode()
    assert (ask(CODE.AUTH_CREATE_USER, {"username": "ann"}, body).remark) == "not set any response code"
    assert ask(CODE.AUTH_CREATE_USER, {"username": "ann"}, body).remark == "The user is existed"
    assert ask(CODE.AUTH_CREATE_USER, {}, b"{}").code == 29
    assert ask(CODE.AUTH_CREATE_USER, {"username": "x"}, b"{}").remark == "password can not be blank"
    assert ask(CODE.AUTH_UPDATE_USER, {"username": "x"}, b'{"userType":"Super"}').remark == "The user is not exist"
    assert ask(CODE.AUTH_UPDATE_USER, {"username": "ann"}, b'{"userType":"Emperor"}').code == 29
    assert ask(CODE.AUTH_DELETE_USER, {"username": "nobody"}).code == 0
    assert ask(CODE.AUTH_DELETE_USER, {"username": "root"}).code == 16
    assert (ask(CODE.AUTH_GET_USER, {"username": "nobody"}).code, ask(CODE.AUTH_GET_USER).code) == (0, 29)
    assert site.allow("ann", "Topic:a Pub", "Topic:b Sub").code == 0
    assert site.allow("ann", "Topic:a Sub", "Group:g Sub").code == 0
    told = json.loads(ask(CODE.AUTH_GET_ACL, {"subject": "User:ann"}).body)
    assert [(e["resource"], e["actions"]) for e in told["policies"][0]["entries"]] == [
        ("Topic:a", ["Sub"]), ("Topic:b", ["Sub"]), ("Group:g", ["Sub"]),
    ]  # fmt: skip
    assert ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topik:a"}).code == 29  # a typo
    assert ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topic:a"}).code == 0
    assert ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann", "resource": "Topic:a"}).remark == "The acl is not exist."
    assert len(json.loads(ask(CODE.AUTH_LIST_ACL, {"resourceFilter": "Group"}).body)[0]["policies"][0]["entries"]) == 1
    assert ask(CODE.AUTH_LIST_ACL, {"subjectFilter": "nobody"}).body == b""
    assert site.allow("nobody", "Topic:a Pub").remark == "The subject of User:nobody is not exist."
    assert site.allow("ann", "Topic:a Dance").code == 29
    assert ask(CODE.AUTH_CREATE_ACL, {"subject": "ann"}, b"{}").code == 29
    assert ask(CODE.AUTH_DELETE_ACL, {"subject": "User:ann"}).code == 0
    assert ask(CODE.AUTH_GET_ACL, {"subject": "User:ann"}).body == b""


def test_secrets_leave_only_by_the_option_for_a_super_user_over_tls_or_on_this_machine(start, tmp_path):
    certificate, key = make_pair(tmp_path)
    tls = {"tls_mode": "permissive", "tls_cert_file": str(certificate), "tls_key_file": str(key)}
    site = start(auth_give_secrets=True, proxy_protocol_from="127.0.0.2", **tls)
    site.make(ANN, "Topic:Orders Pub")
    host, _, port = site.address.rpartition(":")

    def far(user: tuple[str, str], header: bytes, over_tls: bool = False) -> Peer:
        peer = site.peer(user)
        peer.sock.close()
        peer.sock = socket.create_connection((host, int(port)), 60, source_address=("127.0.0.2", 0))
        peer.sock.sendall(header)
        if over_tls:
            peer.sock = client_context().wrap_socket(peer.sock)
        return peer

    def passwords(peer: Peer) -> list[str | None]:
        one = peer.ask(CODE.AUTH_GET_USER, {"username": ANN[0]})
        listed = peer.ask(CODE.AUTH_LIST_USER)
        if one.code:
            assert (one.code, one.body, listed.code, listed.body) == (16, b"", 16, b"")
            return []
        return [told.get("password") for told in (json.loads(one.body), *json.loads(listed.body))]

    given, kept = [ANN[1], ANN[1], ROOT[1]], [None, None, None]
    header = b"PROXY TCP4 10.7.0.1 10.0.0.1 1 2\r\n"
    assert passwords(site.root) == given
    assert passwords(far(ROOT, header)) == kept
    assert passwords(far(ROOT, b"PROXY TCP4 127.0.0.1 10.0.0.1 1 2\r\n")) == kept
    assert passwords(far(ROOT, header, over_tls=True)) == given
    assert passwords(site.peer(ANN)) == passwords(far(ANN, header, over_tls=True)) == []
    wait_for(lambda: len(given_acts(site)) == 4, "four entries of the audit log")
    acts = given_acts(site)
    assert [(act.host, act.target, act.after) for act in acts] == [
        (address, target, {"byUser": "root"}) for address in ("127.0.0.1", "10.7.0.1") for target in ("ann", "*")
    ]
    site.stop()
    assert passwords(start(**tls).peer(ROOT)) == kept


def test_a_user_that_was_read_is_made_elsewhere_as_copy_user_does_it(start):
    site = start(auth_give_secrets=True)
    site.make(ANN)
    told = site.root.ask(CODE.AUTH_GET_USER, {"username": ANN[0]}).body
    assert site.root.ask(CODE.AUTH_DELETE_USER, {"username": ANN[0]}).code == 0
    assert site.root.ask(CODE.AUTH_CREATE_USER, {"username": ANN[0]}, told).code == 0
    assert site.allow(ANN[0], "Topic:Orders Pub").code == 0
    assert send(site.peer(ANN), "Orders").code == 0


def test_whole_tables_show_a_user_what_it_may_see(site):
    ann = site.make(
        ANN, "Topic:Orders* Get", "Topic:Orders-closed Get Deny", "Group:readers Get,Sub", "Topic:Bills Pub"
    )
    bob = site.make(BOB, "Cluster:* Get")
    for topic in ("Orders-eu", "Orders-closed", "Bills", "%RETRY%readers", "%RETRY%others"):
        fields = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert site.root.ask(CODE.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    for group in ("readers", "others"):
        body = json.dumps({"groupName": group}).encode()
        assert site.root.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0

    def tables(peer: Peer) -> list[set[str]]:
        answers = [
            json.loads(peer.ask(code).body)[field]
            for code, field in (
                (CODE.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
                (CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
            )
        ]
        return [set(answer) for answer in answers]

    assert tables(ann) == [{"Orders-eu", "%RETRY%readers"}, {"readers"}]
    assert tables(bob) == tables(site.root)
    assert tables(bob)[0] > {"Orders-eu", "Orders-closed", "Bills", "TBW102"}
    assert {"readers", "others"} < tables(bob)[1]
    assert tables(site.make(("nil", "nil's own secret"))) == [set(), set()]
    assert [site.peer().ask(code).code for code in (21, 201)] == [16, 16]


def test_no_slave_of_apaches_takes_a_part_of_a_table_for_the_whole(start):
    site = start(store={"ha_slave_addresses": "127.0.0.0/8"})
    slave = site.make(ANN, "Topic:* Get", "Group:* Get", "Cluster:* Sub")
    assert [slave.ask(code).code for code in (21, 201)] == [16, 16]
    whole = site.make(BOB, "Cluster:* Get")
    for code in (21, 201):
        assert whole.ask(code).body == site.root.ask(code).body


def test_report_mode_leaves_nothing_out_and_notes_the_right_that_is_missing(start):
    site = start(access_control="report")
    ann = site.make(ANN, "Topic:Orders Get")
    assert "TBW102" in json.loads(ann.ask(CODE.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    rows = site.running.window.users.refusals().rows
    assert [(row.user, row.resource, row.actions) for row in rows] == [("ann", "Cluster:DefaultCluster", ("Get",))]


@pytest.mark.parametrize("codec", [0, 1])
def test_the_topic_that_is_judged_is_the_one_that_is_served(site, codec):
    ann = site.make(ANN, "Topic:Mine Pub,Sub", "Group:mine Sub")
    for topic in ("Mine", "Theirs"):
        assert send(site.root, topic).code == 0

    def end(topic: str) -> int:
        return int(site.root.ask(CODE.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext_fields["offset"])

    short = send_fields("Mine")
    long = {"producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0}
    long |= {"bornTimestamp": 0, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false"}
    sends = {310: (short, "b", "topic"), 320: (short, "b", "topic"), 325: (short, "b", "topic")}
    sends |= {10: (long, "topic", "b"), 324: (long, "topic", "b")}
    for code, (fields, named, other) in sends.items():
        unnamed = {name: value for name, value in fields.items() if name != named}
        for given in ({named: "Theirs", other: "Mine"}, {}, {other: "Mine"}, {named: ""}):
            assert ann.ask(code, unnamed | given, b"x", codec=codec).code == 16, (code, given)
        assert ann.ask(code, unnamed | {named: "Mine", other: "Theirs"}, b"x", codec=codec).code != 16
        ann.send(code, unnamed | {named: "Theirs"}, b"x", flag=2, codec=codec)
    for properties in ("DELAY\x011\x02", "TIMER_DELAY_MS\x01100\x02"):
        before = end("Mine")
        told = f"REAL_TOPIC\x01Theirs\x02REAL_QID\x010\x02{properties}"
        assert send(ann, "Mine", i=told).code == 0
        wait_for(lambda before=before: end("Mine") == before + 1, "the message at its own topic")
    assert end("Theirs") == 1
    for code in (CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE):
        for topic in ("Theirs", "%RETRY%other", "SCHEDULE_TOPIC_XXXX", ""):
            fields = pull_fields(topic, 0, 0, consumerGroup="mine", sysFlag=4)
            assert ann.ask(code, fields, codec=codec).code == 16, topic
        assert ann.ask(code, pull_fields("%RETRY%mine", 0, 0, consumerGroup="mine", sysFlag=4), codec=codec).code == 17
    for group, topic, may in (("mine", "%RETRY%other", False), ("other", "Mine", False), ("mine", "%RETRY%mine", True)):
        queue = {"topic": topic, "brokerName": "b", "queueId": 0}
        body = json.dumps({"clientId": "c", "consumerGroup": group, "mqSet": [queue]}).encode()
        assert [ann.ask(code, {}, body, codec=codec).code != 16 for code in (41, 42)] == [may, may]


def test_requests_about_files_of_acl_1_0_are_not_served(site):
    assert [peer.ask(code).code for peer in (site.root, site.peer()) for code in range(50, 55)] == [3] * 10


def test_the_check_of_an_address_knows_a_broker_that_asks_who_it_is(site):
    check = site.running.window.check_address("127.0.0.1")
    assert (check.broker.result, check.namesrv.result) == ("answers", "answers")


def test_off_nothing_of_it_is_there(start):
    site = start(access_control="off", init_authentication_user=Secret())
    assert send(site.peer(), "T").code == 0
    assert site.running.engine._access is None
    assert site.root.ask(CODE.AUTH_LIST_USER).code == 3


def test_offset_ids_are_as_this_test_takes_them():
    assert int(encode_offset_id(b"\x7f\0\0\1\0\0\0\1", 4711)[-16:], 16) == 4711


def test_what_people_change_in_the_console_counts_at_once_on_the_wire(site):
    window = site.running.engine.window
    first = window.users.create("shop", by="a test").secret
    window.users.put_entry("shop", "Topic:Orders", ["Pub"], by="a test")
    old = site.peer(("shop", first))
    assert send(old, "Orders").code == 0
    second = window.users.act("shop", "rotate", by="a test").secret
    assert (send(old, "Orders").code, send(site.peer(("shop", second)), "Orders").code) == (0, 0), "both are good"

    def after(change: Callable[[], Any], secret: str = second) -> int:
        """Make a change that takes something away; return the answer to a send after connections were closed."""
        kept = site.peer(("shop", second))
        assert send(kept, "Orders").code == 0
        change()
        assert kept.is_closed()
        return send(site.peer(("shop", secret)), "Orders").code

    assert after(lambda: window.users.act("shop", "end-old-secret", by="a test"), first) == 16
    assert after(lambda: window.users.act("shop", "disable", by="a test")) == 16
    window.users.act("shop", "enable", by="a test")
    assert after(lambda: window.users.remove_entry("shop", "Topic:Orders", by="a test")) == 16
    window.users.put_entry("shop", "Topic:Orders", ["Pub"], by="a test")
    assert after(lambda: window.users.delete("shop", by="a test")) == 16


def test_one_answer_of_the_simulator_is_what_the_gate_answers(site):
    window = site.running.engine.window
    ann = site.make(ANN, "Topic:Orders* Pub", "Topic:Orders-closed All Deny")
    for topic in ("Orders", "Orders-eu", "Orders-closed", "Other"):
        allowed = window.users.decide("ann", "Pub", f"Topic:{topic}", "127.0.0.1").allowed
        assert (send(ann, topic).code == 16) == (not allowed), topic


def test_the_first_super_user_may_be_made_in_the_console(start):
    site = start(access_control="report", init_authentication_user=Secret())
    secret = site.running.engine.window.users.create("first", user_type="Super", by="a test").secret
    site.stop()
    enforced = start(init_authentication_user=Secret())
    assert send(enforced.peer(("first", secret)), "Orders").code == 0
    assert send(enforced.peer(), "Orders").code == 16


@pytest.mark.parametrize("told", [b"PROXY TCP4 127.0.0.1 10.0.0.1 1 2\r\n", b"PROXY UNKNOWN\r\n"])
def test_what_comes_through_a_balancer_is_no_broker_of_this_machine(start, told):
    site = start(proxy_protocol_from="127.0.0.2", namesrv_broker_addresses="127.0.0.0/8;10.7.0.0/16")
    address = str(site.running.engine.namesrv_address)
    host, _, port = address.rpartition(":")

    def code_from(source: str, header: bytes) -> int:
        peer = site.peer(address=address)
        peer.sock.close()
        peer.sock = socket.create_connection((host, int(port)), 60, source_address=(source, 0))
        peer.sock.sendall(header)
        fields = {"brokerName": "b", "brokerAddr": "10.7.0.1:10911", "clusterName": "c", "brokerId": "0"}
        return peer.ask(CODE.UNREGISTER_BROKER, fields).code

    assert code_from("127.0.0.3", b"") == 0
    assert code_from("127.0.0.2", b"PROXY TCP4 10.7.0.1 10.0.0.1 1 2\r\n") == 0
    assert code_from("127.0.0.2", told) == 16
