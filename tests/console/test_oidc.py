"""Signing in by OpenID Connect, with a provider that signs real tokens; and with ones that cheat."""

import contextlib
import json
import math
import os
import socket
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from appliance import runtime
from appliance.console.models import AuditEntry, User
from appliance.console.sign_in import oidc
from appliance.sign_in_options import OidcSignIn, SignInOptions
from tests.support.oidc_provider import OidcProvider

from .conftest import PASSWORD, age_login

pytestmark = pytest.mark.django_db
PUBLIC = "http://testserver"


@pytest.fixture
def provider():
    oidc.forget()
    with OidcProvider() as found:
        found.callbacks = {f"{PUBLIC}/login/oidc/back/"}
        yield found
    oidc.forget()


@pytest.fixture
def allow(provider, people, engine, monkeypatch):
    """`allow(domains=...)`: the console knows the provider."""

    def make(**options):
        options = {"roles": (("ops", "operator"), ("bosses", "admin")), **options}
        sign_in = SignInOptions(oidc=OidcSignIn(provider.issuer, provider.client_id, **options))
        place = runtime.Place(runtime.place().data_dir, public_url=PUBLIC, sign_in=sign_in)
        monkeypatch.setattr(runtime, "_place", place)

    make()
    return make


def there(client: Client, next_page: str = "/") -> str:
    """Return the address to which the console sends a browser that wants to sign in."""
    response = client.get("/login/oidc/", {"next": next_page})
    assert response.status_code == 302, response.content.decode()
    return response.headers["Location"]


def back(client: Client, address: str):
    return client.get(address.removeprefix(PUBLIC))


def come_in(provider, client: Client | None = None, next_page: str = "/"):
    client = client or Client()
    return back(client, provider.sign_in(there(client, next_page)))


def refusals() -> list[str]:
    return [one.after["why"] for one in AuditEntry.objects.filter(action="user.sign_in", result="refused")]


def test_without_settings_there_is_no_such_way(client, people, engine):
    assert client.get("/login/oidc/").status_code == 404
    assert client.get("/login/oidc/back/?code=x&state=y").status_code == 404
    assert "/login/oidc/" not in client.get("/login/").content.decode()


def test_somebody_comes_in_and_is_known_the_next_time(allow, provider):
    assert "Sign in with Single sign-on" in Client().get("/login/").content.decode()
    browser = Client()
    assert come_in(provider, browser, "/account/").headers["Location"] == "/account/"
    assert browser.get("/").status_code == 200
    olga = User.objects.get(username="olga")
    assert (olga.role, olga.may_read_bodies, olga.has_usable_password()) == ("operator", False, False)
    provider.user["preferred_username"] = "olga.renamed"
    assert come_in(provider).headers["Location"] == "/"
    assert User.objects.filter(identity__startswith="oidc:").count() == 1, "by her number there, not by her name"
    entries = AuditEntry.objects.filter(action__in=("user.create", "user.sign_in")).order_by("id")
    assert [(one.action, one.target, one.result) for one in entries] == [
        ("user.create", "olga", "done"), ("user.sign_in", "olga", "done"), ("user.sign_in", "olga", "done"),
    ]  # fmt: skip


def test_the_role_is_the_providers_each_time(allow, provider):
    come_in(provider)
    provider.user["groups"] = ["bosses", "ops"]
    come_in(provider)
    assert User.objects.get(username="olga").role == "admin"
    provider.user["groups"] = ["ops"]
    come_in(provider)
    assert User.objects.get(username="olga").role == "operator"
    assert AuditEntry.objects.filter(action="user.change").count() == 2


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "http://127.0.0.1:1/realm"}, "token"),
        ({"aud": "another-client"}, "token"),
        ({"aud": ["rocketbox", "another"], "azp": "another"}, "token"),
        ({"aud": ["rocketbox", "another"]}, "token"),
        ({"nonce": "of-another-sign-in"}, "token"),
        ({"nonce": None}, "token"),
        ({"nonce": "d\u00e9j\u00e0 vu"}, "token"),
        ({"exp": math.nan}, "token"),
        ({"exp": int(time.time()) - 3600}, "token"),
        ({"exp": None}, "token"),
        ({"iat": int(time.time()) + 86_400}, "token"),
        ({"nbf": int(time.time()) + 86_400}, "token"),
        ({"sub": None}, "token"),
        ({"groups": ["strangers"]}, "no_role"),
        ({"groups": "ops"}, "no_role"),
        ({"preferred_username": "a b <c>"}, "name"),
        ({"preferred_username": "the-admin"}, "name_taken"),
        ({"preferred_username": "THE-ADMIN"}, "name_taken"),
    ],
)
def test_claims_that_are_wrong_let_nobody_in(allow, provider, claims, why):
    provider.claims = claims
    browser = Client()
    assert come_in(provider, browser).status_code == 403
    assert browser.get("/").status_code == 302
    assert refusals() == [why]
    assert User.objects.count() == 3


