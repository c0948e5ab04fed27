"""The caller's own account and tokens."""

from __future__ import annotations

import pytest
from django.test import Client

from appliance.console.models import ApiToken, AuditEntry, User
from appliance.console.users import tokens

from .conftest import Caller, answer_of, problem_of

pytestmark = pytest.mark.django_db


def test_me(client_as, by_token):
    assert answer_of(Caller(client_as("operator")).get("/me")) == {
        "kind": "user", "username": "the-operator", "label": "the-operator", "role": "operator",
        "may_read_bodies": False, "may_export": False, "topic_patterns": [], "group_patterns": [],
    }  # fmt: skip
    mine = answer_of(by_token("viewer", "may_export", topic_pattern="a*", group_pattern="b*").get("/me"))
    assert (mine["kind"], mine["label"], mine["may_export"]) == ("token", "the-viewer/a token", True)
    assert (mine["topic_patterns"], mine["group_patterns"]) == (["a*"], ["b*"])


def test_a_token_is_shown_once_and_works(client_as):
    person = Caller(client_as("operator"))
    made = answer_of(person.post("/tokens", {"name": "ci", "role": "operator", "expires_in_days": 30}), 201)
    assert made["secret"].startswith("rbx_")
    assert made["secret"].startswith(made["prefix"])
    assert made["expires_at_ms"] - made["created_at_ms"] == pytest.approx(30 * 86_400_000, abs=10_000)
    assert answer_of(Caller(Client(), made["secret"]).get("/me"))["role"] == "operator"
    listing = person.get("/tokens")
    assert made["secret"] not in listing.content.decode()
    assert answer_of(listing)["items"][0]["name"] == "ci"
    kept = ApiToken.objects.get()
    assert made["secret"] not in [getattr(kept, field.name) for field in ApiToken._meta.fields]
    entry = AuditEntry.objects.first()
    assert (entry.action, entry.target, entry.actor) == ("token.create", "ci", "the-operator")
    assert made["secret"] not in str(entry.after)


@pytest.mark.parametrize("more", [{"role": "admin"}, {"may_read_bodies": True}, {"may_export": True}])
def test_nobody_makes_a_token_that_may_more_than_they(client_as, more):
    problem_of(Caller(client_as("operator")).post("/tokens", {"name": "ci"} | more), 403, "exceeds_caller")
    assert not ApiToken.objects.exists()


def test_a_token_that_a_token_makes_may_do_no_more_and_ends_with_it(by_token, people):
    maker = by_token("operator", "may_export", topic_pattern="a*")
    problem_of(maker.post("/tokens", {"name": "child", "role": "admin"}), 403, "exceeds_caller")
    problem_of(maker.post("/tokens", {"name": "child", "may_read_bodies": True}), 403, "exceeds_caller")
    made = answer_of(maker.post("/tokens", {"name": "child", "role": "operator", "expires_in_days": None}), 201)
    child = Caller(Client(), made["secret"])
    assert (me := answer_of(child.get("/me")))["role"] == "operator"
    assert me["topic_patterns"] == ["a*"], "whatever its own pattern is"
    ApiToken.objects.filter(name="a token").update(role="viewer")
    assert answer_of(child.get("/me"))["role"] == "viewer"
    ApiToken.objects.filter(name="a token").update(revoked_at_ms=1)
    problem_of(child.get("/me"), 401, "unauthorized")


def test_tokens_of_tokens_of_tokens_come_to_an_end(by_token):
    caller, made = by_token("viewer"), 0
    while (answer := caller.post("/tokens", {"name": f"child {made}"})).status_code == 201:
        caller, made = Caller(Client(), answer.json()["secret"]), made + 1
    problem_of(answer, 403, "exceeds_caller")
    assert made == tokens.LONGEST_CHAIN - 1


def test_a_token_expires_as_the_form_says_unless_it_is_said_not_to(client_as):
    person = Caller(client_as("viewer"))
    made = answer_of(person.post("/tokens", {"name": "ci"}), 201)
    assert made["expires_at_ms"] - made["created_at_ms"] == pytest.approx(90 * 86_400_000, abs=10_000)
    assert answer_of(person.post("/tokens", {"name": "ever", "expires_in_days": None}), 201)["expires_at_ms"] is None


def test_one_sees_and_revokes_ones_own_tokens_and_an_administrator_everybodys(people, client_as, by_token):
    token = by_token("operator")
    theirs = ApiToken.objects.get()
    viewer = Caller(client_as("viewer"))
    assert answer_of(viewer.get("/tokens"))["items"] == []
    problem_of(viewer.delete(f"/tokens/{theirs.pk}"), 404, "token_not_found")
    answer_of(token.get("/me"))
    admin = Caller(client_as("admin"))
    assert answer_of(admin.get("/tokens"))["items"][0]["owner"] == "the-operator"
    assert answer_of(admin.delete(f"/tokens/{theirs.pk}"))["revoked_at_ms"]
    problem_of(token.get("/me"), 401, "unauthorized")
    assert AuditEntry.objects.first().action == "token.revoke"


def test_tokens_come_in_pages(people, client_as):
    for number in range(5):
        ApiToken.objects.create(owner=people["viewer"], name=f"n{number}", prefix="rbx_", digest=str(number))
    person = Caller(client_as("viewer"))
    names, cursor = [], ""
    while cursor is not None:
        page = answer_of(person.get(f"/tokens?limit=2{cursor and f'&cursor={cursor}'}"))
        names += [row["name"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert names == ["n4", "n3", "n2", "n1", "n0"]


def test_who_must_change_the_password_first_gets_no_further(client_as, people):
    client = client_as("viewer")
    User.objects.filter(pk=people["viewer"].pk).update(must_change_password=True)
    problem_of(Caller(client).get("/me"), 403, "forbidden")


def test_a_user_has_so_many_tokens_and_others_have_theirs(client_as, monkeypatch):
    monkeypatch.setattr(tokens, "MOST_EACH", 3)
    person, wanted = Caller(client_as("viewer")), {"name": "n", "role": "viewer"}
    made = [answer_of(person.post("/tokens", wanted), 201)["id"] for _ in range(3)]
    problem_of(person.post("/tokens", wanted), 409, "conflict")
    page = person.client.post("/system/tokens/new/", wanted)
    assert page.status_code == 422
    assert "You have 3 tokens" in page.content.decode()
    answer_of(Caller(client_as("operator")).post("/tokens", wanted), 201)
    tokens.revoke(ApiToken.objects.get(pk=made[0]))
    ApiToken.objects.filter(pk=made[1]).update(expires_at_ms=1)
    for _ in range(2):
        answer_of(person.post("/tokens", wanted), 201)
    problem_of(person.post("/tokens", wanted), 409, "conflict")


def test_of_tokens_that_have_ended_the_newest_stay(people, monkeypatch):
    monkeypatch.setattr(tokens, "ENDED_EACH", 2)
    owner = people["viewer"]
    maker, _ = tokens.create(owner, "maker", "viewer")
    _, secret = tokens.create(owner, "of it", "viewer", made_by=maker)
    tokens.create(owner, "works", "viewer")
    tokens.revoke(maker)
    for name in ("a", "b", "c"):
        tokens.revoke(tokens.create(owner, name, "viewer")[0])
    ApiToken.objects.exclude(revoked_at_ms=None).update(revoked_at_ms=1)
    tokens.create(owner, "new", "viewer")
    assert set(ApiToken.objects.values_list("name", flat=True)) == {"works", "b", "c", "new"}
    assert tokens.authenticate(secret) is None
