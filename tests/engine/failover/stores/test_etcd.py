"""etcd alone: members that die or stop, access control, TLS, history."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appliance.engine.errors import StartError
from appliance.engine.failover.leader_store import StoreReplaced, StoreUnavailable, SwapConflict
from appliance.engine.failover.stores import etcd as etcd_module
from appliance.engine.failover.stores import open_store, shortage, tidy
from appliance.engine.failover.stores.access import Access
from tests.support.etcd import QUOTA_BYTES, Etcd, Tls
from tests.support.tcp_relay import TcpRelay
from tests.support.waiting import ends, wait_for

KEY = "/rocketbox/set/state"


@pytest.fixture
def three(tmp_path):
    with Etcd(tmp_path / "etcd", members=3) as etcd:
        yield etcd


@pytest.fixture
def one(tmp_path):
    with Etcd(tmp_path / "etcd") as etcd:
        yield etcd


def opened(request, url, **access):
    store = open_store(url, Access(**access))
    request.addfinalizer(store.close)
    return store


def swap_or_meet_itself(store, value, revision):
    try:
        return store.swap(KEY, value, revision)
    except SwapConflict as error:
        if error.value != value:
            raise
        return error.revision


def beat(store, revision, seconds):
    """Swap as a leader does, retrying unknown outcomes. Return (the last revision, the longest time without a swap)."""
    gap, last, at, end = 0.0, time.monotonic(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        at += 1
        value = b"beat %d" % at
        while True:
            assert time.monotonic() < last + 120, "no swap comes through"
            with suppress(StoreUnavailable):
                revision = swap_or_meet_itself(store, value, revision)
                break
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
        time.sleep(0.02)
    return revision, gap


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_beats_go_on_when_the_leader_of_etcd_goes(three, request, fault):
    store = opened(request, three.url)
    revision = store.swap(KEY, b"start", None)
    revision, _ = beat(store, revision, 0.3)
    leader = three.leader()
    getattr(leader, fault)()
    revision, gap = beat(store, revision, 4.0)
    print(f"{fault}: the longest gap is {gap:.2f} s")
    if fault == "pause":
        leader.resume()
    else:
        leader.start()
    three.wait_until_ready()
    assert store.read(KEY)[1] == revision
    beat(store, revision, 0.2)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_follower_of_etcd_that_goes_costs_one_try(three, request, fault):
    """This includes the follower that was asked first."""
    three.leader()
    store = opened(request, three.url)
    revision = store.swap(KEY, b"start", None)
    asked = store._endpoints[0].address
    leader = three.leader()
    if asked == leader.address:
        asked = three.followers()[0].address
        store._endpoints.sort(key=lambda endpoint: endpoint.address != asked)
        store.read(KEY)
    member = next(member for member in three.members if member.address == asked)
    getattr(member, fault)()
    beat(store, revision, 1.0)
    assert store._endpoints[0].address != asked


def test_a_minority_answers_nothing(three, request):
    store = opened(request, three.url)
    revision = store.swap(KEY, b"one", None)
    for member in three.followers():
        member.kill()
    alone = next(member for member in three.members if member.running)
    near = opened(request, f"etcd://{alone.address}", timeout_s=1.0)
    with pytest.raises(StoreUnavailable):
        near.read(KEY)
    with pytest.raises(StoreUnavailable):
        near.swap(KEY, b"two", revision)
    three.start()
    # The lone member's unfinished swap may be done now: the retry must recognise it as its own.
    assert swap_or_meet_itself(store, b"two", revision) == store.read(KEY)[1]


def test_a_restart_of_all_keeps_the_key(three, request):
    store = opened(request, three.url)
    revision = store.swap(KEY, b"one", None)
    for member in three.members:
        member.kill()
    three.start()
    assert wait_for(lambda: store.read(KEY), "it is back", not_yet=(StoreUnavailable,)) == (b"one", revision)


def test_a_backup_that_was_put_back_is_not_believed(one, request, tmp_path):
    store = opened(request, one.url)
    store.swap(KEY, b"one", None)
    one.keep(tmp_path / "backup")
    revision = wait_for(lambda: store.read(KEY)[1], "it is back", not_yet=(StoreUnavailable,))
    store.swap(KEY, b"two", revision)
    one.put_back(tmp_path / "backup")
    with pytest.raises(StoreReplaced, match="was seen before"):
        store.read(KEY)
    with pytest.raises(StoreReplaced):
        store.list("/rocketbox/set/")
    assert opened(request, one.url).read(KEY)[0] == b"one"


def test_a_revision_that_comes_again_after_a_backup_is_another(one, request):
    """Revisions restart lower: one day another member's beat has the revision that an earlier leader still expects."""
    seen, other = opened(request, one.url), opened(request, one.url)
    revision = other.swap(KEY, b"epoch 5", None)
    for number in range(5):
        revision = other.swap(KEY, b"epoch 5, beat %d" % number, revision)
    assert seen.read(KEY) == (b"epoch 5, beat 4", revision)
    one.wipe()
    one.start()
    again = opened(request, one.url)
    last = again.swap(KEY, b"epoch 6", None)
    while int(last) < int(revision):
        last = again.swap(KEY, b"epoch 6, beat " + last.encode(), last)
    assert last == revision
    with pytest.raises(SwapConflict) as caught:
        seen.swap(KEY, b"epoch 5, beat 5", revision)
    assert (caught.value.value or b"").startswith(b"epoch 6")
    assert again.read(KEY)[1] == revision


