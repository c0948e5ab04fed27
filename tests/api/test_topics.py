"""Topics: made, read, changed and deleted, with previews, revisions and blockers."""

from __future__ import annotations

import base64

import pytest

from appliance.console.models import AuditEntry
from appliance.engine.broker.registration import Registration

from .conftest import NAMES, Caller, answer_of, encoded, problem_of

pytestmark = pytest.mark.django_db


def test_a_topic_is_made_and_its_place_told(operator, running, monkeypatch):
    monkeypatch.setattr(Registration.register_topics, "__defaults__", (60.0,))
    name = next(NAMES)
    response = operator.post("/topics", {"name": name, "kind": "FIFO", "read_queues": 2, "write_queues": 2})
    change = answer_of(response, 201)
    assert change["applied"]
    assert change["registered"]
    assert response.headers["Location"] == f"/api/v1/topics/{name}"
    assert response.headers["ETag"] == f'"{change["revision"]}"'
    assert running.window.topics.settings(name).kind == "FIFO"
    entry = AuditEntry.objects.first()
    assert (entry.action, entry.target, entry.actor, entry.actor_kind) == (
        "topic.create", name, "the-operator/a token", "token",
    )  # fmt: skip
    assert entry.after
    problem_of(operator.post("/topics", {"name": name}), 409, "conflict")
    assert AuditEntry.objects.first().result == "refused"


def test_a_preview_changes_nothing_and_leaves_no_line(operator, admin, viewer, topic):
    name = next(NAMES)
    assert not answer_of(operator.post("/topics?dry_run=true", {"name": name}))["applied"]
    problem_of(viewer.get(f"/topics/{name}"), 404, "topic_not_found")
    change = answer_of(admin.patch(f"/topics/{topic}?dry_run=true", {"write_queues": 2}))
    assert {one["field"]: (one["before"], one["after"]) for one in change["differences"]} == {
        "write_queues": ("4", "2")
    }
    assert answer_of(viewer.get(f"/topics/{topic}"))["write_queues"] == 4
    assert not AuditEntry.objects.exists()


def test_an_edit_needs_the_revision_that_is_there(admin, viewer, topic):
    read = viewer.get(f"/topics/{topic}")
    etag = read.headers["ETag"]
    assert etag == f'"{answer_of(read)["revision"]}"'
    done = admin.patch(f"/topics/{topic}", {"order": True}, if_match=etag)
    assert answer_of(done)["applied"]
    assert done.headers["ETag"] != etag
    problem = problem_of(admin.patch(f"/topics/{topic}", {"order": False}, if_match=etag), 412, "revision_mismatch")
    assert problem["hint"]
    problem_of(admin.patch(f"/topics/{topic}", {}, if_match=f"W/{etag}"), 412, "revision_mismatch")
    again = viewer.get(f"/topics/{topic}")
    assert answer_of(again)["order"], "the second edit did nothing"
    assert again.headers["ETag"] == done.headers["ETag"]
    answer_of(admin.patch(f"/topics/{topic}", {"order": False}, if_match="*"))
    before_after = AuditEntry.objects.first()
    assert (before_after.before, before_after.after) == ({"order": "true"}, {"order": "false"})


def test_an_edit_leaves_alone_what_it_does_not_name(admin, viewer, topic):
    before = answer_of(viewer.get(f"/topics/{topic}"))
    answer_of(admin.patch(f"/topics/{topic}", {"read_queues": 8}))
    after = answer_of(viewer.get(f"/topics/{topic}"))
    assert {name for name in after if after[name] != before[name]} == {"read_queues", "revision"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"read_queues": "8"}, "read_queues"),
        ({"read_queues": True}, "read_queues"),
        ({"read_queues": None}, "read_queues"),
        ({"read_queues": -1}, "read_queues"),
        ({"kind": "LITE"}, "kind"),
        ({"partitions": 8}, "partitions"),
        ([], "body"),
    ],
)
def test_a_wrong_value_is_named(admin, topic, body, field):
    problem = problem_of(admin.patch(f"/topics/{topic}", body), 422, "invalid_input")
    assert [one["field"] for one in problem["errors"]] == [field]


def test_no_json_is_no_body(admin, topic):
    for data in (b"{", b"\xff\xfe", b'{"order": NaN}', b"[" * 100_000):
        response = admin.client.generic(
            "PATCH", f"/api/v1/topics/{topic}", data, content_type="application/json",
            headers={"authorization": f"Bearer {admin.secret}"},
        )  # fmt: skip
        problem_of(response, 400, "bad_request")


