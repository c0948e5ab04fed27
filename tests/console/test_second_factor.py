"""The second factor: set up, asked for, worth nothing twice, taken away, and required."""

import re

import pyotp
import pytest
from django.test import Client

from appliance.console.models import AuditEntry, RecoveryCode, User
from appliance.console.sign_in import second_factor
from appliance.console.users import tokens

from .conftest import PASSWORD, age_login, signed_in

pytestmark = pytest.mark.django_db


def attempt(client, username="the-viewer", password=PASSWORD, **more):
    return client.post("/login/", {"username": username, "password": password}, **more)


def enrolled(user: User) -> tuple[pyotp.TOTP, list[str]]:
    """A user's authenticator and recovery codes; no code was used yet."""
    secret = second_factor.new_secret()
    codes = second_factor.turn_on(user, secret, pyotp.TOTP(secret).now())
    User.objects.filter(pk=user.pk).update(totp_last_step=0)
    assert codes is not None
    return pyotp.TOTP(secret), codes


@pytest.fixture
def phone(people):
    return enrolled(people["viewer"])


def lines() -> list[tuple[str, str, str]]:
    return [(one.action, one.target, one.result) for one in AuditEntry.objects.order_by("id")]


def test_it_is_on_only_after_a_code_that_fits(people, engine):
    mine, elsewhere = signed_in("the-viewer"), signed_in("the-viewer")
    page = mine.get("/account/second-factor/").content.decode()
    assert "<svg" in page
    secret = re.search(r'<code class="id">(\w+)</code>', page).group(1)
    assert secret in mine.get("/account/second-factor/").content.decode(), "a page loaded again shows the same picture"
    wrong = f"{(int(pyotp.TOTP(secret).now()) + 1) % 1_000_000:06}"
    assert mine.post("/account/second-factor/", {"code": wrong}).status_code == 422
    assert not User.objects.get(username="the-viewer").has_second_factor
    done = mine.post("/account/second-factor/", {"code": pyotp.TOTP(secret).now()}, follow=True)
    codes = re.findall(r"\w{5}-\w{5}-\w{5}", done.content.decode())
    assert len(codes) == second_factor.RECOVERY_CODES
    assert not re.findall(r"\w{5}-\w{5}-\w{5}", mine.get(done.redirect_chain[0][0]).content.decode()), "shown once"
    kept = [row.digest for row in RecoveryCode.objects.all()]
    assert len(kept) == len(codes)
    assert not set(kept) & set(codes)
    assert elsewhere.get("/").status_code == 302, "who came in without it goes"
    assert mine.get("/").status_code == 200
    assert lines() == [("second_factor.enrol", "the-viewer", "done")]


def test_the_password_alone_opens_nothing(client, phone, engine):
    totp, _ = phone
    response = attempt(client)
    assert response.headers["Location"] == "/login/code/?next=%2F"
    assert client.get("/").status_code == 302
    assert client.get("/api/v1/me").status_code == 401
    before = client.cookies["rocketbox_session"].value
    assert client.post(response.headers["Location"], {"code": totp.now()}).headers["Location"] == "/"
    assert client.cookies["rocketbox_session"].value != before
    assert client.get("/").status_code == 200


def test_without_the_password_there_is_no_question(client, phone):
    assert client.get("/login/code/").headers["Location"] == "/login/"
    assert client.post("/login/code/", {"code": phone[0].now()}).headers["Location"] == "/login/"
    attempt(client, password="wrong")
    assert client.get("/login/code/").headers["Location"] == "/login/"


def test_a_code_counts_once(phone, engine):
    totp, _ = phone
    code = totp.now()
    for status in (302, 422):
        browser = Client()
        attempt(browser)
        assert browser.post("/login/code/", {"code": code}).status_code == status
    assert ("second_factor.refused", "the-viewer", "refused") in lines()


def test_a_code_of_a_minute_ago_or_ahead_is_too_old_or_too_new(people):
    secret = second_factor.new_secret()
    now = 1_700_000_010.0
    codes = {shift: pyotp.TOTP(secret).at(int(now) + shift) for shift in (-60, -30, 0, 30, 60)}
    good = {shift for shift, code in codes.items() if second_factor.step_of(secret, code, now) is not None}
    assert good == {-30, 0, 30}
    for odd in ("", "12345", "1234567", "١٢٣٤٥٦", "12345a"):
        assert second_factor.step_of(secret, odd, now) is None


