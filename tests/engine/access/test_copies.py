"""Users and policies on slaves and members of a set: copied before a change is answered, and only for members."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partialmethod
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from appliance.engine.access import book as book_module
from appliance.engine.access.book import Account, Book, BookRefusal, Changes, decoded, encoded
from appliance.engine.access.copies import KNOWN, WAIT_MS, MembersProcessor, UserCopies
from appliance.engine.access.policies import Entry, checked_entry
from appliance.engine.access.quotas import Quotas
from appliance.engine.broker import topic_service
from appliance.engine.broker.slave_sync import PERIOD_S, SLAVES_PACE, SlaveSync
from appliance.engine.config import Secret
from appliance.engine.errors import ConnectError, RefusedRequest, StartError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.member_proof import FOR_USER, MEMBER, NONCE, PROOF, over, proof, seal, unseal
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from appliance.engine.remoting.client import RemotingClient
from appliance.engine.remoting.connection import Connection
from appliance.engine.replication import follower
from appliance.engine.replication.shared_secret import Greeting, read_secret
from appliance.engine.tls.certificate import channel_of
from tests.support.clock import FakeClock
from tests.support.engine import Peer, RunningEngine, send_fields
from tests.support.members_of_set import Member
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL
from tests.support.tls import TlsPeer, make_pair
from tests.support.waiting import wait_for

CODE = RequestCode
SHARED = "0123456789abcdef" * 4
ROOT, ANN = ("root", "the first one's secret"), ("ann", "ann's own secret")
FIRST = Secret(json.dumps({"username": ROOT[0], "password": ROOT[1]}))


def entry(resource: str, actions: str = "Pub"):
    return checked_entry(resource, actions.split(","), [], "Allow")


# --- books


def copied(book: Book, copies: UserCopies, most: int) -> int:
    """Have `copies` take all that the book gives in answers of so many bytes; return how many there were."""
    asked = 0

    def ask(request: RemotingCommand) -> RemotingCommand:
        nonlocal asked
        asked += 1
        page = book.since(request.ext_fields[KNOWN], most)
        body = seal(b"k" * 32, msgspec.json.encode(page), request.ext_fields[NONCE], secrets.token_bytes(16))
        return RemotingCommand.response(0, None, body=body)

    copies.take(ask, lambda: b"k" * 32)
    return asked


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Callable[[str], Book]]:
    opened: list[Book] = []

    def book(name: str) -> Book:
        opened.append(Book(tmp_path / name / "access.journal"))
        return opened[-1]

    yield book
    for one in opened:
        one.close()


def test_a_copy_follows_every_change_and_survives_a_restart(books):
    there, here = books("there"), books("here")
    here.create("stranger", "not at the master")
    for n in range(30):
        there.create(f"user-{n}", f"the secret of {n}")
    copies = UserCopies(here)
    assert copied(there, copies, 500) > 3  # a whole copy in several answers
    assert list(here) == list(there)
    there.set_entries("user-3", (entry("Topic:a"),), ())
    there.delete("user-4")
    there.create("new", "a new one's secret")
    assert copied(there, copies, 1) == 3
    assert list(here) == list(there)
    assert copied(there, copies, 1) == 1
    assert list(books("here")) == list(there)


def test_deletions_are_waited_for_after_the_table_of_changes_was_cut(books, monkeypatch):
    """A slave that had all before it does not have it, whatever its number was. A new user cuts the table."""
    monkeypatch.setattr(book_module, "MOST_USERS", 2)
    there, here = books("there"), books("here")
    copies, clock, slave = UserCopies(here), FakeClock(), cast(Connection, object())
    members = MembersProcessor(there, b"", clock, lambda seconds, call: None)

    def follow() -> None:
        copied(there, copies, 1)
        members._followers[slave] = there.number_of(copies._known), clock.monotonic()
        members.wait_for_followers()

    numberings = set()
    for n in range(12):
        there.create(f"user-{n}", f"the secret of {n}")
        follow()
        there.delete(f"user-{n}")
        with pytest.raises(RefusedRequest, match="not all slaves"):
            members.wait_for_followers()
        follow()
        assert list(here) == list(there)
        numberings.add(there._content_id)
    assert len(numberings) >= 2, "the table was cut"


def test_a_copy_reaches_the_newest_change_also_if_that_is_of_a_user_who_never_was(books, monkeypatch, tmp_path):
    monkeypatch.setattr(book_module, "MOST_USERS", 2)
    journal = tmp_path / "there" / "access.journal"
    journal.parent.mkdir()
    journal.write_bytes(b"".join(book_module._encode(Account(f"user-{n}", gone=True)) for n in range(5)))
    there, copies = books("there"), UserCopies(books("here"))
    copied(there, copies, 1 << 20)
    assert there.number_of(copies._known) == there.generation == 5


def test_what_only_a_newer_leader_knows_of_users_stops_no_copy_and_is_given_on(books, caplog):
    here, later = books("here"), books("later")
    here.create("ann", "the secret of ann")
    told = [
        {"name": "ann", "secrets": ["the secret of ann"], "requireTls": True, "onlyAtNight": True},
        {"name": "bob", "secrets": ["bob's own secret"], "quotas": {"requests": 5, "topics": 9}},
        {"name": "eve", "default": [{"resource": "Topic:a", "actions": ["Pub"], "until": 5}]},
    ]
    page = {"begin": True, "accounts": told, "place": "c:3", "more": False, "epoch": 7}

    def ask(request: RemotingCommand) -> RemotingCommand:
        body = seal(b"k" * 32, msgspec.json.encode(page), request.ext_fields[NONCE], secrets.token_bytes(16))
        return RemotingCommand.response(0, None, body=body)

    assert UserCopies(here).take(ask, lambda: b"k" * 32)
    [line] = [line for line in caplog.messages if "does not heed" in line]
    assert "3 users" in line
    assert "['onlyAtNight', 'topics', 'until'] of ['ann', 'bob', 'eve']" in line
    account = here.get("ann").account
    assert (account.requires_tls, account.is_enabled) == (True, True)
    given = json.loads(encoded(here.since("", 1 << 20)))["accounts"]
    assert given == told
    later.take_copies(decoded(json.dumps(page | {"accounts": given}).encode()).accounts, are_all=True)
    assert list(later) == list(here) == list(books("here"))


def test_a_broken_off_whole_copy_changes_nothing(books):
    there, here = books("there"), books("here")
    here.create("stranger", "not at the master")
    for n in range(30):
        there.create(f"user-{n}", f"the secret of {n}")
    copies = UserCopies(here)
    page = there.since("", 500)
    assert page.begin
    assert page.more
    copies._take_page(page, 500)
    assert [account.name for account in here] == ["stranger"]
    # The master has begun anew since, so its numbers mean nothing now.
    assert books("there").since(page.place, 500).begin


def test_who_changes_by_a_copy_is_named_and_who_loses_a_right(books):
    there, here = books("there"), books("here")
    for book in (there, here):
        for name in ("ann", "bob", "root"):
            book.create(name, f"the secret of {name}", is_super=name == "root")
    lost: list[str] = []
    changed: list[str] = []
    here.on_less, here.on_change = lost.append, changed.append
    there.update("ann", is_enabled=False)
    there.set_entries("bob", (entry("Topic:a"),), ())
    copied(there, UserCopies(here), 1 << 20)
    assert lost == ["ann"]
    assert sorted(changed) == ["ann", "bob"]
    assert not here.get("ann").account.is_enabled


def test_a_broker_that_answers_without_a_proof_after_a_lost_connection_gives_no_users(books):
    here = books("here")
    session = b"k" * 32

    def ask(request: RemotingCommand) -> RemotingCommand:
        nonlocal session
        session = b""  # the connection was lost, and the new one's other end says that it needs no proof
        forged = Changes(True, [Account("eve", ("eve's own secret",), is_super=True)], "content:1", False)
        body = seal(b"", msgspec.json.encode(forged), request.ext_fields[NONCE], secrets.token_bytes(16))
        return RemotingCommand.response(0, None, body=body)

    with pytest.raises(ValueError, match="not proved"):
        UserCopies(here).take(ask, lambda: session)
    assert list(here) == []


def test_an_account_that_cannot_be_read_is_not_half_taken(books):
    here = books("here")
    broken = Account("ann", ("the secret of ann",), custom=(Entry("Nothing:a", ("Pub",)),))
    with pytest.raises(ValueError, match="Nothing"):
        here.take_copies([Account("bob", ("the secret of bob",)), broken])
    assert list(here) == []
    for quota in ({"requests": -1}, {"connections": 10**7}):  # the next start would find the journal damaged
        with pytest.raises(ValueError, match="quota"):
            here.take_copies([Account("ann", ("the secret of ann",), quotas=Quotas(**quota))])
    assert list(here) == list(books("here")) == []


def test_what_is_sealed_is_opened_with_the_key_for_its_request_only():
    key, text = b"a" * 32, b"the secret of ann"
    sealed = seal(key, text, "request 1", b"n" * 16)
    assert text not in sealed
    assert unseal(key, sealed, "request 1") == text
    for changed in (bytes([byte ^ 1 if at == spot else byte for at, byte in enumerate(sealed)])
                    for spot in range(len(sealed))):  # fmt: skip
        with pytest.raises(ValueError, match="not sealed"):
            unseal(key, changed, "request 1")
    for other_key, request in ((b"b" * 32, "request 1"), (key, "request 2")):
        with pytest.raises(ValueError, match="not sealed"):
            unseal(other_key, sealed, request)
    with pytest.raises(ValueError, match="not sealed"):
        unseal(key, b"short", "request 1")


# --- the proof


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "ha-secret"
    file.write_text(SHARED + "\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def site(tmp_path: Path, secret_file: str) -> Iterator[RunningEngine]:
    broker = {"access_control": "enforce", "init_authentication_user": FIRST}
    running = RunningEngine(tmp_path / "data", broker=broker, store={"ha_secret_file": secret_file})
    yield running
    running.stop()


def ask_signed(peer: Peer, user: tuple[str, str], code: int, fields: dict[str, Any], body: bytes = b""):
    fields = {name: str(value) for name, value in fields.items()} | {ACCESS_KEY: user[0]}
    fields[SIGNATURE] = SigningKey(user[1]).sign(signed_content(fields, body))
    return peer.ask(code, fields, body)


def make_user(peer: Peer, user: tuple[str, str], *resources: str) -> RemotingCommand:
    """Make a Normal user who may send to these topics; return the last answer."""
    body = {"username": user[0], "password": user[1], "userType": "Normal"}
    answer = ask_signed(peer, ROOT, CODE.AUTH_CREATE_USER, {"username": user[0]}, json.dumps(body).encode())
    if resources and not answer.code:
        told = [{"resource": one, "actions": ["Pub", "Sub"], "decision": "Allow"} for one in resources]
        acl = {"subject": f"User:{user[0]}", "policies": [{"policyType": "Custom", "entries": told}]}
        fields = {"subject": f"User:{user[0]}"}
        answer = ask_signed(peer, ROOT, CODE.AUTH_CREATE_ACL, fields, json.dumps(acl).encode())
    return answer


def set_status(peer: Peer, name: str, status: str) -> RemotingCommand:
    body = json.dumps({"username": name, "userStatus": status}).encode()
    return ask_signed(peer, ROOT, CODE.AUTH_UPDATE_USER, {"username": name}, body)


def test_only_who_proves_the_secret_is_a_member(site):
    peer = site.peer()
    assert peer.ask(CODE.GET_ALL_TOPIC_CONFIG).code == 16
    assert peer.ask(CODE.ROCKETBOX_USERS, {NONCE: "n", KNOWN: ""}).code == 16
    # Not even a Super user gets what is for members.
    assert ask_signed(peer, ROOT, CODE.ROCKETBOX_USERS, {NONCE: "n", KNOWN: ""}).code == 16
    theirs = peer.ask(CODE.ROCKETBOX_MEMBER, {NONCE: "mine"}).ext_fields[NONCE]
    good = {NONCE: "mine", PROOF: proof(SHARED.encode(), MEMBER, "mine", theirs)}
    # Read on the wire and sent on another connection, it proves nothing; nor without a nonce of that one.
    other = site.peer()
    assert other.ask(CODE.ROCKETBOX_MEMBER, good).code == 16
    other.ask(CODE.ROCKETBOX_MEMBER, {NONCE: "mine"})
    assert other.ask(CODE.ROCKETBOX_MEMBER, good).code == 16
    assert other.ask(CODE.GET_ALL_TOPIC_CONFIG).code == 16
    assert peer.ask(CODE.ROCKETBOX_MEMBER, good).code == 0
    assert peer.ask(CODE.GET_ALL_TOPIC_CONFIG).code == 0
    answer = peer.ask(CODE.ROCKETBOX_USERS, {NONCE: "n", KNOWN: ""})
    assert answer.code == 0
    assert answer.body
    assert ROOT[1].encode() not in answer.body
    assert b"root" not in answer.body


def test_over_tls_a_proof_covers_the_certificate(tmp_path, secret_file):
    """One in the middle, with another certificate that the member trusts, cannot pass its proof on."""
    certificate, key = make_pair(tmp_path)
    broker = {"access_control": "enforce", "init_authentication_user": FIRST, "tls_mode": "permissive"}
    broker |= {"tls_cert_file": str(certificate), "tls_key_file": str(key)}
    running = RunningEngine(tmp_path / "data", broker=broker, store={"ha_secret_file": secret_file})
    shown = channel_of(ssl.PEM_cert_to_DER_cert(certificate.read_text()))
    try:
        for tls, channel, code in ((True, b"", 16), (True, b"another", 16), (True, shown, 0), (False, b"", 0)):
            with closing((TlsPeer if tls else Peer)(str(running.engine.broker_address))) as peer:
                theirs = peer.ask(CODE.ROCKETBOX_MEMBER, {NONCE: "mine"}).ext_fields[NONCE]
                given = proof(SHARED.encode(), over(channel, MEMBER), "mine", theirs)
                assert peer.ask(CODE.ROCKETBOX_MEMBER, {NONCE: "mine", PROOF: given}).code == code
    finally:
        running.stop()


def test_a_member_administers_nothing_and_passes_on_what_the_user_may(site):
    assert make_user(site.peer(), ANN, "Topic:Orders").code == 0
    greeting = Greeting(SHARED.encode())
    with closing(RemotingClient(str(site.engine.broker_address), greet=greeting)) as client:

        def code_of(request: int, fields: dict[str, str], **for_user: str) -> int:
            return client.invoke_sync(RemotingCommand(request, ext_fields=fields | for_user, body=b"x"), 5000).code

        assert len(greeting.session or b"") in (0, 32)
        topic = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        for admin in (CODE.UPDATE_AND_CREATE_TOPIC, CODE.UPDATE_BROKER_CONFIG, CODE.AUTH_LIST_USER):
            assert code_of(admin, topic) == 16
        orders, others = (
            {name: str(value) for name, value in send_fields(topic).items()} for topic in ("Orders", "Others")
        )
        assert code_of(CODE.SEND_MESSAGE_V2, orders, **{FOR_USER: "ann 10.0.0.5"}) == 0
        assert code_of(CODE.SEND_MESSAGE_V2, others, **{FOR_USER: "ann 10.0.0.5"}) == 16
        assert code_of(CODE.SEND_MESSAGE_V2, orders, **{FOR_USER: "nobody 10.0.0.5"}) == 16
        assert code_of(CODE.SEND_MESSAGE_V2, others) == 0  # its own, as when kept messages are sent again
    # The field has no effect on other connections.
    assert site.peer().ask(CODE.SEND_MESSAGE_V2, send_fields("Orders") | {FOR_USER: "ann 10.0.0.5"}, b"x").code == 16


def test_a_broker_with_another_secret_is_not_believed(site):
    address = str(site.engine.broker_address)
    with closing(RemotingClient(address, greet=Greeting(b"x" * 32))) as client, pytest.raises(ConnectError):
        client.invoke_sync(RemotingCommand(CODE.GET_ALL_TOPIC_CONFIG), 5000)


def test_a_broker_that_changes_its_role_is_not_said_to_have_another_secret():
    asked: list[RemotingCommand] = []

    def exchange(request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return RemotingCommand.response(14, "service not available now: this broker becomes master")

    with pytest.raises(ConnectError, match="14 service not available now"):
        Greeting(SHARED.encode())(exchange)
    assert len(asked) == 1  # and no proof was sent


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (SHARED, 0o644, "chmod 600"),
        ("short", 0o600, "32 to 1024 characters"),
        ("", 0o600, "32 to 1024 characters"),
        (f"{SHARED}\n{SHARED}", 0o600, "one line"),
        (None, 0, "cannot be read"),
    ],
)
def test_a_secret_file_that_protects_nothing_is_refused(tmp_path, text, mode, told):
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(StartError, match=told):
        read_secret(str(file))


def test_a_slave_without_a_secret_does_not_start(tmp_path):
    broker = {"access_control": "report", "broker_id": 1}
    with pytest.raises(StartError, match="haSecretFile"):
        RunningEngine(tmp_path / "data", broker=broker, store=SMALL | {"broker_role": "SLAVE"})


# --- a slave


@pytest.fixture
def pair(tmp_path: Path, secret_file: str, monkeypatch) -> Iterator[tuple[Callable[..., RunningEngine], ...]]:
    """(start master, start slave); all are stopped at the end."""
    pace = SLAVES_PACE._replace(period_s=0.1)
    monkeypatch.setattr(SlaveSync, "__init__", partialmethod(SlaveSync.__init__, pace=pace))
    monkeypatch.setattr(follower, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(follower, "LAST_RETRY_S", 0.1)
    monkeypatch.setattr("appliance.engine.access.copies._FOLLOWERS_S", 60.0)  # slaves are late on a busy machine
    monkeypatch.setattr("appliance.engine.access.copies._AWAY_S", 60.0)
    ha_port = reserve_port()
    started: list[RunningEngine] = []

    def begin(name: str, broker: dict[str, Any], store: dict[str, Any]) -> RunningEngine:
        broker = {"broker_name": "broker-a", "access_control": "enforce"} | broker
        store = SMALL | {"ha_secret_file": secret_file} | store
        started.append(RunningEngine(tmp_path / name, broker=broker, store=store))
        return started[-1]

    def master() -> RunningEngine:
        return begin("master", {"init_authentication_user": FIRST}, {"ha_listen_port": ha_port})

    def slave(master: RunningEngine) -> RunningEngine:
        namesrvs = (str(master.engine.namesrv_address),)
        broker = {"broker_id": 1, "namesrv_addrs": namesrvs, "slave_read_enable": True}
        return begin("slave", broker, {"broker_role": "SLAVE"})

    yield master, slave
    for one in reversed(started):
        if one.engine.loop.alive:
            one.stop()


def book_of(running: RunningEngine) -> Book:
    assert running.engine._access is not None
    return running.engine._access.book


def test_a_slave_has_its_masters_users_and_changes_none(pair):
    master = pair[0]()
    slave = pair[1](master)
    users, copy = book_of(master), book_of(slave)
    assert make_user(master.peer(), ANN, "Topic:Orders").code == 0
    assert ask_signed(master.peer(), ANN, CODE.SEND_MESSAGE_V2, send_fields("Orders"), b"x").code == 0
    wait_for(lambda: list(copy) == list(users), "the users")
    max_offset = {"topic": "Orders", "queueId": 0}

    def asked_here() -> int:
        return ask_signed(slave.peer(), ANN, CODE.GET_MAX_OFFSET, max_offset).code

    wait_for(lambda: asked_here() == 0, "ann to be known at the slave")
    held = slave.peer()
    assert ask_signed(held, ANN, CODE.GET_MAX_OFFSET, max_offset).code == 0
    refused = make_user(slave.peer(), ("bob", "bob's own secret"))
    assert (refused.code, "changed there" in refused.remark) == (16, True)
    with pytest.raises(BookRefusal, match="changed there"):
        copy.change("ann", lambda account: Account("ann", gone=True), dry_run=True)
    # A change that is there already is none: tools that write to every broker of a cluster go on.
    assert set_status(slave.peer(), "ann", "enable").code == 0
    assert set_status(master.peer(), "ann", "disable").code == 0
    assert held.receive_all() == []  # the connection of a user who may do less ends
    assert asked_here() == 16


def following(master: RunningEngine, count: int = 1) -> MembersProcessor:
    """Return the master's side of the copying when so many slaves have all of its users."""
    assert master.engine._access is not None
    members = master.engine._access.members
    assert members is not None

    def has_all() -> bool:
        found = [has for has, _ in list(members._followers.values())]
        return len(found) == count and set(found) == {book_of(master).generation}

    wait_for(has_all, f"{count} slaves with all users")
    return members


