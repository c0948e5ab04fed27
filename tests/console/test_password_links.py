"""Links to set a password: good once, for a while, and for one user."""

import logging
import re
from types import SimpleNamespace

import pytest
from django.test import Client

from appliance.console.models import ApiToken, AuditEntry, SetPasswordLink, User
from appliance.console.serving.secret_addresses import NoSecrets, without_secret
from appliance.console.sign_in import password_links
from appliance.console.sign_in.identity import Bearer
from appliance.console.users import tokens, user_acts

from .conftest import PASSWORD, signed_in
from .test_access import PATTERNS

pytestmark = pytest.mark.django_db
NEW = {"password": "quite another one", "again": "quite another one"}


@pytest.fixture
def link(client_as, engine) -> str:
    """The path of the link of a new user, bob."""
    page = client_as("admin").post("/system/users/new/", {"username": "bob", "role": "operator"}, follow=True)
    return re.search(r"http://testserver(/password/[\w-]+/)", page.content.decode()).group(1)


def test_a_new_user_sets_a_password_with_the_link_and_it_ends(link):
    bob = User.objects.get(username="bob")
    assert not bob.has_usable_password()
    assert link.split("/")[2] not in str(list(SetPasswordLink.objects.values())), "only its digest is kept"
    stranger = Client()
    assert "bob" in stranger.get(link).content.decode()
    assert stranger.post(link, {"password": "short", "again": "short"}).status_code == 422
    assert stranger.post(link, NEW).headers["Location"] == "/login/"
    assert signed_in("bob", NEW["password"]).get("/").status_code == 200
    used = Client().get(link)
    assert used.status_code == 404
    assert "no longer good" in used.content.decode()
    assert Client().post(link, NEW | {"password": "a third one here"}).status_code == 404
    entry = AuditEntry.objects.get(action="user.set_password")
    assert (entry.actor, entry.after) == ("bob", {"way": "link"})


@pytest.mark.parametrize("how", ["late", "disabled", "newer", "wrong"])
def test_a_link_that_is_not_good_opens_nothing(link, how):
    bob = User.objects.get(username="bob")
    if how == "late":
        SetPasswordLink.objects.update(expires_at_ms=1)
    elif how == "disabled":
        User.objects.filter(pk=bob.pk).update(is_active=False)
    elif how == "newer":
        password_links.make(bob, User.objects.get(username="the-admin"))
    else:
        link = "/password/something/"
    assert Client().post(link, NEW).status_code == 404
    assert not User.objects.get(username="bob").has_usable_password()


@pytest.mark.parametrize("how", ["disabled", "demoted"])
def test_a_link_ends_with_the_administrator_who_made_it(link, people, how):
    people["admin"].refresh_from_db()
    people["admin"].is_active = how != "disabled"
    people["admin"].role = "operator" if how == "demoted" else "admin"
    people["admin"].save()
    assert Client().get(link).status_code == 404
    assert Client().post(link, NEW).status_code == 404
    assert not User.objects.get(username="bob").has_usable_password()


@pytest.mark.parametrize("fields", [None, ["role"]], ids=["by a page", "at a sign-in elsewhere"])
def test_a_link_does_not_come_back_when_its_maker_is_promoted_again(link, people, fields):
    maker = people["admin"]
    kept, _ = password_links.make(maker, maker)
    for role in ("operator", "admin"):
        maker.role = role
        maker.save(update_fields=fields)
    assert Client().post(link, NEW).status_code == 404
    assert Client().get(f"/password/{kept}/").status_code == 404
    assert not User.objects.get(username="bob").has_usable_password()


@pytest.mark.parametrize("how", ["a reset", "their own change"])
def test_a_link_ends_with_the_password_of_the_administrator_who_made_it(people, engine, how):
    other = User(username="second", role="admin")
    other.set_password(PASSWORD)
    other.save()
    secret, _ = password_links.make(people["viewer"], other)
    kept, _ = password_links.make(people["operator"], people["admin"])
    if how == "a reset":
        page = f"/system/users/{other.pk}/reset-password/"
        assert signed_in("the-admin").post(page, {"first": "password"}).status_code == 302
    else:
        assert signed_in("second").post("/account/", {"current": PASSWORD} | NEW).status_code == 302
    assert Client().post(f"/password/{secret}/", NEW).status_code == 404
    assert Client().get(f"/password/{kept}/").status_code == 200, "those of other administrators stay"


@pytest.mark.parametrize("revoked", ["itself", "its maker", None])
def test_a_link_ends_with_the_token_that_made_it(people, engine, revoked):
    maker, _ = tokens.create(people["admin"], "maker", "admin")
    token, _ = tokens.create(people["admin"], "leaked", "admin", made_by=maker)
    secret, _ = password_links.make(people["viewer"], Bearer(token))
    if revoked is not None:
        tokens.revoke(token if revoked == "itself" else maker)
    else:
        token.delete()  # that of a command
    assert Client().get(f"/password/{secret}/").status_code == (200 if revoked is None else 404)


