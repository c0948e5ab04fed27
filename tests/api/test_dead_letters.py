"""Dead letters and replays by program: lists, a dry run, a job to its end, and what a token may not see."""

from __future__ import annotations

import pytest

from appliance.console.models import AuditEntry
from tests.support.dead_letters import copies, make_group, put_dead_letters
from tests.support.waiting import wait_for

from .conftest import NAMES, answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def group(running) -> str:
    name = next(NAMES)
    make_group(running, name)
    put_dead_letters(running, name, 7)
    return name


def test_the_groups_and_their_dead_letters(by_token, group):
    viewer = by_token("viewer")
    [row] = answer_of(viewer.get(f"/dead-letters?q={group}"))["items"]
    assert (row["group"], row["known"], row["count"], row["job"]) == (group, True, 7, None)
    assert row["oldest_at_ms"] <= row["newest_at_ms"] < row["expires_not_before_at_ms"]
    page = answer_of(viewer.get(f"/groups/{group}/dead-letters?limit=3"))
    assert [one["message"]["queue_offset"] for one in page["items"]] == [6, 5, 4]
    assert page["items"][0]["origin_topic"] == "Orders"
    rest = answer_of(viewer.get(f"/groups/{group}/dead-letters?limit=500&cursor={page['next_cursor']}"))
    assert [one["message"]["queue_offset"] for one in rest["items"]] == [3, 2, 1, 0]


def test_a_dry_run_starts_nothing(by_token, group):
    plan = answer_of(by_token("operator").post(f"/groups/{group}/replays?dry_run=true", {}))
    assert (plan["total"], plan["scanned"], plan["job"]) == (7, 7, None)
    assert plan["by_topic"] == [{"topic": "Orders", "count": 7}]
    assert answer_of(by_token("viewer").get(f"/replays?group={group}"))["items"] == []
    assert not AuditEntry.objects.exists()


def test_a_replay_to_its_end(by_token, running, group):
    operator = by_token("operator")
    body = {"offsets": [[0, 1], [0, 2], [0, 5]], "rate": 1000}
    started = operator.post(f"/groups/{group}/replays", body)
    job = answer_of(started, 202)["job"]["id"]
    assert started.headers["Location"] == f"/api/v1/replays/{job}"
    wait_for(lambda: answer_of(operator.get(f"/replays/{job}"))["state"] == "done", "the end of the replay")
    found = answer_of(operator.get(f"/replays/{job}/results?limit=2"))
    assert [(row["queue_offset"], row["result"]) for row in found["items"]] == [(1, "replayed"), (2, "replayed")]
    assert len(copies(running, f"%RETRY%{group}")) == 3
    [row] = answer_of(operator.get(f"/replays?group={group}"))["items"]
    assert (row["id"], row["replayed"], row["not_reached"]) == (job, 3, 0)
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.after["messages"]) == ("replay.start", group, 3)


def test_paused_resumed_cancelled(by_token, group):
    operator = by_token("operator")
    job = answer_of(operator.post(f"/groups/{group}/replays", {"rate": 1}), 202)["job"]["id"]
    problem_of(operator.post(f"/groups/{group}/replays", {}), 409, "conflict")
    assert answer_of(operator.ask("POST", f"/replays/{job}/pause"))["state"] == "paused"
    problem_of(operator.ask("POST", f"/replays/{job}/pause"), 409, "conflict")
    assert answer_of(operator.ask("POST", f"/replays/{job}/resume"))["state"] == "running"
    assert answer_of(operator.ask("POST", f"/replays/{job}/cancel"))["state"] == "cancelled"
    problem_of(by_token("viewer").ask("POST", f"/replays/{job}/cancel"), 403, "forbidden")


