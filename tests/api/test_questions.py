"""Parameters of operations: unknown ones are refused, times are read in two forms, errors are sentences."""

from __future__ import annotations

import json
import re

import pytest
from django.utils import timezone
from pydantic import TypeAdapter

from appliance.api import paging
from appliance.api.api import api, openapi, operations
from appliance.api.questions import parameters_of, sentence
from appliance.api.times import Moment
from appliance.console.models import now_ms

from .conftest import Caller, answer_of, problem_of
from .test_access import address_of

pytestmark = pytest.mark.django_db
ALL = [(one.method, one.route) for one in operations()]


@pytest.mark.parametrize(("method", "route"), ALL, ids=[" ".join(one) for one in ALL])
def test_no_operation_takes_a_parameter_that_it_does_not_have(client_as, method, route):
    caller = Caller(client_as("admin", "may_read_bodies", "may_export"))
    address = address_of(route)
    problem = problem_of(
        caller.ask(method, address + ("&" if "?" in address else "?") + "x-unheard-of=1", {}), 422, "unknown_parameter"
    )
    assert problem["errors"][0]["field"] == "x-unheard-of"
    assert "There is no parameter x-unheard-of" in problem["detail"]


def test_what_is_refused_and_what_is_described_are_the_same_names():
    described = openapi()["paths"]
    for bound in api._get_bound_routers():
        for path, view in bound.path_operations.items():
            for operation in view.operations:
                [one] = [
                    found for found in operations()
                    if found.method in operation.methods and found.path == "/api/v1/" + _plain(path)
                ]  # fmt: skip
                names = [
                    parameter["name"] for parameter in described[one.path][one.method.lower()]["parameters"]
                    if parameter["in"] == "query"
                ]  # fmt: skip
                assert sorted(names) == sorted(parameters_of(operation)), one


def _plain(path: str) -> str:
    return path.replace("{path:", "{").replace("{int:", "{").lstrip("/")


@pytest.mark.parametrize("number", [1 << 62, (1 << 64) - 1])
def test_a_made_up_cursor_is_no_error_of_ours(client_as, monkeypatch, number):
    """Cursors are no secrets, so anybody can make one of any number."""
    monkeypatch.setattr(paging, "_digest", lambda question: "")
    caller = Caller(client_as("admin", "may_read_bodies", "may_export"))
    cursor = paging.encode_position(number, None)
    asked = [one.route for one in operations() if one.method == "GET" and _has_cursor(one.path)]
    assert asked
    for route in asked:
        address = address_of(route)
        answer = caller.get(f"{address}{'&' if '?' in address else '?'}cursor={cursor}")
        assert answer.status_code in (404, 422), (address, answer.content)


def _has_cursor(path: str) -> bool:
    return any(one["name"] == "cursor" for one in openapi()["paths"][path]["get"]["parameters"])


def test_a_misspelt_dry_run_deletes_nothing(admin, topic):
    problem = problem_of(admin.delete(f"/topics/{topic}?dry-run=true"), 422, "unknown_parameter")
    assert problem["detail"] == "There is no parameter dry-run: do you mean dry_run?"
    answer_of(admin.get(f"/topics/{topic}"))


def test_who_may_not_ask_is_refused_first(viewer):
    problem_of(viewer.delete("/topics/some?dry-run=true"), 403, "forbidden")


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("Limit", ["limit", "cursor"], "There is no parameter Limit: do you mean limit?"),
        ("form", ["from", "to"], "There is no parameter form: do you mean from?"),
        ("colour", ["limit", "cursor"], "There is no parameter colour. There are: limit, cursor."),
        ("x" * 300, [], f"There is no parameter {'x' * 100}. This operation has none."),
    ],
)
def test_the_nearest_name_is_said(name, known, said):
    assert sentence(name, known) == said


# --- times


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-21T13:34:32Z", 1795268072000),
        ("2026-11-21t13:34:32.5z", 1795268072500),
        ("2026-11-21T21:34:32.123456789+08:00", 1795268072123),
        ("2026-11-21 08:04:32-05:30", 1795268072000),
    ],
)
def test_rfc_3339(text, ms):
    assert TypeAdapter(Moment).validate_python(text) == ms