def test_one_wrong_address_among_the_right_ones_is_passed_over(one, request, tmp_path):
    """This holds while a right one answers; alone, the wrong address is reported."""
    with Etcd(tmp_path / "other", token="another") as other:
        store = opened(request, f"etcd://{one.members[0].address},{other.members[0].address}")
        revision = store.swap(KEY, b"one", None)
        store._endpoints.reverse()
        assert store.read(KEY) == (b"one", revision)
        one.members[0].kill()
        with pytest.raises(StoreReplaced, match="belongs to cluster"):
            store.swap(KEY, b"two", revision)
        assert opened(request, other.url).read(KEY)[0] is None


# --- access


def allow_only(etcd, name, password):
    member = etcd.members[0]
    for user in ("root", name):
        member.ask("auth/user/add", {"name": user, "password": password})
    member.ask("auth/role/add", {"name": "root"})
    member.ask("auth/role/add", {"name": "sets"})
    key, end = (base64.b64encode(text).decode() for text in (b"/rocketbox/", b"/rocketbox0"))
    member.ask("auth/role/grant", {"name": "sets", "perm": {"permType": "READWRITE", "key": key, "range_end": end}})
    member.ask("auth/user/grant", {"user": "root", "role": "root"})
    member.ask("auth/user/grant", {"user": name, "role": "sets"})
    member.ask("auth/enable")


def test_a_user_that_may_only_its_own_keys(one, request):
    allow_only(one, "box", "secret")
    with pytest.raises(StoreUnavailable, match="user name is empty"):
        opened(request, one.url).read(KEY)
    with pytest.raises(StoreUnavailable, match="invalid user ID or password"):
        opened(request, one.url, user="box", password="wrong", timeout_s=10.0).read(KEY)
    store = opened(request, one.url, user="box", password="secret", timeout_s=10.0)
    revision = store.swap(KEY, b"one", None)
    assert store.read(KEY) == (b"one", revision)
    assert store.list("/rocketbox/set/") == {KEY: b"one"}
    assert store.identity()
    with pytest.raises(StoreUnavailable, match="permission denied"):
        store.read("/elsewhere")


def test_a_token_that_etcd_forgot_is_fetched_anew(one, request):
    allow_only(one, "box", "secret")
    store = opened(request, one.url, user="box", password="secret", timeout_s=10.0)
    revision = store.swap(KEY, b"one", None)
    token = store._token
    member = one.members[0]
    root = member.ask("auth/authenticate", {"name": "root", "password": "secret"})["token"]
    member.ask("auth/disable", token=root)
    member.ask("auth/enable")
    assert store.read(KEY) == (b"one", revision)
    assert store._token != token


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.getbasetemp() / "certificates"
    directory.mkdir()
    now = datetime.datetime.now(datetime.UTC)

    def make(name, issuer=None):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        above, above_key = issuer or (subject, key)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(above)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )
        certificate = builder.sign(above_key, hashes.SHA256())
        paths = directory / f"{name}.pem", directory / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths, (subject, key)

    authority, issuer = make("authority")
    other, _ = make("other-authority")
    node, _ = make("node", issuer)
    return authority[0], other[0], node


def test_tls_with_certificates_of_both_sides(tmp_path, request, certificates):
    authority, other, (cert, key) = certificates
    with Etcd(tmp_path / "etcd", tls=Tls(authority, cert, key)) as etcd:
        mine = {"ca": str(authority), "certificate": str(cert), "key": str(key), "timeout_s": 3.0}
        store = opened(request, etcd.url, **mine)
        revision = store.swap(KEY, b"one", None)
        assert store.read(KEY) == (b"one", revision)
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
            opened(request, etcd.url, **{**mine, "ca": str(other)}).read(KEY)
        with pytest.raises(StoreUnavailable):
            opened(request, etcd.url, ca=str(authority)).read(KEY)
        with pytest.raises(StoreUnavailable):
            opened(request, etcd.url.replace("etcds://", "etcd://")).read(KEY)
        with TcpRelay(etcd.members[0].address) as relay:
            relay.hold = True
            held = opened(request, f"etcds://{relay.address}", **{**mine, "timeout_s": 0.3})
            with pytest.raises(StoreUnavailable):
                ends(lambda: held.read(KEY), "it waits for the handshake")


