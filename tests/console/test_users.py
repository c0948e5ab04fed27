"""Users: each act, allowed and refused, and what the audit log keeps."""

import re

import pytest

from appliance.console.models import ApiToken, AuditEntry, User
from appliance.console.sign_in import set_up
from appliance.console.users import account_views as account
from appliance.console.users import tokens
from tests.support.audit_chain import first_broken

from .conftest import PASSWORD, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client_as):
    return client_as("admin")


def first_password(response) -> str:
    assert response.status_code == 200
    return re.search(r'class="secret"[^>]*>([^<]+)<', response.content.decode()).group(1)


def test_a_new_user_gets_a_first_password_that_works_once_shown(admin, engine):
    new = {"username": "bob", "role": "operator", "may_read_bodies": "on", "first": "password"}
    shown = admin.post("/system/users/new/", new, follow=True)
    password = first_password(shown)
    again = admin.get(shown.redirect_chain[0][0]).content.decode()
    assert password not in again
    assert "It was shown once" in again
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
    password = first_password(
        admin.post(f"/system/users/{people['viewer'].pk}/reset-password/", {"first": "password"}, follow=True)
    )
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


# --- a user's tokens


@pytest.fixture
def token(people):
    """The secret of a token of the viewer's."""
    return tokens.create(people["viewer"], "ci", "viewer")[1]


def ended() -> list[tuple[str, str]]:
    entries = AuditEntry.objects.filter(action__startswith="token.").order_by("id")
    return [(entry.action, entry.target) for entry in entries]


def test_a_reset_by_an_administrator_ends_the_tokens_and_says_which(admin, people, token, engine):
    _, other = tokens.create(people["operator"], "another's", "viewer")
    page = admin.get(f"/system/users/{people['viewer'].pk}/").content.decode()
    assert "Either is shown once. This ends all sessions and API tokens of this user." in page
    page = admin.post(f"/system/users/{people['viewer'].pk}/reset-password/", follow=True).content.decode()
    assert "API tokens revoked: ci" in page
    assert tokens.authenticate(token) is None
    assert tokens.authenticate(other) is not None
    assert ended() == [("token.revoke", "the-viewer/ci")]
    assert first_broken() is None


def test_a_new_password_of_ones_own_ends_ones_tokens(people, token, engine):
    mine = signed_in("the-viewer")
    assert "This ends all your other sessions and all your API tokens." in mine.get("/account/").content.decode()
    form = {"current": PASSWORD, "password": "another good one", "again": "another good one"}
    page = mine.post("/account/", form, follow=True).content.decode()
    assert "API tokens revoked: ci" in page
    assert tokens.authenticate(token) is None
    assert ended() == [("token.revoke", "the-viewer/ci")]


def test_a_wrong_present_password_ends_nothing(people, token, engine):
    mine = signed_in("the-viewer")
    mine.post("/account/", {"current": "wrong", "password": "another good one", "again": "another good one"})
    assert tokens.authenticate(token) is not None


def test_a_disabled_users_tokens_do_not_come_back(admin, people, token):
    for active in ("no", "yes"):
        admin.post(f"/system/users/{people['viewer'].pk}/active/", {"active": active})
    assert tokens.authenticate(token) is None
    assert ended() == [("token.revoke", "the-viewer/ci")]


def test_what_a_user_loses_the_tokens_lose_for_good(admin, people):
    operator = people["operator"]
    operator.may_read_bodies = True
    operator.save()
    _, secret = tokens.create(operator, "ci", "operator", may_read_bodies=True)
    _, small = tokens.create(operator, "small", "viewer")
    address = f"/system/users/{operator.pk}/"
    admin.post(address, {"role": "viewer"})
    admin.post(address, {"role": "admin", "may_read_bodies": "on"})
    token = tokens.authenticate(secret)
    assert (token.role, token.may_read_bodies) == ("viewer", False)
    assert tokens.authenticate(small).role == "viewer"
    assert ended() == [("token.cut_down", "the-operator/ci")]
    entry = AuditEntry.objects.get(action="token.cut_down")
    assert (entry.before, entry.after) == (
        {"role": "operator", "may_read_bodies": True}, {"role": "viewer", "may_read_bodies": False},
    )  # fmt: skip


def beside(monkeypatch, module, name: str, happens) -> None:
    """Something that happens in another request, just before the function `name` of a module is called in this one."""
    real = getattr(module, name)

    def late(*args, **options):
        happens()
        return real(*args, **options)

    monkeypatch.setattr(module, name, late)


CHANGES = {
    "reset-password/": {},
    "active/": {"active": "no"},
    "": {"role": "viewer"},
}


@pytest.mark.parametrize("way", ["page", "api"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_token_made_while_its_owner_loses_password_or_rights_is_refused(
    admin, people, engine, monkeypatch, change, way
):
    mine = signed_in("the-operator")
    address = f"/system/users/{people['operator'].pk}/{change}"
    beside(monkeypatch, tokens, "create", lambda: admin.post(address, CHANGES[change]))
    form = {"name": "ci", "role": "operator", "topic_pattern": "*"}
    if way == "page":
        response = mine.post("/system/tokens/new/", form)
    else:
        response = mine.post("/api/v1/tokens", form, content_type="application/json")
    assert response.status_code == 403
    assert not ApiToken.objects.exists()
    assert not AuditEntry.objects.filter(action="token.create").exists()


@pytest.mark.parametrize("change", ["reset-password/", "active/"])
def test_a_new_password_of_ones_own_does_not_undo_what_an_administrator_does_meanwhile(
    admin, people, engine, monkeypatch, change
):
    mine = signed_in("the-viewer")
    address = f"/system/users/{people['viewer'].pk}/{change}"
    beside(monkeypatch, account, "check_password", lambda: admin.post(address, CHANGES[change]))
    form = {"current": PASSWORD, "password": "another good one", "again": "another good one"}
    assert mine.post("/account/", form).status_code == 403
    person = User.objects.get(pk=people["viewer"].pk)
    assert not person.check_password("another good one")
    assert not person.has_usable_password() or not person.is_active
    assert mine.get("/").status_code == 302


def test_a_user_whom_the_environment_makes_administrator_keeps_no_token(people, token):
    people["admin"].delete()
    set_up.create_from_environment({"ADMIN_USER": "the-viewer", "ADMIN_PASSWORD": "a good long one"})
    assert User.objects.get(username="the-viewer").role == "admin"
    assert tokens.authenticate(token) is None


def test_with_a_user_go_the_tokens(people, token):
    people["viewer"].delete()
    assert tokens.authenticate(token) is None


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
    entries = AuditEntry.objects.values_list("action", "result")
    assert list(entries) == [("request.refused", "refused")] * (4 if role else 0)


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
