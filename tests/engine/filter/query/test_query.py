"""The language for message searches."""

import gc
import json
import weakref

import pytest

from appliance.engine.filter.query import Candidate, Undecided, compile_query
from appliance.engine.filter.query.judge import JSON_BYTES, PATTERN_CHARS, TEXT_BYTES
from appliance.engine.filter.sql92 import SqlError, compile_sql92
from appliance.engine.protocol.properties import encode_properties

PROPERTIES = {
    "TAGS": "paid", "KEYS": "order-17 c-9", "amount": "12.50", "level": "7", "region": "north",
    "order-id": "x", "tag": "own",
}  # fmt: skip
BODY = {
    "a": {"b": [1, {"c d": "x"}]},
    "n": 10,
    "big": 2**53 + 1,
    "ok": True,
    "none": None,
    "at": "2026-11-20",
    "s": "10",
}


def message(properties=PROPERTIES, body=None, whole=True):
    data = json.dumps(BODY).encode() if body is None else body
    return Candidate(encode_properties(properties), lambda: (data, whole))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tag = 'paid'", True),
        ("property('tag') = 'own'", True),
        ("property('order-id') = 'x'", True),
        ("key = 'c-9'", True),
        ("key = 'c'", False),
        ("key <> 'order-17'", False),
        ("key IN ('z', 'c-9')", True),
        ("key NOT IN ('z')", True),
        ("key LIKE 'order-%'", True),
        ("key REGEXP '^c-[0-9]$'", True),
        ("amount > 9", True),  # as texts, '12.50' is below '9'
        ("amount = 12.5", True),
        ("level BETWEEN 7 AND 8", True),
        ("-level < -6", True),
        ("region > 5", False),
        ("region > 5 OR tag = 'paid'", True),  # not a number: null, which does not decide the whole expression
        ("region = 5", False),
        ("NOT tag = 'other'", True),
        ("NOT tag = 'other' AND NOT level > 7", True),
        ("missing = 'x'", False),
        ("NOT missing = 'x'", False),
        ("missing IS NULL AND tag IS NOT NULL", True),
        ("body CONTAINS '\"c d\"'", True),
        ("body REGEXP '\"n\": \\d+'", True),
        ("body NOT CONTAINS 'nowhere'", True),
        ("body STARTSWITH '{' AND body ENDSWITH '}'", True),
        ("body('$.n') = 10", True),
        ("body('$.s') = 10", True),
        ("body('$.n') >= 9.5", True),
        ("body('$.big') = 9007199254740993", True),
        ("body('$.big') = 9007199254740992", False),  # as doubles the two are equal
        ("body('$.ok') = TRUE", True),
        ("body('$.ok') = FALSE", False),
        ("body('$.at') >= '2026-11-19' AND body('$.at') < '2026-11-21'", True),
        ("body('$.a.b[1][''c d'']') = 'x'", True),
        ("body('$.a.b[7]') IS NULL AND body('$.none') IS NULL AND body('$.a.b.c') IS NULL", True),
        ("body('$.a.b') CONTAINS 'c d'", True),
    ],
)
def test_what_is_found(text, found):
    assert compile_query(text).matches(message()) is found


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("tag = ", 6), ("tag = 'x' foo", 11), ("tag REGEXP 'a(b'", 14), ("body('x') = 1", 6), ("a != 3", 3),
        ("(tag = 'a'", 10),
        ("tag LIKE 3", 10), ("key > TRUE", 5), ("", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_says_where(text, column):
    with pytest.raises(SqlError) as wrong:
        compile_query(text)
    assert wrong.value.column == column


def test_the_expressions_of_consumers_stay_what_they_were():
    with pytest.raises(TypeError):  # (NOT a) = 'x'
        compile_sql92("NOT a = 'x'").verdict({"a": "x"})
    assert compile_sql92("tag = 'own'").matches(PROPERTIES)
    with pytest.raises(SqlError):
        compile_sql92("a NOT LIKE 'x'")


def test_only_what_asks_for_bodies_opens_one():
    def opened():
        raise AssertionError("it was opened")

    for text in ("tag = 'paid'", "tag = 'paid' OR body CONTAINS 'x'", "amount > 9 AND key = 'c-9'"):
        assert compile_query(text).matches(Candidate(encode_properties(PROPERTIES), opened))
    assert not compile_query("amount > 9").reads_bodies
    for text in ("body = 'x'", "NOT (a = 1 AND body('$.x') IS NULL)", "-body > 3", "a = body"):
        assert compile_query(text).reads_bodies


@pytest.mark.parametrize(
    ("text", "body", "whole"),
    [
        ("body('$.a') = 1", b'{"a": 1, "b": "' + b"x" * JSON_BYTES + b'"}', True),
        ("body CONTAINS 'y'", b"x" * (TEXT_BYTES + 1), True),
        ("body CONTAINS 'y'", b"x", False),
        ("body REGEXP 'y'", b"x" * (PATTERN_CHARS + 1), True),
    ],
)
def test_of_bodies_that_are_too_long_nothing_is_claimed(text, body, whole):
    with pytest.raises(Undecided):
        compile_query(text).matches(message(body=body, whole=whole))
    assert compile_query(f"tag = 'paid' OR {text}").matches(message(body=body, whole=whole))


@pytest.mark.parametrize(
    "text", ["body('$.n') = 10", "body('$.none') IS NULL", "body CONTAINS 'c d'", "body('$.zz') = 1 OR key = 'c-9'"]
)
def test_a_body_goes_with_the_message_that_was_judged(text):
    """A cycle would keep it for good, since old objects are never collected: pages would leave gigabytes."""

    def open_body():
        return json.dumps(BODY).encode(), True

    query = compile_query(text)
    candidate, held = Candidate(encode_properties(PROPERTIES), open_body), weakref.ref(open_body)
    gc.disable()
    try:
        assert query.matches(candidate)
        del candidate, open_body
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[" * 100_000, b'{"a": \xff}', b'{"a": 1', b"\xff\xfe\x00", b"nul"])
def test_hostile_bodies_are_no_json(body):
    assert not compile_query("body('$.a') = 1").matches(message(body=body))
    assert not compile_query("body CONTAINS 'zz'").matches(message(body=body))
