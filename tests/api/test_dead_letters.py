"""Dead letters and replays by program: lists, a dry run, a job to its end, and what a token may not see."""

from __future__ import annotations

import pytest

from appliance.console.jobs.runner import run_waiting
from appliance.console.models import AuditEntry
from tests.support.dead_letters import copies, make_group, put_dead_letters
from tests.support.engine import send_fields
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


def test_paused_resumed_cancelled(by_token, running, group):
    put_dead_letters(running, group, 100)  # it lasts, however slow this is
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
    put_dead_letters(running, other, 100)
    put_dead_letters(running, group, 100)
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
    running.window.group_commands.delete(group)
    operator = by_token("operator")
    problem_of(operator.post(f"/groups/{group}/replays?dry_run=true", {}), 404, "group_not_found")
    assert answer_of(operator.post(f"/groups/{group}/replays?dry_run=true", {"target": "original"}))["total"] == 7
    [row] = answer_of(operator.get(f"/dead-letters?q={group}"))["items"]
    assert not row["known"]


# --- filters, the summary, what expires, retries


def test_a_filter_finds_and_replays_the_same(by_token, running, group):
    put_dead_letters(running, group, 3, first=7, RETRY_TOPIC="Refunds")
    operator = by_token("operator")
    page = answer_of(operator.get(f"/groups/{group}/dead-letters?origin_topic=Refunds"))
    assert [one["message"]["queue_offset"] for one in page["items"]] == [9, 8, 7]
    assert (page["seen"], page["total"]) == (10, 10)
    assert len(answer_of(operator.get(f"/groups/{group}/dead-letters?key=k8"))["items"]) == 1
    assert answer_of(operator.get(f"/groups/{group}/dead-letters?retries=3"))["items"] == []
    body = {"filter": {"topic": "Refunds", "replayed": "no"}, "rate": 1000}
    plan = answer_of(operator.post(f"/groups/{group}/replays?dry_run=true", body))
    assert (plan["total"], plan["not_chosen"], plan["by_topic"]) == (10, 7, [{"topic": "Refunds", "count": 3}])
    job = answer_of(operator.post(f"/groups/{group}/replays", body), 202)["job"]["id"]
    wait_for(lambda: answer_of(operator.get(f"/replays/{job}"))["state"] == "done", "the end of the replay")
    done = answer_of(operator.get(f"/replays/{job}"))
    assert (done["replayed"], done["not_chosen"], done["filter"]["topic"]) == (3, 7, "Refunds")
    rows = answer_of(operator.get(f"/replays/{job}/results?result=chosen"))["items"]
    assert [(row["queue_offset"], row["result"], row["died_again"]) for row in rows] == [
        (7, "replayed", False), (8, "replayed", False), (9, "replayed", False)
    ]  # fmt: skip
    assert len(answer_of(operator.get(f"/groups/{group}/dead-letters?replayed=yes"))["items"]) == 3
    for wrong in ("replayed=maybe", "retries=x", "retries=-1", "key="):
        assert operator.get(f"/groups/{group}/dead-letters?{wrong}").status_code in (400, 422), wrong


def test_the_summary_and_what_expires(by_token, group):
    viewer = by_token("viewer")
    found = answer_of(viewer.get(f"/groups/{group}/dead-letters/summary"))
    assert (found["total"], found["counted"], found["messages"], found["again"]) == (7, 7, 7, 0)
    assert sum(cell["count"] for cell in found["cells"]) == 7
    assert {(cell["topic"], cell["retries"]) for cell in found["cells"]} == {("Orders", 17)}
    assert answer_of(viewer.get("/dead-letters/expiring"))["within_ms"] == 24 * 3_600_000
    assert viewer.get("/dead-letters/expiring?hours=0").status_code == 422


