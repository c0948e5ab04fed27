"""Consumer groups and clients."""

from __future__ import annotations

import itertools

import pytest

from appliance.console.models import AuditEntry

from .conftest import answer_of, encoded, problem_of

pytestmark = pytest.mark.django_db
NAMES = (f"Billing-{number}" for number in itertools.count())


@pytest.fixture
def group(running) -> str:
    name = next(NAMES)
    running.window.group_commands.create(name)
    return name


def test_a_group_is_made_edited_by_revision_and_deleted(operator, admin, viewer):
    name = next(NAMES)
    response = operator.post("/groups", {"name": name, "retry_max_times": 3})
    assert answer_of(response, 201)["applied"]
    assert response.headers["Location"] == f"/api/v1/groups/{name}"
    read = viewer.get(f"/groups/{name}")
    etag = read.headers["ETag"]
    assert answer_of(read)["settings"]["retry_max_times"] == 3
    answer_of(admin.patch(f"/groups/{name}", {"retry_max_times": 5}, if_match=etag))
    problem_of(admin.patch(f"/groups/{name}", {"retry_max_times": 7}, if_match=etag), 412, "revision_mismatch")
    problem_of(admin.delete(f"/groups/{name}", if_match=etag), 412, "revision_mismatch")
    assert answer_of(viewer.get(f"/groups/{name}"))["settings"]["retry_max_times"] == 5
    problem_of(operator.post("/groups", {"name": name}), 409, "conflict")
    problem_of(operator.delete(f"/groups/{name}"), 403, "forbidden")
    answer_of(admin.delete(f"/groups/{name}"))
    problem_of(viewer.get(f"/groups/{name}"), 404, "group_not_found")
    done = [entry.action for entry in AuditEntry.objects.filter(result="done")]
    assert done == ["group.delete", "group.edit", "group.create"]


def test_a_group_that_is_behind_is_not_deleted_unless_forced(admin, running, group, topic):
    running.put(topic, b"unread")
    running.commit(group, topic, 0, 0)
    problem = problem_of(admin.delete(f"/groups/{group}"), 409, "blocked")
    assert [one["code"] for one in problem["blockers"]] == ["group_unread"]
    assert answer_of(admin.delete(f"/groups/{group}?force=true"))["applied"]


@pytest.mark.parametrize(
    "body", [{}, {"name": 1}, {"name": "x", "retry_max_times": "3"}, {"name": "x", "color": "red"}]
)
def test_a_wrong_group_is_refused(operator, body):
    problem_of(operator.post("/groups", body), 422, "invalid_input")


def test_progress_members_and_what_they_subscribe_to(viewer, running, group, topic):
    running.put(topic, b"a", b"b", b"c", queue=2)
    running.commit(group, topic, 2, 1)
    running.join("client-a", group, topic, "A")
    running.join("client-b", group, topic, "B")
    running.sample()
    detail = answer_of(viewer.get(f"/groups/{group}"))
    assert detail["lag"] == 2
    assert detail["conflict"]
    assert {version["expression"] for version in detail["conflicts"][0]["versions"]} == {"A", "B"}
    progress = answer_of(viewer.get(f"/groups/{group}/progress"))["items"]
    second = next(row for row in progress if (row["topic"], row["queue_id"]) == (topic, 2))
    assert (second["committed"], second["max_offset"], second["lag"]) == (1, 3, 2)
    clients = answer_of(viewer.get(f"/groups/{group}/clients"))["items"]
    assert [client["client_id"] for client in clients] == ["client-a", "client-b"]
    listed = answer_of(viewer.get(f"/groups?q={group}&online=true&sort=-lag"))
    assert [row["name"] for row in listed["items"]] == [group]
    assert answer_of(viewer.get(f"/groups?q={group}&online=false"))["items"] == []


def test_what_is_unknown_is_null_with_its_reason(viewer, running, group, topic):
    running.put(topic, b"a")
    running.join("viewer-of-all", group, topic, model="BROADCASTING")
    row = answer_of(viewer.get(f"/groups/{group}"))
    assert row["lag"] is None
    assert row["lag_why"]["code"] == "broadcast_keeps_offsets"


def test_clients_by_role_and_group(viewer, running, group, topic):
    running.join(f"consumer@{group}", group, topic)
    running.produce_as(f"producer@{group}", f"P-{group}")
    by_group = answer_of(viewer.get(f"/clients?group={group}"))
    assert [row["client_id"] for row in by_group["items"]] == [f"consumer@{group}"]
    assert by_group["items"][0]["consumer_groups"] == [group]
    producers = answer_of(viewer.get(f"/clients?role=producer&q={group}"))["items"]
    assert [row["producer_groups"] for row in producers] == [[f"P-{group}"]]
    problem_of(viewer.get("/clients?role=admin"), 422, "invalid_input")


def test_a_client_shows_the_groups_that_its_reader_may_access_and_no_others(by_token, running, group, topic):
    client, theirs = f"both@{group}", f"theirs-{group}"
    running.join(client, group, topic, also=theirs)
    kept = by_token("viewer", group_pattern=group)
    for address in (f"/clients?group={group}", f"/clients/{client}"):
        [row] = answer_of(kept.get(address))["items"]
        assert (row["consumer_groups"], row["producer_groups"]) == ([group], [])
    assert answer_of(kept.get(f"/clients?group={group}&q=theirs-"))["total"] == 0
    assert answer_of(kept.get(f"/clients?group={group}&role=producer"))["total"] == 0
    problem_of(by_token("viewer", group_pattern="nothing-*").get(f"/clients/{client}"), 404, "client_not_found")
    [row] = answer_of(by_token("viewer").get(f"/clients/{client}"))["items"]
    assert row["producer_groups"] == [theirs]


@pytest.mark.parametrize(
    "client_id", ["<img src=x onerror=alert(1)>", '"; DROP TABLE', "客户端", "a b", "=cmd()", "a/b"]
)
def test_hostile_client_ids_are_only_text(viewer, running, group, topic, client_id):
    running.join(client_id, group, topic)
    response = viewer.get(f"/groups/{group}/clients")
    assert [row["client_id"] for row in answer_of(response)["items"]] == [client_id]
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert answer_of(viewer.get(f"/clients?q={encoded(client_id)}"))["total"] >= 1
    [row] = answer_of(viewer.get(f"/clients/{encoded(client_id)}"))["items"]
    assert row["consumer_groups"] == [group]
