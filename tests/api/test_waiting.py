"""Messages that wait and transactions through the API."""

from __future__ import annotations

import time

import pytest

from appliance.console.models import AuditEntry
from tests.support.halves import set_aside
from tests.support.waiting import wait_for

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(running, topic) -> str:
    """A topic with three waiting messages, one of them a timer message."""
    window = running.window
    for number, how in enumerate(({"delay_level": 17}, {"delay_level": 18})):
        window.sender.send(topic, b"x", keys=[f"w{number}"], **how)
    window.sender.send(topic, b"x", keys=["w2"], deliver_at_ms=int(time.time() * 1000) + 3_600_000)
    wait_for(lambda: len(window.waiting.page(topic=topic).rows) == 3, "three messages that wait")
    return topic


def test_listed_counted_and_acted_on(by_token, waiting):
    operator = by_token("operator")
    page = answer_of(operator.get(f"/delayed?topic={waiting}"))
    assert [row["keys"] for row in page["items"]] == [["w2"], ["w0"], ["w1"]] or len(page["items"]) == 3
    assert page["pending"] >= 3
    first = answer_of(operator.get(f"/delayed?topic={waiting}&limit=2"))
    rest = answer_of(operator.get(f"/delayed?topic={waiting}&limit=2&cursor={first['next_cursor']}"))
    assert len(first["items"]) + len(rest["items"]) == 3
    counts = answer_of(operator.get(f"/delayed/histogram?topic={waiting}&bucket_ms=3600000&buckets=24"))
    assert sum(counts["counts"]) + counts["after"] == 3
    found = answer_of(operator.get("/delayed?q=w1"))
    assert any(row["topic"] == waiting for row in found["items"])
    [row] = [one for one in page["items"] if one["keys"] == ["w0"]]
    place = {"level": row["level"], "queue_offset": row["queue_offset"], "unique_id": row["unique_id"]}
    asked = {"action": "drop", "places": [place]}
    would = answer_of(operator.post("/delayed/acts?dry_run=true", asked))
    assert (would["dry_run"], would["counts"]) == (True, {"possible": 1})
    assert not AuditEntry.objects.exists()
    wrong = {"action": "drop", "places": [place | {"unique_id": "another"}]}
    problem_of(operator.post("/delayed/acts", wrong), 409, "conflict")
    assert answer_of(operator.post("/delayed/acts", asked))["done"] == 1
    problem_of(operator.post("/delayed/acts", asked), 409, "conflict")
    rest = {"action": "deliver_now", "filter": {"topic": waiting}}
    assert answer_of(operator.post("/delayed/acts", rest))["done"] == 2
    problem_of(operator.post("/delayed/acts", {"action": "drop", "filter": {}}), 422, "invalid_input")
    problem_of(operator.post("/delayed/acts", {"action": "drop"}), 422, "invalid_input")
    problem_of(operator.post("/delayed/acts", {"action": "explode", "places": [place]}), 422, "invalid_input")


def test_a_pattern_keeps_to_its_names(by_token, running, waiting):
    running.window.topic_commands.create(other := waiting + "-other", read_queues=1, write_queues=1)
    running.window.sender.send(other, b"x", keys=["w1"], delay_level=18)
    caller = by_token("operator", pattern=other)
    assert {row["topic"] for row in answer_of(caller.get("/delayed"))["items"]} == {other}
    assert {row["topic"] for row in answer_of(caller.get("/delayed?q=w1"))["items"]} == {other}
    assert answer_of(caller.get("/delayed"))["pending"] is None
    for method, address, body in (
        ("GET", f"/delayed?topic={waiting}", None),
        ("GET", "/delayed?group=somebody", None),
        ("GET", "/delayed?topic=%25RETRY%25somebody", None),
        ("GET", "/delayed/histogram", None),
        ("GET", f"/delayed/histogram?topic={waiting}", None),
        ("POST", "/delayed/acts", {"action": "drop", "filter": {"level": 18}}),
        ("POST", "/delayed/acts", {"action": "drop", "filter": {"topic": waiting}}),
    ):
        problem_of(caller.ask(method, address, body), 403, "outside_pattern")
    [row] = [one for one in running.window.waiting.page(topic=waiting).rows if one.keys == ("w1",)]
    place = {"level": row.level, "queue_offset": row.queue_offset}
    problem_of(caller.post("/delayed/acts", {"action": "drop", "places": [place]}), 403, "outside_pattern")
    assert answer_of(caller.post("/delayed/acts", {"action": "drop", "filter": {"topic": other}}))["done"] == 1
    assert len(running.window.waiting.page(topic=waiting).rows) == 3