def send_back(running, group, count: int, level: int = 15) -> None:
    """Let a consumer of the group receive `count` messages and send them back."""
    running.window.topic_commands.create(f"{group}-sent", read_queues=1, write_queues=1)
    peer = running.peer()
    for number in range(count):
        fields = send_fields(f"{group}-sent", 0, f"UNIQ_KEY\x01AB{number:030X}\x02")
        offset = int(peer.ask(310, fields, b"x").ext_fields["msgId"][-16:], 16)
        fields = {
            "offset": offset, "group": group, "delayLevel": level, "originMsgId": "x", "originTopic": f"{group}-sent",
            "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        assert peer.ask(36, fields).code == 0


def test_retries_wait_and_are_handled(by_token, running, group):
    send_back(running, group, 5)
    operator = by_token("operator")
    ladder = answer_of(operator.get(f"/groups/{group}/retries"))
    [rung] = [rung for rung in ladder["rungs"] if rung["waiting"]]
    assert (rung["level"], rung["waiting"], ladder["waiting"], ladder["max_retries"]) == (15, 5, 5, 16)
    assert ladder["by_topic"] == [{"topic": f"{group}-sent", "count": 5}]
    rows = answer_of(operator.get(f"/delayed?group={group}"))["items"]
    place = {name: rows[0][name] for name in ("level", "queue_offset", "unique_id")}
    acts = f"/groups/{group}/retries/acts"
    plan = answer_of(operator.post(f"{acts}?dry_run=true", {"action": "drop", "places": [place]}))
    assert (plan["done"], plan["counts"]) == (0, {"possible": 1})
    assert answer_of(operator.post(acts, {"action": "drop", "places": [place]}))["done"] == 1
    problem_of(operator.post(acts, {"action": "drop", "places": [place]}), 409, "conflict")
    assert answer_of(operator.post(acts, {"action": "deliver_now", "level": 15, "limit": 2}))["done"] == 2
    assert answer_of(operator.post(acts, {"action": "to_dead_letters"}))["done"] == 2
    assert answer_of(operator.get(f"/groups/{group}/retries"))["waiting"] == 0
    assert [entry.action for entry in AuditEntry.objects.order_by("id") if entry.result == "done"] == [
        "retry.drop", "retry.deliver_now", "retry.to_dead_letters"
    ]  # fmt: skip
    for body in (
        {"action": "explode"},
        {"action": "drop", "places": []},
        {"action": "drop", "places": [place], "level": 3},
    ):
        assert operator.post(acts, body).status_code in (400, 422), body


def test_a_token_of_some_names_handles_no_retries_of_others(by_token, running, group):
    other = next(NAMES)
    make_group(running, other)
    send_back(running, other, 1)
    [row] = answer_of(by_token("operator").get(f"/delayed?group={other}"))["items"]
    place = {name: row[name] for name in ("level", "queue_offset", "unique_id")}
    bound = by_token("operator", pattern=group)
    assert bound.get(f"/groups/{other}/retries").status_code == 403
    assert bound.get(f"/groups/{other}/dead-letters/summary").status_code == 403
    assert bound.post(f"/groups/{other}/retries/acts", {"action": "drop"}).status_code == 403
    answer = bound.post(f"/groups/{group}/retries/acts", {"action": "drop", "places": [place]})
    assert answer.status_code in (400, 422), "not by the name of another group either"
    assert running.window.waiting.ladder(other).waiting == 1
    running.window.waiting_commands.run("drop", group=other)  # other tests count waiting messages


def test_who_acts_on_a_replay_may_access_where_it_goes(by_token, running, group):
    target = next(NAMES)
    running.window.topic_commands.create(target, read_queues=1, write_queues=1)
    put_dead_letters(running, group, 100)
    body = {"rate": 1, "target": "topic", "topic": target}
    job = answer_of(by_token("operator").post(f"/groups/{group}/replays", body), 202)["job"]["id"]
    bound = by_token("operator", pattern=group)
    assert answer_of(bound.get(f"/replays/{job}"))["state"] == "running", "seeing it needs its group only"
    for act in ("pause", "resume", "cancel"):
        assert bound.ask("POST", f"/replays/{job}/{act}").status_code == 403, act
    assert answer_of(by_token("operator").ask("POST", f"/replays/{job}/cancel"))["state"] == "cancelled"


def test_an_archive_by_program(by_token, group):
    exporter = by_token("viewer", "may_read_bodies", "may_export")
    path = f"/groups/{group}/dead-letters/archives"
    job = answer_of(exporter.post(path, {"filter": {"key": "k3"}}), 202)
    assert (job["kind"], job["state"]) == ("dead-letter-archive", "waiting")
    assert run_waiting() == 1
    assert answer_of(exporter.get(f"/jobs/{job['id']}"))["counts"] == {"archived": 1, "left_out": 6, "unreadable": 0}
    problem_of(by_token("operator").post(path, {}), 403, "forbidden")
    assert exporter.post(path, {"offsets": [[0, 1]], "from_ms": 1}).status_code == 422
    assert by_token("viewer", "may_read_bodies", "may_export", pattern="other-*").post(path, {}).status_code == 403
