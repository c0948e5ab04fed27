"""Sessions: seen and ended by their owners and by administrators; and what the audit log keeps of coming and going."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from appliance.console.audit import refused_sign_ins as entry_log
from appliance.console.models import AuditEntry, SignIn, User, now_ms
from appliance.console.sign_in import sessions
from appliance.console.sign_in.lockout import lockout

from .conftest import PASSWORD, age_login, signed_in

pytestmark = pytest.mark.django_db
PHONE = {"REMOTE_ADDR": "192.0.2.9", "HTTP_USER_AGENT": "Phone <b>1"}


def come_in(username="the-viewer", password=PASSWORD, **options) -> Client:
    client = Client(**options)
    client.post("/login/", {"username": username, "password": password})
    return client


def number_of(client) -> int:
    return client.session["sign_in"]


def test_one_sees_where_one_is_signed_in(people, engine):
    come_in(**PHONE)
    page = come_in(REMOTE_ADDR="192.0.2.1").get("/account/").content.decode()
    assert "192.0.2.9" in page
    assert "Phone &lt;b&gt;1" in page
    assert page.count("this one") == 1
    come_in("the-operator", REMOTE_ADDR="192.0.2.77")
    assert "192.0.2.77" not in come_in().get("/account/").content.decode(), "others' are not shown"


def test_one_ends_ones_own_sessions_and_nobody_elses(people, engine):
    mine, phone, third = come_in(), come_in(**PHONE), come_in()
    theirs = come_in("the-operator")
    mine.post("/account/sessions/end/", {"session": number_of(theirs)})
    assert theirs.get("/").status_code == 200
    mine.post("/account/sessions/end/", {"session": number_of(phone)})
    assert phone.get("/").status_code == 302
    assert third.get("/").status_code == 200
    mine.post("/account/sessions/end/", {"session": "others"})
    assert third.get("/").status_code == 302
    assert mine.get("/").status_code == 200
    assert AuditEntry.objects.filter(action="session.end", target="the-viewer").count() == 2


def test_an_administrator_ends_anybodys(client_as, people, engine):
    theirs = come_in(**PHONE)
    admin = client_as("admin")
    address = f"/system/users/{people['viewer'].pk}/"
    assert "192.0.2.9" in admin.get(address).content.decode()
    assert client_as("operator").post(address + "sessions/").status_code == 403
    admin.post(address + "sessions/")
    assert theirs.get("/").status_code == 302
    assert admin.get("/").status_code == 200


def test_a_look_at_a_user_asks_for_no_password_and_a_change_does(client_as, people):
    from .conftest import age_login

    admin = client_as("admin")
    age_login(admin)
    address = f"/system/users/{people['viewer'].pk}/"
    assert admin.get(address).status_code == 200
    assert admin.post(address, {"role": "operator"}).headers["Location"].startswith("/confirm/")
    assert User.objects.get(username="the-viewer").role == "viewer"


def test_signing_out_takes_the_row_along_and_so_does_a_disabled_user(client_as, people, engine):
    mine = come_in()
    mine.post("/logout/")
    assert not SignIn.objects.exists()
    come_in()
    client_as("admin").post(f"/system/users/{people['viewer'].pk}/active/", {"active": "no"})
    assert not SignIn.objects.filter(user=people["viewer"]).exists()


def test_a_session_whose_row_is_gone_is_over(people, engine):
    mine = signed_in("the-viewer")
    SignIn.objects.all().delete()
    assert mine.get("/").status_code == 302


def test_when_it_was_last_seen_is_kept_and_what_ran_out_goes(people, engine):
    mine = come_in()
    old = SignIn.objects.create(user=people["viewer"], way="password", seen_ms=1)
    SignIn.objects.filter(pk=number_of(mine)).update(seen_ms=now_ms() - 120_000)
    mine.get("/", REMOTE_ADDR="192.0.2.50")
    row = SignIn.objects.get(pk=number_of(mine))
    assert now_ms() - row.seen_ms < 60_000
    assert row.address == "192.0.2.50"
    assert old not in sessions.of(people["viewer"])
    come_in()
    assert not SignIn.objects.filter(pk=old.pk).exists()


def test_of_very_many_sessions_of_a_user_the_ones_not_used_for_longest_end(people, engine, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_EACH", 2)
    other = come_in("the-operator")
    first, second = come_in(), come_in()
    SignIn.objects.filter(pk=number_of(second)).update(seen_ms=now_ms() - 50_000)
    third = come_in()
    assert [one.get("/").status_code for one in (first, second, third, other)] == [200, 302, 200, 200]


def test_djangos_rows_of_expired_sessions_are_deleted(people, engine):
    come_in()
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    come_in()
    assert Session.objects.count() == 1


def test_coming_going_and_failing_are_in_the_audit_log(people, engine):
    come_in(password="wrong")
    come_in("hunter2-typed-into-the-name")
    come_in().post("/logout/")
    found = [(one.action, one.actor, one.target, one.result, one.after) for one in AuditEntry.objects.order_by("id")]
    assert found == [
        ("user.sign_in", "-", "the-viewer", "refused", None),
        ("user.sign_in", "-", "-", "refused", None),
        ("user.sign_in", "the-viewer", "the-viewer", "done", {"way": "password"}),
        ("user.sign_out", "the-viewer", "the-viewer", "done", None),
    ]
    assert "hunter2" not in str(list(AuditEntry.objects.values()))


def test_a_crowd_that_guesses_does_not_fill_the_audit_log():
    now = [0.0]
    log = entry_log.EntryLog(lambda: now[0])
    assert [log.may_note() for _ in range(entry_log.MOST + 40)].count(True) == entry_log.MOST
    now[0] = entry_log.WINDOW_S + 1
    assert log.may_note()
    assert log.left_out() == {"not_listed": 40}
    assert log.left_out() is None


def test_only_so_many_refused_sign_ins_are_written(people, engine, monkeypatch):
    monkeypatch.setattr(entry_log.entry_log, "_clock", lambda: 1e9)  # one window, however long this takes
    for number in range(entry_log.MOST + 5):
        lockout.clear()
        come_in("nobody", REMOTE_ADDR=f"198.51.100.{number}")
    assert AuditEntry.objects.filter(action="user.sign_in").count() <= entry_log.MOST


@pytest.mark.parametrize("referrer", ["http://[", "http://[x]/", "//", "http://testserver//evil.example/"])
def test_an_address_that_is_none_as_referrer_leads_back_to_the_page_itself(client_as, people, referrer):
    admin, address = client_as("admin"), f"/system/users/{people['viewer'].pk}/active/"
    age_login(admin)
    answer = admin.post(address, headers={"referer": referrer})
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/confirm/?next=%2F")