@pytest.mark.parametrize("signed_by", ["none", "HS256", "stranger"])
def test_a_signature_that_is_none_of_the_providers_lets_nobody_in(allow, provider, signed_by):
    provider.signed_by = signed_by
    assert come_in(provider).status_code == 403
    assert refusals() == ["token"]
    assert User.objects.count() == 3


def test_a_provider_that_calls_itself_otherwise_is_not_asked_further(allow, provider):
    provider.lies = {"issuer": "https://somebody-else.example"}
    assert Client().get("/login/oidc/").status_code == 403
    assert refusals() == ["issuer"]
    assert "/realm/keys" not in provider.asked


def test_an_answer_of_another_provider_is_refused(allow, provider):
    browser = Client()
    address = provider.sign_in(there(browser))
    honest = parse_qs(urlsplit(address).query)
    response = browser.get("/login/oidc/back/", {"code": honest["code"][0], "state": honest["state"][0], "iss": "x"})
    assert response.status_code == 403
    assert refusals() == ["issuer"]


def test_an_answer_counts_once(allow, provider):
    browser = Client()
    address = provider.sign_in(there(browser))
    cookie = browser.cookies["rocketbox_oidc"].value
    assert back(browser, address).status_code == 302
    browser.cookies["rocketbox_oidc"] = cookie
    assert back(browser, address).status_code == 403
    assert refusals() == ["state"]


def test_an_answer_belongs_to_the_browser_that_began(allow, provider):
    """Else a page could sign its visitors in as another user."""
    mine, victim = Client(), Client()
    address = provider.sign_in(there(mine))
    there(victim)
    assert back(victim, address).status_code == 403
    assert back(Client(), address).status_code == 403
    assert Client().get("/login/oidc/back/", {"code": "x", "state": "y"}).status_code == 403
    assert User.objects.count() == 3


def test_an_answer_that_took_too_long_is_refused(allow, provider, monkeypatch):
    browser = Client()
    address = provider.sign_in(there(browser))
    monkeypatch.setattr(oidc, "FLOW_S", -1)
    assert back(browser, address).status_code == 403


def test_a_crowd_that_begins_to_sign_in_ends_nobody_elses_sign_in(allow, provider, monkeypatch):
    monkeypatch.setattr(oidc, "MOST_FLOWS", 5)
    browser, other = Client(REMOTE_ADDR="192.0.2.1"), Client(REMOTE_ADDR="192.0.2.3")
    address, others = provider.sign_in(there(browser)), provider.sign_in(there(other))
    crowd = [there(Client(REMOTE_ADDR="192.0.2.2")) for _ in range(9)]
    assert back(browser, address).status_code == 302
    assert back(other, others).status_code == 302
    states = [parse_qs(urlsplit(one).query)["state"][0] for one in crowd]
    assert list(oidc._flows) == states[-3:]


def test_a_refusal_of_the_provider_is_said(allow, provider):
    browser = Client()
    state = parse_qs(urlsplit(there(browser)).query)["state"][0]
    response = browser.get("/login/oidc/back/", {"error": "access_denied", "state": state})
    assert response.status_code == 403
    assert "did not let you in" in response.content.decode()


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:x"])
def test_nobody_is_sent_elsewhere(allow, provider, wanted):
    assert come_in(provider, next_page=wanted).headers["Location"] == "/"


def test_only_verified_addresses_of_allowed_domains(allow, provider):
    allow(domains=("example.org",))
    for mail, verified, comes_in in (
        ("olga@example.org", True, True), ("olga@EXAMPLE.org", True, True), ("olga@example.org", False, False),
        ("olga@evil.example", True, False), ("olga@example.org@evil.example", True, False), (None, None, False),
        ("olga@sub.example.org", True, False),
    ):  # fmt: skip
        provider.claims = {"email": mail, "email_verified": verified}
        assert (come_in(provider).status_code == 302) == comes_in, mail


def test_keys_may_change(allow, provider):
    come_in(provider)
    provider.change_keys()
    assert come_in(provider).status_code == 302


def test_a_client_secret_stands_in_a_file(allow, provider, tmp_path):
    provider.secret = "s3cret"
    assert come_in(provider).status_code == 403
    (tmp_path / "secret").write_text("s3cret\n")
    allow(secret_file=tmp_path / "secret")
    assert come_in(provider).status_code == 302
    os.mkfifo(tmp_path / "pipe")
    for none in (tmp_path / "nowhere", tmp_path / "pipe", Path("/dev/zero")):
        allow(secret_file=none)
        assert Client().get("/login/oidc/").status_code == 503


def test_who_is_disabled_here_stays_outside(allow, provider):
    come_in(provider)
    User.objects.filter(username="olga").update(is_active=False)
    assert come_in(provider).status_code == 403
    assert refusals() == ["disabled"]


def test_a_provider_that_does_not_answer_is_said(allow, provider):
    provider.stop()
    assert Client().get("/login/oidc/").status_code == 503


DEEP = b'{"a":' * 90_000 + b"1" + b"}" * 90_000
KEYS = (b"5", b'"abc"', b"null", b'["a"]', b"[[1]]", b'{"a": 1}')