def test_files_that_hold_no_certificate_are_refused_at_the_start(tmp_path: Path):
    (tmp_path / "nothing.pem").write_text("nothing")
    for access in (Access(ca=str(tmp_path / "nothing.pem")), Access(ca=str(tmp_path / "missing.pem"))):
        with pytest.raises(StartError, match="TLS"):
            open_store("etcds://127.0.0.1", access)


# --- history


def test_compaction_is_missed_only_in_a_long_history(one, request, monkeypatch, caplog):
    monkeypatch.setattr(etcd_module, "LONG_HISTORY", 20)
    store = opened(request, one.url)
    store.put(KEY, b"0")
    with caplog.at_level(logging.WARNING):
        tidy(store, False)
        assert not caplog.text
        for at in range(30):
            store.put(KEY, b"%d" % at)
        tidy(store, False)
        tidy(store, False)
    assert caplog.text.count("nothing is seen to compact") == 1
    caplog.clear()
    tidy(store, True)
    now = int(store.read(KEY)[1])
    for at in range(10):
        store.put(KEY, b"%d" % at)
    tidy(store, True)
    with pytest.raises(StoreUnavailable, match="compacted"):
        store._call(
            "kv/range",
            {"key": base64.b64encode(KEY.encode()).decode(), "revision": str(now - 1)},
            etcd_module._RANGE,
            KEY,
        )
    assert store.read(KEY)[0] == b"9"
    with caplog.at_level(logging.WARNING):
        tidy(store, False)
    assert not caplog.text
    one.stop()
    tidy(store, True)
    tidy(store, False)


def test_a_full_etcd_is_called_full():
    said = b'{"error":"etcdserver: mvcc: database space exceeded","code":8}'
    endpoint = etcd_module.Endpoint("10.0.0.1", 2379, None)
    with pytest.raises(etcd_module._Refused, match="database space exceeded: its quota is used up"):
        etcd_module._decoded(endpoint, 429, said, etcd_module._PUT)


# --- addresses


def test_a_resolver_that_hangs_is_not_waited_for(one, request, monkeypatch):
    """A call that comes meanwhile does not start a second look-up."""
    asked, go_on = [], threading.Event()

    def resolve(host, port, **more):
        asked.append(host)
        go_on.wait(600)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("appliance.engine.failover.stores.lookup.socket.getaddrinfo", resolve)
    store = opened(request, f"etcd://somewhere.test:{one.members[0].client_port}", timeout_s=0.3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"somewhere\.test"):
            ends(lambda: store.read(KEY), "it waits for the resolver")
    assert asked == ["somewhere.test"]
    go_on.set()
    assert wait_for(lambda: store.read(KEY), "it is found", not_yet=(StoreUnavailable,))[0] is None


@pytest.mark.parametrize(
    "url",
    [
        "", "etcd", "etcd:", "etcd://", "http://h:1", "file:///tmp/x", "etcd://h:0", "etcd://h:66666", "etcd://a b:1",
        "etcd://h:1,,h:2", "etcd://user@h:1", "etcd://h:1/path", "etcd://h:x", "memory://", "zookeeper://h:1/chroot",
        "etcd://" + ",".join(f"h{at}" for at in range(17)),
    ],
)  # fmt: skip
def test_addresses_that_are_none_are_refused_at_the_start(url):
    with pytest.raises(StartError, match="haStore"):
        open_store(url)


def test_ports_that_are_not_said():
    store = open_store("etcd://one,two:77,[::1],[::2]:78")
    assert [endpoint.address for endpoint in store._endpoints] == ["one:2379", "two:77", "[::1]:2379", "[::2]:78"]


def test_a_database_near_its_quota_and_a_full_one_are_said_before_and_after(request, one):
    store = opened(request, one.url, timeout_s=10.0)
    assert shortage(store) == ""
    megabyte = b"x" * (1 << 20)
    said: list[str] = []
    # etcd writes its database in batches, and only counts written ones.
    with suppress(StoreUnavailable):
        for number in range(2 * QUOTA_BYTES >> 20):
            store.put(f"/elsewhere/{number}", megabyte)
            said.append(shortage(store))
    assert any(f"of {QUOTA_BYTES} bytes" in one for one in said)
    wait_for(lambda: "NOSPACE" in shortage(store), "the alarm")


def test_an_etcd_that_says_no_size_is_short_of_nothing():
    for metrics in (b"", b"404 page not found\n", b"\n" + etcd_module._SIZE + b" 5e+07\n"):
        assert etcd_module._number(metrics, etcd_module._QUOTA) == 0
    assert etcd_module._number(b"# HELP\n" + etcd_module._QUOTA + b" 6.7108864e+07\n", etcd_module._QUOTA) == 1 << 26