def test_a_change_is_answered_when_the_slave_has_it(pair):
    master = pair[0]()
    slave = pair[1](master)
    follower_of = slave.engine.broker.follower
    assert follower_of is not None
    sync = follower_of.sync
    sync._period_s = PERIOD_S
    take_users = sync._take_users
    sync._take_users = lambda address, wait_ms=0: bool(wait_ms) and take_users(address, wait_ms)  # rounds take none
    following(master)
    copy = book_of(slave)
    for n in range(20):
        assert make_user(master.peer(), (f"user-{n}", f"the secret of {n}"), "Topic:Orders").code == 0
        user = copy.get(f"user-{n}")
        assert user is not None
        assert [one.resource for one in user.account.custom] == ["Topic:Orders"]
    # Also those that the console changes, and those that are gone.
    master.window.users.act("user-3", "disable")
    assert not copy.get("user-3").account.is_enabled
    master.window.users.delete("user-4")
    assert copy.get("user-4") is None
    assert list(copy) == list(book_of(master))


def test_a_change_that_a_slave_has_not_confirmed_counts_and_is_answered_1(pair, monkeypatch):
    monkeypatch.setattr("appliance.engine.access.copies._FOLLOWERS_S", 0.3)
    master = pair[0]()
    slave = pair[1](master)
    members = following(master)
    taken = UserCopies._take_page
    may_take = threading.Event()

    def take(self: UserCopies, page: Changes, size: int) -> None:
        may_take.wait(60)
        taken(self, page, size)

    monkeypatch.setattr(UserCopies, "_take_page", take)
    refused = make_user(master.peer(), ANN)
    assert (refused.code, "not all slaves" in refused.remark) == (1, True)
    assert book_of(master).get("ann") is not None
    with pytest.raises(BookRefusal, match="not all slaves"):  # the same again waits, too
        book_of(master).update("ann", is_enabled=True)
    monkeypatch.setattr("appliance.engine.access.copies._FOLLOWERS_S", 60.0)
    may_take.set()
    wait_for(lambda: book_of(slave).get("ann") is not None, "ann at the slave")
    following(master)
    assert set_status(master.peer(), "ann", "disable").code == 0
    slave.stop()
    wait_for(lambda: not members._followers, "the slave to be gone")
    assert set_status(master.peer(), "ann", "enable").code == 0


