"""The system, its settings, its numbers, and the audit log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance import runtime
from appliance.console.audit.log import Actor, record
from appliance.console.models import AuditEntry
from appliance.engine.hotpath import pure
from appliance.engine.hotpath.choice import Choice
from appliance.engine.window.process import system
from tests.support.waiting import wait_for

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db
OPTION = "autoCreateSubscriptionGroup"


def test_system_and_checks(viewer, running):
    system = answer_of(viewer.get("/system"))
    assert system["broker_address"] == running.engine.broker_address
    assert system["namesrvs"] == {running.engine.namesrv_address: True}
    checks = answer_of(viewer.get("/system/checks"))
    assert checks["worst"] in ("ok", "warning")
    store = next(one for one in checks["items"] if one["name"] == "store")
    assert store["sentence"] == {"code": "store_writable", "text": "The message log accepts messages.", "args": {}}


def test_the_system_says_which_twin_of_the_hot_path_runs(viewer, running, monkeypatch):
    def told():
        answer = answer_of(viewer.get("/system"))
        return answer["hot_path"], answer["why_pure"]

    monkeypatch.setattr(system, "CHOICE", Choice(pure))
    assert told() == ("compiled", None)
    monkeypatch.setattr(system, "CHOICE", Choice(pure, "pure_not_loaded", "too old"))
    text = "the compiled part cannot be loaded: too old"
    assert told() == ("pure", {"code": "pure_not_loaded", "text": text, "args": {"error": "too old"}})


def test_the_worst_check_is_told(viewer, running, monkeypatch):
    found = tuple(replace(running.window.checks()[0], name=level, level=level) for level in ("ok", "failed", "warning"))
    monkeypatch.setattr(type(running.window), "checks", lambda _self: found)
    assert answer_of(viewer.get("/system/checks"))["worst"] == "failed"


def test_the_broker_in_numbers(viewer, running, topic):
    def counts_two() -> bool:
        """Not if a message that an earlier test left comes due in between."""
        before = answer_of(viewer.get("/broker"))["put_total"]
        running.put(topic, b"a", b"b")
        return answer_of(viewer.get("/broker"))["put_total"] == before + 2

    wait_for(counts_two, "two messages to count as two")


def test_series(viewer, running, topic):
    running.put(topic, b"a")
    running.sample()
    running.sample()
    series = answer_of(viewer.get("/metrics/series?metric=in_bytes&seconds=60"))
    assert series["unit"] == "bytes/s"
    assert len(series["times_at_ms"]) == len(series["values"]) > 0
    assert answer_of(viewer.get(f"/metrics/series?metric=in&topic={topic}"))["unit"] == "messages/s"
    problem_of(viewer.get(f"/metrics/series?metric=in_bytes&topic={topic}"), 422, "invalid_input")
    problem_of(viewer.get("/metrics/series?metric=in&topic=NoSuchTopic"), 404, "topic_not_found")
    problem_of(viewer.get("/metrics/series?metric=love"), 422, "invalid_input")
    problem_of(viewer.get("/metrics/series"), 422, "invalid_input")


def test_the_history_of_a_figure_of_the_broker_a_topic_and_a_group(viewer, running, topic, recorded):
    running.put(topic, b"a", b"b", b"c")
    running.window.group_commands.create(f"g-{topic}")
    running.sample()
    running.sample()
    recorded()
    names = {one["name"]: one for one in answer_of(viewer.get("/metrics"))}
    assert names["group_lag"] == {"name": "group_lag", "of": "group", "unit": "messages"}
    series = answer_of(viewer.get(f"/metrics/series?metric=topic_messages&topic={topic}&seconds=60&step=30"))
    assert series["step_ms"] == 30_000
    assert [value for value in series["values"] if value is not None] == [3]
    assert len(series["times_at_ms"]) == len(series["values"]) == len(series["lows"]) == len(series["highs"]) >= 2
    # The group has committed nothing, so its lag is unknown.
    lag = answer_of(viewer.get(f"/metrics/series?metric=group_lag&group=g-{topic}&seconds=60"))
    assert set(lag["values"]) == {None}
    # The last step may have begun since the recording.
    assert any(value is not None for value in answer_of(viewer.get("/metrics/series?metric=connections"))["values"])
    year = answer_of(viewer.get(f"/metrics/series?metric=lag&from=1&to={series['times_at_ms'][-1]}&points=50"))
    assert len(year["values"]) <= 51
    for wrong in ("metric=love", "metric=group_lag", f"metric=group_lag&topic={topic}", f"metric=lag&topic={topic}",
                  "metric=lag&from=5&to=4", "metric=lag&step=31", "metric=lag&step=30&from=1"):  # fmt: skip
        problem_of(viewer.get(f"/metrics/series?{wrong}"), 422, "invalid_input")
    problem_of(viewer.get("/metrics/series?metric=topic_messages&topic=NoSuchTopic"), 404, "topic_not_found")
    problem_of(viewer.get("/metrics/series?metric=group_lag&group=NoSuchGroup"), 404, "group_not_found")


def value_of(caller) -> str:
    options = answer_of(caller.get("/system/config"))["options"]
    return next(one["value"] for one in options if one["name"] == OPTION)


def test_a_hot_option_is_changed_by_revision_and_taken_back(admin, viewer):
    read = viewer.get("/system/config")
    etag = read.headers["ETag"]
    assert answer_of(read)["revision"] == etag.strip('"')
    assert value_of(viewer) == "true"
    preview = answer_of(admin.patch("/system/config?dry_run=true", {OPTION: False}))
    assert preview["differences"] == [{"field": OPTION, "before": "true", "after": "false"}]
    assert value_of(viewer) == "true"
    assert not AuditEntry.objects.exists()
    answer_of(admin.patch("/system/config", {OPTION: "false"}, if_match=etag))
    assert value_of(viewer) == "false"
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == ("config.change", {OPTION: "true"}, {OPTION: "false"})
    problem_of(admin.patch("/system/config", {OPTION: True}, if_match=etag), 412, "revision_mismatch")
    answer_of(admin.patch("/system/config", {OPTION: None}))
    assert value_of(viewer) == "true"


def test_all_or_none_of_the_options_are_changed(admin, viewer):
    problem = problem_of(admin.patch("/system/config", {OPTION: False, "brokerName": "x"}), 422, "invalid_input")
    assert problem["errors"][0]["field"] == "brokerName"
    problem_of(admin.patch("/system/config", {OPTION: False, "noSuchOption": 1}), 404, "option_not_found")
    problem_of(admin.patch("/system/config", {OPTION: "maybe"}), 422, "invalid_input")
    problem_of(admin.patch("/system/config", {OPTION: [False]}), 422, "invalid_input")
    problem_of(admin.patch("/system/config", "text"), 422, "invalid_input")
    assert value_of(viewer) == "true"


def test_settings_are_for_administrators(operator, viewer):
    problem_of(operator.patch("/system/config", {OPTION: False}), 403, "forbidden")
    assert value_of(viewer) == "true"


def test_without_an_engine_it_says_so(viewer):
    runtime.set_running(None)
    response = viewer.get("/system")
    problem_of(response, 503, "engine_not_running")


def test_a_mistake_of_ours_is_a_problem_without_its_details(viewer, running, monkeypatch, caplog):
    def broken(_self):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(type(running.window), "system", broken)
    problem = problem_of(viewer.get("/system"), 500, "internal")
    assert "secret" not in str(problem)
    assert problem["request_id"] in caplog.text
    assert "a secret of the inside" in caplog.text


# --- audit


def test_the_audit_log_newest_first_in_pages_and_by_filter(admin, operator):
    problem_of(operator.get("/audit"), 403, "forbidden")
    for number in range(5):
        record("topic.create", f"T{number}", by=Actor("someone", "user"), before={"a": 1}, after={"a": 2})
    record("topic.delete", "T0", by=Actor("another", "token"), result="refused")
    first = answer_of(admin.get("/audit?limit=2&action=topic.create"))
    record("topic.create", "later", by=Actor("someone", "user"))
    assert [row["target"] for row in first["items"]] == ["T4", "T3"]
    assert (first["items"][0]["before"], first["items"][0]["after"]) == ({"a": 1}, {"a": 2})
    second = answer_of(admin.get(f"/audit?limit=2&action=topic.create&cursor={first['next_cursor']}"))
    assert [row["target"] for row in second["items"]] == ["T2", "T1"]
    problem_of(admin.get(f"/audit?limit=2&cursor={first['next_cursor']}"), 422, "invalid_input")
    assert [row["target"] for row in answer_of(admin.get("/audit?result=refused"))["items"]] == ["T0"]
    at_ms = first["items"][0]["at_ms"]
    assert answer_of(admin.get(f"/audit?to={at_ms - 60_000}"))["items"] == []
    assert len(answer_of(admin.get(f"/audit?from={at_ms - 60_000}&actor=another"))["items"]) == 1
    assert len(answer_of(admin.get("/audit?q=NOTHE"))["items"]) == 1
    assert len(answer_of(admin.get("/audit?q=c.CREAT&limit=500"))["items"]) == len(
        answer_of(admin.get("/audit?action=topic.create&limit=500"))["items"]
    )


def test_what_is_kept(viewer, admin, running, topic):
    kept = answer_of(viewer.get("/system/retention"))
    assert (kept["reserved_hours"], kept["delete_when"], kept["refusing"]) == (72, "04", None)
    answer_of(admin.patch(f"/topics/{topic}", {"reserve_hours": 12}))
    assert answer_of(viewer.get("/system/retention"))["topic_hours"][topic] == 12


def test_what_has_expired_is_deleted_on_request(operator, admin, running):
    problem_of(operator.post("/system/retention/clean?what=log", None), 403, "forbidden")
    assert answer_of(admin.post("/system/retention/clean?what=topics", None))["what"] == "topics"
    entry = AuditEntry.objects.first()
    assert (entry.action, entry.target, entry.after) == ("system.clean", "topics", {"topics": 0})
    problem_of(admin.post("/system/retention/clean?what=everything", None), 422, "invalid_input")


def test_a_token_that_may_not_read_bodies_does_not_switch_access_control(by_token, viewer):
    """Without access control every client may read all messages."""
    some, all_rights = by_token("admin"), by_token("admin", "may_read_bodies")
    for address in ("/system/config", "/system/config?dry_run=true"):
        problem_of(some.patch(address, {"accessControl": "report"}), 403, "exceeds_caller")
        problem = problem_of(all_rights.patch(address, {"accessControl": "report"}), 422, "invalid_input")
        assert problem["errors"][0]["field"] == "accessControl", "it is off here"
    answer_of(some.patch("/system/config?dry_run=true", {OPTION: False}))
