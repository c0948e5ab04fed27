"""Any expression that a stranger sends costs little and ends in a verdict or a SqlError."""

import re
import sys
import threading
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.engine.filter.sql92 import MAX_DEPTH, MAX_LENGTH, Sql92Expression, SqlError, compile_sql92
from appliance.engine.filter.sql92 import expression as expression_module
from tests.support.sql92.expressions import soup


def read(text):
    try:
        return Sql92Expression(text), None
    except SqlError as refusal:
        return None, refusal


@given(st.text(max_size=200) | soup | st.binary(max_size=100).map(lambda raw: raw.decode("latin-1")))
@example("\x00")
@example("a = 'x\ud800'")
@example("a.b = 'x' AND a\x00b = 'y' OR ../../etc = 'passwd'")
@example("get = 'x' AND integer > 5 AND f1 = TRUE AND v1 IS NULL AND __builtins__ = 'x' AND __import__ = 'os'")
def test_any_text_is_an_expression_or_refused(text):
    expression, refusal = read(text)
    if refusal is not None:
        assert min(refusal.line, refusal.column) >= 1
        assert "\n" not in str(refusal)
        assert len(str(refusal)) < 300
        return
    for properties in ({}, dict.fromkeys(expression.names, "5"), dict.fromkeys(expression.names, text)):
        assert isinstance(expression.matches(properties), bool)


def test_names_of_ours_and_of_python_name_properties():
    for name in (
        "get",
        "integer",
        "equal",
        "f1",
        "v1",
        "__builtins__",
        "__import__",
        "None",
        "lambda",
        "self",
        "True_",
    ):
        expression = compile_sql92(f"{name} = 'x' AND NOT ({name} > 5 OR {name} = 'y')")
        assert expression.names == (name,)
        assert not expression.matches({})
        assert compile_sql92(f"{name} > 5 AND {name} < 7").matches({name: "6"})
    with pytest.raises(SqlError):
        compile_sql92("lambda: 5")


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "(" * depth + "a = 'x'" + ")" * depth,
        lambda depth: "NOT " * depth + "TRUE",
        lambda depth: "NOT (" * depth + "a = 'x'" + ")" * depth,
        lambda depth: "- " * depth + "5 = a",
        lambda depth: "+" * depth + "a = 'x'",
        lambda depth: "a = 'x'" + " = TRUE" * depth,
        lambda depth: "a" + " IS NULL" * depth,
        lambda depth: "a" + " CONTAINS 'x'" * depth,
        lambda depth: "a = (" * depth + "TRUE" + ")" * depth,
        lambda depth: "(a OR b > 3) AND (" * depth + "TRUE" + ")" * depth,
        lambda depth: "b OR (a AND (" * depth + "c > 3" + "))" * depth,
        lambda depth: "NOT (b AND (a > 3 OR (" * depth + "c > 3" + ")))" * depth,
        lambda depth: "-(" * depth + "a" + " BETWEEN 1 AND 2)" * depth + " IS NULL",
    ],
)
def test_nesting_is_bounded_and_never_python_s_to_bear(nested):
    for depth in (MAX_DEPTH // 4, MAX_DEPTH - 2, MAX_DEPTH + 1, 10 * MAX_DEPTH, 1500):
        expression, refusal = read(nested(depth))
        if refusal is not None:
            assert depth > MAX_DEPTH // 4
            assert re.search("levels|characters", refusal.message)
            continue
        for value in ("x", "5"):
            properties = {"a": value}
            try:
                verdict = expression.verdict(properties)
            except (ValueError, TypeError):
                verdict = None
            assert expression.matches(properties) is (verdict is True)


@pytest.mark.parametrize(
    "filler", ["a = 1 OR ", "a=1or ", "a='x'and ", "a>1.or ", "a AND b OR ", "NOT(a)or ", "a contains'x'or "]
)
def test_the_longest_expression_is_judged(filler):
    text = filler * ((MAX_LENGTH - 20) // len(filler)) + "z = 'found'"
    expression = Sql92Expression(text)
    assert isinstance(expression.verdict({}), bool | None)
    assert expression.matches({"z": "found"}) is ("and" not in filler)


def test_a_list_of_thousands_is_one_look_up():
    values = [f"{number:x}" for number in range(5000)]
    text = "a IN (" + ",".join(f"'{value}'" for value in values) + ")"
    assert len(text) < MAX_LENGTH
    expression = Sql92Expression(text)
    assert expression.matches({"a": values[-1]})
    assert not expression.matches({"a": "no"})


def test_an_expression_that_is_too_long_is_refused():
    with pytest.raises(SqlError, match="characters"):
        compile_sql92("a = '" + "x" * MAX_LENGTH + "'")
    assert compile_sql92("a = '" + "x" * (MAX_LENGTH - 6) + "'").matches({"a": "x" * (MAX_LENGTH - 6)})


@pytest.mark.parametrize(
    "text",
    [
        "-- " * 10_000, "a = " + "-" * 30_000, "/*" * 15_000, "'" * 32_001, "a='" + "''" * 16_000,
        "9" * 32_000, "0" * 32_000, "1e" + "9" * 30_000, "a IN (" + "'',".ljust(30_000, "'"),
        " " * 32_000, "\n" * 32_000, "a=" * 16_000, "(" * 32_000, "a=--5 or " * 3000, "a or\n" * 6000 + ";",
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_reading_takes_no_longer_than_the_text_is_long(text):
    def took_s():
        began = time.thread_time()
        with pytest.raises(SqlError):
            Sql92Expression(text)
        return time.thread_time() - began

    assert any(took_s() < 1.0 for _ in range(3)), "once the collector may have walked what other tests keep"


def test_many_expressions_are_forgotten_again():
    for number in range(600):
        compile_sql92(f"a = {number}")
        compile_sql92(f"a = '{'x' * 2000}{number}'")
    assert expression_module._short.cache_info().currsize <= 256
    assert expression_module._long.cache_info().currsize <= 4
    assert compile_sql92("a = 599") is compile_sql92("a = 599")


def test_threads_share_an_expression():
    expression = Sql92Expression("a > 5 AND NOT (b = 'x' OR c IS NULL)")
    wrong = []

    def judge(number):
        for turn in range(2000):
            properties = {"a": str(turn % 10), "b": "y", "c": str(number)}
            if expression.matches(properties) is not (turn % 10 > 5) or expression.verdict(properties) is not (
                turn % 10 > 5
            ):
                wrong.append((number, turn))

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