def test_a_slave_that_asks_nothing_any_more_holds_up_no_change(pair, monkeypatch):
    master = pair[0]()
    pair[1](master)
    members = following(master)
    monkeypatch.setattr(members, "_followers", {conn: (-1, at) for conn, (_, at) in members._followers.items()})
    monkeypatch.setattr("appliance.engine.access.copies._FOLLOWERS_S", 0.3)
    monkeypatch.setattr("appliance.engine.access.copies._AWAY_S", -1.0)
    assert make_user(master.peer(), ANN).code == 0


def test_an_answer_that_no_change_comes_for_is_empty(pair, monkeypatch):
    monkeypatch.setattr("appliance.engine.access.copies.LONGEST_WAIT_MS", 50)
    master = pair[0]()
    greeting = Greeting(SHARED.encode())
    with closing(RemotingClient(str(master.engine.broker_address), greet=greeting)) as client:

        def ask(known: str) -> Changes:
            nonce = secrets.token_hex(16)
            fields = {KNOWN: known, NONCE: nonce, WAIT_MS: "99999999"}
            answer = client.invoke_sync(RemotingCommand(CODE.ROCKETBOX_USERS, ext_fields=fields), 60_000)
            return msgspec.json.decode(unseal(greeting.session, bytes(answer.body), nonce), type=Changes)

        first = ask("")
        assert (first.begin, [account.name for account in first.accounts]) == (True, ["root"])
        again = ask(first.place)
        assert (again.begin, again.accounts, again.place, again.more) == (False, [], first.place, False)