def test_transactions(by_token, running, topic):
    window = running.window
    first, second = (window.sender.send(topic, b"x", half_of="PG", queue_id=0).queue_offset for _ in range(2))
    operator, admin = by_token("operator"), by_token("admin")
    rows = answer_of(operator.get(f"/transactions/open?topic={topic}"))["items"]
    assert [row["half_offset"] for row in rows] == [first, second]
    assert rows[0]["message"]["producers"] == 0
    assert answer_of(operator.get("/transactions"))["open"] >= 2
    act = answer_of(operator.post("/transactions/checks", {"topic": topic}))
    assert (act["asked"], act["done"], act["counts"]) == (2, 0, {"no_producer": 2})
    asked = {"action": "commit", "places": [{"half_offset": first}], "reason": "paid"}
    problem_of(operator.post("/transactions/decisions", asked), 403, "forbidden")
    problem_of(admin.post("/transactions/decisions", asked | {"reason": ""}), 422, "invalid_input")
    would = answer_of(admin.post("/transactions/decisions?dry_run=true", asked))
    assert would["counts"] == {"possible": 1}
    assert answer_of(admin.post("/transactions/decisions", asked))["done"] == 1
    problem_of(admin.post("/transactions/decisions", asked), 409, "conflict")
    both = asked | {"action": "roll_back", "places": [{"half_offset": first}, {"half_offset": second}]}
    told = answer_of(admin.post("/transactions/decisions", both))
    assert told["counts"] == {"decided_before": 1, "done": 1}
    assert told["results"][0]["decided"]["how"] == "committed"
    ended = answer_of(operator.get(f"/transactions/resolved?topic={topic}&by=administrator"))["items"]
    assert [row["how"] for row in ended] == ["rolled_back", "committed"]
    assert ended[1]["reason"] == "paid"
    problem_of(operator.get("/transactions/resolved?how=x"), 422, "invalid_input")


def test_resumed_and_kept_to_a_pattern(by_token, running, topic):
    ref = set_aside(running.engine, topic)
    operator = by_token("operator")
    [row] = answer_of(operator.get(f"/transactions/discarded?topic={topic}"))["items"]
    assert (row["message"]["offset_id"], row["resumed_as"]) == (ref, None)
    kept = by_token("admin", pattern="nothing-of-this*")
    assert answer_of(kept.get("/transactions/discarded"))["items"] == []
    half = running.window.sender.send(topic, b"x", half_of="PG", queue_id=0).queue_offset
    assert answer_of(kept.get("/transactions/open"))["items"] == []
    body = {"action": "roll_back", "places": [{"half_offset": half}], "reason": "x"}
    for address, asked in (
        ("/transactions/decisions", body),
        ("/transactions/checks", {}),
        ("/transactions/checks", {"topic": topic}),
        ("/transactions/resumes", {"ref": ref, "reason": "x"}),
    ):
        problem_of(kept.post(address, asked), 403, "outside_pattern")
    problem_of(kept.get("/transactions"), 403, "outside_pattern")
    done = answer_of(operator.post("/transactions/resumes", {"ref": ref, "reason": "back"}))
    assert done["unique_id"] == row["message"]["unique_id"]
    problem_of(operator.post("/transactions/resumes", {"ref": ref, "reason": "back"}), 409, "conflict")
    assert len(answer_of(operator.get(f"/transactions/open?topic={topic}"))["items"]) == 2
