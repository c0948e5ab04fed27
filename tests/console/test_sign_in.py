"""Coming and going: sign in, lockout, sign out, sessions, languages, and giving the password again."""

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from appliance.console.models import AuditEntry, User
from appliance.console.sign_in.lockout import LIMITS, WINDOW_S, Lockout

from .conftest import PASSWORD, age_login, signed_in

pytestmark = pytest.mark.django_db


def attempt(client, username="the-viewer", password="wrong"):
    return client.post("/login/", {"username": username, "password": password})


def test_a_user_comes_in_under_a_new_session(client, people, engine):
    response = attempt(client, password=PASSWORD)
    assert response.headers["Location"] == "/"
    cookie = response.cookies["rocketbox_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert client.get("/").status_code == 200


def test_names_do_not_know_capitals(client, people):
    assert attempt(client, "The-Viewer", PASSWORD).status_code == 302


def test_the_session_key_changes_when_somebody_signs_in(people):
    client = signed_in("the-viewer")
    before = client.cookies["rocketbox_session"].value
    attempt(client, "the-operator", PASSWORD)
    assert client.cookies["rocketbox_session"].value != before
    assert not Session.objects.filter(session_key=before).exists()


def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(client, people):
    answers = [attempt(client), attempt(client, "nobody")]
    assert {answer.status_code for answer in answers} == {422}
    texts = [answer.content.decode() for answer in answers]
    assert all("Wrong name or password." in text for text in texts)
    assert client.session.get("user") is None


def test_a_disabled_user_stays_outside(client, people):
    User.objects.update(is_active=False)
    assert attempt(client, password=PASSWORD).status_code == 422


def test_after_a_few_wrong_passwords_the_right_one_is_refused_too(client, people):
    for _ in range(LIMITS["both"]):
        assert "Wrong name or password" in attempt(client).content.decode()
    locked = attempt(client, password=PASSWORD)
    assert locked.status_code == 422
    assert "Too many wrong passwords" in locked.content.decode()
    assert AuditEntry.objects.filter(action="user.locked_out", target="the-viewer").count() == 1
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert attempt(elsewhere, password=PASSWORD).status_code == 302


def test_of_many_tries_at_once_no_more_are_made_than_one_after_the_other():
    lockout = Lockout(lambda: 0.0)
    tries = [lockout.begin("ann", "192.0.2.1") for _ in range(120)]
    assert sum(one.wait_s == 0 for one in tries) == LIMITS["both"]
    assert [one.shuts for one in tries].count(True) == 1


def test_strangers_do_not_keep_the_owner_out_of_a_browser_they_have_signed_in_with(people):
    owner, stranger = Client(), Client()
    assert attempt(owner, password=PASSWORD).status_code == 302
    owner.post("/logout/")
    for _ in range(LIMITS["both"]):
        attempt(stranger)
    assert "Too many wrong passwords" in attempt(stranger, password=PASSWORD).content.decode()
    assert attempt(owner, password=PASSWORD).status_code == 302


def test_a_known_browser_is_one_users_only_and_tries_no_more_than_others(people):
    browser = Client()
    attempt(browser, password=PASSWORD)
    browser.post("/logout/")
    for _ in range(LIMITS["both"]):
        attempt(browser, "the-admin")
    assert "Too many wrong" in attempt(browser, "the-admin", PASSWORD).content.decode(), "it is the viewer's"
    for _ in range(LIMITS["known"]):
        attempt(browser)
    assert "Too many wrong" in attempt(browser, password=PASSWORD).content.decode()


def test_strangers_do_not_keep_somebody_who_is_signed_in_from_giving_the_password_again(people):
    signed = signed_in("the-viewer")
    for _ in range(LIMITS["both"]):
        attempt(Client())
    assert signed.post("/confirm/", {"password": PASSWORD}).status_code == 302


def test_the_door_opens_again_after_the_window():
    now = [0.0]
    lockout = Lockout(lambda: now[0])
    for _ in range(LIMITS["both"]):
        assert lockout.begin("ann", "192.0.2.1").wait_s == 0
    assert lockout.begin("ANN", "192.0.2.1").wait_s == WINDOW_S
    assert lockout.begin("bob", "192.0.2.1").wait_s == 0
    now[0] = WINDOW_S
    assert lockout.begin("ann", "192.0.2.1").wait_s == 0


def test_an_address_that_tries_many_names_is_shut_out():
    lockout = Lockout(lambda: 0.0)
    for number in range(LIMITS["address"]):
        lockout.begin(f"user-{number}", "2001:db8::1")
    assert lockout.begin("ann", "2001:db8::2").wait_s > 0, "one /64 is one customer"
    assert lockout.begin("ann", "2001:db8:0:1::1").wait_s == 0


def test_all_loopback_addresses_count_as_one():
    lockout = Lockout(lambda: 0.0)
    local = ["127.0.0.2", "::1", "::ffff:127.0.0.3", "127.9.9.9", "127.0.0.1"]
    waits = [lockout.begin("ann", address).wait_s for address in [*local, "127.0.0.77"]]
    assert waits[:-1] == [0.0] * LIMITS["both"]
    assert waits[-1] == WINDOW_S
    assert lockout.begin("ann", "192.0.2.1").wait_s == 0


def test_success_forgets_what_was_counted():
    lockout = Lockout(lambda: 0.0)
    for _ in range(30):
        for _ in range(LIMITS["both"] - 1):
            lockout.begin("ann", "192.0.2.1")
        lockout.was_right(lockout.begin("ann", "192.0.2.1"))
        lockout.succeeded("ann", "192.0.2.1")
        if lockout.begin("other", "192.0.2.1").wait_s > 0:
            break
    else:
        raise AssertionError("a known password does not clear an address that guesses other names")
    assert lockout.begin("ann", "192.0.2.9").wait_s == 0


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_nobody_is_sent_elsewhere(client, people, wanted):
    response = client.post("/login/", {"username": "the-viewer", "password": PASSWORD, "next": wanted})
    assert response.headers["Location"] == "/"


def test_a_stranger_comes_back_to_the_page_he_wanted(client, people):
    address = client.get("/account/?tab=1").headers["Location"]
    assert address == "/login/?next=%2Faccount%2F%3Ftab%3D1"
    response = client.post(address, {"username": "the-viewer", "password": PASSWORD})
    assert response.headers["Location"] == "/account/?tab=1"


def test_signing_out_ends_the_session_everywhere(people, engine):
    client = signed_in("the-viewer")
    key = client.cookies["rocketbox_session"].value
    assert client.get("/logout/").status_code == 405
    client.post("/logout/")
    thief = Client()
    thief.cookies["rocketbox_session"] = key
    assert thief.get("/").status_code == 302


def test_a_form_from_elsewhere_is_refused(people, engine):
    client = Client(enforce_csrf_checks=True)
    assert attempt(client, password=PASSWORD).status_code == 403


def test_a_new_password_ends_all_other_sessions(people, engine):
    here, there = signed_in("the-viewer"), signed_in("the-viewer")
    new = {"current": PASSWORD, "password": "another good one", "again": "another good one"}
    assert here.post("/account/", new).status_code == 302
    assert here.get("/").status_code == 200
    assert there.get("/").status_code == 302
    assert AuditEntry.objects.get().action == "user.change_password"


def test_a_new_password_needs_the_old_one(people):
    client = signed_in("the-viewer")
    wrong = {"current": "guessed", "password": "another good one", "again": "another good one"}
    assert client.post("/account/", wrong).status_code == 422
    assert User.objects.get(username="the-viewer").check_password(PASSWORD)


def test_a_first_password_must_be_changed_before_anything_else(people, engine):
    User.objects.update(must_change_password=True)
    client = signed_in("the-admin")
    assert client.get("/").headers["Location"] == "/account/"
    assert client.get("/system/users/").headers["Location"] == "/account/"
    client.post("/account/", {"current": PASSWORD, "password": "another good one", "again": "another good one"})
    assert client.get("/").status_code == 200


def test_a_language_is_kept_in_a_cookie_and_for_the_user(client, people, engine):
    assert 'lang="en"' in client.get("/login/").content.decode()
    response = client.post("/language/", {"language": "zh-hans", "next": "/login/"})
    assert response.headers["Location"] == "/login/"
    assert 'lang="zh-hans"' in client.get("/login/").content.decode()
    user = signed_in("the-viewer")
    user.post("/language/", {"language": "zh-hans"})
    assert '<html lang="zh-hans">' in signed_in("the-viewer").get("/").content.decode()
    assert user.post("/language/", {"language": "xx"}).status_code == 302
    assert User.objects.get(username="the-viewer").language == "zh-hans"


def test_the_password_is_asked_for_again_before_a_destructive_act(client_as, people):
    client = client_as("admin")
    address = f"/system/users/{people['viewer'].pk}/active/"
    age_login(client)
    asked = client.post(address, {"active": "no"})
    assert asked.headers["Location"].startswith("/confirm/?next=")
    assert User.objects.get(username="the-viewer").is_active
    key = client.cookies["rocketbox_session"].value
    assert client.post("/confirm/", {"password": "wrong"}).status_code == 422
    assert client.post("/confirm/", {"password": PASSWORD, "next": "/system/users/"}).status_code == 302
    assert client.cookies["rocketbox_session"].value != key
    client.post(address, {"active": "no"})
    assert not User.objects.get(username="the-viewer").is_active


def test_a_clock_that_is_set_back_makes_no_password_a_recent_one(client_as, people):
    client = client_as("admin")
    assert client.get("/system/users/new/").status_code == 200
    age_login(client, -2)  # it is corrected by a little
    assert client.get("/system/users/new/").status_code == 200
    age_login(client, -3600)
    assert client.get("/system/users/new/").headers["Location"].startswith("/confirm/")


def test_a_late_htmx_request_sends_the_whole_page_to_the_question(client_as, people):
    client = client_as("admin")
    age_login(client)
    response = client.get("/system/users/new/", headers={"hx-request": "true"})
    assert (response.status_code, response.headers["HX-Redirect"][:9]) == (204, "/confirm/")
