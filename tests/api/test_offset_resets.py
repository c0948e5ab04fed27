"""Offset resets over the API: a dry run, the reset, its progress, its undo, and resets that a token may not make."""

from __future__ import annotations

import pytest

from appliance.console.models import AuditEntry
from tests.support.dead_letters import make_group

from .conftest import NAMES, answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def group(running) -> str:
    """A topic of four queues with ten messages in queue 0; the group has read six."""
    name = next(NAMES)
    running.window.topic_commands.create(name, read_queues=4, write_queues=4)
    make_group(running, name)
    running.put(name, *[b"%d" % number for number in range(10)], queue=0)
    running.commit(name, name, 0, 6)
    return name


def test_a_dry_run_the_act_where_it_stands_and_back(by_token, group):
    operator = by_token("operator")
    body = {"topics": [group], "queues": [0], "to": "offset", "offset": 2}
    preview = operator.post(f"/groups/{group}/offset-resets?dry_run=true", body)
    plan = answer_of(preview)
    [move] = plan["moves"]
    assert (move["before"], move["to"], move["replays"], move["first_offset"], move["state"]) == (6, 2, 4, 2, "")
    assert (plan["id"], plan["applied"], plan["kind"]) == (None, False, "reset")
    assert move["first_at_ms"] > 1_600_000_000_000
    assert not AuditEntry.objects.exists()
    revision = preview.headers["ETag"]
    made = operator.ask("POST", f"/groups/{group}/offset-resets", body, if_match=revision)
    done = answer_of(made, 201)
    assert made.headers["Location"] == f"/api/v1/groups/{group}/offset-resets/{done['id']}"
    found = answer_of(operator.get(f"/groups/{group}/offset-resets/{done['id']}"))
    assert (found["states"], found["finished"], found["moves"][0]["now"]) == ({"waiting": 1}, False, 2)
    stale = operator.ask("POST", f"/groups/{group}/offset-resets", body, if_match=revision)
    problem_of(stale, 412, "revision_mismatch")
    [row] = answer_of(operator.get(f"/groups/{group}/offset-resets"))["items"]
    assert (row["id"], row["replays"], row["asked"]) == (done["id"], 4, "offsets")
    undo = f"/groups/{group}/offset-resets/{done['id']}/undo"
    assert answer_of(operator.ask("POST", undo + "?dry_run=true"))["moves"][0]["skips"] == 4
    back = answer_of(operator.ask("POST", undo), 201)
    assert (back["kind"], back["moves"][0]["to"]) == ("undo", 6)
    problem_of(operator.ask("POST", undo), 409, "conflict")
    assert [one.action for one in AuditEntry.objects.order_by("id")] == ["group.reset", "group.undo_reset"]


def test_a_skip_that_comes_late_is_refused(by_token, running, group):
    body = {"topics": [group], "queues": [0], "to": "skip", "offset": 6}
    operator = by_token("operator")
    preview = operator.post(f"/groups/{group}/offset-resets?dry_run=true", body)
    assert [(move["before"], move["to"]) for move in answer_of(preview)["moves"]] == [(6, 7)]
    running.commit(group, group, 0, 9)
    late = operator.post(f"/groups/{group}/offset-resets", body)
    assert "it is at 9, behind that message" in problem_of(late, 409, "conflict")["detail"]
    late = operator.ask("POST", f"/groups/{group}/offset-resets", body, if_match=preview.headers["ETag"])
    assert "it is at 9, behind that message" in problem_of(late, 412, "revision_mismatch")["detail"]
    assert running.window.offsets.of_group(group) == ()


def test_all_topics_of_the_group_when_none_is_named(by_token, running, group):
    other = next(NAMES)
    running.window.topic_commands.create(other, read_queues=1, write_queues=1)
    running.put(other, b"x", queue=0)
    running.commit(group, other, 0, 0)
    done = answer_of(by_token("operator").post(f"/groups/{group}/offset-resets", {"to": "latest"}), 201)
    assert {(move["topic"], move["queue_id"]): move["to"] for move in done["moves"]} == {
        (group, 0): 10, (group, 1): 0, (group, 2): 0, (group, 3): 0, (other, 0): 1
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {}, {"to": "moon"}, {"to": "time"}, {"to": "shift"}, {"to": "offset", "offset": 1},
        {"to": "offset", "queues": [0]}, {"to": "time", "at_ms": -1}, {"to": "time", "at_ms": 1 << 63},
        {"to": "shift", "by": 0}, {"to": "shift", "by": 1 << 62}, {"to": "latest", "queues": []},
        {"to": "latest", "topics": []}, {"to": "latest", "queues": [99]}, {"to": "latest", "queues": [-1]},
        {"to": "offset", "queues": [0], "offset": 11}, {"to": "latest", "topics": ["no-such"]},
        {"to": "latest", "colour": "red"}, {"to": "latest", "topics": ["\x00"]}, {"to": "latest", "at_ms": 1000},
        {"to": "earliest", "by": -5}, {"to": "time", "at_ms": 1000, "offset": 3}, {"to": "shift", "by": 1, "at_ms": 0},
        {"to": "skip", "queues": [0], "offset": 0, "by": 2},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(by_token, running, group, body):
    for query in ("?dry_run=true", ""):
        answer = by_token("operator").post(f"/groups/{group}/offset-resets{query}", body)
        assert answer.status_code in (400, 404, 422), answer.content
    assert running.window.offsets.of_group(group) == ()


def test_a_token_of_some_names_moves_no_others(by_token, running, group):
    other = next(NAMES)
    make_group(running, other)
    running.put(other, b"x")
    done = running.window.offset_commands.reset(other, other, running.window.offset_target("latest"))
    bound = by_token("operator", pattern=group)
    for answer in (
        bound.post(f"/groups/{other}/offset-resets", {"to": "latest"}),
        bound.post(f"/groups/{group}/offset-resets", {"to": "latest", "topics": [other]}),
        bound.get(f"/groups/{other}/offset-resets"),
        bound.get(f"/groups/{other}/offset-resets/{done.id}"),
        bound.ask("POST", f"/groups/{other}/offset-resets/{done.id}/undo"),
    ):
        problem_of(answer, 403, "outside_pattern")
    for path in (f"/groups/{group}/offset-resets/{done.id}", f"/groups/{group}/offset-resets/{'9' * 60}"):
        assert bound.get(path).status_code == 404
    viewer = by_token("viewer")
    problem_of(viewer.post(f"/groups/{group}/offset-resets", {"to": "latest"}), 403, "forbidden")
    problem_of(viewer.ask("POST", f"/groups/{other}/offset-resets/{done.id}/undo"), 403, "forbidden")


def test_topics_that_are_not_named_must_be_within_the_pattern_too(by_token, running, group):
    bound = by_token("operator", group_pattern=group, topic_pattern="elsewhere-*")
    done = running.window.offset_commands.reset(group, group, running.window.offset_target("latest"))
    for answer in (
        bound.post(f"/groups/{group}/offset-resets", {"to": "latest"}),
        bound.ask("POST", f"/groups/{group}/offset-resets/{done.id}/undo"),
        bound.post(f"/groups/{group}/clone", {"target": group}),
    ):
        assert answer.status_code in (403, 422), answer.content
    problem_of(bound.post(f"/groups/{group}/offset-resets", {"to": "latest"}), 403, "outside_pattern")
    problem_of(bound.ask("POST", f"/groups/{group}/offset-resets/{done.id}/undo"), 403, "outside_pattern")
    assert len(running.window.offsets.of_group(group)) == 1