def test_a_slave_gets_the_whole_tables_of_topics_and_groups(pair):
    master = pair[0]()
    slave = pair[1](master)
    root = master.peer()
    names = [f"orders-{number}" for number in range(5)]
    for name in names:
        fields = {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert ask_signed(root, ROOT, CODE.UPDATE_AND_CREATE_TOPIC, fields).code == 0
        body = json.dumps({"groupName": name}).encode()
        assert ask_signed(root, ROOT, CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    for table in ("topics", "groups"):
        there, here = (getattr(one.engine.broker, table) for one in (master, slave))
        wait_for(lambda: bytes(here.encode_table()) == bytes(there.encode_table()), f"all {table} of the master")  # noqa: B023


def test_a_slave_that_was_away_gets_what_it_missed(pair):
    master = pair[0]()
    slave = pair[1](master)
    assert make_user(master.peer(), ANN, "Topic:Orders").code == 0
    wait_for(lambda: book_of(slave).get("ann") is not None, "ann at the slave")
    slave.stop()
    book_of(master).delete("ann")
    assert make_user(master.peer(), ("bob", "bob's own secret")).code == 0
    master.stop()
    slave = pair[1](master)  # alone: it serves by what it knew
    assert [account.name for account in book_of(slave)] == ["ann", "root"]
    slave.stop()
    master = pair[0]()
    slave = pair[1](master)
    wait_for(lambda: list(book_of(slave)) == list(book_of(master)), "the users", 60)
    assert [account.name for account in book_of(slave)] == ["bob", "root"]


# --- members of a set


@pytest.fixture
def members(tmp_path: Path, secret_file: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Member, Member]]:
    monkeypatch.setattr(topic_service, "MEMBERS_S", 60.0)
    broker = {"access_control": "enforce", "init_authentication_user": FIRST}
    one = Member(tmp_path / "one", 1, broker=broker, ha_secret_file=secret_file)
    two = Member(tmp_path / "two", 2, (str(one.engine.namesrv_address),), broker=broker, ha_secret_file=secret_file)
    yield one, two
    two.stop()
    one.stop()


def names(member: Member) -> list[str]:
    return [account.name for account in book_of(member.running) if account.name != "root"]


def test_a_change_is_answered_when_the_members_in_sync_have_it_and_survives_a_fail_over(members):
    one, two = members
    one.lead(1)
    one.take_in(two)
    for n in range(5):
        book_of(one.running).create(f"user-{n}", f"the secret of {n}")
        assert f"user-{n}" in names(two)  # at once, not soon
    with pytest.raises(BookRefusal, match="changed there"):
        book_of(two.running).create("bob", "bob's own secret")
    one.fence()
    with pytest.raises(BookRefusal, match="fenced"):
        book_of(one.running).create("bob", "bob's own secret")
    two.lead(2)
    two.take_in(one)
    book_of(two.running).delete("user-0")
    assert names(one) == names(two) == ["user-1", "user-2", "user-3", "user-4"]


def test_a_change_that_no_other_member_has_is_not_answered_and_undone_by_a_fail_over(members, monkeypatch):
    one, two = members
    one.lead(1)
    one.take_in(two)
    book_of(one.running).create("ann", "ann's own secret")
    two.stop_tables()
    monkeypatch.setattr(topic_service, "MEMBERS_S", 0.3)
    with pytest.raises(BookRefusal, match="not all members in sync") as refusal:
        book_of(one.running).create("bob", "bob's own secret")
    assert refusal.value.code == 1
    assert names(one) == ["ann", "bob"]
    with pytest.raises(BookRefusal, match="not all members in sync"):
        book_of(one.running).update("bob", is_enabled=True)  # as it is here, and nowhere else
    with pytest.raises(BookRefusal, match="not all members in sync"):
        book_of(one.running).add([Account("bob", ("another secret",))])  # an import repeated: bob stays as he is
    assert book_of(one.running).add([Account("bob", ("another secret",))], dry_run=True) == []
    one.fence()
    two.lead(2)
    two.take_in(one)
    wait_for(lambda: names(one) == ["ann"], "the change that no other member had to be undone")


def test_a_member_that_was_away_is_in_sync_only_with_the_users(members):
    one, two = members
    one.lead(1)
    for n in range(3):
        book_of(one.running).create(f"user-{n}", f"the secret of {n}")
    assert names(two) == []
    one.take_in(two)
    assert names(two) == names(one)


def test_what_a_former_leader_passes_on_is_judged_by_its_user(members):
    one, two = members
    one.lead(1)
    one.take_in(two)
    for name in ("ann", "bob"):
        book_of(one.running).create(name, f"{name}'s own secret")
        book_of(one.running).set_entries(name, (entry("Topic:Orders"),), ())
    one.fence()
    two.lead(2)
    two.await_only()
    one.brokers.relay_to(two.leader, 60.0)
    book_of(two.running).update("bob", is_enabled=False)  # which the former leader does not know

    def sent(name: str, topic: str) -> int:
        fields = send_fields(topic)
        return ask_signed(one.peer(), (name, f"{name}'s own secret"), CODE.SEND_MESSAGE_V2, fields, b"x").code

    assert [sent("ann", "Orders"), sent("ann", "Others"), sent("bob", "Orders")] == [0, 16, 16]
    assert [queue.max_offset for queue in two.store.queues.of_topic("Orders") if queue.max_offset] == [1]
