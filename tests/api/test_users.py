"""Users over the API, beside what their pages do (tests/console/test_users.py)."""

from __future__ import annotations

import pytest
from django.test import Client

from appliance.console.models import AuditEntry, User
from appliance.console.users import tokens
from tests.console.conftest import signed_in

from .conftest import Caller, answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def person(client_as) -> Caller:
    """An administrator's browser session, with all rights and the password just entered."""
    return Caller(client_as("admin", "may_read_bodies", "may_export"))


def test_users_are_listed_filtered_sorted_and_paged(person):
    assert [one["username"] for one in answer_of(person.get("/users"))["items"]] == [
        "the-admin",
        "the-operator",
        "the-viewer",
    ]
    assert [one["username"] for one in answer_of(person.get("/users?role=viewer"))["items"]] == ["the-viewer"]
    assert answer_of(person.get("/users?state=disabled"))["items"] == []
    first = answer_of(person.get("/users?limit=2&sort=-name"))
    assert [one["username"] for one in first["items"]] == ["the-viewer", "the-operator"]
    second = answer_of(person.get(f"/users?limit=2&sort=-name&cursor={first['next_cursor']}"))
    assert ([one["username"] for one in second["items"]], second["next_cursor"]) == (["the-admin"], None)


def test_a_user_is_made_with_a_link_that_works(person):
    body = {"username": "bob", "role": "operator", "may_export": True, "topic_pattern": "a-*"}
    response = person.post("/users", body)
    made = answer_of(response, 201)
    assert response.headers["Location"] == "/api/v1/users/bob"
    assert (made["user"]["role"], made["user"]["topic_pattern"], made["user"]["group_pattern"]) == (
        "operator",
        "a-*",
        "*",
    )
    path = made["set_password_link"].removeprefix("http://testserver")
    new = "quite another one"
    assert Client().post(path, {"password": new, "again": new}).status_code == 302
    assert answer_of(Caller(signed_in("bob", new)).get("/me"))["topic_patterns"] == ["a-*"]
    assert path.split("/")[2] not in str(list(AuditEntry.objects.values()))
    problem_of(person.post("/users", {"username": "BOB"}), 422, "invalid_input")


def test_a_given_first_password_must_be_changed_and_be_good(person):
    problem_of(person.post("/users", {"username": "bob", "password": "short"}), 422, "invalid_input")
    problem_of(person.post("/users", {"username": "b o b"}), 422, "invalid_input")
    assert not User.objects.filter(username__startswith="b").exists()
    made = answer_of(person.post("/users", {"username": "bob", "password": "a good first one"}), 201)
    assert made["set_password_link"] is None
    assert made["user"]["must_change_password"]
    problem_of(Caller(signed_in("bob", "a good first one")).get("/topics"), 403, "forbidden")


def test_rights_change_one_by_one_and_the_last_administrator_stays(person, people):
    after = answer_of(person.patch("/users/the-viewer", {"group_pattern": "g-*"}))
    assert (after["role"], after["group_pattern"]) == ("viewer", "g-*")
    assert answer_of(person.patch("/users/the-viewer", {"role": "operator"}))["group_pattern"] == "g-*"
    problem_of(person.patch("/users/the-admin", {"role": "viewer"}), 409, "conflict")
    problem_of(person.patch("/users/the-admin", {"active": False}), 409, "conflict")
    problem_of(person.patch("/users/nobody", {"role": "viewer"}), 404, "user_not_found")


def test_a_disabled_user_is_out_at_once(person, people):
    theirs = Caller(signed_in("the-viewer"))
    _, secret = tokens.create(people["viewer"], "ci", "viewer")
    answer_of(person.patch("/users/the-viewer", {"active": False}))
    problem_of(theirs.get("/me"), 401, "unauthorized")
    problem_of(Caller(Client(), secret).get("/me"), 401, "unauthorized")
    assert answer_of(person.patch("/users/the-viewer", {"active": True}))["active"]


def test_a_reset_ends_sessions_and_tokens(person, people):
    theirs = Caller(signed_in("the-viewer"))
    tokens.create(people["viewer"], "ci", "viewer")
    done = answer_of(person.post("/users/the-viewer/password", {}))
    assert done["revoked_tokens"] == ["ci"]
    assert done["set_password_link"]
    problem_of(theirs.get("/me"), 401, "unauthorized")
    done = answer_of(person.post("/users/the-viewer/password", {"password": "a good first one"}))
    assert done["set_password_link"] is None
    assert User.objects.get(username="the-viewer").check_password("a good first one")
    problem_of(person.post("/users/the-admin/password", {}), 409, "conflict")


def test_sessions_are_listed_and_ended(person, people):
    theirs = Caller(signed_in("the-viewer", HTTP_USER_AGENT="Phone"))
    rows = answer_of(person.get("/users/the-viewer/sessions"))["items"]
    assert [(row["agent"], row["way"], row["present"]) for row in rows] == [("Phone", "password", False)]
    own = answer_of(theirs.get("/me/sessions"))["items"]
    assert [row["present"] for row in own] == [True]
    problem_of(theirs.delete(f"/me/sessions/{answer_of(person.get('/me/sessions'))['items'][0]['id']}"), 404,
               "session_not_found")  # fmt: skip
    assert answer_of(person.delete(f"/users/the-viewer/sessions?session={rows[0]['id']}")) == {"ended": 1}
    problem_of(theirs.get("/me"), 401, "unauthorized")


