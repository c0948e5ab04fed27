"""Access to every operation for every role, by session and by token."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import get_resolver

from appliance.api.api import operations
from appliance.console.models import Role, User, now_ms
from appliance.console.users import tokens
from appliance.console.users.access import ACCESS
from tests.support.engine import pull_fields, records
from tests.support.wire_users import wire_users

from .conftest import Caller, answer_of, problem_of

pytestmark = pytest.mark.django_db
ROLES = ["", *Role.values]
OPERATIONS = [(one.method, one.route) for one in operations()]
IDS = [f"{method} {route}" for method, route in OPERATIONS]
VALUES = {
    "<topic>": "no-such-topic",
    "<group>": "no-such-group",
    "<path:ref>": "7" * 32,
    "<int:token_id>": "999999",
    "<int:reset_id>": "999999",
    "<int:number>": "999999",
    "<username>": "nobody-here",
    "<int:alert_id>": "999999",
    "<int:rule_id>": "999999",
    "<int:channel_id>": "999999",
    "<int:silence_id>": "999999",
    "<int:mute_id>": "999999",
    "<job>": "no-such-job",
    "<act>": "pause",
    "<name>": "no-such-file",
    "<day>": "2026-01-01",
    "<report>": "digest",
    "<plot>": "no-such-plot",
    "<table>": "no-such-table",
    "<run>": "no-such-run",
    "<path:client_id>": "no-such-client",
    "<path:resource>": "Topic:none",
}


def address_of(route: str) -> str:
    """Return an address of an operation, below /api/v1, with names that do not exist."""
    for part, value in VALUES.items():
        route = route.replace(part, value)
    assert "<" not in route
    return route.removeprefix("api/v1") + ("?metric=in" if route.endswith("series") else "")


def test_every_operation_is_in_the_table():
    assert not [key for key in IDS if key not in ACCESS]


def test_the_list_of_operations_is_all_that_the_addresses_lead_to():
    resolver = next(one for one in get_resolver().url_patterns if str(one.pattern) == "api/v1/")
    routes = {f"api/v1/{one.pattern}" for one in resolver.url_patterns}
    assert routes == {route for _, route in OPERATIONS}


@pytest.fixture
def book(running, tmp_path):
    """Users of the wire, of which there are none without access control."""
    with wire_users(running.window, tmp_path / "wire-users") as found:
        yield found


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("method", "route"), OPERATIONS, ids=IDS)
def test_an_operation_is_for_those_whom_the_table_admits(client_as, book, role, method, route):
    rule = ACCESS[f"{method} {route}"]
    response = Caller(client_as(role)).ask(method, address_of(route))
    if role == "":
        problem_of(response, 401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    elif rule.grants or ROLES.index(role) < ROLES.index(rule.role):
        problem_of(response, 403, "forbidden")
    else:
        assert response.status_code in (200, 202, 400, 404, 422), response.content


@pytest.mark.parametrize(
    ("method", "route"),
    [one for one in OPERATIONS if ACCESS[" ".join(one)].grants and ACCESS[" ".join(one)].role == "viewer"],
)
def test_bodies_are_for_those_with_the_grant(by_token, method, route):
    problem_of(by_token("admin").ask(method, address_of(route)), 403, "forbidden")
    reader = by_token("viewer", *ACCESS[f"{method} {route}"].grants).ask(method, address_of(route))
    if method == "GET":
        problem_of(reader, 404, "message_not_found")
    else:
        assert reader.status_code in (404, 422), reader.content


def test_an_operation_that_nobody_listed_is_refused(admin, monkeypatch, caplog):
    answer_of(admin.get("/me"))
    monkeypatch.delitem(ACCESS, "GET api/v1/me")
    problem_of(admin.get("/me"), 403, "forbidden")
    assert "not in the table" in caplog.text


def test_another_method_is_refused_with_those_there_are(admin):
    response = admin.ask("PUT", "/topics/some-topic")
    problem_of(response, 405, "method_not_allowed")
    assert response.headers["Allow"] == "GET, PATCH, DELETE"


def test_below_the_root_there_is_nothing_else(admin):
    problem_of(admin.get("/"), 404, "not_found")
    problem_of(admin.get("/nothing"), 404, "not_found")


# --- tokens and sessions


def test_a_bad_token_is_not_saved_by_a_session(client_as):
    caller = Caller(client_as("admin"), "rbx_wrong")
    problem_of(caller.get("/me"), 401, "unauthorized")


def test_revoked_and_expired_tokens_and_those_of_disabled_people_are_refused(people, by_token):
    revoked, secret = tokens.create(people["admin"], "revoked", "admin")
    tokens.revoke(revoked)
    problem_of(Caller(Client(), secret).get("/me"), 401, "unauthorized")
    _, secret = tokens.create(people["admin"], "expired", "admin", expires_at_ms=now_ms() - 1)
    problem_of(Caller(Client(), secret).get("/me"), 401, "unauthorized")
    viewer = by_token("viewer")
    answer_of(viewer.get("/me"))
    User.objects.filter(pk=people["viewer"].pk).update(is_active=False)
    problem_of(viewer.get("/me"), 401, "unauthorized")


def test_a_token_may_never_do_more_than_its_owner_may_now(people):
    _, secret = tokens.create(people["operator"], "high", "operator", may_read_bodies=True)
    caller = Caller(Client(), secret)
    assert answer_of(caller.get("/me"))["role"] == "operator"
    assert not answer_of(caller.get("/me"))["may_read_bodies"], "the owner has no such grant"
    User.objects.filter(pk=people["operator"].pk).update(role="viewer")
    problem_of(caller.post("/topics", {"name": "Never"}), 403, "forbidden")


def test_a_session_changes_nothing_without_its_csrf_token(client_as, topic):
    client = client_as("admin")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    caller = Caller(strict)
    answer_of(caller.get(f"/topics/{topic}"))
    problem_of(caller.patch(f"/topics/{topic}", {"order": True}), 403, "csrf")
    token = client.cookies["rocketbox_csrf"].value
    answer_of(caller.patch(f"/topics/{topic}", {"order": True}, x_csrftoken=token))


def test_a_token_needs_no_csrf_token(by_token, topic):
    caller = by_token("admin")
    caller.client = Client(enforce_csrf_checks=True)
    answer_of(caller.patch(f"/topics/{topic}", {"order": True}))


# --- names a token may touch


def test_a_pattern_keeps_a_token_to_its_names(by_token, running, topic):
    running.put("Elsewhere", b"secret")
    caller = by_token("admin", "may_read_bodies", pattern=f"{topic}*")
    answer_of(caller.get(f"/topics/{topic}"))
    for method, address, body in [
        ("GET", "/topics/Elsewhere", None),
        ("GET", "/topics/Elsewhere/queues", None),
        ("GET", "/topics/Elsewhere/messages", None),
        ("POST", "/topics/Elsewhere/messages", {"body": {"data": "x"}}),
        ("PATCH", "/topics/Elsewhere", {"order": True}),
        ("DELETE", "/topics/Elsewhere", None),
        ("POST", "/topics", {"name": "Elsewhere2"}),
        ("POST", "/groups", {"name": "Elsewhere2"}),
        ("GET", "/groups/Elsewhere", None),
        ("GET", "/messages/Elsewhere/0/0", None),
        ("GET", "/messages/Elsewhere/0/0/body", None),
        ("GET", "/messages/Elsewhere/0/0/record", None),
        ("GET", "/metrics/series?metric=in&topic=Elsewhere", None),
        ("GET", "/clients", None),
        ("GET", "/audit", None),
        ("PATCH", "/system/config", {"longPollingEnable": True}),
    ]:
        problem_of(caller.ask(method, address, body), 403, "outside_pattern")
    assert running.window.topics.settings("Elsewhere")


def test_a_pattern_cuts_a_story_to_its_names(by_token, running, topic):
    """A group outside the pattern took the message and sent it back: the token must not see that group's clients."""
    running.put(topic, b"secret", properties=f"UNIQ_KEY\x01{topic}\x02")
    for group in ("elsewhere", f"{topic}-mine"):
        peer = running.join(f"{group}@1", group, topic)
        answer = peer.ask(11, pull_fields(topic, 0, 0, consumerGroup=group))
        back = {"group": group, "offset": records(answer.body)[0].physical_offset, "delayLevel": 0,
                "originMsgId": "x", "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": 16}  # fmt: skip
        assert peer.ask(36, back).code == 0
        running.commit(group, topic, 0, 1)
    told = answer_of(by_token("viewer").get(f"/messages/{topic}/0/0"))
    assert [one["group"] for one in told["groups"]] == [f"{topic}-mine", "elsewhere"]
    mine = by_token("viewer", pattern=f"{topic}*").get(f"/messages/{topic}/0/0")
    assert [one["group"] for one in answer_of(mine)["groups"]] == [f"{topic}-mine"]
    assert b"elsewhere" not in mine.content
    kinds = [one["what"] for one in answer_of(mine)["story"]]
    assert {"born", "stored", "sent_back"} <= set(kinds)


def test_a_pattern_cuts_lists_to_its_names(by_token, running, topic):
    for number in range(3):
        running.window.topic_commands.create(f"{topic}-{number}")
    caller = by_token("viewer", pattern=f"{topic}-*")
    first = answer_of(caller.get("/topics?limit=2"))
    assert [row["name"] for row in first["items"]] == [f"{topic}-0", f"{topic}-1"]
    assert first["total"] == 3
    second = answer_of(caller.get(f"/topics?limit=2&cursor={first['next_cursor']}"))
    assert [row["name"] for row in second["items"]] == [f"{topic}-2"]
    assert second["next_cursor"] is None
