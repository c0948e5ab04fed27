"""Users whom a reverse proxy names in a header: believed from its address, and from nowhere else."""

import ipaddress

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client

from appliance import runtime
from appliance.console.models import AuditEntry, SignIn, User
from appliance.console.sign_in import proxy_sign_in
from appliance.sign_in_options import ProxySignIn, SignInOptions

from .conftest import PASSWORD, age_login

pytestmark = pytest.mark.django_db
PROXY = "10.0.0.2"


@pytest.fixture
def trust(people, engine, monkeypatch):
    def make(role=""):
        options = ProxySignIn("x-remote-user", (ipaddress.ip_network("10.0.0.0/30"),), role)
        place = runtime.Place(runtime.place().data_dir, sign_in=SignInOptions(proxy=options))
        monkeypatch.setattr(runtime, "_place", place)

    make()
    return make


def through(address=PROXY, name="the-operator", **options) -> Client:
    headers = {} if name is None else {"HTTP_X_REMOTE_USER": name}
    return Client(REMOTE_ADDR=address, **headers, **options)


def test_it_is_off_unless_it_was_turned_on(people, engine):
    assert through().get("/").status_code == 302


def test_a_user_comes_in_through_the_proxy(trust):
    browser = through()
    page = browser.get("/")
    assert page.status_code == 200
    assert "the-operator" in page.content.decode()
    browser.get("/topics/")
    assert SignIn.objects.get().way == "proxy"
    assert AuditEntry.objects.get().after == {"way": "proxy"}


@pytest.mark.parametrize("address", ["10.0.0.9", "127.0.0.1", "192.0.2.1", "", "::1"])
def test_from_elsewhere_the_header_means_nothing(trust, address):
    assert through(address).get("/").status_code == 302
    assert through(address, HTTP_X_FORWARDED_FOR=PROXY).get("/").status_code == 302
    assert not SignIn.objects.exists()


def test_an_address_in_the_clothes_of_the_other_kind_is_the_same(trust):
    assert through("::ffff:10.0.0.2").get("/").status_code == 200


@pytest.mark.parametrize("name", ["nobody-here", "", " ", "the-operator, the-admin", None])
def test_a_name_of_nobody_lets_nobody_in(trust, name):
    assert through(name=name).get("/").status_code == 302
    assert User.objects.count() == 3


def test_a_disabled_user_stays_outside(trust, people):
    User.objects.filter(username="the-operator").update(is_active=False)
    assert through().get("/").status_code == 302


def test_users_are_made_with_the_role_that_the_settings_say(trust):
    trust("viewer")
    assert through(name="newcomer").get("/").status_code == 200
    user = User.objects.get(username="newcomer")
    assert (user.role, user.has_usable_password()) == ("viewer", False)
    assert through(name="bad name <x>").get("/").status_code == 302
    assert AuditEntry.objects.get(action="user.create").after == {"role": "viewer", "by": "proxy"}


def test_a_stolen_cookie_is_worth_nothing_without_the_proxy(trust):
    browser = through()
    browser.get("/")
    for thief in (through("192.0.2.1"), through(name=None), through("192.0.2.1", None)):
        thief.cookies["rocketbox_session"] = browser.cookies["rocketbox_session"].value
        assert thief.get("/").status_code == 302
        assert thief.get("/api/v1/me").status_code == 401


def test_another_name_is_another_user(trust):
    browser = through()
    browser.get("/")
    browser.defaults["HTTP_X_REMOTE_USER"] = "the-viewer"
    page = browser.get("/account/").content.decode()
    assert "the-viewer" in page
    assert "the-operator" not in page


def test_a_header_that_is_there_twice_means_nothing(trust):
    headers = [(b"x-remote-user", b"the-operator"), (b"x-remote-user", b"the-admin")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "client": (PROXY, 1),
        "headers": headers,
        "query_string": b"",
    }
    assert proxy_sign_in.name_in(ASGIRequest(scope, None)) is None
    assert proxy_sign_in.name_in(ASGIRequest({**scope, "headers": headers[:1]}, None)) == "the-operator"
    odd = [(b"x_remote_user", b"the-admin")]
    assert proxy_sign_in.name_in(ASGIRequest({**scope, "headers": odd}, None)) is None


def test_a_form_still_needs_its_token(trust):
    browser = through(enforce_csrf_checks=True)
    browser.get("/")
    assert browser.post("/logout/").status_code == 403


def test_a_click_confirms_for_the_proxy_and_for_nobody_else(trust, people, engine):
    browser = through(name="the-admin")
    browser.get("/")
    age_login(browser)
    assert browser.get("/system/users/new/").headers["Location"].startswith("/confirm/")
    assert browser.post("/confirm/", {"next": "/system/users/new/"}).headers["Location"] == "/system/users/new/"
    assert browser.get("/system/users/new/").status_code == 200
    plain = Client()
    plain.post("/login/", {"username": "the-admin", "password": PASSWORD})
    age_login(plain)
    assert plain.post("/confirm/", {"next": "/"}).status_code == 422


def test_only_named_proxies_say_who_called(trust, monkeypatch):
    """Whoever comes past them, to the port itself, would choose the address that wrong passwords are counted by."""
    place = runtime.Place(runtime.place().data_dir, public_url="https://mq.example", sign_in=runtime.place().sign_in)
    monkeypatch.setattr(runtime, "_place", place)
    chain = "198.51.100.1, 203.0.113.5"
    for address, seen in ((PROXY, "203.0.113.5"), ("192.0.2.9", "192.0.2.9")):
        Client(REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR=chain).post(
            "/login/", {"username": "the-admin", "password": "wrong"}
        )
        assert AuditEntry.objects.latest("id").address == seen
