"""Exports, searches and imports over the API: started with 202, watched and fetched as jobs."""

from __future__ import annotations

import base64
import json

import pytest

from appliance.console import jobs
from appliance.console.jobs import runner
from appliance.console.models import AuditEntry

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


def finished(caller, response) -> dict:
    assert response.status_code == 202, response.content
    place = response.headers["Location"]
    runner.run_waiting()
    return answer_of(caller.get(place.removeprefix("/api/v1")))


def file_of(job: dict) -> list[dict]:
    found = jobs.board().get(job["id"])
    data = jobs.board().folder(found.id).file(found.files[0].name).read_bytes()
    return [json.loads(line) for line in data.splitlines()]


@pytest.fixture
def person(client_as):
    """An administrator with all rights, in a browser's session."""
    from .conftest import Caller

    return Caller(client_as("admin", "may_read_bodies", "may_export"))


def test_what_was_exported_is_imported_again(person, running, topic):
    running.put(topic, b"one", b"two", properties="KEYS\x01k\x02TAGS\x01t\x02")
    job = finished(person, person.post(f"/topics/{topic}/exports", {"bodies": True, "filter": "body = 'two'"}))
    assert (job["state"], job["counts"]["found"], job["counts"]["other"]) == ("done", 1, 1)
    [line] = file_of(job)
    assert (line["body"], line["tags"], line["keys"]) == ({"encoding": "text", "data": "two"}, "t", ["k"])
    line["body"] = {"encoding": "base64", "data": base64.b64encode(b"three").decode()}
    checked = finished(person, person.post(f"/topics/{topic}/imports?dry_run=true", line))
    assert checked["counts"] == {"valid": 1, "failed": 0, "skipped": 0}
    assert running.window.messages.page(topic).total == 2
    done = finished(person, person.post(f"/topics/{topic}/imports?rate=100", line))
    assert done["counts"] == {"sent": 1, "failed": 0, "skipped": 0}
    assert running.window.messages.body_bytes(running.window.messages.page(topic).rows[0].offset_id) == b"three"


def test_messages_are_copied_to_another_topic(person, viewer, running, topic):
    running.put(topic, b"one", b"two", properties="KEYS\x01k\x02TAGS\x01t\x02")
    to = f"{topic}-to"
    running.window.topic_commands.create(to)
    asks = {"to": to, "filter": "body = 'two'"}
    checked = finished(person, person.post(f"/topics/{topic}/copies?dry_run=true", asks))
    assert (checked["result"]["valid"], checked["result"]["other"]) == (1, 1)
    assert running.window.messages.page(to).total == 0
    done = finished(person, person.post(f"/topics/{topic}/copies", asks | {"rate": 100}))
    assert (done["state"], done["counts"]["sent"]) == ("done", 1)
    [row] = running.window.messages.page(to).rows
    assert (running.window.messages.body_bytes(row.offset_id), row.tags, row.keys) == (b"two", "t", ("k",))
    assert running.window.messages.page(topic).total == 2
    problem_of(person.post(f"/topics/{topic}/copies", {"to": topic}), 422, "invalid_input")
    problem_of(person.post(f"/topics/{topic}/copies", {"to": "no-such-topic"}), 404, "topic_not_found")
    problem_of(viewer.post(f"/topics/{topic}/copies", {"to": to}), 403, "forbidden")


def test_who_may_not_read_bodies_gets_none_and_may_not_ask_about_them(viewer, running, topic):
    running.put(topic, b"the-secret")
    problem_of(viewer.post(f"/topics/{topic}/exports", {"bodies": True}), 403, "forbidden")
    asks = {"filter": "body CONTAINS 'secret'"}
    problem_of(viewer.post(f"/topics/{topic}/exports", asks), 403, "forbidden")
    problem_of(viewer.get(f"/topics/{topic}/messages?filter=body%20CONTAINS%20'secret'"), 403, "forbidden")
    job = finished(viewer, viewer.post(f"/topics/{topic}/exports", {}))
    assert job["counts"]["found"] == 1
    assert "body" not in file_of(job)[0]
    problem_of(viewer.post(f"/topics/{topic}/imports", {}), 403, "forbidden")


def test_what_is_asked_wrongly_starts_no_job(person, running, topic):
    before = len(jobs.board().jobs())
    problem = problem_of(person.post(f"/topics/{topic}/exports", {"filter": "tag ="}), 422, "invalid_input")
    assert "column 5" in problem["errors"][0]["message"]
    problem_of(person.post("/topics/no-such/exports", {}), 404, "topic_not_found")
    problem_of(person.post("/topics/no-such/imports", {}), 404, "topic_not_found")
    problem_of(person.post(f"/topics/{topic}/exports", {"format": "xml"}), 422, "invalid_input")
    problem_of(person.ask("POST", f"/topics/{topic}/imports"), 422, "invalid_input")
    problem_of(person.post(f"/topics/{topic}/imports?rate=0", {}), 422, "invalid_input")
    assert len(jobs.board().jobs()) == before


def test_a_page_says_how_far_it_has_looked(viewer, running, topic):
    for number in range(30):
        running.put(topic, b"x", properties=f"KEYS\x01k{number}\x02TAGS\x01t{number % 3}\x02")
    page = answer_of(viewer.get(f"/topics/{topic}/messages?filter=tag%20%3D%20't1'&limit=4"))
    assert [row["tags"] for row in page["items"]] == ["t1"] * 4
    assert page["scanned"]["seen"] < page["scanned"]["total"] == 30
    assert page["undecided"] == 0
    cursor = page["next_cursor"]
    rest = answer_of(viewer.get(f"/topics/{topic}/messages?filter=tag%20%3D%20't1'&limit=50&cursor={cursor}"))
    assert len(rest["items"]) == 6
    assert rest["scanned"]["seen"] == 30
    problem_of(viewer.get(f"/topics/{topic}/messages?limit=50&cursor={cursor}"), 422, "invalid_input")


def test_a_look_into_bodies_is_in_the_audit_log(person, running, topic):
    running.put(topic, b"x")
    answer_of(person.get(f"/topics/{topic}/messages?filter=body%20%3D%20'x'"))
    found = AuditEntry.objects.first()
    assert (found.action, found.target, found.after) == ("message.filter", topic, {"filter": "body = 'x'"})