def test_a_link_of_a_revoked_token_stays_ended_when_its_owner_makes_others(people, engine, monkeypatch):
    monkeypatch.setattr(tokens, "ENDED_EACH", 1)
    leaked = [tokens.create(people["admin"], f"leaked {number}", "admin")[0] for number in range(3)]
    secret, _ = password_links.make(people["viewer"], Bearer(leaked[0]))
    for token in leaked:
        tokens.revoke(token)
    tokens.create(people["admin"], "new", "admin")
    assert Client().get(f"/password/{secret}/").status_code == 404


def test_a_reset_by_link_ends_the_old_password(client_as, people, engine):
    theirs = signed_in("the-viewer")
    client_as("admin").post(f"/system/users/{people['viewer'].pk}/reset-password/", {"first": "link"})
    assert theirs.get("/").status_code == 302
    assert not User.objects.get(username="the-viewer").has_usable_password()


def test_a_used_set_up_link_says_so(people, engine):
    page = Client().get("/setup/some-old-secret/")
    assert page.status_code == 404
    assert "This set-up link was used" in page.content.decode()


@pytest.mark.parametrize("how", ["a reset", "their own change", "the command line"])
def test_a_link_ends_with_any_later_password(client_as, people, engine, link, how):
    bob = User.objects.get(username="bob")
    if how == "a reset":
        client_as("admin").post(f"/system/users/{bob.pk}/reset-password/", {"first": "password"})
    else:
        bob.set_password("the first one here")
        bob.save()
        made, _ = password_links.make(bob, people["admin"])
        link = f"/password/{made}/"
        if how == "their own change":
            new = {"current": "the first one here"} | NEW
            assert signed_in("bob", "the first one here").post("/account/", new).status_code == 302
        else:
            bob.set_password("the second one here")
            bob.save(update_fields=["password", "must_change_password"])
    assert Client().post(link, {"password": "a third one here", "again": "a third one here"}).status_code == 404


def test_a_link_does_not_come_back_with_its_user(client_as, people, engine, link):
    bob = User.objects.get(username="bob")
    for active in ("", "1"):
        client_as("admin").post(f"/system/users/{bob.pk}/active/", {"active": active})
        User.objects.filter(pk=bob.pk).update(is_active=True)
    assert Client().get(link).status_code == 404


def test_a_change_of_rights_leaves_the_link(client_as, people, engine, link):
    bob = User.objects.get(username="bob")
    bob.role = "viewer"
    bob.save()
    assert Client().get(link).status_code == 200


def test_no_log_shows_an_address_that_opens_something(caplog):
    logger = logging.getLogger("django.request")
    secret = "s3cr3t-" * 4
    for name, route in PATTERNS:
        keys = re.findall(r"<\w+:(secret|ticket)>", route)
        path = "/" + re.sub(r"<\w+:(secret|ticket)>", secret, route)
        assert (secret in path) == bool(keys)
        assert secret not in without_secret(f"Internal Server Error: {path}?next=/a"), name
    assert without_secret("/setup/address/") == "/setup/address/"
    hidden = NoSecrets()
    logger.addFilter(hidden)
    try:
        logger.error("%s: %s", "Internal Server Error", f"/password/{secret}/")
        logger.error("%s: %s", "Bad Gateway", f"/login/oidc/back/?code={secret}&state={secret}")
    finally:
        logger.removeFilter(hidden)
    assert "/password/…/" in caplog.text
    assert secret not in caplog.text


@pytest.mark.parametrize("loses", ["password", "role", "token"])
def test_who_loses_rights_while_a_request_is_under_way_makes_no_user_and_no_link(people, loses):
    """The requests of an intruder wait for the transaction that resets the password, and go on after it."""
    admin, bob = people["admin"], people["viewer"]
    caller = User.objects.get(pk=admin.pk)
    if loses == "token":
        token, _ = tokens.create(admin, "robot", "admin")
        caller = Bearer(token)
        tokens.revoke(ApiToken.objects.get(pk=token.pk))
    elif loses == "role":
        admin.role = "operator"
        admin.save()
    else:
        admin.set_password("quite another one")
        admin.save(update_fields=["password"])
    request = SimpleNamespace(user=caller)
    acts = (
        lambda: user_acts.create(request, User(username="eve", role="viewer")),
        lambda: user_acts.change(request, bob.pk, {"role": "operator"}),
        lambda: user_acts.set_active(request, bob.pk, True),
        lambda: user_acts.reset_password(request, bob.pk, generate=False),
    )
    for act in acts:
        with pytest.raises(user_acts.Refused, match="do not include this"):
            act()
    assert not SetPasswordLink.objects.exists()
    assert not User.objects.filter(username="eve").exists()
    bob.refresh_from_db()
    assert bob.role == "viewer"
    assert bob.check_password(PASSWORD)