def test_keys_that_are_none_are_said(allow, provider, monkeypatch):
    monkeypatch.setattr(oidc, "FAILED_S", 3600.0)
    for document in (DEEP, b"\xff", b"[]", *(b'{"keys": %b}' % one for one in KEYS)):
        oidc.forget()
        provider.instead = {"keys": document}
        assert Client().get("/login/oidc/").status_code == 503, document[:20]
        provider.instead = {}
        assert Client().get("/login/oidc/").status_code == 503, "it is not asked again at once"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_addresses_that_lead_nowhere_are_said(allow, provider, name):
    for address in ("http://[::1", "http://x/\ud800", "http://", "javascript:alert(1)", None):
        oidc.forget()
        provider.lies = {name: address}
        assert Client().get("/login/oidc/").status_code == 503, address


def test_tokens_that_are_none_let_nobody_in(allow, provider):
    tokens = (5, "", "a.b.c", "\ud800", "." * 1000)
    lifetimes = (b'{"access_token": "a", "expires_in": 1e999}', b'{"access_token": "a", "expires_at": [1]}')
    whole = [json.dumps({"access_token": "a", "token_type": "Bearer", "id_token": one}).encode() for one in tokens]
    for document in (DEEP, b"\xff", b"[]", b"5", *lifetimes, *whole):
        provider.instead = {"token": document}
        assert come_in(provider).status_code == 403, document[:80]
    assert User.objects.count() == 3


def test_a_provider_that_hangs_takes_no_turns_of_pages(allow, provider, monkeypatch):
    """One of the waiting users waits for it; the others get an error at once, also for a while afterwards."""
    hanging, asked, answers = threading.Event(), [], []

    def hang(address):
        asked.append(address)
        hanging.wait(60)
        raise oidc.NotSignedIn("unreachable", "no answer")

    monkeypatch.setattr(oidc, "_get", hang)
    monkeypatch.setattr(oidc, "WAIT_S", 0.05)
    monkeypatch.setattr(oidc, "FAILED_S", 3600.0)

    def click():
        try:
            oidc.begin(runtime.place().sign_in.oidc, "http://testserver/back/", "/", False)
        except oidc.NotSignedIn as error:
            answers.append(error.code)

    first, second = threading.Thread(target=click), threading.Thread(target=click)
    first.start()
    while not asked:
        time.sleep(0.01)
    second.start()
    second.join(60)
    assert answers == ["unreachable"], "nobody waits for whoever waits"
    hanging.set()
    first.join(60)
    assert Client().get("/login/oidc/").status_code == 503
    assert len(asked) == 1


def test_before_a_destructive_act_the_provider_asks_again(allow, provider):
    provider.user["groups"] = ["bosses"]
    browser = Client()
    come_in(provider, browser)
    age_login(browser)
    asked = browser.get("/system/users/new/").headers["Location"]
    assert asked.startswith("/confirm/")
    assert browser.post("/confirm/", {"next": "/system/users/new/"}).status_code == 422, "a click is not enough"
    assert browser.get("/system/users/new/").status_code == 302
    address = there(browser, "/system/users/new/")
    assert parse_qs(urlsplit(address).query)["prompt"] == ["login"]
    answer = back(browser, provider.sign_in(address))
    assert answer.headers["Location"] == "/system/users/new/"
    assert browser.get("/system/users/new/").status_code == 200
    age_login(browser)
    for auth_time in (int(time.time()) - 4000, int(time.time()) + 4000):
        provider.claims = {"auth_time": auth_time}
        assert back(browser, provider.sign_in(there(browser))).status_code == 403, "it did not ask again"
    provider.claims = {"sub": "4711"}
    assert back(browser, provider.sign_in(there(browser))).status_code == 403, "another user"
    assert browser.get("/system/users/new/").status_code == 302


def test_there_is_no_password_to_such_a_user(allow, provider, client):
    come_in(provider)
    assert client.post("/login/", {"username": "olga", "password": ""}).status_code == 422
    assert client.post("/login/", {"username": "olga", "password": PASSWORD}).status_code == 422


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_provider_that_drips_its_answer_is_given_up(allow, provider, monkeypatch, part):
    """Byte after byte, each in time: the whole would take 2 s."""
    over, within = threading.Event(), oidc._within

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            if part == "body":
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
            else:
                peer.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            for _ in range(100):
                if over.wait(0.02):
                    return
                peer.sendall(b" ")
            peer.sendall(b"\r\n\r\n")

    monkeypatch.setattr(oidc, "_within", lambda limit_s, *call, **named: within(0.3, *call, **named))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            with pytest.raises(oidc.NotSignedIn, match="no whole answer"):
                oidc._get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        finally:
            over.set()
            thread.join()


def test_a_provider_that_answers_too_much_is_given_up(provider, monkeypatch):
    monkeypatch.setattr(oidc, "_MOST_BYTES", 10)
    with pytest.raises(oidc.NotSignedIn, match="too long"):
        oidc._get(provider.issuer + "/.well-known/openid-configuration")