def test_what_is_too_large_is_not_read(admin, topic, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 8 << 20
    response = admin.client.generic(
        "PATCH", f"/api/v1/topics/{topic}", b" " * (9 << 20), content_type="application/json",
        headers={"authorization": f"Bearer {admin.secret}"},
    )  # fmt: skip
    problem_of(response, 413, "too_large")
    problem_of(admin.get("/topics?" + "&".join(f"a{n}=1" for n in range(2000))), 400, "bad_request")


def test_a_topic_in_use_is_not_deleted_unless_forced(admin, running, topic):
    running.put(topic, b"unread")
    running.window.group_commands.create("Readers")
    running.commit("Readers", topic, 0, 0)
    problem = problem_of(admin.delete(f"/topics/{topic}"), 409, "blocked")
    assert "Readers" in problem["blockers"][0]["text"]
    assert problem["blockers"][0]["code"] == "group_unread"
    assert "force" in problem["hint"]
    assert running.window.topics.settings(topic)
    preview = answer_of(admin.delete(f"/topics/{topic}?dry_run=true"))
    assert not preview["applied"]
    assert preview["blockers"]
    assert answer_of(admin.delete(f"/topics/{topic}?force=true"))["applied"]
    problem_of(admin.get(f"/topics/{topic}"), 404, "topic_not_found")
    results = [(entry.action, entry.result) for entry in AuditEntry.objects.all()]
    assert results == [("topic.delete", "done"), ("topic.delete", "refused")]


def test_a_topic_is_purged_as_the_preview_said(admin, running, topic):
    running.put(topic, b"unread", b"unread, too")
    running.window.group_commands.create("Slow")
    running.commit("Slow", topic, 0, 1)
    preview = admin.post(f"/topics/{topic}/purge?dry_run=true", {})
    assert answer_of(preview)["blockers"][0]["code"] == "group_unread"
    etag = preview.headers["ETag"]
    problem_of(admin.post(f"/topics/{topic}/purge", {}, if_match=etag), 409, "blocked")
    problem_of(admin.post(f"/topics/{topic}/purge?force=true", {}, if_match='"0-0"'), 412, "revision_mismatch")
    done = answer_of(admin.post(f"/topics/{topic}/purge?force=true", {}, if_match=etag))
    assert done["applied"]
    assert [(one["field"], one["before"], one["after"]) for one in done["differences"]] == [("messages", "2", "0")]
    assert answer_of(admin.get(f"/topics/{topic}/queues"))["items"][0]["min_offset"] == 2
    problem_of(admin.post(f"/topics/{topic}/purge", {"before_ms": "soon"}), 422, "invalid_input")


def test_bodies_are_decoded_by_the_schema_that_the_topic_was_given(operator, by_token, running, topic):
    reader = by_token("viewer", "may_read_bodies")
    address = f"/topics/{topic}/schema"
    running.put(topic, b"\x06tea", b"\x09")
    problem_of(operator.get(address), 404, "not_found")
    preview = answer_of(operator.put(f"{address}?dry_run=true", {"kind": "avro", "schema": {"data": '"string"'}}))
    assert not preview["applied"]
    problem_of(operator.get(address), 404, "not_found")
    problem = problem_of(operator.put(address, {"kind": "avro", "schema": {"data": "{"}}), 422, "invalid_input")
    assert problem["errors"][0]["field"] == "schema"
    given = {"encoding": "base64", "data": base64.b64encode(b'"string"').decode()}
    assert answer_of(operator.put(address, {"kind": "avro", "schema": given}))["applied"]
    found = answer_of(operator.get(address))
    assert (found["kind"], found["name"], found["schema"]["data"]) == ("avro", "string", '"string"')
    fits, unfit = (answer_of(reader.get(f"/messages/{topic}/0/{offset}/body")) for offset in (0, 1))
    assert (fits["decoded"], fits["schema_name"], fits["data"]) == ('"tea"', "Avro string", "BnRlYQ==")
    assert (unfit["decoded"], unfit["notes"][-1]["code"]) == (None, "body_unfit")
    exporter = by_token("viewer", "may_read_bodies", "may_export")
    running.put(topic, b"\x90\x80\x08" + b"x" * 65_544)
    large = f"/messages/{topic}/0/2/body"
    assert answer_of(reader.get(large))["decoded"] is None, "this is an export"
    assert answer_of(exporter.get(large))["decoded"] == '"' + "x" * 65_544 + '"'
    assert answer_of(operator.delete(address))["applied"]
    problem_of(operator.delete(address), 404, "not_found")
    assert answer_of(reader.get(f"/messages/{topic}/0/0/body"))["schema_name"] is None
    assert [one.action for one in AuditEntry.objects.all() if one.action == "topic.schema"] == ["topic.schema"] * 2


def test_a_delete_asks_a_session_for_the_password_again(client_as, topic, running):
    from tests.console.conftest import age_login

    client = client_as("admin")
    age_login(client)
    problem_of(Caller(client).delete(f"/topics/{topic}"), 403, "confirm_password")
    assert running.window.topics.settings(topic)
    assert not answer_of(Caller(client).delete(f"/topics/{topic}?dry_run=true"))["applied"]
    answer_of(Caller(client_as("admin")).delete(f"/topics/{topic}"))


def test_the_list_is_filtered_sorted_and_paged(viewer, running, topic):
    names = [f"{topic}-{letter}" for letter in "abcde"]
    for number, name in enumerate(names):
        running.put(name, *[b"x"] * number)
        running.window.topic_commands.create(name) if not number else None
    running.sample()
    found, cursor = [], ""
    while cursor is not None:
        page = answer_of(
            viewer.get(f"/topics?q={topic.upper()}-&sort=-messages&limit=2{cursor and f'&cursor={cursor}'}")
        )
        found += [row["name"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert found == names[::-1]
    assert page["total"] == 5
    assert answer_of(viewer.get(f"/topics?q={topic}&kind=FIFO"))["items"] == []
    assert not [row for row in answer_of(viewer.get("/topics?limit=500"))["items"] if row["category"] != "user"]
    everything, cursor = [], ""
    while cursor is not None:
        page = answer_of(viewer.get(f"/topics?limit=500&system=true{cursor and f'&cursor={cursor}'}"))
        everything += page["items"]
        cursor = page["next_cursor"]
    assert {"user", "system"} <= {row["category"] for row in everything}
    only = answer_of(viewer.get("/topics?limit=500&category=system"))["items"]
    assert {row["category"] for row in only} == {"system"}


def test_a_cursor_is_good_for_its_own_question_only(viewer, topic):
    cursor = answer_of(viewer.get("/topics?system=true&limit=1"))["next_cursor"]
    answer_of(viewer.get(f"/topics?system=true&limit=1&cursor={cursor}"))
    for address in (
        f"/topics?system=true&limit=2&cursor={cursor}", f"/topics?limit=1&cursor={cursor}",
        f"/groups?limit=1&cursor={cursor}", "/topics?cursor=nonsense", "/topics?cursor=%F0%9F%90%AB",
    ):  # fmt: skip
        assert problem_of(viewer.get(address), 422, "invalid_input")["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("wrong", ["limit=0", "limit=501", "limit=x", "sort=colour", "kind=LITE", "category=mine"])
def test_a_wrong_question_is_refused(viewer, wrong):
    problem = problem_of(viewer.get(f"/topics?{wrong}"), 422, "invalid_input")
    assert problem["errors"][0]["field"] == wrong.partition("=")[0]


def test_queues_route_groups_and_producers(viewer, running, topic):
    running.put(topic, b"a", b"b", queue=1)
    running.window.group_commands.create("Watchers")
    running.commit("Watchers", topic, 1, 1)
    running.sample()
    queues = answer_of(viewer.get(f"/topics/{topic}/queues"))["items"]
    assert [(row["queue_id"], row["messages"]) for row in queues] == [(0, 0), (1, 2), (2, 0), (3, 0)]
    assert queues[0]["time_why"]["code"] == "no_messages"
    route = answer_of(viewer.get(f"/topics/{topic}/route"))
    assert route["brokers"][0]["addresses"] == {"0": running.engine.broker_address}
    assert route["queues"][0]["read_queues"] == 4
    groups = answer_of(viewer.get(f"/topics/{topic}/groups"))["items"]
    assert [(row["group"], row["lag"]) for row in groups] == [("Watchers", 1)]
    producers = answer_of(viewer.get(f"/topics/{topic}/producers"))
    assert producers["items"][0]["messages_seen"] == 2
    assert producers["why"]["text"]
    assert answer_of(viewer.get(f"/topics/{topic}/stats"))["messages"] == 2


HOSTILE = ["%RETRY%no|such", "<script>", "a b", "Ünïcode", "..", "' OR 1=1 --", "a\0b", "x" * 3000, "a\nb", "\ud800"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_find_nothing_and_are_not_made(operator, admin, name):
    address = "/topics/" + encoded(name.encode("utf-8", "replace").decode())
    if name != "..":
        problem_of(operator.get(address), 404, "topic_not_found")
        problem_of(operator.get(address + "/messages"), 404, "topic_not_found")
        problem_of(admin.patch(address, {"order": True}), 404, "topic_not_found")
        problem_of(admin.delete(address), 404, "topic_not_found")
    assert operator.post("/topics", {"name": name}).status_code in (400, 422)


def test_names_with_percent_signs_are_found(viewer, running):
    running.join("client-1", "Percent%Group")
    name = "%RETRY%Percent%Group"
    running.put(name, b"again")
    assert answer_of(viewer.get(f"/topics/{encoded(name)}"))["name"] == name
    assert answer_of(viewer.get(f"/topics/{encoded(name)}/messages"))["items"][0]["topic"] == name
    assert answer_of(viewer.get(f"/groups/{encoded('Percent%Group')}"))["name"] == "Percent%Group"
