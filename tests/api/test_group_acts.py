"""A group over the API: its queues, pace and diagnosis; pause and clone; a client and its report of itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from appliance.commands.remote import show
from appliance.commands.remote.run import parse
from appliance.console.models import AuditEntry
from appliance.engine.window.health import limits
from tests.support.dead_letters import make_group
from tests.support.members import Member

from .conftest import NAMES, answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def group(running) -> str:
    """A topic with ten messages in queue 0 and two in queue 1; the group has read six of the first."""
    name = next(NAMES)
    running.window.topic_commands.create(name, read_queues=2, write_queues=2)
    make_group(running, name)
    running.put(name, *[b"%d" % number for number in range(10)], queue=0)
    running.put(name, b"x", b"y", queue=1)
    running.commit(name, name, 0, 6)
    return name


@pytest.fixture
def member(running, group) -> Iterator[Callable[[str], Member]]:
    opened = []

    def join(client_id: str) -> Member:
        opened.append(Member(running.window.system().broker_address, client_id, group, group))
        return opened[-1]

    yield join
    for one in opened:
        one.close()


def test_its_queues_a_page_at_a_time(by_token, group):
    viewer = by_token("viewer")
    first = answer_of(viewer.get(f"/groups/{group}/queues?limit=1"))
    assert first["total"] == 2
    [row] = first["items"]
    assert (row["queue_id"], row["lag"], row["next_offset"], row["pulled_by"], row["waits"]) == (0, 4, 6, None, False)
    second = answer_of(viewer.get(f"/groups/{group}/queues?limit=1&cursor={first['next_cursor']}"))
    assert [(row["queue_id"], row["lag"]) for row in second["items"]] == [(1, None)]
    assert second["next_cursor"] is None
    assert answer_of(viewer.get(f"/groups/{group}/queues?q=no-such"))["total"] == 0
    problem_of(viewer.get(f"/groups/{group}/queues?sort=colour"), 422, "invalid_input")


def test_its_pace_and_diagnosis(by_token, group):
    viewer = by_token("viewer")
    pace = answer_of(viewer.get(f"/groups/{group}/pace"))
    assert pace["trend"] in ("unknown", "never", "keeps_up")
    assert len(pace["times_at_ms"]) == len(pace["lags"])
    found = answer_of(viewer.get(f"/groups/{group}/diagnosis"))
    [one] = [finding for finding in found["findings"] if finding["kind"] == "no_consumer"]
    assert one["level"] == "act"
    assert one["advice"] == "Start a consumer of the group; it goes on from the committed offsets."
    assert {"name": "lag", "value": 4.0, "unit": "messages"} in one["evidence"]
    assert {look["state"] for look in found["looked"]} == {"found", "clear", "unknown"}
    assert all(look["why"] for look in found["looked"] if look["state"] == "unknown")


def test_a_queue_that_stands_names_its_message_and_how_it_is_skipped(by_token, running, group, member, monkeypatch):
    monkeypatch.setattr(limits, "STUCK_S", 0.0)
    member("one")
    operator = by_token("operator")
    answer = answer_of(operator.get(f"/groups/{group}/diagnosis"))
    [one] = [finding for finding in answer["findings"] if finding["kind"] == "queue_stuck"]
    held = one["message"]
    assert (held["topic"], held["queue_id"], held["offset"], held["last_client"]) == (group, 0, 6, None)
    assert answer_of(operator.get(f"/messages/{held['offset_id']}"))["queue_offset"] == 6
    of_others = by_token("operator", group_pattern=group, topic_pattern="elsewhere-*")
    [hidden] = [one for one in answer_of(of_others.get(f"/groups/{group}/diagnosis"))["findings"]
                if one["kind"] == "queue_stuck"]  # fmt: skip
    assert hidden["message"] is None, "who may not see the topic is not told its messages' ids and keys"
    lines = show.diagnosis(answer)
    assert f"act: {one['sentence']['text']}" in lines
    assert f"  look at it: rocketbox message show {held['offset_id']}" in lines
    [command] = [line.partition(": rocketbox ")[2] for line in lines if "  skip it: " in line]
    noun, *words = shlex.split(command)
    parsed = parse(noun, words)
    assert parsed.body == held["skip"], "the command does what the API does"
    answer_of(operator.ask("POST", parsed.path, parsed.body), 201)
    assert running.window.groups.detail(group).queues[0].committed == 7
    problem_of(operator.ask("POST", parsed.path, parsed.body), 409, "conflict")
    assert running.window.groups.detail(group).queues[0].committed == 7, "it is not another one that is skipped"


def test_pause_and_resume(by_token, running, group):
    operator = by_token("operator")
    assert not answer_of(operator.ask("POST", f"/groups/{group}/pause?dry_run=true"))["applied"]
    assert running.window.groups.detail(group).settings.consume_enable
    change = answer_of(operator.ask("POST", f"/groups/{group}/pause"))
    assert [one["field"] for one in change["differences"]] == ["consume_enable"]
    assert not running.window.groups.detail(group).settings.consume_enable
    answer_of(operator.ask("POST", f"/groups/{group}/resume"))
    assert running.window.groups.detail(group).settings.consume_enable
    assert [one.action for one in AuditEntry.objects.order_by("id")] == ["group.pause", "group.resume"]
    problem_of(operator.ask("POST", "/groups/never-was/pause"), 404, "group_not_found")


def test_a_group_takes_over_offsets_and_settings(by_token, running, group):
    running.window.group_commands.edit(group, retry_max_times=4)
    operator = by_token("operator")
    copy = group + "-b"
    plan = answer_of(operator.post(f"/groups/{group}/clone?dry_run=true", {"target": copy}))
    assert (plan["created"], plan["settings"]["applied"], plan["offsets"]["applied"]) == (True, False, False)
    problem_of(operator.get(f"/groups/{copy}"), 404, "group_not_found")
    done = answer_of(operator.post(f"/groups/{group}/clone", {"target": copy}), 201)
    assert [(move["queue_id"], move["to"]) for move in done["offsets"]["moves"]] == [(0, 6)]
    assert running.window.groups.detail(copy).settings.retry_max_times == 4
    answer = operator.post(f"/groups/{group}/clone", {"target": copy, "offsets": False, "settings": True})
    problem_of(answer, 422, "invalid_input")
    answer_of(
        by_token("admin").post(f"/groups/{group}/clone", {"target": copy, "offsets": False, "settings": True}), 201
    )
    for body in (
        {},
        {"target": group},
        {"target": "x y"},
        {"target": copy, "offsets": False},
        {"target": copy, "z": 1},
    ):
        assert operator.post(f"/groups/{group}/clone", body).status_code in (400, 422), body


def test_a_client_and_what_it_says_of_itself(by_token, group, member):
    one = member(f"member@{group}")
    one.answer |= {"properties": {"PROP_THREADPOOL_CORE_SIZE": "20"}, "jstack": "main: Hung.listener"}
    [row] = answer_of(by_token("viewer").get(f"/clients/member@{group}"))["items"]
    assert (row["client_id"], row["consumer_groups"]) == (f"member@{group}", [group])
    assert row["connected_ms"] >= 0
    operator = by_token("operator")
    path = f"/groups/{group}/clients/member@{group}/running-info"
    found = answer_of(operator.ask("POST", path + "?stack=true"))
    assert (found["stack"], found["properties"]) == ("main: Hung.listener", {"PROP_THREADPOOL_CORE_SIZE": "20"})
    assert answer_of(operator.ask("POST", path))["stack"] is None
    assert [one.after["stack"] for one in AuditEntry.objects.order_by("id")] == [True, False]
    problem_of(by_token("viewer").ask("POST", path), 403, "forbidden")
    problem_of(operator.ask("POST", f"/groups/{group}/clients/never-was/running-info"), 404, "client_not_found")
    problem_of(operator.get("/clients/never-was"), 404, "client_not_found")


@pytest.mark.parametrize("name", ["a/b@{}", "/a//b@{}/", "..%2f{} x?y#z", "~0~1{}", "客户端@{}"])
def test_a_client_of_any_name_has_an_address(by_token, group, member, name):
    name = name.format(group)
    member(name)
    address = f"/clients/{quote(name, safe='')}"
    [row] = answer_of(by_token("viewer").get(address))["items"]
    assert row["client_id"] == name
    assert answer_of(by_token("operator").ask("POST", f"/groups/{group}{address}/running-info"))


def test_a_token_of_some_names_sees_and_asks_no_others(by_token, running, group, member):
    other = next(NAMES)
    make_group(running, other)
    member(f"member@{group}")
    bound = by_token("operator", pattern=other)
    for answer in (
        bound.get(f"/groups/{group}/queues"),
        bound.get(f"/groups/{group}/pace"),
        bound.get(f"/groups/{group}/diagnosis"),
        bound.ask("POST", f"/groups/{group}/pause"),
        bound.ask("POST", f"/groups/{group}/resume"),
        bound.post(f"/groups/{group}/clone", {"target": other}),
        bound.post(f"/groups/{other}/clone", {"target": group}),
        bound.ask("POST", f"/groups/{group}/clients/member@{group}/running-info"),
    ):
        problem_of(answer, 403, "outside_pattern")
    problem_of(bound.get(f"/clients/member@{group}"), 404, "client_not_found")