def test_a_token_manages_users_below_it_and_makes_no_administrators(by_token, people):
    admin = by_token("admin", "may_export")
    answer_of(admin.post("/users", {"username": "bob", "role": "operator", "may_export": True}), 201)
    problem_of(admin.post("/users", {"username": "eve", "role": "admin"}), 403, "exceeds_caller")
    problem_of(admin.post("/users", {"username": "eve", "may_read_bodies": True}), 403, "exceeds_caller")
    problem_of(admin.patch("/users/bob", {"role": "admin"}), 403, "exceeds_caller")
    problem_of(admin.post("/users/the-admin/password", {}), 403, "exceeds_caller")
    User.objects.filter(username="the-operator").update(may_read_bodies=True)
    problem_of(admin.post("/users/the-operator/password", {}), 403, "exceeds_caller")
    assert not User.objects.filter(username="eve").exists()
    kept = by_token("admin", topic_pattern="a-*")
    problem_of(kept.get("/users"), 403, "outside_pattern")
    problem_of(kept.post("/users", {"username": "eve"}), 403, "outside_pattern")


def test_two_patterns_keep_topics_and_groups_apart(by_token, running, topic):
    caller = by_token("operator", topic_pattern=f"{topic}*", group_pattern="billing-*")
    answer_of(caller.get(f"/topics/{topic}"))
    problem_of(caller.get("/groups/" + topic), 403, "outside_pattern")
    problem_of(caller.get("/topics/billing-1"), 403, "outside_pattern")
    answer_of(caller.post("/groups", {"name": f"billing-{topic}"}), 201)
    assert [row["name"] for row in answer_of(caller.get("/groups"))["items"]] == [f"billing-{topic}"]
    assert [row["name"] for row in answer_of(caller.get("/topics"))["items"]] == [topic]


def test_a_users_own_patterns_hold_for_their_sessions_and_tokens(people, topic):
    User.objects.filter(username="the-operator").update(topic_pattern="other-*")
    people["operator"].refresh_from_db()
    problem_of(Caller(signed_in("the-operator")).get(f"/topics/{topic}"), 403, "outside_pattern")
    _, secret = tokens.create(people["operator"], "ci", "operator")
    problem_of(Caller(Client(), secret).get(f"/topics/{topic}"), 403, "outside_pattern")


@pytest.mark.parametrize("name", ["..", ".", "-", "_", "@+", "a b", "a/b", "root\n", "\u202eroot"])
def test_a_name_that_leads_nowhere_or_looks_like_another_is_refused(person, name):
    problem_of(person.post("/users", {"username": name, "role": "viewer"}), 422, "invalid_input")
    assert not User.objects.filter(username=name.strip()).exists()


def test_roles_that_need_a_second_factor_are_set(person, client_as):
    assert answer_of(person.ask("PUT", "/system/second-factor", {"roles": ["operator"]})) == {"roles": ["operator"]}
    assert answer_of(person.get("/system/second-factor")) == {"roles": ["operator"]}
    problem_of(Caller(client_as("operator")).get("/me"), 403, "forbidden")


def test_a_token_cannot_keep_out_whoever_could_end_it(by_token, people):
    owner = Caller(signed_in("the-admin"))
    number = answer_of(owner.get("/me/sessions"))["items"][0]["id"]
    admin = by_token("admin")
    problem_of(admin.delete("/users/the-admin/sessions"), 403, "exceeds_caller")
    problem_of(admin.delete(f"/me/sessions/{number}"), 403, "exceeds_caller")
    answer_of(owner.get("/me"))


def test_definitions_are_no_way_around_what_a_token_may_do_with_users(by_token, people):
    admin = by_token("admin", "may_export")
    answer_of(admin.post("/users", {"username": "bob", "role": "operator", "password": "a good first one"}), 201)
    for users in (
        "  bob: {role: admin}",
        "  bob: {may_read_bodies: true}",
        "  eve: {role: admin}",
        "  eve: {may_read_bodies: true}",
        "  the-admin: {active: false}",
        "  the-admin: {role: viewer}",
    ):
        text = f"rocketbox: 1\nusers:\n{users}\n"
        for question in ("?dry_run=true", ""):
            (item,) = answer_of(admin.post(f"/system/definitions{question}", {"text": text}))["items"]
            assert item["act"] == "refused", users
            assert "makes no administrators" in item["why"]
    assert not User.objects.filter(username="eve").exists()
    bob = User.objects.get(username="bob")
    assert (bob.role, bob.may_read_bodies) == ("operator", False)
    text = "rocketbox: 1\nusers:\n  bob: {may_export: true}\n"
    assert answer_of(admin.post("/system/definitions", {"text": text}))["items"][0]["act"] == "done"
    assert User.objects.get(username="bob").may_export