def test_an_older_code_is_refused_after_a_newer_one(phone, people):
    totp, _ = phone
    user = User.objects.get(pk=people["viewer"].pk)
    import time

    assert second_factor.check(user, totp.at(int(time.time()) + 30)) == "code"
    assert second_factor.check(user, totp.now()) is None


def test_a_recovery_code_lets_in_once_and_is_no_ones_else(phone, people, engine):
    _, codes = phone
    enrolled(people["operator"])
    for username, status in (("the-operator", 422), ("the-viewer", 302), ("the-viewer", 422)):
        browser = Client()
        attempt(browser, username)
        assert browser.post("/login/code/", {"code": f" {codes[0].upper()} "}).status_code == status
    used = AuditEntry.objects.get(action="second_factor.recovery_code")
    assert used.after == {"left": second_factor.RECOVERY_CODES - 1}


def test_guessing_codes_is_shut_after_a_few(client, phone):
    totp, _ = phone
    attempt(client)
    for _ in range(5):
        assert client.post("/login/code/", {"code": "nonsense"}).status_code == 422
    assert "Too many wrong codes" in client.post("/login/code/", {"code": totp.now()}).content.decode()
    crowd = [Client(REMOTE_ADDR=f"192.0.2.{number}") for number in range(8)]
    for browser in crowd[:5]:
        attempt(browser)
        browser.post("/login/code/", {"code": "nonsense"})
    attempt(crowd[6])
    assert "Too many wrong codes" in crowd[6].post("/login/code/", {"code": totp.now()}).content.decode()


def test_a_new_password_meanwhile_ends_the_question(client, phone, people):
    attempt(client)
    viewer = User.objects.get(pk=people["viewer"].pk)
    viewer.set_password("something quite else")
    viewer.save()
    assert client.post("/login/code/", {"code": phone[0].now()}).headers["Location"] == "/login/"


def test_nobody_turns_it_off_without_the_password(phone, engine):
    mine = signed_in("the-viewer")
    age_login(mine)
    assert mine.post("/account/second-factor/off/").headers["Location"].startswith("/confirm/")
    assert User.objects.get(username="the-viewer").has_second_factor
    mine.post("/confirm/", {"password": PASSWORD})
    mine.post("/account/second-factor/off/", {"what": "codes"})
    assert RecoveryCode.objects.count() == second_factor.RECOVERY_CODES
    mine.post("/account/second-factor/off/")
    assert not User.objects.get(username="the-viewer").has_second_factor
    assert not RecoveryCode.objects.exists()


def test_an_administrator_removes_one_that_was_lost(client_as, phone, people, engine):
    admin = client_as("admin")
    address = f"/system/users/{people['viewer'].pk}/second-factor/"
    assert client_as("operator").post(address).status_code == 403
    admin.post(address)
    assert attempt(Client()).headers["Location"] == "/"
    assert ("second_factor.remove", "the-viewer", "done") in lines()


def test_a_role_that_needs_one_sees_nothing_before(client_as, people, engine):
    admin = client_as("admin")
    admin.post("/system/users/second-factor/", {"roles": ["operator"]})
    assert second_factor.required_roles() == ["operator"]
    assert AuditEntry.objects.get(action="second_factor.require").after == {"roles": ["operator"]}
    operator = client_as("operator")
    for address in ("/", "/topics/", "/system/tokens/new/", "/account/"):
        assert operator.get(address).headers["Location"] == "/account/second-factor/", address
    refused = operator.get("/api/v1/topics")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "second factor" in refused.json()["detail"]
    page = operator.get("/account/second-factor/").content.decode()
    secret = re.search(r'<code class="id">(\w+)</code>', page).group(1)
    operator.post("/account/second-factor/", {"code": pyotp.TOTP(secret).now()})
    assert operator.get("/").status_code == 200
    assert client_as("viewer").get("/").status_code == 200


def test_a_token_made_before_the_rule_says_why_it_is_refused_and_works_again_with_a_second_factor(people, engine):
    _, secret = tokens.create(people["admin"], "old", "viewer")
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/me").status_code == 200
    second_factor.require_for(["admin"])
    for address in ("/api/v1/me", "/api/v1/needs", "/metrics"):
        answer = client.get(address)
        assert answer.status_code == 403, address
    assert "second factor" in client.get("/api/v1/me").json()["detail"]
    User.objects.filter(pk=people["admin"].pk).update(totp_secret=second_factor.new_secret())
    assert client.get("/api/v1/me").status_code == 200
