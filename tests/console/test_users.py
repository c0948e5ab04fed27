"""Users: each act, allowed and refused, and what the audit log keeps."""

import re

import pytest

from appliance.console.audit import first_broken
from appliance.console.models import AuditEntry, User

from .conftest import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client_as):
    return client_as("admin")


def first_password(response) -> str:
    return re.search(r'class="secret">([^<]+)<', response.content.decode()).group(1)


def test_a_new_user_gets_a_first_password_that_works_once_shown(admin, engine):
    new = {"username": "bob", "role": "operator", "may_read_bodies": "on"}
    password = first_password(admin.post("/system/users/new/", new))
    bob = User.objects.get(username="bob")
    assert (bob.role, bob.may_read_bodies, bob.may_export, bob.must_change_password) == ("operator", True, False, True)
    assert password not in admin.get(f"/system/users/{bob.pk}/").content.decode()
    assert signed_in("bob", password).get("/").headers["Location"] == "/account/"
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.target) == ("the-admin", "user.create", "bob")
    assert password not in str(entry.after)


@pytest.mark.parametrize("username", ["THE-VIEWER", "", "a b", "<b>", "x" * 65])
def test_a_bad_or_taken_name_is_refused(admin, username):
    assert admin.post("/system/users/new/", {"username": username, "role": "viewer"}).status_code == 422
    assert User.objects.count() == 3


def test_role_and_rights_change_with_a_record_of_both_sides(admin, people):
    viewer = people["viewer"]
    admin.post(f"/system/users/{viewer.pk}/", {"role": "operator", "may_export": "on", "username": "ignored"})
    viewer.refresh_from_db()
    assert (viewer.username, viewer.role, viewer.may_export) == ("the-viewer", "operator", True)
    entry = AuditEntry.objects.get()
    assert entry.before == {"role": "viewer", "may_export": False}
    assert entry.after == {"role": "operator", "may_export": True}
    assert first_broken() is None


def test_the_last_administrator_can_neither_step_down_nor_be_disabled(admin, people):
    address = f"/system/users/{people['admin'].pk}/"
    assert admin.post(address, {"role": "viewer"}).status_code == 422
    admin.post(f"{address}active/", {"active": "no"})
    last = User.objects.get(pk=people["admin"].pk)
    assert (last.role, last.is_active) == ("admin", True)
    User.objects.filter(pk=people["viewer"].pk).update(role="admin")
    admin.post(address, {"role": "viewer"})
    assert User.objects.get(pk=people["admin"].pk).role == "viewer"


def test_a_reset_ends_the_sessions_and_gives_a_first_password(admin, people, engine):
    theirs = signed_in("the-viewer")
    password = first_password(admin.post(f"/system/users/{people['viewer'].pk}/reset-password/"))
    assert theirs.get("/").status_code == 302
    assert signed_in("the-viewer", password).get("/").headers["Location"] == "/account/"
    assert AuditEntry.objects.get().action == "user.reset_password"


def test_nobody_resets_their_own_password_this_way(admin, people):
    admin.post(f"/system/users/{people['admin'].pk}/reset-password/")
    assert not User.objects.get(pk=people["admin"].pk).must_change_password


def test_a_disabled_user_is_out_at_once_and_comes_back_enabled(admin, people, engine):
    theirs = signed_in("the-viewer")
    address = f"/system/users/{people['viewer'].pk}/active/"
    admin.post(address, {"active": "no"})
    assert theirs.get("/").status_code == 302
    admin.post(address, {"active": "yes"})
    assert signed_in("the-viewer").get("/").status_code == 200
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["user.disable", "user.enable"]


@pytest.mark.parametrize("role", ["", "viewer", "operator"])
def test_only_administrators_manage_users(client_as, people, role):
    client = client_as(role)
    expected = 302 if role == "" else 403
    pk = people["viewer"].pk
    for path in ("/system/users/", "/system/users/new/", f"/system/users/{pk}/"):
        assert client.get(path).status_code == expected
    for path in ("new/", f"{pk}/", f"{pk}/reset-password/", f"{pk}/active/"):
        assert client.post(f"/system/users/{path}", {"role": "admin", "username": "eve"}).status_code == expected
    assert User.objects.filter(role="admin").count() == 1
    assert not AuditEntry.objects.exists()


def test_a_changed_entry_of_the_audit_log_shows(admin, people):
    pk = people["viewer"].pk
    for active in ("no", "yes", "no"):
        admin.post(f"/system/users/{pk}/active/", {"active": active})
    assert first_broken() is None
    second = AuditEntry.objects.order_by("id")[1]
    AuditEntry.objects.filter(pk=second.pk).update(actor="somebody else")
    assert first_broken() == second.pk
    AuditEntry.objects.filter(pk=second.pk).delete()
    assert first_broken() == second.pk + 1
