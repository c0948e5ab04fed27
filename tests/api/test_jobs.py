"""Jobs over the API: started with 202 and a location, watched, cancelled, fetched; one key starts one job."""

from __future__ import annotations

import pytest

from appliance.console import jobs
from appliance.console.jobs import registry, runner
from appliance.console.models import AuditEntry, now_ms
from appliance.console.users.roles import OPERATOR, VIEWER
from tests.console.test_jobs import streamed

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def exporting():
    @jobs.kind("try", title="Try", start=OPERATOR, fetch=VIEWER)
    def run(work: jobs.Work) -> None:
        work.file("f.txt").write_bytes(b"hello")
        work.progress(1, 1, "files", written=1)

    yield
    del registry._kinds["try"]


def put(*names: str) -> jobs.Job:
    job = jobs.Job(jobs.new_id(), "try", "somebody", "user", now_ms(), {}, names=list(names))
    jobs.board().add(job)
    return job


def test_a_check_of_the_audit_log_from_202_to_its_result(admin):
    answer = admin.ask("POST", "/audit/checks")
    started = answer_of(answer, 202)
    assert answer.headers["Location"] == f"/api/v1/jobs/{started['id']}"
    assert (started["state"], started["kind"]) == ("waiting", "audit-check")
    problem_of(admin.ask("POST", "/audit/checks"), 409, "conflict")
    runner.run_waiting()
    ended = answer_of(admin.get(f"/jobs/{started['id']}"))
    assert (ended["state"], ended["result"]["intact"]) == ("done", True)
    assert ended["started_at_ms"] <= ended["ended_at_ms"]
    problem_of(admin.ask("POST", f"/jobs/{started['id']}/cancel"), 409, "conflict")


def test_the_same_key_starts_one_job_and_says_where_it_is_again(admin):
    first = admin.ask("POST", "/audit/checks", Idempotency_Key="k1")
    again = admin.ask("POST", "/audit/checks", Idempotency_Key="k1")
    assert answer_of(again, 202) == answer_of(first, 202)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(jobs.board().jobs()) == 1


def test_the_list_by_kind_and_state_in_pages(viewer):
    made = [put().id for _ in range(5)]
    runner.run_waiting()
    made.append(put().id)
    page = answer_of(viewer.get("/jobs?limit=4"))
    rest = answer_of(viewer.get(f"/jobs?limit=4&cursor={page['next_cursor']}"))
    assert sorted(job["id"] for job in page["items"] + rest["items"]) == sorted(made)
    assert (page["total"], rest["next_cursor"]) == (6, None)
    assert [job["id"] for job in answer_of(viewer.get("/jobs?state=waiting"))["items"]] == made[-1:]
    assert answer_of(viewer.get("/jobs?kind=audit-check"))["items"] == []
    problem_of(viewer.get("/jobs?state=asleep"), 422, "invalid_input")


def test_a_file_is_fetched_and_another_is_not(viewer):
    job = put()
    problem_of(viewer.get(f"/jobs/{job.id}/files/f.txt"), 404, "not_found")
    runner.run_waiting()
    assert answer_of(viewer.get(f"/jobs/{job.id}"))["files"] == [{"name": "f.txt", "bytes": 5}]
    answer = viewer.get(f"/jobs/{job.id}/files/f.txt")
    assert streamed(answer) == b"hello"
    assert AuditEntry.objects.filter(action="job.download", target=job.id).count() == 1
    for name in ("job.json", "..", "%2e%2e%2fjob.json", "x" * 300):
        problem_of(viewer.get(f"/jobs/{job.id}/files/{name}"), 404, "not_found")


def test_cancelling_is_for_who_may_start_it(by_token):
    job = put()
    problem_of(by_token("viewer").ask("POST", f"/jobs/{job.id}/cancel"), 404, "job_not_found")
    assert answer_of(by_token("operator").ask("POST", f"/jobs/{job.id}/cancel"))["state"] == "cancelled"


def test_a_token_of_some_names_sees_jobs_about_those_only(by_token):
    mine, both, whole = put("a-1"), put("a-1", "b-1"), put()
    caller = by_token("operator", pattern="a-*")
    assert [job["id"] for job in answer_of(caller.get("/jobs"))["items"]] == [mine.id]
    answer_of(caller.get(f"/jobs/{mine.id}"))
    for other in (both, whole):
        problem_of(caller.get(f"/jobs/{other.id}"), 404, "job_not_found")
        problem_of(caller.ask("POST", f"/jobs/{other.id}/cancel"), 404, "job_not_found")
    problem_of(by_token("admin", pattern="a-*").ask("POST", "/audit/checks"), 403, "outside_pattern")
