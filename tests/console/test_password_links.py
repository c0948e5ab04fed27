"""Links to set a password: good once, for a while, and for one user."""

import logging
import re

import pytest
from django.test import Client

from appliance.console.models import AuditEntry, SetPasswordLink, User
from appliance.console.serving.secret_addresses import NoSecrets, without_secret
from appliance.console.sign_in import password_links

from .conftest import signed_in
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
        password_links.make(bob)
    else:
        link = "/password/something/"
    assert Client().post(link, NEW).status_code == 404
    assert not User.objects.get(username="bob").has_usable_password()


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
        made, _ = password_links.make(bob)
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