@pytest.mark.parametrize(
    "body",
    [
        {"rate": 0}, {"target": "nowhere"}, {"offsets": []}, {"offsets": [[0]]}, {"offsets": [[0, 99]]},
        {"target": "topic"}, {"from_ms": 5, "to_ms": 4}, {"offsets": [[0, 1]], "from_ms": 1}, {"colour": "red"},
        {"from_ms": 1, "to_ms": 2},
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_said(by_token, group, body):
    response = by_token("operator").post(f"/groups/{group}/replays", body)
    assert response.status_code in (400, 422), response.content
    assert response.json()["detail"]


def test_a_token_of_some_names_sees_and_sends_no_others(by_token, running, group):
    other = next(NAMES)
    make_group(running, other)
    put_dead_letters(running, other, 2)
    job = answer_of(by_token("operator").post(f"/groups/{other}/replays", {"rate": 1}), 202)["job"]["id"]
    bound = by_token("operator", pattern=group)
    assert [row["group"] for row in answer_of(bound.get("/dead-letters"))["items"]] == [group]
    assert answer_of(bound.get("/replays"))["items"] == []
    for response in (
        bound.get(f"/groups/{other}/dead-letters"),
        bound.get(f"/replays/{job}"),
        bound.get(f"/replays/{job}/results"),
        bound.ask("POST", f"/replays/{job}/cancel"),
        bound.post(f"/groups/{group}/replays", {"target": "topic", "topic": "Orders"}),
        bound.post(f"/groups/{group}/replays", {"target": "original"}),
    ):
        assert response.status_code == 403, response.content


@pytest.mark.parametrize(
    "body",
    [
        {"from_ms": 1 << 63}, {"to_ms": 1 << 70}, {"offsets": [[1 << 62, 0]]}, {"offsets": [[0, (1 << 63) - 1]]},
        {"offsets": [[0, 1 << 63]]}, {"offsets": [[0, 1]] * 10_001}, {"rate": 1 << 70},
        {"target": "group", "topic": "Orders"},
        {"target": "topic", "topic": "x" * 127}, {"target": "topic", "topic": "\x00"},
        {"target": "topic", "topic": "%DLQ%x"},
    ],
)  # fmt: skip
def test_what_lies_beyond_all_bounds_is_refused(by_token, group, body):
    response = by_token("operator").post(f"/groups/{group}/replays?dry_run=true", body)
    assert response.status_code in (400, 404, 422), response.content
    assert response.json()["detail"]


def test_a_cursor_and_a_time_of_another_list_are_refused(by_token, running, group):
    other = next(NAMES)
    make_group(running, other)
    put_dead_letters(running, other, 4)
    operator = by_token("operator")
    cursor = answer_of(operator.get(f"/groups/{other}/dead-letters?limit=1"))["next_cursor"]
    for path in (
        f"/groups/{group}/dead-letters?cursor={cursor}", f"/groups/{group}/dead-letters?cursor=%00",
        f"/groups/{group}/dead-letters?from={1 << 63}", f"/groups/{group}/dead-letters?to={1 << 90}",
        f"/dead-letters?cursor={cursor}",
    ):  # fmt: skip
        assert operator.get(path).status_code in (400, 422), path
    jobs = [
        answer_of(operator.post(f"/groups/{name}/replays", {"rate": 1}), 202)["job"]["id"] for name in (group, other)
    ]
    cursor = answer_of(operator.get(f"/replays/{jobs[0]}/results?limit=1"))["next_cursor"]
    assert operator.get(f"/replays/{jobs[1]}/results?cursor={cursor}").status_code in (400, 422)
    for job in jobs:
        assert operator.ask("POST", f"/replays/{job}/cancel").status_code == 200
    for job in ("no-such", "0" * 500, "%2e%2e", "%00", jobs[0].upper() + "x"):
        assert operator.get(f"/replays/{job}").status_code == 404, job
        assert operator.get(f"/replays/{job}/results").status_code == 404, job
        assert operator.ask("POST", f"/replays/{job}/resume").status_code == 404, job


def test_the_dead_letters_of_a_deleted_group_go_elsewhere_only(by_token, running, group):
    running.window.delete_group(group)
    operator = by_token("operator")
    problem_of(operator.post(f"/groups/{group}/replays?dry_run=true", {}), 404, "group_not_found")
    assert answer_of(operator.post(f"/groups/{group}/replays?dry_run=true", {"target": "original"}))["total"] == 7
    [row] = answer_of(operator.get(f"/dead-letters?q={group}"))["items"]
    assert not row["known"]