def test_what_people_say_is_read_in_the_callers_zone():
    before = now_ms()
    with timezone.override("Asia/Shanghai"):
        assert TypeAdapter(Moment).validate_python("2026-11-21 21:34:32") == 1795268072000
        found = TypeAdapter(Moment).validate_python("1 h ago")
    assert before - 3_601_000 < found <= now_ms() - 3_600_000


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-11-", "2026-11-21T13", "2026-W01-1T00:00:00Z", "20261121T133432Z",
     "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-11-21T13:34:32+25:00", "²026-11-21T13:34:32Z"],
)  # fmt: skip
def test_other_texts_are_no_time(viewer, text):
    with pytest.raises(ValueError):
        TypeAdapter(Moment).validate_python(text)
    if text:
        problem = problem_of(viewer.get(f"/dead-letters?from={text}".replace("+", "%2B")), 422, "unknown_parameter")
        problem = problem_of(viewer.get(f"/topics/x/messages?from={text}".replace("+", "%2B")), 422, "invalid_input")
        assert problem["errors"] == [
            {
                "field": "from",
                "message": "must be milliseconds since 1970, or a time like 2026-11-21T13:34:32Z, 10:00, "
                "yesterday 18:00, 2 h ago",
            }
        ]


def test_a_list_takes_either_form(viewer, running, topic):
    running.put(topic, b"x")
    for begin, count in (
        ("0", 1), ("1970-01-01T00:00:00Z", 1), ("2999-01-01T00:00:00Z", 0), ("32472144000000", 0),
        ("1 h ago", 1), ("tomorrow", 0), ("2 days ago 10:00", 1),
    ):  # fmt: skip
        assert len(answer_of(viewer.get(f"/topics/{topic}/messages?from={begin}"))["items"]) == count, begin


def test_a_body_takes_either_form(operator, topic):
    body = {"body": {"data": "x"}}
    for at in (32472144000000, "2999-01-01T00:00:00Z"):
        answer = operator.post(f"/topics/{topic}/messages", body | {"deliver_at_ms": at})
        assert answer.status_code in (201, 409, 422), answer.content
        assert "milliseconds since 1970" not in answer.content.decode()
    problem = problem_of(
        operator.post(f"/topics/{topic}/messages", body | {"deliver_at_ms": True}), 422, "invalid_input"
    )
    assert problem["errors"][0]["field"] == "deliver_at_ms"


def test_every_time_that_is_asked_for_may_be_written_so():
    described = openapi()
    asked = [
        (f"{one.method} {one.path}", parameter["name"], parameter["schema"])
        for one in operations()
        for parameter in described["paths"][one.path][one.method.lower()]["parameters"]
    ]
    asked += [
        (shape, name, schema) for shape, found in described["components"]["schemas"].items()
        if re.search("(In|Patch)$", shape) for name, schema in found.get("properties", {}).items()
    ]  # fmt: skip
    times = [one for one in asked if re.fullmatch(r"(.*_)?at_ms|(from|to|until|begin)(_ms)?", one[1])]
    times = [one for one in times if one[1] != "to" or "enum" not in one[2]]
    # A member of the set, and a topic.
    times = [one for one in times if one[:2] not in (("SwitchIn", "to"), ("CopyIn", "to"))]
    assert len(times) > 10
    assert not [(where, name) for where, name, schema in times if '"date-time"' not in json.dumps(schema)]


# --- words


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (None, "body", "is required"),
        ([], "body", "must be an object"),
        ("x", "body", "must be an object"),
        ({}, "name", "is required"),
        ({"name": 5}, "name", "must be text"),
        ({"name": "X", "read_queues": "4"}, "read_queues", "must be a whole number"),
        ({"name": "X", "read_queues": 4.5}, "read_queues", "must be a whole number"),
        ({"name": "X", "order": "yes"}, "order", "must be true or false"),
        ({"name": "X", "readqueues": 4}, "readqueues", "is not a field here"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_without_types_of_python(operator, body, field, message):
    problem = problem_of(operator.post("/topics", body), 422, "invalid_input")
    assert {"field": field, "message": message} in problem["errors"]


def test_no_answer_names_a_type_of_python(admin):
    for address, body in (
        ("/topics", {"name": [1], "read_queues": {}, "order": 7, "kind": "LITE"}),
        ("/system/config", {"fileReservedTime": [1], "x": {}}),
        ("/topics/x/messages", {"body": 5}),
        ("/topics/x/messages", {"body": {"encoding": "base64", "data": "!"}, "keys": {}, "properties": []}),
        ("/groups/x/replays", {"offsets": [["a"]], "from_ms": []}),
    ):
        method = "PATCH" if "config" in address else "POST"
        text = json.dumps(admin.ask(method, address, body).json())
        for leak in ("dictionary", "instance of", "should be", "In`", "TopicIn", "BodyIn", "function-", "NoneType"):
            assert leak not in text, text


def test_a_wrong_word_says_which_there_are(viewer):
    problem = problem_of(viewer.get("/topics?kind=LITE"), 422, "invalid_input")
    assert "NORMAL" in problem["errors"][0]["message"]
